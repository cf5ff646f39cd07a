"""The model against a plain numpy statement of BERT, closed forms and invariants."""

from __future__ import annotations

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config import default, knobs, resolve
from bert_jax.models import attention, positions
from bert_jax.models.backends import AttentionMask
from bert_jax.models.bert import Bert, padded_vocab
from bert_jax.models.layers import ACTIVATIONS, Dropout
from bert_jax.objectives import network
from bert_jax.system.trees import flat
from tests import reference, toy

VARIANTS = {
    "sinusoidal": {"model__position": "sinusoidal"},
    "rotary": {"model__position": "rotary"},
    "alibi": {"model__position": "alibi"},
    "no positions": {"model__position": "none"},
    "pre-LN": {"model__norm": "pre"},
    "tanh GELU": {"model__activation": "gelu_tanh"},
    "relu": {"model__activation": "relu"},
    "silu": {"model__activation": "silu"},
    "tanh GELU in the head only": {"model__head_activation": "gelu_tanh"},
    "gated": {"model__gated": True},
    "causal": {"model__causal": True},
    "window": {"model__window": 3},
    "window in every other layer": {"model__window": 3, "model__global_every": 2},
    "epsilon": {"model__norm_epsilon": 1e-2},
    "bfloat16": {"model__dtype": "bfloat16"},
}


def setup(seed=0, rows=6, length=24, **overrides):
    config = toy.config(**overrides)
    b, _ = toy.mask(toy.batch(rows, length, seed), config.masking, slots=8)
    params = toy.init(config, seed)
    noise = np.random.default_rng(seed)  # biases and scales of 0 and 1 would hide a missing one
    params = jax.tree.map(lambda x: x + noise.normal(0, 0.1, x.shape).astype(np.float32), params)
    return config, b, params


def outputs(config, params, b, train=False, **rngs):
    return jax.jit(network.build(config, toy.VOCAB, train=train).apply)(
        {"params": params}, b, rngs=rngs
    )


@pytest.mark.parametrize("causal", [False, True])
def test_logits_equal_a_plain_statement_of_bert(causal):
    config, b, params = setup(model__causal=causal)
    ours, wide = outputs(config, params, b), reference.widen(params)
    for row in range(len(b["tokens"])):
        n = int((b["segment_ids"][row] > 0).sum())
        hidden, pooled = reference.encoder(
            wide["encoder"],
            b["inputs"][row, :n],
            b["type_ids"][row, :n],
            config.model.heads,
            causal,
        )
        used = b["predict_weights"][row] > 0
        mlm = reference.mlm_logits(wide, hidden, b["predict_positions"][row][used], toy.VOCAB)
        np.testing.assert_allclose(ours["mlm"][row][used][:, : toy.VOCAB], mlm, atol=1e-5)
        np.testing.assert_allclose(
            ours["nsp"][row, 0], reference.dense(pooled, wide["nsp"]["logits"]), atol=1e-5
        )


def test_the_padding_of_the_table_is_never_predicted():
    config, b, params = setup(model__vocab_multiple=64)
    assert padded_vocab(config.model, toy.VOCAB) == 64
    assert (
        np.asarray(jax.nn.softmax(outputs(config, params, b)["mlm"]))[..., toy.VOCAB :] == 0
    ).all()


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_changes_the_outputs(name):
    assert np.abs(fresh_logits(name) - fresh_logits()).max() > 1e-6


@functools.cache
def fresh_logits(name=""):
    """Of a variant, or the usual model, as it is before its first update."""
    config = toy.config(**VARIANTS.get(name, {}))
    b, _ = toy.mask(toy.batch(6, 24), config.masking, slots=8)
    return np.asarray(outputs(config, toy.init(config), b)["mlm"])[..., : toy.VOCAB]


@pytest.mark.parametrize(
    "overrides",
    [
        {"model__scan": True},
        {"model__remat": "full"},
        {"model__scan": True, "model__remat": "dots"},
    ],
)
@pytest.mark.parametrize("position", ["learned", pytest.param("alibi", marks=pytest.mark.slow)])
def test_scan_and_remat_compute_the_same(overrides, position):
    for a, c in zip(gradients(position), gradients(position, **overrides), strict=True):
        np.testing.assert_allclose(
            a, c, rtol=1e-4, atol=1e-5
        )  # the gradient of a key's bias is 0, up to rounding


@functools.cache
def gradients(position, **overrides):
    """At the parameters of the model without the overrides."""
    _, b, params = setup(model__position=position)
    model = network.build(toy.config(**overrides, model__position=position), toy.VOCAB)

    def loss(params):
        return sum(jnp.sum(jnp.sin(x)) for x in model.apply({"params": params}, b).values())

    return jax.tree.leaves(jax.jit(jax.grad(loss))(params))


def test_scan_and_unrolled_share_one_layout_of_parameters():
    one, other = (toy.init(toy.config(model__scan=s), 3) for s in (True, False))
    for name, leaf in flat(one).items():
        np.testing.assert_array_equal(leaf, flat(other)[name])


def embedded_gradient(config, params, b, column):
    """How the output at one column of row 0 depends on each position's learned vector."""

    def out(table, b):
        p = jax.tree_util.tree_map_with_path(
            lambda path, x: table if path[-1].key == "position" else x, params["encoder"]
        )
        hidden = Bert(config.model, toy.VOCAB).apply({"params": p}, b).hidden
        return jnp.sum(hidden[0, column] * jnp.arange(hidden.shape[-1]))

    return np.abs(jax.jit(jax.grad(out))(params["encoder"]["embeddings"]["position"], b)).sum(-1)


def test_padding_leaks_exactly_no_gradient():
    config, b, params = setup(seed=4, rows=1)
    n = int((b["segment_ids"][0] > 0).sum())
    assert n < 24
    gradient = embedded_gradient(config, params, b, 1)
    assert (gradient[:n] > 0).all()
    # Padding has position 0; its own positions must stay untouched whatever they hold.
    moved = {**b, "positions": np.where(b["segment_ids"] > 0, b["positions"], 40)}
    gradient = embedded_gradient(config, params, moved, 1)
    assert (gradient[n:] == 0).all()


def test_causal_attention_sees_no_future():
    config, b, params = setup(seed=5, rows=1, model__causal=True)
    gradient = embedded_gradient(config, params, b, 2)
    assert (gradient[:3] > 0).all()
    assert (gradient[3:] == 0).all()


@pytest.mark.parametrize("position", ["learned", "alibi"])
def test_examples_of_a_packed_row_do_not_see_each_other(position):
    config = toy.config(model__position=position)
    params = toy.init(config)
    b = toy.batch(1, 24, seed=6, examples=2)
    n = int((b["segment_ids"][0] == 1).sum())
    changed = {**b, "tokens": np.where(b["segment_ids"] == 2, 7, b["tokens"])}
    encode = jax.jit(Bert(config.model, toy.VOCAB).apply)
    one, other = (encode({"params": params["encoder"]}, x) for x in (b, changed))
    np.testing.assert_array_equal(one.hidden[0, :n], other.hidden[0, :n])
    np.testing.assert_array_equal(one.pooled[0, 0], other.pooled[0, 0])
    assert (np.asarray(one.pooled[0, 1]) != np.asarray(other.pooled[0, 1])).any()


def test_logits_are_finer_than_the_compute_type():
    config, b, params = setup(model__dtype="bfloat16")
    for name, logits in outputs(config, params, b).items():
        values = np.asarray(logits)[..., : toy.VOCAB]
        assert (values != values.astype(jnp.bfloat16).astype(np.float32)).mean() > 0.9, name


@pytest.mark.fault(16)
@pytest.mark.parametrize("position", ["learned", "alibi"])
@pytest.mark.parametrize(
    ("bias", "dtype"), [(-10_000.0, "float32"), (float(np.finfo(np.float32).min), "bfloat16")]
)
def test_a_fully_masked_row_stays_finite(position, bias, dtype):
    """Forwards and backwards, also with the bias of Hugging Face, below which float32 has nothing
    but infinity.
    """
    config, b, params = setup(
        model__position=position, model__attention_bias=bias, model__dtype=dtype
    )
    b = {
        k: np.concatenate([np.zeros_like(v[:2]), v[2:]]) for k, v in b.items()
    }  # two rows of padding
    b["positions"][0] = np.arange(24)  # and far from each other
    model = network.build(config, toy.VOCAB)

    @jax.jit
    def run(params):
        def loss(params):
            found = network.outputs(model, params, b)
            return sum(jnp.sum(jnp.sin(x[..., :2])) for x in found.values()), found

        return jax.grad(loss, has_aux=True)(params)

    assert all(np.isfinite(x).all() for x in jax.tree.leaves(run(params)))


def test_the_most_negative_bias_forbids_as_much_as_any():
    """What is forbidden gets exactly nothing, with either of the published numbers and with alibi
    on top.
    """
    config, b, params = setup(rows=2, model__position="alibi")
    least = toy.config(
        model__position="alibi", model__attention_bias=float(np.finfo(np.float32).min)
    )
    for ours, theirs in zip(
        *(outputs(c, params, b).values() for c in (config, least)), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


def test_captured_layers_are_what_the_encoder_went_through():
    config, b, params = setup(seed=8, rows=1)
    encoded = jax.jit(Bert(config.model, toy.VOCAB, capture=True).apply)(
        {"params": params["encoder"]}, b
    )
    assert encoded.layers.shape == (3, 1, 24, 32)
    np.testing.assert_array_equal(encoded.layers[-1], encoded.hidden)
    np.testing.assert_allclose(encoded.attention.sum(-1), 1, atol=1e-6)


def test_sinusoids_are_those_of_the_transformer_paper():
    table = positions.sinusoids(50, 16)
    for position in (0, 1, 7, 49):
        for i in range(8):
            angle = position / 10_000 ** (2 * i / 16)
            assert table[position, 2 * i] == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[position, 2 * i + 1] == pytest.approx(math.cos(angle), abs=1e-6)


def test_rotary_scores_depend_on_distance_alone():
    rng = np.random.default_rng(0)
    q, k = (jnp.asarray(rng.normal(size=(1, 1, 1, 8)), jnp.float32) for _ in range(2))
    frequency = positions.frequencies(toy.config(model__position="rotary").model, 8)

    def score(i, j):
        query, key = (
            positions.rotate(x, jnp.array([[at]]), frequency) for x, at in ((q, i), (k, j))
        )
        return float(jnp.sum(query * key))

    assert score(3, 1) == pytest.approx(score(42, 40), abs=1e-4)
    assert score(3, 1) != pytest.approx(score(3, 2), abs=1e-3)


@pytest.mark.parametrize(
    ("heads", "powers"),
    [
        (8, [-1, -2, -3, -4, -5, -6, -7, -8]),  # the paper's example
        (16, [-0.5 * i for i in range(1, 17)]),  # and its other one
        (1, [-8]),
        (2, [-4, -8]),
        (3, [-4, -8, -2]),
        (
            12,
            [-1, -2, -3, -4, -5, -6, -7, -8, -0.5, -1.5, -2.5, -3.5],
        ),  # BERT base, by the published code
    ],
)
def test_alibi_slopes_are_the_published_ones(heads, powers):
    np.testing.assert_allclose(positions.slopes(heads), 2.0 ** np.array(powers), rtol=1e-6)


def test_alibi_is_a_penalty_on_distance_in_either_direction():
    config = toy.config(model__position="alibi", model__heads=2).model
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1, 6, 32))
    forbidden = np.where(np.arange(6) == 5, -10_000.0, 0.0)[
        None, None, None
    ]  # the last token is seen by none
    module = attention.Attention(config, train=False)
    sight = AttentionMask(
        np.ones((1, 6), int), np.arange(6)[None], jnp.asarray(forbidden, jnp.float32)
    )
    inputs = (jnp.asarray(x, jnp.float32), sight)
    shapes = jax.eval_shape(module.init, jax.random.key(0), *inputs)["params"]
    params = jax.tree.map(lambda p: rng.normal(0, 0.3, p.shape), shapes)
    ours, probabilities = jax.jit(module.apply)(
        {"params": jax.tree.map(np.float32, params)}, *inputs
    )
    heads = []
    for head, slope in enumerate((2.0**-4, 2.0**-8)):
        q, k, v = (
            x[0] @ params[n]["kernel"][:, head] + params[n]["bias"][head]
            for n in ("query", "key", "value")
        )
        scores = [[q[i] @ k[j] / 4 - slope * abs(i - j) for j in range(5)] for i in range(6)]
        weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
        np.testing.assert_allclose(probabilities[0, head, :, :5], weights, atol=1e-6)
        heads.append(weights @ v[:5] @ params["out"]["kernel"][head])
    np.testing.assert_allclose(ours[0], sum(heads) + params["out"]["bias"], atol=1e-5)


def test_alibi_knows_distances_alone_and_has_no_table():
    config, b, params = setup(model__position="alibi")
    assert "position" not in params["encoder"]["embeddings"]
    encode = jax.jit(
        lambda b: Bert(config.model, toy.VOCAB).apply({"params": params["encoder"]}, b).hidden
    )
    here, there = encode(b), encode({**b, "positions": b["positions"] + 1000})
    np.testing.assert_array_equal(here, there)
    assert (np.asarray(here) != np.asarray(encode({**b, "positions": 2 * b["positions"]}))).any()
    half = toy.config(model__position="alibi", model__dtype="bfloat16").model
    found = jax.eval_shape(
        Bert(half, toy.VOCAB, capture=True).apply, {"params": params["encoder"]}, b
    )
    assert found.attention.dtype == np.float32


def test_activations_equal_their_formulas():
    x = np.linspace(-4, 4, 41)
    phi = np.array([0.5 * (1 + math.erf(v / math.sqrt(2))) for v in x])
    tanh = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    expected = {
        "gelu": x * phi,
        "gelu_tanh": tanh,
        "relu": np.maximum(x, 0),
        "silu": x / (1 + np.exp(-x)),
    }
    for name, function in ACTIVATIONS.items():
        np.testing.assert_allclose(function(jnp.asarray(x, jnp.float32)), expected[name], atol=1e-6)
    assert expected.keys() == ACTIVATIONS.keys()


@pytest.mark.parametrize("width", [64, 63])
def test_dropout_drops_its_rate_and_keeps_the_mean(width):
    x = jnp.ones((500, width))
    y = np.asarray(Dropout(0.1, True).apply({}, x, rngs={"dropout": jax.random.key(0)}))
    n = y.size
    assert abs((y == 0).mean() - 0.1) < 4.5 * math.sqrt(0.09 / n)
    np.testing.assert_allclose(y[y > 0], 1 / (1 - 6554 / 65536), rtol=1e-6)
    np.testing.assert_array_equal(Dropout(0.1, False).apply({}, x), x)


def test_dropout_in_bfloat16_scales_exactly_before_it_rounds():
    """Over values of all mantissas the mean scale is that of the rate, to less than a rounding of
    the scale itself.
    """
    x = jnp.asarray(np.linspace(1, 2, 128, endpoint=False), jnp.bfloat16)[None].repeat(64, 0)
    y, pull = jax.vjp(
        lambda x: Dropout(0.1, True).apply({}, x, rngs={"dropout": jax.random.key(0)}), x
    )
    assert y.dtype == jnp.bfloat16
    wanted = (x.astype(jnp.float32) * (2**16 / (2**16 - 6554))).astype(jnp.bfloat16)
    np.testing.assert_array_equal(y, jnp.where(y > 0, wanted, 0))
    kept = np.asarray(y > 0)
    ratio = float(np.asarray(y, np.float64)[kept].mean() / np.asarray(x, np.float64)[kept].mean())
    assert ratio == pytest.approx(1 / (1 - 6554 / 65536), rel=3e-4)
    np.testing.assert_array_equal(pull(x)[0], y)  # the gradient is scaled in the same way


def test_dropout_reaches_hidden_vectors_and_attention():
    for knob in ("model__dropout", "model__attention_dropout"):
        config, b, params = setup(**{knob: 0.5})
        one, other = (
            outputs(config, params, b, train=True, dropout=jax.random.key(s))["nsp"] for s in (0, 1)
        )
        assert (np.asarray(one) != np.asarray(other)).any(), knob


@pytest.mark.parametrize(("init", "deviation"), [("truncated_normal", 0.0176), ("normal", 0.02)])
def test_initial_weights_have_the_published_deviation(init, deviation):
    def up(**settings):
        config = toy.config(model__init=init, **settings)
        of_all = jax.jit(
            lambda seed: network.init(config, toy.VOCAB, seed)["encoder"]["layers"]["mlp"]["up"]
        )
        return jax.device_get(of_all(np.uint32(0)))

    found = up(model__hidden=256)
    assert found["kernel"].std() == pytest.approx(deviation, rel=0.01)
    assert (np.abs(found["kernel"]).max() <= 0.04) == (init == "truncated_normal")
    assert not found["bias"].any()
    assert up(model__init_stddev=0.04)["kernel"].std() == pytest.approx(2 * deviation, rel=0.03)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_features_are_the_last_layers_as_a_head_would_read_them(norm):
    """With pre-norm each goes through the final norm: the last of them is what a head over one
    layer reads.
    """
    config, b, params = setup(rows=2, model__norm=norm, objectives__nsp__weight=1)
    model = dataclasses.replace(config.model, features=2)
    encoded = jax.jit(Bert(model, toy.VOCAB, capture=True).apply)({"params": params["encoder"]}, b)
    assert encoded.features.shape == (2, 24, 64)
    np.testing.assert_array_equal(encoded.features[..., 32:], encoded.hidden)
    before = np.asarray(encoded.layers[-2], np.float64)
    if norm == "pre":
        final = jax.tree.map(np.asarray, params["encoder"]["final_norm"])
        centred = before - before.mean(-1, keepdims=True)
        before = (
            centred / np.sqrt(before.var(-1, keepdims=True) + 1e-12) * final["scale"]
            + final["bias"]
        )
    np.testing.assert_allclose(encoded.features[..., :32], before, atol=1e-5)


@pytest.mark.parametrize(("size", "parameters"), [("base", 109_482_240), ("large", 335_141_888)])
def test_base_and_large_have_the_published_sizes(size, parameters):
    tree = default()
    tree.model.size, tree.model.vocab_multiple = size, 1
    config = resolve(tree)
    shapes = jax.eval_shape(lambda: network.init(config, 30_522, np.uint32(0)))
    assert sum(math.prod(x.shape) for x in jax.tree.leaves(shapes["encoder"])) == parameters


OUTPUTS = {"classify": 3, "tag": 3, "regress": 1, "choice": 1, "span": 2, "nsp": 2, "sop": 2}


def test_heads_over_labels_are_one_dense_layer():
    """A pooled vector or each token's, times a matrix; dropout before it where the paper's
    fine-tuning has it.
    """
    config, b, _ = setup(model__classifier_dropout=0.5, model__dropout=0.0)
    heads = {
        name: knobs.Objective(1.0, ("a", "b", "c") if name in ("classify", "tag") else ())
        for name in OUTPUTS
    }
    config = dataclasses.replace(config, objectives=heads)
    params = toy.init(config)
    found = outputs(config, params, b)
    encoded = jax.jit(Bert(config.model, toy.VOCAB).apply)({"params": params["encoder"]}, b)
    noisy = outputs(config, params, b, train=True, dropout=jax.random.key(0))
    for name, count in OUTPUTS.items():
        x = np.asarray(encoded.hidden if name in ("tag", "span") else encoded.pooled, np.float64)
        layer = jax.tree.map(np.asarray, params[name]["logits"])
        expected = x @ layer["kernel"] + layer["bias"]
        assert found[name].shape == (*x.shape[:-1], count)
        np.testing.assert_allclose(found[name], expected, atol=1e-6)
        assert (np.abs(noisy[name] - found[name]) > 1e-4).any() == (
            name not in ("span", "nsp", "sop")
        ), name


def test_the_padding_of_the_table_is_zero_from_the_first():
    params = toy.init(toy.config())
    table = np.asarray(params["encoder"]["embeddings"]["token"])
    assert not table[toy.VOCAB :].any()
    assert table[: toy.VOCAB].all()
