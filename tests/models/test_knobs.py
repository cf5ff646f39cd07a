"""What knobs of the model change, in numbers of its vectors."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.batch import Encoded
from bert_jax.models import backends
from bert_jax.models.attention_mask import make_attention_mask
from bert_jax.models.encoder import Block, Encoder, FeedForward
from bert_jax.models.heads import MlmHead
from bert_jax.models.layers import make_norm
from bert_jax.objectives import network
from bert_jax.system.trees import flat
from tests import reference, toy


@pytest.mark.parametrize(
    ("knob", "value", "name", "shape"),
    [
        ("layers", 3, "encoder/layer_2/mlp/up/kernel", (32, 128)),
        ("hidden", 48, "encoder/layer_0/mlp/up/kernel", (48, 192)),
        ("heads", 2, "encoder/layer_0/attention/query/kernel", (32, 2, 16)),
        ("mlp", 40, "encoder/layer_0/mlp/down/kernel", (40, 32)),
        ("embedding", 24, "encoder/embeddings/position", (64, 24)),
        ("embedding", 24, "encoder/projection/kernel", (24, 32)),
        ("embedding", 24, "mlm/dense/kernel", (32, 24)),
        ("max_positions", 100, "encoder/embeddings/position", (100, 32)),
        ("type_vocab", 5, "encoder/embeddings/type", (5, 32)),
        ("vocab_multiple", 7, "encoder/embeddings/token", (63, 32)),
        ("vocab_multiple", 7, "mlm/bias", (63,)),
    ],
)
def test_a_size_is_the_shape_of_a_parameter(knob, value, name, shape):
    config = toy.config(**{f"model__{knob}": value})
    shapes = flat(jax.eval_shape(lambda: network.init(config, toy.VOCAB, np.uint32(0))))
    assert shapes[name].shape == shape


@pytest.mark.parametrize(
    "position", ["learned", "sinusoidal", "rotary", "alibi", "relative", "none"]
)
def test_only_without_positions_does_a_token_not_know_its_place(position):
    config = toy.config(model__position=position, model__layers=1)
    b = {k: np.zeros((1, 8), np.int32) for k in ("type_ids", "unit_ids")}
    b |= {
        "tokens": np.arange(10, 18)[None],
        "positions": np.arange(8)[None],
        "segment_ids": np.ones((1, 8), int),
    }
    swapped = np.array([0, 1, 6, 3, 4, 5, 2, 7])
    model = Encoder(config.model, toy.VOCAB, pool=False)
    params = toy.draw_parameters(model, b)
    run = jax.jit(lambda tokens: model.apply({"params": params}, {**b, "tokens": tokens}).hidden[0])
    one, other = (np.asarray(run(t)) for t in (b["tokens"], b["tokens"][:, swapped]))
    assert np.allclose(one[swapped], other, atol=1e-4) == (position == "none")


def test_pre_norm_leaves_the_residual_stream_alone_and_post_norm_normalises_it():
    x = np.random.default_rng(1).normal(size=(1, 5, 32)).astype(np.float32)
    one_text = {"segment_ids": np.ones((1, 5), int), "positions": np.arange(5)[None]}
    inputs = (x, make_attention_mask(one_text, toy.config().model))
    for norm in ("pre", "post"):
        config = toy.config(model__norm=norm)
        layer = Block(config.model, 0, train=False, backend="einsum")
        params = toy.draw_parameters(layer, *inputs)
        for block in (params["attention"]["out"], params["mlp"]["down"]):  # blocks that add nothing
            block["kernel"][:] = block["bias"][:] = 0
        params["mlp_norm"]["scale"][:], params["mlp_norm"]["bias"][:] = 3, 7
        out = np.asarray(layer.apply({"params": params}, *inputs))
        if norm == "pre":
            np.testing.assert_array_equal(out, x)
        else:
            np.testing.assert_allclose(
                (out.mean(-1), out.std(-1)), (np.full((1, 5), 7), np.full((1, 5), 3)), rtol=1e-4
            )
        shapes = flat(jax.eval_shape(lambda c=config: network.init(c, toy.VOCAB, np.uint32(0))))
        assert ("encoder/final_norm/scale" in shapes) == (norm == "pre")


ACTIVATIONS = {
    "gelu": reference.gelu,
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x / (1 + np.exp(-x)),
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_feed_forward_and_the_head_are_their_formulas(activation):
    random = np.random.default_rng(0)
    x, function = random.normal(size=(1, 5, 32)), ACTIVATIONS[activation]
    single = jnp.asarray(x, jnp.float32)
    for gated in (True, False):
        config = toy.config(model__activation=activation, model__gated=gated, model__mlp=40).model
        params = toy.draw_parameters(FeedForward(config), single)
        gate = reference.dense(x, params["gate"]) if gated else 1
        expected = reference.dense(
            function(reference.dense(x, params["up"])) * gate, params["down"]
        )
        ours = FeedForward(config).apply({"params": params}, single)
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=2e-5)
    config = toy.config(
        model__head_activation=activation, model__activation="relu", model__vocab_multiple=1
    ).model
    encoded = Encoded(single, None, jnp.asarray(random.normal(size=(toy.VOCAB, 32)), jnp.float32))
    slots = {"predict_positions": np.array([[1, 4, 2]])}
    params = toy.draw_parameters(MlmHead(config, toy.VOCAB), encoded, slots)
    hidden = function(reference.dense(x[0, [1, 4, 2]], reference.widen(params["dense"])))
    logits = (
        reference.norm(hidden, reference.widen(params["norm"]))
        @ np.asarray(encoded.embedding_table).T
    )
    ours = MlmHead(config, toy.VOCAB).apply({"params": params}, encoded, slots)
    np.testing.assert_allclose(ours[0], logits + params["bias"], rtol=1e-4, atol=2e-5)


def test_epsilon_is_added_to_the_variance():
    x = np.random.default_rng(0).normal(size=(3, 32))
    for epsilon in (1e-12, 0.5):
        ours = make_norm(toy.config(model__norm_epsilon=epsilon).model).apply(
            {"params": {"scale": jnp.ones(32), "bias": jnp.zeros(32)}}, jnp.asarray(x, jnp.float32)
        )
        expected = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + epsilon)
        np.testing.assert_allclose(ours, expected, atol=1e-5)


def test_the_bias_is_what_a_forbidden_score_gets():
    """A forbidden score that is higher by just the bias has the weight of the allowed one."""
    batch = {"segment_ids": np.array([[1, 2]]), "positions": np.array([[0, 0]])}
    for value in (-10_000.0, -1_000.0):
        cfg = toy.config(model__attention_bias=value).model
        query, key = np.array([[1, 1]]), np.array([[0, -value]])
        operands = [np.float32(x)[..., None, None] for x in (query, key, key)]  # [1, 2, 1, 1]
        mask = make_attention_mask(batch, cfg)
        _, found = backends.attend_by_einsum(*operands, mask, cfg, lambda x: x)
        np.testing.assert_array_equal(found[0, 0, 0], [0.5, 0.5])


@functools.cache
def abstract(**overrides: object):
    """Config, loss of parameters, and shapes of parameters and a masked batch."""
    config = toy.config(**overrides)
    b, _ = toy.mask(toy.batch(4, 24), config.masking, slots=8)
    params = jax.eval_shape(lambda: network.init(config, toy.VOCAB, np.uint32(0)))
    model = network.build(config, toy.VOCAB)

    def loss(params):
        return sum(jnp.sum(jnp.sin(x)) for x in network.outputs(model, params, b).values())

    return config, loss, params, b


def test_a_scan_is_a_loop_in_the_program():
    for scan in (True, False):
        _, loss, params, _ = abstract(model__scan=scan)
        assert ("stablehlo.while" in jax.jit(loss).lower(params).as_text()) == scan


def test_remat_keeps_less_for_the_backward_pass():
    def kept(**overrides: object) -> int:
        _, loss, params, _ = abstract(model__layers=4, **overrides)
        backward = jax.eval_shape(lambda p: jax.vjp(loss, p)[1], params)
        return sum(x.size for x in jax.tree.leaves(backward))

    layer_inputs, widest = (
        4 * 4 * 24 * 32,
        4 * 4 * 24 * 128,
    )  # of four layers: what comes in, and one feed-forward array
    for scan in (True, False):
        assert kept(model__scan=scan) > kept(model__scan=scan, model__remat="full") + widest
        assert kept(model__scan=scan, model__remat="full") > layer_inputs
        dots = kept(model__scan=scan, model__remat="dots")
        assert kept(model__scan=scan, model__remat="full") < dots < kept(model__scan=scan)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_compute_type_is_that_of_vectors_and_never_of_logits(dtype):
    config, _, params, b = abstract(model__dtype=dtype)
    model = Encoder(config.model, toy.VOCAB)
    assert (
        jax.eval_shape(lambda p: model.apply({"params": p}, b), params["encoder"]).hidden.dtype
        == dtype
    )
    logits = jax.eval_shape(
        lambda p: network.outputs(network.build(config, toy.VOCAB), p, b), params
    )
    assert {x.dtype for x in logits.values()} == {jnp.dtype("float32")}
