"""The encoder against plain float64 statements, and what it must not depend on."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config import devices
from bert_jax.models.encoder import Encoder, compute_layers
from bert_jax.objectives import network
from tests import reference, tiny


def prepare(rows: int = 6, **overrides: object):
    """Config, masked batch, and parameters whose biases and scales are not 0 and 1."""
    config = tiny.config(**overrides)
    b, _ = tiny.mask(tiny.batch(rows, 24), config.masking, slots=8)
    noise = np.random.default_rng(0)

    def draw(path, x) -> np.ndarray:
        return noise.normal(path[-1].key == "scale", 0.15, x.shape).astype(np.float32)

    shapes = jax.eval_shape(lambda: network.init_params(config, tiny.VOCAB, np.uint32(0)))
    return config, b, jax.tree_util.tree_map_with_path(draw, shapes)


def compute(config, params, b, train: bool = False, **rngs):
    """Outputs of all heads."""
    net = network.build_network(config, tiny.VOCAB, train=train)
    return jax.jit(net.apply)({"params": params}, b, rngs=rngs)


def encode(config, params, b):
    """Output of the encoder."""
    encoder = Encoder(config.model, tiny.VOCAB, pool=False)
    return jax.jit(encoder.apply)({"params": params["encoder"]}, b)


def look_inside(model, params, b):
    """What the encoder goes through."""
    return jax.jit(functools.partial(compute_layers, model, tiny.VOCAB))(params["encoder"], b)


STATED = reference.VARIANTS | {"causal": {"causal": True}}


@pytest.mark.parametrize("name", STATED)
def test_model_equals_its_float64_statement(name):
    """The statement reads rows without their padding."""
    knobs = STATED[name]
    pairs = "none" if "type_vocab" in knobs else "nsp"
    settings = {f"model__{knob}": value for knob, value in knobs.items()}
    config, b, params = prepare(pairs=pairs, **settings)
    net = network.build_network(config, tiny.VOCAB)

    @jax.jit  # once for both
    def read(params) -> tuple[dict[str, jax.Array], jax.Array]:
        inside = compute_layers(config.model, tiny.VOCAB, params["encoder"], b)
        return net.apply({"params": params}, b), inside.hidden

    outputs, states = jax.device_get(read(params))
    wide = reference.widen(params)
    for row in range(len(b["tokens"])):
        n = int((b["segment_ids"][row] > 0).sum())
        row_of = b["inputs"][row, :n], b["type_ids"][row, :n]
        embedded = reference.embed(wide["encoder"]["embeddings"], *row_of, knobs)
        expected = reference.encode(wide["encoder"], embedded, knobs)
        np.testing.assert_allclose(states[:, row, :n], expected, atol=2e-5, rtol=2e-5)
        used = b["predict_weights"][row] > 0
        mlm = reference.predict_words(wide, expected[-1][b["predict_positions"][row][used]])
        logits = outputs["mlm"][row]
        np.testing.assert_allclose(logits[used][:, : tiny.VOCAB], mlm[:, : tiny.VOCAB], atol=1e-5)
        assert (logits[:, tiny.VOCAB :] < -1e8).all()  # padding is never predicted
        if pairs == "nsp":
            last = expected[-1][-1 if name == "causal" else 0]
            pooled = np.tanh(reference.dense(last, wide["encoder"]["pooler"]))
            nsp = reference.dense(pooled, wide["nsp"]["logits"])
            np.testing.assert_allclose(outputs["nsp"][row, 0], nsp, atol=1e-5)


# --- layers ---------------------------------------------------------------------------------------


def test_features_are_the_last_layers_side_by_side():
    """With pre-norm each goes through the final norm; a head over labels reads all of them."""
    config, b, params = prepare(rows=2, model__features=2, model__norm="pre")
    found = encode(config, params, b)
    np.testing.assert_array_equal(found.features[..., 32:], found.hidden)
    before = np.float64(look_inside(config.model, params, b).hidden[-2])
    before = reference.norm(before, params["encoder"]["final_norm"])
    np.testing.assert_allclose(found.features[..., :32], before, atol=1e-5)
    logits = reference.dense(np.asarray(found.features)[:, 0], params["nsp"]["logits"])
    np.testing.assert_allclose(compute(config, params, b)["nsp"][:, 0], logits, atol=1e-5)


@pytest.mark.parametrize("knob", ["model__dropout", "model__attention_dropout"])
def test_dropout_reaches_vectors_and_attention(knob):
    config, b, params = prepare(model__layers=1, **{knob: 0.5})
    keys = (jax.random.key(0), jax.random.key(1))
    one, other = (compute(config, params, b, train=True, dropout=k)["nsp"] for k in keys)
    assert (np.asarray(one) != np.asarray(other)).any()


# --- loops and recomputation ----------------------------------------------------------------------


@functools.cache
def differentiate_loss(**overrides: object) -> list:
    """Return gradients at the parameters of the model without the overrides."""
    _, b, params = prepare(model__position="relative")
    config = tiny.config(**overrides, model__position="relative")
    net = network.build_network(config, tiny.VOCAB, train=True)

    def loss(params):
        outputs = net.apply({"params": params}, b, rngs={"dropout": jax.random.key(0)})
        return sum(jnp.sum(jnp.sin(x)) for x in outputs.values())

    return jax.tree.leaves(jax.jit(jax.grad(loss))(params))


@pytest.mark.parametrize(
    "overrides", [{"model__scan": True, "model__remat": "full"}, {"model__remat": "dots"}]
)
def test_scan_and_remat_compute_the_same(overrides):
    """To 1e-5: the gradient of a key's bias is 0, up to rounding."""
    for a, c in zip(differentiate_loss(), differentiate_loss(**overrides), strict=True):
        np.testing.assert_allclose(a, c, rtol=1e-4, atol=1e-5)


def test_scan_draws_other_dropout_in_each_layer():
    """Two layers with the same parameters, whose blocks add only what dropout leaves of 1."""
    config = tiny.config(model__dropout=0.5, model__norm="pre", model__scan=True)
    params = jax.tree.map(np.zeros_like, tiny.init(config)["encoder"])
    for i in (0, 1):
        params[f"layer_{i}"]["mlp"]["down"]["bias"] += 1
    params["final_norm"]["scale"] += 1
    encoder = Encoder(config.model, tiny.VOCAB, train=True, pool=False)
    b = tiny.batch(8, 24)
    traced = jax.jit(encoder.apply).trace(
        {"params": params}, b, rngs={"dropout": jax.random.key(0)}
    )
    assert "scan[" in str(traced.jaxpr)
    found = jax.jit(encoder.apply)({"params": params}, b, rngs={"dropout": jax.random.key(0)})
    sums = {0, 2, 4}  # 1 is kept as 2, by neither layer, by one or by both
    wide = np.asarray(found.hidden)
    assert len(np.unique(wide[0, 0].round(3))) == len(sums)


def test_only_alike_layers_become_a_loop():
    unlike = [{"model__layer_weights": True}, {"model__window": 4, "model__global_every": 2}]
    unlike += [{"model__norm": "pre", "model__first_norm": False}]
    with devices.trace_for("tpu"):
        for settings in ({}, *unlike):
            filled = devices.fill_machine_knobs(tiny.config(**settings).model, train=True)
            assert filled.scan == (not settings), settings


@pytest.mark.parametrize("scan", [True, False])
def test_remat_keeps_less_for_the_backward_pass(scan):
    def count_kept(remat: str) -> int:
        config = tiny.config(model__scan=scan, model__remat=remat)
        b, _ = tiny.mask(tiny.batch(4, 24), config.masking, slots=8)
        net = network.build_network(config, tiny.VOCAB)

        def loss(params) -> jax.Array:
            outputs = network.compute_outputs(net, params, b)
            return sum(jnp.sum(jnp.sin(x)) for x in outputs.values())

        backward = jax.eval_shape(lambda p: jax.vjp(loss, p)[1], tiny.init(tiny.config()))
        return sum(x.size for x in jax.tree.leaves(backward))

    inputs = 2 * 4 * 24 * 32  # what comes into two layers
    widest = 4 * inputs  # one array of their feed-forward parts
    everything, dots, full = (count_kept(remat) for remat in ("none", "dots", "full"))
    assert inputs < full < dots < everything
    assert full < everything - widest


def test_logits_are_finer_than_the_compute_type():
    config, b, _ = prepare(model__dtype="bfloat16")
    params = tiny.init(config)  # without biases
    assert {x.dtype for x in jax.tree.leaves(params)} == {np.dtype("float32")}
    assert encode(config, params, b).hidden.dtype == jnp.bfloat16
    assert look_inside(config.model, params, b).attention.dtype == jnp.float32
    for name, logits in compute(config, params, b).items():
        values = np.asarray(logits)[..., : tiny.VOCAB]
        assert (values != values.astype(jnp.bfloat16).astype(np.float32)).mean() > 0.9, name
