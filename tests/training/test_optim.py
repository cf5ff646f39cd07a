"""Optimizers against their definitions written out in numpy, in float64; schedules by hand."""

import math
import re

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.config import knobs
from bert_jax.system.trees import flatten_tree
from bert_jax.training import optim

LAYER = {"attention": {"kernel": (4, 4), "bias": (4,)}, "attention_norm": {"scale": (4,)}}
EMBEDDINGS = {"word": {"embedding": (7, 4)}, "norm": {"scale": (4,), "bias": (4,)}}
ENCODER = {"embeddings": EMBEDDINGS, **{f"layer_{i}": LAYER for i in range(3)}}
SHAPES = {"encoder": ENCODER, "mlm": {"output_bias": (7,), "dense": {"kernel": (4, 4)}}}
UNDECAYED = {  # written out by hand: LayerNorm|layer_norm|bias of the original
    "encoder/embeddings/norm/scale",
    "encoder/embeddings/norm/bias",
    *(f"encoder/layer_{i}/attention/bias" for i in range(3)),
    *(f"encoder/layer_{i}/attention_norm/scale" for i in range(3)),
    "mlm/output_bias",
}


def make_tree(seed: int, scale: float = 1.0):
    random = np.random.default_rng(seed)
    leaves, structure = jax.tree.flatten(SHAPES, is_leaf=lambda x: isinstance(x, tuple))
    drawn = [np.float32(scale * random.standard_normal(shape)) for shape in leaves]
    return jax.tree.unflatten(structure, drawn)


# --- independent statements, of one parameter -----------------------------------------------------


def average(gradients, b1, b2):
    """Yield the number of each update, and the exponential averages of g and of g**2."""
    m = v = 0.0
    for t, g in enumerate(gradients, start=1):
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g**2
        yield t, m, v


def google_2018(name, param, gradients, rates, beta_1, beta_2, epsilon, weight_decay_rate):
    """AdamWeightDecayOptimizer.apply_gradients of the 2018 optimization.py."""
    exclude = ["LayerNorm", "layer_norm", "norm/", "bias"]
    for rate, (_, m, v) in zip(rates, average(gradients, beta_1, beta_2), strict=True):
        update = m / (np.sqrt(v) + epsilon)
        if not any(re.search(r, name) for r in exclude):
            update += weight_decay_rate * param
        param = param - rate * update
    return param


def adamw(name, theta, gradients, rates, b1, b2, epsilon, decay):
    """Loshchilov and Hutter, algorithm 2, with the rate in place of schedule times alpha."""
    wd = 0.0 if name in UNDECAYED else decay
    for rate, (t, m, v) in zip(rates, average(gradients, b1, b2), strict=True):
        m_hat, v_hat = m / (1 - b1**t), v / (1 - b2**t)
        theta = theta - rate * (m_hat / (np.sqrt(v_hat) + epsilon) + wd * theta)
    return theta


def lamb(name, theta, gradients, rates, b1, b2, epsilon, decay):
    """You et al., algorithm 2, phi the identity."""
    wd = 0.0 if name in UNDECAYED else decay
    for rate, (t, m, v) in zip(rates, average(gradients, b1, b2), strict=True):
        u = (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + epsilon) + wd * theta
        x_norm, u_norm = np.linalg.norm(theta), np.linalg.norm(u)
        theta = theta - rate * (x_norm / u_norm if x_norm > 0 and u_norm > 0 else 1.0) * u
    return theta


STATEMENTS = {"adam2018": google_2018, "adamw": adamw, "lamb": lamb}


def run_ours(settings: knobs.Optim, params, gradients, rates, decay):
    optimizer = optim.build_optimizer(settings, params, decay)
    state = optimizer.init(params)
    for grads, rate in zip(gradients, rates, strict=True):
        direction, state = optimizer.update(grads, state, params)
        params = jax.tree.map(lambda p, d, rate=rate: p - rate * d, params, direction)
    return params


@pytest.mark.parametrize("name", STATEMENTS)
@pytest.mark.parametrize(
    "changes", [{}, {"b1": 0.5}, {"b2": 0.9}, {"epsilon": 0.1}, {"weight_decay": 0.3}]
)
def test_optimizer_equals_its_written_out_algorithm(name, changes):
    usual = {"name": name, "epsilon": 1e-6, "weight_decay": 0.01}
    settings = knobs.Optim(**usual | changes)
    params = make_tree(0, 0.1)
    params["encoder"]["embeddings"]["norm"]["bias"] *= 0  # LAMB's ratio of a zero tensor is 1
    gradients = [make_tree(1 + i, 10.0 ** (i % 5 - 3)) for i in range(10)]
    rates = [1e-2 / (1 + i) for i in range(10)]
    ours = flatten_tree(run_ours(settings, params, gradients, rates, settings.weight_decay))
    numbers = settings.b1, settings.b2, settings.epsilon, settings.weight_decay
    for key, value in flatten_tree(params).items():
        history = [flatten_tree(g)[key].astype(np.float64) for g in gradients]
        expected = STATEMENTS[name](key, value.astype(np.float64), history, rates, *numbers)
        np.testing.assert_allclose(ours[key], expected, rtol=1e-6, atol=1e-6, err_msg=key)


def test_decay_spares_nothing_without_a_pattern():
    assert all(jax.tree.leaves(optim.find_decayed(make_tree(0), "")))


# --- clipping -------------------------------------------------------------------------------------

CLIP = jax.jit(optim.clip_gradient, static_argnums=1)


@given(st.sampled_from([0, 1e-3, 1.0, 30.0]), st.floats(1e-3, 1e3), st.integers(0, 2**31))
def test_clip_scales_the_gradient_to_the_norm(limit, scale, seed):
    grads = flatten_tree(make_tree(seed, scale))
    clipped, norm = CLIP(grads, limit)
    true_norm = math.sqrt(sum(float((g.astype(np.float64) ** 2).sum()) for g in grads.values()))
    np.testing.assert_allclose(norm, true_norm, rtol=1e-5)
    factor = min(1.0, limit / true_norm) if limit else 1.0
    for key, value in clipped.items():
        np.testing.assert_allclose(value, grads[key] * factor, rtol=1e-4)


# --- schedules ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "shares"),  # of the peak at some steps, by hand
    [
        ({"schedule": "linear"}, {0: 0, 50: 0.5, 100: 1, 550: 0.5, 999: 1 / 900, 2000: 0}),
        ({"schedule": "linear", "final_fraction": 0.1}, {100: 1, 550: 0.55, 1000: 0.1, 2000: 0.1}),
        ({"schedule": "constant"}, {50: 0.5, 100: 1, 550: 1, 1000: 1}),
        ({"schedule": "wsd", "decay_fraction": 0.35}, {50: 0.5, 100: 1, 650: 1, 825: 0.5, 1000: 0}),
        ({"schedule": "wsd", "decay_fraction": 1.0, "final_fraction": 0.5}, {100: 1, 550: 0.75}),
        ({"schedule": "cosine"}, {50: 0.5, 100: 1, 325: (2 + math.sqrt(2)) / 4, 550: 0.5, 1000: 0}),
        ({"schedule": "cosine", "final_fraction": 0.1}, {100: 1, 550: 0.55, 1000: 0.1, 2000: 0.1}),
        ({"schedule": "linear2018"}, {50: 0.5, 99: 0.99, 100: 0.9, 500: 0.5, 999: 1e-3, 2000: 0}),
    ],
)
def test_schedule_has_its_rates_by_hand(changes, shares):
    settings = knobs.Optim(learning_rate=2.0, warmup_steps=100, **changes)
    rate = optim.make_schedule(settings, 1_000)
    for step, share in shares.items():
        assert rate(step) == pytest.approx(2 * share, rel=1e-9, abs=1e-15), step


# --- layers that learn less, or not at all --------------------------------------------------------


def find_direction(**settings) -> dict[str, np.ndarray]:
    """Return the direction of one update, by name."""
    params, grads = make_tree(0), make_tree(1)
    optimizer = optim.build_optimizer(knobs.Optim(**settings), params, 0.01)
    return flatten_tree(optimizer.update(grads, optimizer.init(params), params)[0])


def test_layer_decay_halves_from_layer_to_layer():
    whole, less = find_direction(), find_direction(layer_decay=0.5)
    shares = {"embeddings": 0.0625, "layer_0": 0.125, "layer_1": 0.25, "layer_2": 0.5}
    for key, value in whole.items():
        expected = value * shares.get(key.split("/")[1], 1.0)
        np.testing.assert_allclose(less[key], expected, rtol=1e-6, err_msg=key)


def test_layer_decay_counts_a_projection_as_embeddings():
    x = np.zeros((3, 2), np.float32)
    generator = {"projection": {"kernel": x}, "layer_2": {"kernel": x}}
    params = {"encoder": {"embeddings": {"token": x}, **generator}, "generator": generator}
    found = flatten_tree(optim.share_rates(params | {"mlm": {"bias": x}}, 0.5))
    assert [*found.values()] == [0.0625, 0.5, 0.0625, 0.5, 0.0625, 1.0]


def test_frozen_parameters_do_not_move_by_decay():
    some = find_direction(layer_decay=0.5, freeze="^encoder/layer_0/")
    for key, value in find_direction(layer_decay=0.5).items():
        frozen = key.startswith("encoder/layer_0/")
        np.testing.assert_array_equal(some[key], 0 * value if frozen else value)


def test_state_is_the_same_whatever_is_chained():
    """So a resumed run may change clipping, freezing and layer decay."""
    shapes = []
    for settings in ({}, {"name": "adam2018", "layer_decay": 0.9, "freeze": "embeddings/"}):
        state = optim.build_optimizer(knobs.Optim(**settings), make_tree(0), 0.01).init(
            make_tree(0)
        )
        shapes.append([x.shape for x in jax.tree.leaves(state)])
    assert shapes[0] == shapes[1]
