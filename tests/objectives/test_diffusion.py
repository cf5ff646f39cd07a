"""Masked diffusion held against enumeration: a source whose entropy and conditionals are known."""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import config as configs
from bert_jax import objectives
from bert_jax.config import knobs, resolve
from bert_jax.config.knobs import Masking
from bert_jax.errors import ConfigError
from bert_jax.masking import corrupt, drawn_quotas
from bert_jax.objectives import network
from tests import markov, toy
from tests.markov import CHANCES, ENTROPY, LENGTH, TEXTS

MASK_ONLY = (1.0, 0.0, 0.0)
LAWS = {
    "uniform": Masking(draw="uniform", replace=MASK_ONLY),
    "cosine_low": Masking(draw="cosine_low", replace=MASK_ONLY),
    "cosine_high": Masking(draw="cosine_high", replace=MASK_ONLY),
    "beta": Masking(draw="beta", draw_alpha=1.5, draw_beta=1.5, replace=MASK_ONLY),
}


# --- how often each count occurs ------------------------------------------------------------------


@pytest.mark.parametrize("rounding", ["unbiased", "nearest"])
@pytest.mark.parametrize("name", LAWS)
def test_counts_have_their_probabilities(name, rounding):
    """Of all u of 18 bits, by the function that the update calls.

    Each is rounded by 16 draws of its own. Multiples of the root of 2 spread them evenly.
    """
    settings = dataclasses.replace(LAWS[name], rounding=rounding)
    u = (np.arange(2**18, dtype=np.uint32) << 14)[:, None]
    shifts = np.arange(len(u), dtype=np.uint32)[:, None] * np.uint32(0x6A09E667)
    draws = shifts + (np.arange(16, dtype=np.uint32) << 28)[None]
    chances = drawn_quotas.quota_probabilities(settings, 24)
    for n in (1, 2, 7, 24):
        quotas = corrupt.draw_quotas(
            drawn_quotas.make_drawn(settings, 24),
            u,
            np.full(u.shape, n, np.int32),
            draws if rounding == "unbiased" else None,
        )
        found = np.bincount(np.asarray(quotas).ravel(), minlength=25) / np.size(quotas)
        np.testing.assert_allclose(chances[n], found, atol=2e-5)
        assert chances[n].sum() == pytest.approx(1)
        weights = drawn_quotas.bound_weights(settings, 24)[n, 1 : n + 1]
        np.testing.assert_allclose(weights * chances[n, 1 : n + 1] * np.arange(1, n + 1), 1)


@pytest.mark.parametrize("n", [1, 2, 3, 10])
def test_chances_unbiased_are_the_integrals(n):
    """Under uniform rates, by hand: each whole number from 2 up has 1 / n, and the last half of it.

    One has what lies below it too: all rates up to 1 / n, and half of those up to 2 / n.
    """
    by_hand = [1.5] + [1.0] * (n - 2) + [0.5] if n > 1 else [1.0]
    found = drawn_quotas.quota_probabilities(Masking(draw="uniform"), n)[n, 1:]
    np.testing.assert_allclose(found, np.array(by_hand) / n, atol=1e-12)


def test_weights_between_0_and_1_have_a_mean_of_1():
    for gamma in (0.0, 0.5):
        weights = drawn_quotas.bound_weights(LAWS["uniform"], 24, gamma)
        products = drawn_quotas.quota_probabilities(LAWS["uniform"], 24) * np.arange(25)
        means = (products * weights)[1:].sum(1) / products[1:].sum(1)
        np.testing.assert_allclose(means, 1)
        assert (weights[20, 1:21] == 1).all() == (gamma == 0)


# --- the bound ------------------------------------------------------------------------------------


def cross_entropies(text: np.ndarray, masked: np.ndarray) -> np.ndarray:
    """Return that of each token given those not masked, by the source's own conditionals."""
    return -np.log(markov.conditionals(text, masked)[np.arange(LENGTH), text])


def contributions(settings: Masking, count: int, reverse: bool = False) -> np.ndarray:
    """Return what each of `count` texts adds to the bound, a token."""
    rng = np.random.default_rng(0)
    texts_ = TEXTS[rng.choice(len(TEXTS), count, p=CHANCES)]
    tokens = markov.rows(texts_)
    columns = np.broadcast_to(np.arange(LENGTH + 2, dtype=np.int32), tokens.shape)
    ids = np.arange(count, dtype=np.int32)[:, None]
    batch = {
        "tokens": tokens,
        "positions": columns,
        "segment_ids": np.ones_like(tokens),
        "unit_ids": np.where((columns > 0) & (columns <= LENGTH), columns, -1).astype(np.int32),
        "example_ids": ids,
        "places": ids,
        "copies": np.zeros_like(ids),
    }
    traced = toy.traced(settings, LENGTH + 2)
    traced = traced._replace(drawn=drawn_quotas.make_drawn(settings, LENGTH + 2, 1.0))
    out, _ = toy._apply(batch, traced, Masking(rounding=settings.rounding), LENGTH + 2)
    masked = np.asarray(out["inputs"])[:, 1:-1] == toy.SPECIAL.mask
    weights = np.asarray(out["bound_weights"]).max(1)
    if reverse:
        table = drawn_quotas.bound_weights(settings, LENGTH)
        weights = table[LENGTH, LENGTH + 1 - masked.sum(1)]
    sums = [
        cross_entropies(text, hidden)[hidden].sum()
        for text, hidden in zip(texts_, masked, strict=True)
    ]
    return np.array(sums) * weights / LENGTH


@pytest.mark.parametrize("rounding", ["unbiased", "nearest"])
@pytest.mark.parametrize("name", LAWS)
def test_bound_of_true_conditionals_is_the_entropy(name, rounding):
    settings = dataclasses.replace(LAWS[name], rounding=rounding)
    found = contributions(settings, 3000)
    error = found.std() / math.sqrt(len(found))
    assert abs(found.mean() - ENTROPY) < 3 * error
    assert error < 0.03 * ENTROPY
    reverse = contributions(settings, 3000, reverse=True)
    assert abs(reverse.mean() - ENTROPY) > 3 * reverse.std() / math.sqrt(len(reverse))


def masked_batch(gamma: float = 1.0):
    settings = LAWS["uniform"]
    batch = toy.batch(8, 24, examples=2, seed=2)
    traced = toy.traced(settings, 24)._replace(drawn=drawn_quotas.make_drawn(settings, 24, gamma))
    out, _ = toy._apply(batch, traced, Masking(), 24)
    return jax.tree.map(np.asarray, out)


def test_diffusion_loss_is_the_formula():
    """Example by example: the sum of cross-entropies over k P(k | n), and n tokens."""
    batch = masked_batch()
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(8, 24, toy.VOCAB))
    chances = drawn_quotas.quota_probabilities(LAWS["uniform"], 24)
    total = tokens = 0.0
    for row in range(8):
        for example in (1, 2):
            n = int(((batch["segment_ids"][row] == example) & (batch["unit_ids"][row] >= 0)).sum())
            own = [
                slot
                for slot, column in enumerate(batch["predict_positions"][row])
                if batch["predict_weights"][row, slot]
                and batch["segment_ids"][row, column] == example
            ]
            tokens += n
            for slot in own:
                allowed = np.delete(logits[row, slot], toy.SPECIAL.mask)
                target = logits[row, slot, batch["predict_targets"][row, slot]]
                entropy = np.log(np.exp(allowed).sum()) - target
                total += entropy / (len(own) * chances[n, len(own)])
    found = objectives.TABLE["diffusion"].loss(jnp.asarray(logits, jnp.float32), batch)
    assert float(found["diffusion_loss"][0]) == pytest.approx(total, rel=1e-5)
    assert float(found["diffusion_loss"][1]) == tokens


@pytest.mark.parametrize("gamma", [pytest.param(0.5, marks=pytest.mark.slow), 1.0])
def test_diffusion_gradient_is_finite_differences(gamma):
    batch = masked_batch(gamma)
    objective = objectives.TABLE["diffusion"].configure(knobs.Objective(gamma=gamma))
    config = toy.config(
        objectives__diffusion__weight=1.0,
        masking__draw="uniform",
        masking__replace=(1, 0, 0),
        pairs="none",
    )
    params = toy.init(config)
    model = network.build(config, toy.VOCAB)

    @jax.jit
    def loss(params):
        total, count = objective.loss(network.outputs(model, params, batch)["diffusion"], batch)[
            "diffusion_loss"
        ]
        return total / count

    rng = np.random.default_rng(0)
    along = jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), params)
    slope = sum(
        float((a * b).sum())
        for a, b in zip(
            jax.tree.leaves(jax.grad(loss)(params)), jax.tree.leaves(along), strict=True
        )
    )
    step = 1e-3
    up, down = (
        float(loss(jax.tree.map(lambda p, a, s=sign: p + s * step * a, params, along)))
        for sign in (1, -1)
    )
    assert (up - down) / (2 * step) == pytest.approx(slope, rel=2e-2)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "masking.replace = "),
        ({"masking.replace": MASK_ONLY}, "some numbers of masked tokens cannot occur"),
        (
            {"masking.replace": MASK_ONLY, "masking.draw": "uniform", "masking.draw_high": 0.5},
            "cannot occur",
        ),
        (
            {"masking.replace": MASK_ONLY, "masking.draw": "uniform", "sequence_length": 4096}
            | {"model.max_positions": 4096},
            "a table of sequence_length",
        ),
        (
            {"masking.replace": MASK_ONLY, "masking.draw": "uniform", "masking.unit": "word"},
            "counts tokens",
        ),
    ],
)
def test_diffusion_refuses_what_gives_no_bound(changes, said):
    tree = configs.default()
    configs.put(tree, ["objectives", "diffusion", "weight"], 1.0)
    for path, value in changes.items():
        configs.put(tree, path.split("."), value)
    with pytest.raises(ConfigError, match=said):
        resolve(tree)
    tree.objectives.diffusion = {"weight": 1.0, "gamma": 0.0}
    assert resolve(tree).heads[0] == "mlm"
