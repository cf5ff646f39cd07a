"""Optimizers against their definitions written out in numpy, in float64."""

from __future__ import annotations

import dataclasses
import math
import re

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.config import knobs
from bert_jax.errors import ConfigError
from bert_jax.training import optim

SHAPES = {
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


def _tree(seed: int, scale: float = 1.0):
    rng = np.random.default_rng(seed)
    leaves, structure = jax.tree.flatten(SHAPES, is_leaf=lambda x: isinstance(x, tuple))
    return jax.tree.unflatten(
        structure, [np.float32(scale * rng.standard_normal(s)) for s in leaves]
    )


def _flat(tree) -> dict[str, np.ndarray]:
    """Name -> array, by a plain walk over dictionaries."""
    found = {}
    for key, value in tree.items():
        below = _flat(value) if isinstance(value, dict) else {"": value}
        found |= {f"{key}/{rest}".rstrip("/"): np.asarray(leaf) for rest, leaf in below.items()}
    return found


# --- independent statements -----------------------------------------------------------------------


def google_2018(params, gradients, rates, beta_1, beta_2, epsilon, weight_decay_rate):
    """AdamWeightDecayOptimizer.apply_gradients of the 2018 optimization.py, for every variable and
    step.
    """
    exclude = ["LayerNorm", "layer_norm", "norm/", "bias"]
    for name, param in params.items():
        m, v = np.zeros(param.shape), np.zeros(param.shape)
        param = param.astype(np.float64)
        for grad, learning_rate in zip(
            (g[name].astype(np.float64) for g in gradients), rates, strict=True
        ):
            next_m = beta_1 * m + (1.0 - beta_1) * grad
            next_v = beta_2 * v + (1.0 - beta_2) * np.square(grad)
            update = next_m / (np.sqrt(next_v) + epsilon)
            if not any(re.search(r, name) for r in exclude):
                update += weight_decay_rate * param
            param = param - learning_rate * update
            m, v = next_m, next_v
        yield name, param


def adamw(params, gradients, rates, b1, b2, epsilon, decay):
    """Loshchilov and Hutter, algorithm 2, with the rate in place of schedule times alpha in both
    terms.
    """
    for name, theta in params.items():
        theta = theta.astype(np.float64)
        m, v = np.zeros(theta.shape), np.zeros(theta.shape)
        for t, rate in enumerate(rates, start=1):
            g = gradients[t - 1][name].astype(np.float64)
            m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
            m_hat, v_hat = m / (1 - b1**t), v / (1 - b2**t)
            wd = 0.0 if name in UNDECAYED else decay
            theta = theta - rate * (m_hat / (np.sqrt(v_hat) + epsilon) + wd * theta)
        yield name, theta


def lamb(params, gradients, rates, b1, b2, epsilon, decay):
    """You et al., algorithm 2, phi the identity."""

    def one(theta, history, wd):
        m, v = np.zeros(theta.shape), np.zeros(theta.shape)
        for t, (g, rate) in enumerate(zip(history, rates, strict=True), start=1):
            m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
            r = (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + epsilon)
            u = r + wd * theta
            x_norm, u_norm = np.linalg.norm(theta), np.linalg.norm(u)
            theta = theta - rate * (x_norm / u_norm if x_norm > 0 and u_norm > 0 else 1.0) * u
        return theta

    for name, theta in params.items():
        theta = theta.astype(np.float64)
        history = [g[name].astype(np.float64) for g in gradients]
        wd = 0.0 if name in UNDECAYED else decay
        yield name, one(theta, history, wd)


# --- optimizers -----------------------------------------------------------------------------------


def _ours(settings, params, gradients, rates, decay):
    tx = optim.build_optimizer(settings, params, decay)
    state = tx.init(params)

    @jax.jit
    def step(params, state, grads, rate):
        direction, state = tx.update(grads, state, params)
        return jax.tree.map(lambda p, d: p - rate * d, params, direction), state

    for grads, rate in zip(gradients, rates, strict=True):
        params, state = step(params, state, grads, rate)
    return params, state


@pytest.mark.parametrize("steps", [1, 10])
@pytest.mark.parametrize(
    ("name", "statement"), [("adam2018", google_2018), ("adamw", adamw), ("lamb", lamb)]
)
def test_steps_equal_the_written_out_algorithm(name, statement, steps):
    settings = knobs.Optim(
        clip_norm=0, name=name, b1=0.9, b2=0.999, epsilon=1e-6, weight_decay=0.01
    )
    params = _tree(0, 0.1)
    params["encoder"]["embeddings"]["norm"]["bias"] *= 0  # LAMB's ratio of a zero tensor is 1
    gradients = [_tree(1 + i, 10.0 ** (i % 5 - 3)) for i in range(steps)]
    rates = [1e-2 / (1 + i) for i in range(steps)]
    ours, _ = _ours(settings, params, gradients, rates, settings.weight_decay)
    flat = _flat(ours)
    theirs = dict(
        statement(_flat(params), [_flat(g) for g in gradients], rates, 0.9, 0.999, 1e-6, 0.01)
    )
    assert flat.keys() == theirs.keys()
    for key, expected in theirs.items():
        np.testing.assert_allclose(flat[key], expected, rtol=1e-6, atol=1e-6, err_msg=key)


def test_first_step_of_adamw_is_the_sign():
    """optax corrects by 1 - b2**count in float32, which is 5e-5 off in the first update."""
    params = {"kernel": np.ones(1000, np.float32), "bias": np.ones(1, np.float32)}
    grads = jax.tree.map(lambda p: -3 * p, params)
    tx = optim.build_optimizer(knobs.Optim(name="adamw", epsilon=1e-12), params, 0.0)
    direction, _ = tx.update(grads, tx.init(params), params)
    np.testing.assert_allclose(direction["kernel"], -1.0, rtol=5e-5)


@pytest.mark.parametrize(
    ("name", "statement"), [("adam2018", google_2018), ("adamw", adamw), ("lamb", lamb)]
)
@pytest.mark.parametrize(
    ("knob", "value"), [("b1", 0.5), ("b2", 0.9), ("epsilon", 0.1), ("weight_decay", 0.3)]
)
def test_every_number_enters_as_the_algorithm_says(name, statement, knob, value):
    base = knobs.Optim(name=name)
    settings = dataclasses.replace(base, **{knob: value})
    gradients = [_tree(1), _tree(2)]
    before, after = (
        _flat(_ours(s, _tree(0), gradients, [0.1, 0.1], s.weight_decay)[0])
        for s in (base, settings)
    )
    numbers = (settings.b1, settings.b2, settings.epsilon, settings.weight_decay)
    for key, expected in statement(
        _flat(_tree(0)), [_flat(g) for g in gradients], [0.1, 0.1], *numbers
    ):
        # Twice a rate of 0.1 times directions that optax's bias correction has 5e-5 off at most.
        np.testing.assert_allclose(after[key], expected, rtol=1e-5, atol=1e-5, err_msg=key)
    assert any(not np.allclose(before[k], after[k], rtol=1e-3) for k in before)


@pytest.mark.parametrize("name", ["adam2018", "adamw", "lamb"])
def test_arms_over_rate_and_decay_equal_separate_runs(name):
    settings = knobs.Optim(name=name)
    rates, decays = np.float32([1e-3, 1e-2, 0.1]), np.float32([0.0, 0.01, 0.3])
    gradients = [_tree(1), _tree(2)]

    def run(rate, decay):
        params = _tree(0)
        tx = optim.build_optimizer(settings, params, decay)
        state = tx.init(params)
        for grads in gradients:
            direction, state = tx.update(grads, state, params)
            params = jax.tree.map(lambda p, d: p - rate * d, params, direction)
        return params

    together = _flat(jax.jit(jax.vmap(run))(rates, decays))
    for arm, (rate, decay) in enumerate(zip(rates, decays, strict=True)):
        for key, expected in _flat(
            _ours(settings, _tree(0), gradients, [rate] * 2, decay)[0]
        ).items():
            np.testing.assert_allclose(
                together[key][arm], expected, rtol=1e-5, atol=1e-6, err_msg=key
            )


def test_unused_rows_stay_finite():
    settings = knobs.Optim(name="adam2018", epsilon=1e-12)
    params = _tree(0)
    ours, _ = _ours(settings, params, [jax.tree.map(np.zeros_like, params)], [0.1], 0.0)
    for key, value in _flat(ours).items():
        np.testing.assert_array_equal(value, _flat(params)[key])


# --- names and the decay mask ---------------------------------------------------------------------


def test_names_join_dictionary_keys():
    assert _flat(optim.names(_tree(0))).keys() == _flat(_tree(0)).keys()
    assert all(key == name for key, name in _flat(optim.names(_tree(0))).items())
    assert optim.names([{"a": 1}, {"b": (2, 3)}]) == [{"a": "0/a"}, {"b": ("1/b/0", "1/b/1")}]


def test_default_mask_spares_biases_and_norms_and_decays_embeddings():
    mask = _flat(optim.find_decayed(_tree(0), knobs.Optim().no_decay))
    assert {name for name, decays in mask.items() if not decays} == UNDECAYED
    assert mask["encoder/embeddings/word/embedding"]


def test_mask_must_match_something():
    with pytest.raises(ConfigError, match="matches no parameter") as caught:
        optim.build_optimizer(knobs.Optim(no_decay="LayerNorm"), _tree(0), 0.01)
    assert caught.value.code == 2
    assert "encoder/embeddings/norm/bias" in caught.value.hint
    assert all(jax.tree.leaves(optim.find_decayed(_tree(0), "")))


# --- clipping -------------------------------------------------------------------------------------


CLIP = jax.jit(optim.clip, static_argnums=1)


@given(st.sampled_from([1e-3, 1.0, 30.0]), st.floats(1e-3, 1e3), st.integers(0, 2**31))
def test_clip_scales_the_gradient_to_the_norm(limit, scale, seed):
    grads = _tree(seed, scale)
    clipped, norm = CLIP(grads, limit)
    true_norm = math.sqrt(
        sum(float((g.astype(np.float64) ** 2).sum()) for g in _flat(grads).values())
    )
    np.testing.assert_allclose(norm, true_norm, rtol=1e-5)
    factor = min(1.0, limit / true_norm)
    for key, value in _flat(clipped).items():
        np.testing.assert_allclose(value, _flat(grads)[key] * factor, rtol=1e-4)


def test_clip_zero_never_clips():
    grads = _tree(0, 1e6)
    clipped, _ = CLIP(grads, 0.0)
    assert all(np.array_equal(v, _flat(grads)[k]) for k, v in _flat(clipped).items())


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_norm_of_a_bad_gradient_is_not_finite(bad):
    grads = _tree(0)
    grads["mlm"]["output_bias"][3] = bad
    assert not np.isfinite(CLIP(grads, 1.0)[1])


def test_clipped_zero_gradient_is_zero():
    clipped, norm = CLIP(jax.tree.map(np.zeros_like, _tree(0)), 1.0)
    assert norm == 0
    assert not any(v.any() for v in _flat(clipped).values())


# --- schedules ------------------------------------------------------------------------------------

GOOGLE = knobs.Optim(learning_rate=1e-4, warmup_steps=10_000, schedule="linear2018")


@pytest.mark.parametrize(
    ("step", "rate"),
    [
        (0, 0.0),
        (5_000, 5e-5),
        (9_999, 9.999e-5),
        (10_000, 9.9e-5),
        (500_000, 5e-5),
        (999_999, 1e-10),
    ],
)
def test_linear2018_is_the_originals(step, rate):
    assert optim.make_schedule(GOOGLE, 1_000_000)(step) == pytest.approx(rate, rel=1e-9)


@pytest.mark.parametrize("kind", ["linear", "cosine", "constant"])
@pytest.mark.parametrize("final", [0.0, 0.1])
def test_schedules_at_their_ends(kind, final):
    final = 0.0 if kind == "constant" else final
    settings = dataclasses.replace(GOOGLE, schedule=kind, final_fraction=final)
    rate = optim.make_schedule(settings, 1_000_000)
    middle = {"constant": 1e-4}.get(
        kind, 1e-4 * (1 + final) / 2
    )  # half of the way is half of the drop, for both
    end = {"constant": 1e-4}.get(kind, 1e-4 * final)
    found = [rate(s) for s in (0, 1, 5_000, 10_000, 505_000, 1_000_000, 2_000_000)]
    assert found == pytest.approx([0, 1e-8, 5e-5, 1e-4, middle, end, end], rel=1e-9, abs=1e-18)


@pytest.mark.parametrize("kind", ["linear", "cosine", "wsd"])
def test_the_final_fraction_is_reached_when_the_last_update_is_done(kind):
    """A run's last update, at index steps - 1, is a step short of it, as in the published
    implementations.
    """
    settings = knobs.Optim(learning_rate=1.0, warmup_steps=0, schedule=kind, final_fraction=0.5)
    rate = optim.make_schedule(settings, 10)
    assert rate(10) == 0.5
    assert rate(9) == pytest.approx(
        0.5 + 0.5 * {"linear": 0.1, "cosine": (1 - math.cos(0.1 * math.pi)) / 2, "wsd": 0.5}[kind]
    )


@pytest.mark.parametrize(("fraction", "final"), [(0.2, 0.0), (0.2, 0.1), (0.35, 0.0), (1.0, 0.5)])
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
    assert rate(last + 1) < longer(last + 1)


def test_cosine_and_linear_differ_between_their_ends():
    rates = {
        k: optim.make_schedule(dataclasses.replace(GOOGLE, schedule=k), 1_000_000)(257_500)
        for k in ("linear", "cosine")
    }
    assert rates["linear"] == pytest.approx(0.75e-4)
    assert rates["cosine"] == pytest.approx(1e-4 * (2 + math.sqrt(2)) / 4)


@given(
    st.sampled_from(["linear", "linear2018", "cosine", "constant", "wsd"]),
    st.integers(1, 200).flatmap(lambda steps: st.tuples(st.just(steps), st.integers(0, steps))),
)
def test_rates_stay_between_zero_and_the_peak(kind, steps_and_warmup):
    steps, warmup = steps_and_warmup
    rate = optim.make_schedule(
        knobs.Optim(schedule=kind, learning_rate=3.0, warmup_steps=warmup), steps
    )
    rates = [rate(step) for step in range(steps + 2)]
    assert all(0 <= r <= 3 for r in rates)
    assert rates[:warmup] == sorted(rates[:warmup])
    assert rates[warmup:] == sorted(rates[warmup:], reverse=True)
    assert all(r > 0 for r in rates[1:steps])


# --- layers that learn less, or not at all --------------------------------------------------------


def _steps(seed: int, **settings):
    """The direction of one update, by name."""
    params, grads = _tree(seed), _tree(seed + 1)
    transform = optim.build_optimizer(knobs.Optim(**settings), params, 0.01)
    return _flat(transform.update(grads, transform.init(params), params)[0])


@pytest.mark.parametrize("name", ["adamw", "lamb"])
def test_each_layer_learns_at_a_share_of_the_one_above(name):
    whole, less = _steps(0, name=name), _steps(0, name=name, layer_decay=0.5)
    for key, value in whole.items():
        share = {"embeddings": 0.0625, "layer_0": 0.125, "layer_1": 0.25, "layer_2": 0.5}
        share = share.get(key.split("/")[1], 1.0)
        np.testing.assert_allclose(less[key], value * share, rtol=1e-6, err_msg=key)


def test_the_projection_of_the_embeddings_learns_at_their_share():
    x = np.zeros((3, 2), np.float32)
    encoder = {"embeddings": {"token": x}, "projection": {"kernel": x}, "layer_2": {"kernel": x}}
    found = optim.share_rates({"encoder": encoder, "mlm": {"bias": x}}, 0.5)
    assert found["encoder"]["projection"]["kernel"] == found["encoder"]["embeddings"]["token"]
    assert (found["encoder"]["embeddings"]["token"], found["mlm"]["bias"]) == (0.0625, 1.0)


def test_a_share_of_one_changes_nothing_and_of_zero_trains_the_heads_alone():
    for key, value in _steps(0).items():
        np.testing.assert_array_equal(_steps(0, layer_decay=1.0)[key], value)
    assert {key for key, value in _steps(0, layer_decay=0.0).items() if value.any()} == {
        *("mlm/output_bias", "mlm/dense/kernel")
    }


def test_what_is_frozen_does_not_move_not_even_by_decay():
    whole, some = _steps(0), _steps(0, freeze="^encoder/embeddings/")
    for key, value in whole.items():
        np.testing.assert_array_equal(
            some[key], 0 * value if key.startswith("encoder/embeddings/") else value
        )


@pytest.mark.parametrize(
    ("pattern", "said"), [("^decoder/", "no parameter"), (".", "every parameter")]
)
def test_a_freeze_that_means_nothing_is_refused(pattern, said):
    with pytest.raises(ConfigError, match=f"matches {said}") as caught:
        _steps(0, freeze=pattern)
    assert "encoder/layer_0/attention" in caught.value.hint


@pytest.mark.parametrize(
    "changes", [{"name": "adam2018"}, {"layer_decay": 0.9, "freeze": "encoder/embeddings/"}]
)
def test_state_is_the_same_whatever_is_chained(changes):
    """So a resumed run may change clipping, freezing and layer decay."""
    states = [
        optim.build_optimizer(knobs.Optim(**settings), _tree(0), 0.01).init(_tree(0))
        for settings in ({}, changes)
    ]
    sizes = [[leaf.shape for leaf in jax.tree.leaves(state)] for state in states]
    assert sizes[0] == sizes[1]
    assert type(states[1][0]).__name__ == "ScaleByAdamState"


def test_frozen_layers_may_learn_less_too():
    found = _steps(0, layer_decay=0.5, freeze="^encoder/layer_0/")
    plain = _steps(0, layer_decay=0.5)
    for name, value in found.items():
        expected = 0 * value if name.startswith("encoder/layer_0/") else plain[name]
        np.testing.assert_array_equal(value, expected)
