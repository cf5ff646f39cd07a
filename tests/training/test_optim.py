"""Optimizers against their definitions written out in numpy, in float64; schedules by hand."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.config import knobs
from bert_jax.errors import ConfigError
from bert_jax.system.trees import flat
from bert_jax.training import optim

SHAPES: dict[str, Any] = {
    "encoder": {
        "embeddings": {"word": {"embedding": (7, 4)}, "norm": {"scale": (4,), "bias": (4,)}},
        **{
            f"layer_{i}": {
                "attention": {"kernel": (4, 4), "bias": (4,)},
                "attention_norm": {"scale": (4,)},
            }
            for i in range(3)
        },
    },
    "mlm": {"output_bias": (7,), "dense": {"kernel": (4, 4)}},
}
UNDECAYED = {  # written out by hand: LayerNorm|layer_norm|bias of the original
    "encoder/embeddings/norm/scale",
    "encoder/embeddings/norm/bias",
    *(f"encoder/layer_{i}/attention/bias" for i in range(3)),
    *(f"encoder/layer_{i}/attention_norm/scale" for i in range(3)),
    "mlm/output_bias",
}


def make_tree(seed: int, scale: float = 1.0) -> Any:
    random = np.random.default_rng(seed)
    leaves, structure = jax.tree.flatten(SHAPES, is_leaf=lambda x: isinstance(x, tuple))
    drawn = [np.float32(scale * random.standard_normal(shape)) for shape in leaves]
    return jax.tree.unflatten(structure, drawn)


# --- independent statements, of one parameter -----------------------------------------------------


def google_2018(name, param, gradients, rates, beta_1, beta_2, epsilon, weight_decay_rate):
    """AdamWeightDecayOptimizer.apply_gradients of the 2018 optimization.py."""
    exclude = ["LayerNorm", "layer_norm", "norm/", "bias"]
    m, v = np.zeros(param.shape), np.zeros(param.shape)
    for grad, learning_rate in zip(gradients, rates, strict=True):
        next_m = beta_1 * m + (1.0 - beta_1) * grad
        next_v = beta_2 * v + (1.0 - beta_2) * np.square(grad)
        update = next_m / (np.sqrt(next_v) + epsilon)
        if not any(re.search(r, name) for r in exclude):
            update += weight_decay_rate * param
        param = param - learning_rate * update
        m, v = next_m, next_v
    return param


def adamw(name, theta, gradients, rates, b1, b2, epsilon, decay):
    """Loshchilov and Hutter, algorithm 2, with the rate in place of schedule times alpha."""
    m, v = np.zeros(theta.shape), np.zeros(theta.shape)
    for t, (g, rate) in enumerate(zip(gradients, rates, strict=True), start=1):
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        m_hat, v_hat = m / (1 - b1**t), v / (1 - b2**t)
        wd = 0.0 if name in UNDECAYED else decay
        theta = theta - rate * (m_hat / (np.sqrt(v_hat) + epsilon) + wd * theta)
    return theta


def lamb(name, theta, gradients, rates, b1, b2, epsilon, decay):
    """You et al., algorithm 2, phi the identity."""
    m, v = np.zeros(theta.shape), np.zeros(theta.shape)
    for t, (g, rate) in enumerate(zip(gradients, rates, strict=True), start=1):
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        r = (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + epsilon)
        u = r + (0.0 if name in UNDECAYED else decay) * theta
        x_norm, u_norm = np.linalg.norm(theta), np.linalg.norm(u)
        theta = theta - rate * (x_norm / u_norm if x_norm > 0 and u_norm > 0 else 1.0) * u
    return theta


STATEMENTS = {"adam2018": google_2018, "adamw": adamw, "lamb": lamb}


def run_ours(settings: knobs.Optim, params, gradients, rates, decay) -> Any:
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
    settings = knobs.Optim(
        **{"name": name, "epsilon": 1e-6, "weight_decay": 0.01, **changes}  # type: ignore[arg-type]  # of several types
    )
    params = make_tree(0, 0.1)
    params["encoder"]["embeddings"]["norm"]["bias"] *= 0  # LAMB's ratio of a zero tensor is 1
    gradients = [make_tree(1 + i, 10.0 ** (i % 5 - 3)) for i in range(10)]
    rates = [1e-2 / (1 + i) for i in range(10)]
    ours = flat(run_ours(settings, params, gradients, rates, settings.weight_decay))
    numbers = settings.b1, settings.b2, settings.epsilon, settings.weight_decay
    for key, value in flat(params).items():
        history = [flat(g)[key].astype(np.float64) for g in gradients]
        expected = STATEMENTS[name](key, value.astype(np.float64), history, rates, *numbers)
        np.testing.assert_allclose(ours[key], expected, rtol=1e-6, atol=1e-6, err_msg=key)


@pytest.mark.parametrize("name", STATEMENTS)
def test_fused_runs_over_rate_and_decay_equal_single(name):
    settings = knobs.Optim(name=name)
    rates, decays = np.float32([1e-3, 0.1]), np.float32([0.0, 0.3])
    gradients = [make_tree(1), make_tree(2)]

    def run(rate, decay):
        return run_ours(settings, make_tree(0), gradients, [rate, rate], decay)

    together = flat(jax.jit(jax.vmap(run))(rates, decays))
    for index, (rate, decay) in enumerate(zip(rates, decays, strict=True)):
        for key, expected in flat(run(rate, decay)).items():
            np.testing.assert_allclose(together[key][index], expected, rtol=1e-5, atol=1e-6)


def test_adam2018_leaves_unused_rows_alone():
    params = make_tree(0)
    settings = knobs.Optim(name="adam2018", epsilon=1e-12)
    ours = run_ours(settings, params, [jax.tree.map(np.zeros_like, params)], [0.1], 0.0)
    jax.tree.map(np.testing.assert_array_equal, ours, params)


def test_decay_spares_biases_and_norms():
    mask = flat(optim.find_decayed(make_tree(0), knobs.Optim().no_decay))
    assert {name for name, decays in mask.items() if not decays} == UNDECAYED
    assert all(jax.tree.leaves(optim.find_decayed(make_tree(0), "")))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"no_decay": "LayerNorm"}, "matches no parameter"),
        ({"freeze": "^decoder/"}, "matches no parameter"),
        ({"freeze": "."}, "matches every parameter"),
    ],
)
def test_patterns_that_mean_nothing_are_refused(changes, said):
    with pytest.raises(ConfigError, match=said) as caught:
        optim.build_optimizer(knobs.Optim(**changes), make_tree(0), 0.01)
    assert "encoder/embeddings/norm" in caught.value.hint


# --- clipping -------------------------------------------------------------------------------------

CLIP = jax.jit(optim.clip, static_argnums=1)


@given(st.sampled_from([0, 1e-3, 1.0, 30.0]), st.floats(1e-3, 1e3), st.integers(0, 2**31))
def test_clip_scales_the_gradient_to_the_norm(limit, scale, seed):
    grads = flat(make_tree(seed, scale))
    clipped, norm = CLIP(grads, limit)
    true_norm = math.sqrt(sum(float((g.astype(np.float64) ** 2).sum()) for g in grads.values()))
    np.testing.assert_allclose(norm, true_norm, rtol=1e-5)
    factor = min(1.0, limit / true_norm) if limit else 1.0
    for key, value in clipped.items():
        np.testing.assert_allclose(value, grads[key] * factor, rtol=1e-4)


def test_clip_of_a_bad_or_zero_gradient():
    grads = make_tree(0)
    for bad in (np.nan, np.inf):
        grads["mlm"]["output_bias"][3] = bad
        assert not np.isfinite(CLIP(grads, 1.0)[1])
    clipped, norm = CLIP(jax.tree.map(np.zeros_like, grads), 1.0)
    assert norm == 0
    assert not any(leaf.any() for leaf in jax.tree.leaves(clipped))


# --- schedules ------------------------------------------------------------------------------------

GOOGLE = knobs.Optim(learning_rate=1e-4, warmup_steps=10_000, schedule="linear2018")


def test_linear2018_is_the_originals():
    rate = optim.make_schedule(GOOGLE, 1_000_000)
    steps = (0, 5_000, 9_999, 10_000, 500_000, 999_999)
    expected = [0.0, 5e-5, 9.999e-5, 9.9e-5, 5e-5, 1e-10]
    assert [rate(step) for step in steps] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("final", [0.0, 0.1])
@pytest.mark.parametrize("kind", ["linear", "cosine", "constant"])
def test_schedules_at_their_ends(kind, final):
    final = 1.0 if kind == "constant" else final
    changes: dict[str, Any] = {} if kind == "constant" else {"final_fraction": final}
    rate = optim.make_schedule(dataclasses.replace(GOOGLE, schedule=kind, **changes), 1_000_000)
    middle = 1e-4 * (1 + final) / 2  # half of the way is half of the drop, for both
    found = [rate(s) for s in (0, 1, 5_000, 10_000, 505_000, 1_000_000, 2_000_000)]
    expected = [0, 1e-8, 5e-5, 1e-4, middle, 1e-4 * final, 1e-4 * final]
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-18)


def test_cosine_and_linear_differ_between_their_ends():
    for kind, share in (("linear", 0.75), ("cosine", (2 + math.sqrt(2)) / 4)):
        rate = optim.make_schedule(dataclasses.replace(GOOGLE, schedule=kind), 1_000_000)
        assert rate(257_500) == pytest.approx(1e-4 * share)


@pytest.mark.parametrize(("fraction", "final"), [(0.2, 0.0), (0.35, 0.1), (1.0, 0.5)])
def test_wsd_is_the_peak_and_then_a_line(fraction, final):
    """In closed form, of every step; before its decay it depends on no length."""
    steps, warmup = 1_000, 100
    settings = knobs.Optim(
        schedule="wsd",
        learning_rate=2.0,
        warmup_steps=warmup,
        decay_fraction=fraction,
        final_fraction=final,
    )
    rate, last = optim.make_schedule(settings, steps), max(warmup, steps - round(steps * fraction))
    index = np.arange(steps + 50)
    ends = [0, warmup, last, steps, steps + 50]
    expected = np.interp(index, ends, [0, 2, 2, 2 * final, 2 * final])
    np.testing.assert_allclose([rate(i) for i in index], expected, rtol=1e-12, atol=1e-12)
    longer = optim.make_schedule(settings, 10 * steps)
    assert [rate(i) for i in range(last)] == [longer(i) for i in range(last)]


@given(
    st.sampled_from(["linear", "linear2018", "cosine", "constant", "wsd"]),
    st.integers(1, 200).flatmap(lambda steps: st.tuples(st.just(steps), st.integers(0, steps))),
)
def test_rates_rise_to_the_peak_and_fall(kind, steps_and_warmup):
    steps, warmup = steps_and_warmup
    settings = knobs.Optim(schedule=kind, learning_rate=3.0, warmup_steps=warmup)
    rates = [optim.make_schedule(settings, steps)(step) for step in range(steps + 2)]
    assert all(0 <= r <= 3 for r in rates)
    assert rates[:warmup] == sorted(rates[:warmup])
    assert rates[warmup:] == sorted(rates[warmup:], reverse=True)
    assert all(r > 0 for r in rates[1:steps])


# --- layers that learn less, or not at all --------------------------------------------------------


def find_direction(**settings: Any) -> dict[str, np.ndarray]:
    """Return the direction of one update, by name."""
    params, grads = make_tree(0), make_tree(1)
    optimizer = optim.build_optimizer(knobs.Optim(**settings), params, 0.01)
    return flat(optimizer.update(grads, optimizer.init(params), params)[0])


@pytest.mark.parametrize("name", ["adamw", "lamb"])
def test_layer_decay_halves_from_layer_to_layer(name):
    whole, less = find_direction(name=name), find_direction(name=name, layer_decay=0.5)
    shares = {"embeddings": 0.0625, "layer_0": 0.125, "layer_1": 0.25, "layer_2": 0.5}
    for key, value in whole.items():
        expected = value * shares.get(key.split("/")[1], 1.0)
        np.testing.assert_allclose(less[key], expected, rtol=1e-6, err_msg=key)


def test_layer_decay_counts_a_projection_as_embeddings():
    x = np.zeros((3, 2), np.float32)
    encoder = {"embeddings": {"token": x}, "projection": {"kernel": x}, "layer_2": {"kernel": x}}
    found = flat(optim.share_rates({"encoder": encoder, "mlm": {"bias": x}}, 0.5))
    assert [*found.values()] == [0.0625, 0.5, 0.0625, 1.0]


@pytest.mark.parametrize("decay", [1.0, 0.5])
def test_frozen_parameters_do_not_move_by_decay(decay):
    some = find_direction(layer_decay=decay, freeze="^encoder/layer_0/")
    for key, value in find_direction(layer_decay=decay).items():
        frozen = key.startswith("encoder/layer_0/")
        np.testing.assert_array_equal(some[key], 0 * value if frozen else value)


@pytest.mark.parametrize(
    "changes", [{"name": "adam2018"}, {"layer_decay": 0.9, "freeze": "encoder/embeddings/"}]
)
def test_state_is_the_same_whatever_is_chained(changes):
    """So a resumed run may change clipping, freezing and layer decay."""
    plain, changed = (
        optim.build_optimizer(knobs.Optim(**settings), make_tree(0), 0.01).init(make_tree(0))
        for settings in ({}, changes)
    )
    assert [x.shape for x in jax.tree.leaves(plain)] == [x.shape for x in jax.tree.leaves(changed)]
