"""What knobs of the optimizer change in an update."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config import knobs
from bert_jax.errors import DivergedError
from bert_jax.system.trees import flat
from bert_jax.training import optim
from bert_jax.training import run as arms
from bert_jax.training.step import (
    accumulate,
    apply_gradient,
    compute_inputs,
)
from tests import toy


def test_an_update_clips_decays_and_steps_as_configured():
    p, g = np.array([3.0, -4.0]), np.array([6.0, 8.0])  # the gradient's norm is 10
    for rate, decay, limit in ((0.1, 0.0, 0.0), (0.1, 0.0, 1.0), (0.1, 0.5, 1.0), (0.3, 0.5, 20.0)):
        config = toy.config(
            optim__name="adam2018",
            optim__schedule="constant",
            optim__learning_rate=rate,
            optim__weight_decay=decay,
            optim__clip_norm=limit,
            optim__no_decay="",
            optim__epsilon=1.0,
        )
        params = {"kernel": jnp.asarray(p, jnp.float32)}
        moments = optim.build_optimizer(config.optim, params, 0.0).init(params)
        state = {
            "params": params,
            "optimizer": moments,
            "step": 0,
            "skipped": 0,
            "skipped_in_row": 0,
        }
        grads = {"kernel": jnp.asarray(g, jnp.float32)}
        after, norm = apply_gradient(config.optim, state, grads, compute_inputs(config, 7))
        clipped = g * (min(1.0, limit / 10) if limit else 1)
        direction = 0.1 * clipped / (np.sqrt(0.001 * clipped**2) + 1) + decay * p
        np.testing.assert_allclose(after["params"]["kernel"], p - rate * direction, rtol=1e-5)
        assert norm == pytest.approx(10)


@pytest.mark.parametrize("warmup", [0, 1, 4, 10])
def test_the_peak_comes_after_the_warm_up(warmup):
    rates = [
        float(compute_inputs(toy.config(optim__warmup_steps=warmup, steps=10), i).learning_rate)
        for i in range(10)
    ]
    falling = [(10 - i) / (10 - warmup) for i in range(warmup, 10)]
    assert rates == pytest.approx(
        [1e-3 * share for share in [*(i / warmup for i in range(warmup)), *falling]]
    )


@pytest.mark.parametrize(
    ("pattern", "spared"),
    [("", set()), ("kernel$", {"a/kernel", "b/kernel"}), ("^b/", {"b/kernel", "b/bias"})],
)
def test_names_that_match_do_not_decay(pattern, spared):
    params = {
        "a": {"kernel": np.ones(3, np.float32), "bias": np.ones(3, np.float32)},
        "b": {"kernel": np.ones(3, np.float32), "bias": np.ones(3, np.float32)},
    }
    still = jax.tree.map(np.zeros_like, params)
    tx = optim.build_optimizer(knobs.Optim(no_decay=pattern), params, 0.25)
    direction, _ = tx.update(still, tx.init(params), params)
    assert {name: float(d[0]) for name, d in flat(direction).items()} == {
        name: 0.0 if name in spared else 0.25 for name in flat(params)
    }


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_a_microbatch_holds_its_share_of_the_rows(parts):
    """And each row is in one of them: the sums are those of the whole batch, whatever the parts."""
    sizes = set()

    def loss(params, micro, key):
        sizes.add(micro["x"].shape[0])
        return jnp.sum(params * micro["x"]), {
            "rows": (jnp.sum(micro["x"]), jnp.float32(len(micro["x"])))
        }

    config = toy.config(optim__accumulation=parts)
    x = jnp.arange(16, dtype=jnp.float32)
    found = accumulate(loss, jnp.float32(1), {"x": x}, jax.random.key(0), config.optim.accumulation)
    assert sizes == {16 // parts}
    assert (float(found[0]), tuple(map(float, found[1]["rows"]))) == (120, (120, 16))


def test_a_run_gives_up_after_so_many_updates_in_a_row():
    for limit in (1, 3):
        config = toy.config(optim__nonfinite_limit=limit)
        for in_row in range(limit):
            arms.check_learned({"skipped_in_row": (in_row, 1)}, np.arange(3), 9, config)
        with pytest.raises(DivergedError, match=f"{limit} updates in a row"):
            arms.check_learned({"skipped_in_row": (limit, 1)}, np.arange(3), 9, config)
