"""Dense layers, norms, dropout and activations against their formulas."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models.layers import ACTIVATIONS, Dense, Dropout, Norm
from tests import tiny


def test_activations_equal_their_formulas():
    x = np.linspace(-4, 4, 41)
    phi = np.array([0.5 * (1 + math.erf(v / math.sqrt(2))) for v in x])
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    expected = {
        "gelu": x * phi,
        "gelu_tanh": 0.5 * x * (1 + np.tanh(inner)),
        "relu": np.maximum(x, 0),
        "silu": x / (1 + np.exp(-x)),
        "tanh": np.tanh(x),
    }
    assert expected.keys() == ACTIVATIONS.keys()
    for name, function in ACTIVATIONS.items():
        np.testing.assert_allclose(function(jnp.asarray(x, jnp.float32)), expected[name], atol=1e-6)


@pytest.mark.parametrize("kind", ["layer", "rms"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_norm_computes_its_formula_in_float32(kind, dtype):
    """Vectors far from zero: a variance as the mean of squares less the squared mean is wrong."""
    x = jnp.asarray(np.random.default_rng(0).normal(500, 1, size=(4, 32)), dtype)
    cfg = tiny.config(model__norm_kind=kind, model__norm_epsilon=0.5, model__dtype=dtype).model
    params = tiny.draw_parameters(Norm(cfg), x)
    assert set(params) == ({"scale", "bias"} if kind == "layer" else {"scale"})
    wide = np.float64(x)
    if kind == "layer":
        wide = wide - wide.mean(-1, keepdims=True)
    expected = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 0.5) * params["scale"]
    found = Norm(cfg).apply({"params": params}, x)
    assert found.dtype == dtype
    tolerance = 1e-4 if dtype == "float32" else 2e-2
    np.testing.assert_allclose(np.float32(found), expected + params.get("bias", 0), atol=tolerance)


def test_dense_sums_bias_gradients_in_float32():
    """A sum of 4,096 ones in bfloat16 stops at 256."""
    layer = Dense(tiny.config(model__dtype="bfloat16").model, (8,))
    x = jnp.zeros((4096, 4), jnp.bfloat16)
    params = layer.init(jax.random.key(0), x)
    grads = jax.jit(jax.grad(lambda p: jnp.sum(layer.apply(p, x).astype(jnp.float32))))(params)
    np.testing.assert_array_equal(grads["params"]["bias"], 4096)


@pytest.mark.parametrize("width", [64, 63])
def test_dropout_drops_its_rate_and_keeps_the_mean(width):
    x = jnp.ones((500, width))
    y = np.asarray(Dropout(0.1, True).apply({}, x, rngs={"dropout": jax.random.key(0)}))
    assert abs((y == 0).mean() - 0.1) < 4.5 * math.sqrt(0.09 / y.size)
    np.testing.assert_allclose(y[y > 0], 1 / (1 - 6554 / 65536), rtol=1e-6)
    np.testing.assert_array_equal(Dropout(0.1, False).apply({}, x), x)


def test_dropout_scales_bfloat16_before_it_rounds():
    """Over values of all mantissas; the gradient is scaled in the same way."""
    x = jnp.asarray(np.linspace(1, 2, 128, endpoint=False), jnp.bfloat16)[None].repeat(64, 0)
    rngs = {"dropout": jax.random.key(0)}
    y, pull = jax.vjp(lambda x: Dropout(0.1, True).apply({}, x, rngs=rngs), x)
    wanted = (x.astype(jnp.float32) * (2**16 / (2**16 - 6554))).astype(jnp.bfloat16)
    np.testing.assert_array_equal(y, jnp.where(y > 0, wanted, 0))
    np.testing.assert_array_equal(pull(x)[0], y)


@pytest.mark.parametrize(("init", "deviation"), [("truncated_normal", 0.0176), ("normal", 0.02)])
def test_draw_weights_has_the_published_deviation(init, deviation):
    def draw(**settings: object) -> dict:
        layer = Dense(tiny.config(model__init=init, **settings).model, (1024,))
        return layer.init(jax.random.key(0), jnp.zeros((1, 256)))["params"]

    found = draw()
    assert found["kernel"].std() == pytest.approx(deviation, rel=0.01)
    assert (np.abs(found["kernel"]).max() <= 0.04) == (init == "truncated_normal")
    assert not found["bias"].any()
    doubled = draw(model__init_stddev=0.04)["kernel"].std()
    assert doubled == pytest.approx(2 * deviation, rel=0.03)


def test_layers_do_not_begin_alike():
    params = tiny.init(tiny.config())["encoder"]
    first, second = (params[f"layer_{i}"]["mlp"]["up"]["kernel"] for i in (0, 1))
    assert not np.allclose(first, second)
