"""The encoder against a plain float64 statement of BERT, and what it must not depend on."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config import default, devices, resolve
from bert_jax.errors import ConfigError
from bert_jax.models.encoder import Encoder, read_layers
from bert_jax.objectives import network
from tests import reference, toy


def prepare(seed: int = 0, rows: int = 6, **overrides: object) -> tuple[Any, Any, Any]:
    """Config, masked batch, and parameters whose biases and scales are not 0 and 1."""
    config = toy.config(**overrides)
    b, _ = toy.mask(toy.batch(rows, 24, seed), config.masking, slots=8)
    noise = np.random.default_rng(seed)

    def disturb(x: np.ndarray) -> np.ndarray:
        return x + noise.normal(0, 0.1, x.shape).astype(np.float32)

    return config, b, jax.tree.map(disturb, toy.init(config, seed))


def compute(config: Any, params: Any, b: Any, train: bool = False, **rngs: Any) -> Any:
    """Outputs of all heads."""
    net = network.build(config, toy.VOCAB, train=train)
    return jax.jit(net.apply)({"params": params}, b, rngs=rngs)


def encode(config: Any, params: Any, b: Any) -> Any:
    """Output of the encoder."""
    encoder = Encoder(config.model, toy.VOCAB)
    return jax.jit(encoder.apply)({"params": params["encoder"]}, b)


@pytest.mark.parametrize("causal", [False, True])
def test_logits_equal_a_plain_statement_of_bert(causal):
    config, b, params = prepare(model__causal=causal)
    ours, wide = compute(config, params, b), reference.widen(params)
    for row in range(len(b["tokens"])):
        n = int((b["segment_ids"][row] > 0).sum())
        inputs = b["inputs"][row, :n], b["type_ids"][row, :n], config.model.heads
        hidden, pooled = reference.encoder(wide["encoder"], *inputs, causal)
        used = b["predict_weights"][row] > 0
        mlm = reference.mlm_logits(wide, hidden, b["predict_positions"][row][used], toy.VOCAB)
        np.testing.assert_allclose(ours["mlm"][row][used][:, : toy.VOCAB], mlm, atol=1e-5)
        nsp = reference.dense(pooled, wide["nsp"]["logits"])
        np.testing.assert_allclose(ours["nsp"][row, 0], nsp, atol=1e-5)


@pytest.mark.parametrize(("size", "parameters"), [("base", 109_482_240), ("large", 335_141_888)])
def test_base_and_large_have_the_published_sizes(size, parameters):
    tree = default()
    tree.model.size, tree.model.vocab_multiple = size, 1
    config = resolve(tree)
    shapes = jax.eval_shape(lambda: network.init(config, 30_522, np.uint32(0)))
    assert sum(math.prod(x.shape) for x in jax.tree.leaves(shapes["encoder"])) == parameters


# --- what a token sees ----------------------------------------------------------------------------


def differentiate(config: Any, params: Any, b: Any, column: int) -> np.ndarray:
    """How the output at one column of row 0 depends on each position's learned vector."""

    def read(table: jax.Array) -> jax.Array:
        embeddings = params["encoder"]["embeddings"] | {"position": table}
        changed = {"encoder": params["encoder"] | {"embeddings": embeddings}}
        hidden = encode(config, changed, b).hidden
        return jnp.sum(hidden[0, column] * jnp.arange(hidden.shape[-1]))

    table = params["encoder"]["embeddings"]["position"]
    return np.abs(jax.jit(jax.grad(read))(table)).sum(-1)


def test_padding_leaks_exactly_no_gradient():
    """Padding has position 0; its own positions must stay untouched whatever they hold."""
    config, b, params = prepare(seed=4, rows=1)
    n = int((b["segment_ids"][0] > 0).sum())
    assert n < 24
    assert (differentiate(config, params, b, 1)[:n] > 0).all()
    moved = {**b, "positions": np.where(b["segment_ids"] > 0, b["positions"], 40)}
    assert (differentiate(config, params, moved, 1)[n:] == 0).all()


@pytest.mark.parametrize("position", ["learned", "alibi"])
@pytest.mark.parametrize(
    ("bias", "dtype"), [(-10_000.0, "float32"), (float(np.finfo(np.float32).min), "bfloat16")]
)
def test_fully_masked_row_stays_finite(position, bias, dtype):
    """Forwards and backwards, also with the bias of Hugging Face, below which float32 has nothing
    but infinity.
    """
    settings = {"model__attention_bias": bias, "model__dtype": dtype}
    config, b, params = prepare(model__position=position, **settings)
    b = {k: np.concatenate([np.zeros_like(v[:2]), v[2:]]) for k, v in b.items()}
    b["positions"][0] = np.arange(24)  # and far from each other

    def loss(params: Any) -> Any:
        found = compute(config, params, b)
        return sum(jnp.sum(jnp.sin(x[..., :2])) for x in found.values()), found

    numbers = jax.jit(jax.grad(loss, has_aux=True))(params)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(numbers))


# --- layers ---------------------------------------------------------------------------------------


def test_read_layers_is_what_the_encoder_went_through():
    config, b, params = prepare(seed=8, rows=1)
    found = read_layers(config.model, toy.VOCAB, params["encoder"], b)
    assert found.hidden.shape == (3, 1, 24, 32)
    np.testing.assert_allclose(found.hidden[-1], encode(config, params, b).hidden, atol=1e-6)
    np.testing.assert_allclose(found.attention.sum(-1), 1, atol=1e-6)
    half = toy.config(model__dtype="bfloat16").model
    read = functools.partial(read_layers, half, toy.VOCAB)
    assert jax.eval_shape(read, params["encoder"], b).attention.dtype == np.float32


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_features_are_the_last_layers_side_by_side(norm):
    """With pre-norm each goes through the final norm, as a head over one layer reads it."""
    config, b, params = prepare(rows=2, model__norm=norm, objectives__nsp__weight=1)
    model = dataclasses.replace(config.model, features=2)
    found = encode(dataclasses.replace(config, model=model), params, b)
    assert found.features.shape == (2, 24, 64)
    np.testing.assert_array_equal(found.features[..., 32:], found.hidden)
    before = np.float64(read_layers(model, toy.VOCAB, params["encoder"], b).hidden[-2])
    if norm == "pre":
        before = reference.norm(before, params["encoder"]["final_norm"])
    np.testing.assert_allclose(found.features[..., :32], before, atol=1e-5)


def test_dropout_reaches_vectors_and_attention():
    for knob in ("model__dropout", "model__attention_dropout"):
        config, b, params = prepare(**{knob: 0.5})
        keys = (jax.random.key(0), jax.random.key(1))
        one, other = (compute(config, params, b, train=True, dropout=k)["nsp"] for k in keys)
        assert (np.asarray(one) != np.asarray(other)).any(), knob


# --- loops and recomputation ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "overrides",
    [
        {"model__scan": True},
        {"model__remat": "full"},
        {"model__scan": True, "model__remat": "dots"},
    ],
)
@pytest.mark.parametrize("position", ["learned", "relative"])
def test_scan_and_remat_compute_the_same(overrides, position):
    """To 1e-5: the gradient of a key's bias is 0, up to rounding."""
    for a, c in zip(gradients(position), gradients(position, **overrides), strict=True):
        np.testing.assert_allclose(a, c, rtol=1e-4, atol=1e-5)


@functools.cache
def gradients(position: str, **overrides: object) -> list[Any]:
    """At the parameters of the model without the overrides."""
    _, b, params = prepare(model__position=position)
    config = toy.config(**overrides, model__position=position)
    net = network.build(config, toy.VOCAB, train=True)

    def loss(params: Any) -> Any:
        outputs = net.apply({"params": params}, b, rngs={"dropout": jax.random.key(0)})
        return sum(jnp.sum(jnp.sin(x)) for x in outputs.values())

    return jax.tree.leaves(jax.jit(jax.grad(loss))(params))


def test_scan_draws_other_dropout_in_each_layer():
    """Two layers with the same parameters, whose blocks add only what dropout leaves of 1."""
    config = toy.config(model__dropout=0.5, model__norm="pre", model__scan=True)
    params = jax.tree.map(np.zeros_like, toy.init(config)["encoder"])
    for i in (0, 1):
        params[f"layer_{i}"]["mlp"]["down"]["bias"] += 1
    params["final_norm"]["scale"] += 1
    encoder = Encoder(config.model, toy.VOCAB, train=True, pool=False)
    b = toy.batch(8, 24)
    found = encoder.apply({"params": params}, b, rngs={"dropout": jax.random.key(0)})
    sums = {0, 2, 4}  # 1 is kept as 2, by neither layer, by one or by both
    wide = np.asarray(found.hidden)
    assert len(np.unique(wide[0, 0].round(3))) == len(sums)


@pytest.mark.parametrize(
    "unlike",
    [
        {"model__layer_weights": True},
        {"model__window": 4, "model__global_every": 2},
        {"model__norm": "pre", "model__first_norm": False},
    ],
)
def test_layers_that_differ_are_no_loop(unlike):
    with devices.trace_for("tpu"):
        assert devices.settle_model(toy.config().model, train=True).scan
        assert not devices.settle_model(toy.config(**unlike).model, train=True).scan
    with pytest.raises(ConfigError, match=r"model\.scan = True"):
        toy.config(**unlike, model__scan=True)


@functools.cache
def trace_loss(**overrides: object):
    """Config, loss of parameters, and shapes of parameters and a masked batch."""
    config = toy.config(**overrides)
    b, _ = toy.mask(toy.batch(4, 24), config.masking, slots=8)
    params = jax.eval_shape(lambda: network.init(config, toy.VOCAB, np.uint32(0)))
    model = network.build(config, toy.VOCAB)

    def loss(params):
        return sum(jnp.sum(jnp.sin(x)) for x in network.outputs(model, params, b).values())

    return config, loss, params, b


def test_scan_is_a_loop_in_the_program():
    for scan in (True, False):
        _, loss, params, _ = trace_loss(model__scan=scan)
        assert ("stablehlo.while" in jax.jit(loss).lower(params).as_text()) == scan


def test_remat_keeps_less_for_the_backward_pass():
    def kept(**overrides: object) -> int:
        _, loss, params, _ = trace_loss(model__layers=4, **overrides)
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
def test_compute_type_is_for_vectors_and_not_logits(dtype):
    config, _, params, b = trace_loss(model__dtype=dtype)
    model = Encoder(config.model, toy.VOCAB)
    assert (
        jax.eval_shape(lambda p: model.apply({"params": p}, b), params["encoder"]).hidden.dtype
        == dtype
    )
    logits = jax.eval_shape(
        lambda p: network.outputs(network.build(config, toy.VOCAB), p, b), params
    )
    assert {x.dtype for x in logits.values()} == {jnp.dtype("float32")}
