"""Masked diffusion held against enumeration: a source whose entropy and conditionals are known."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import objectives
from bert_jax.config import knobs
from bert_jax.config.knobs import Masking
from bert_jax.masking import drawn_quotas
from tests import markov, tiny
from tests.markov import CHANCES, ENTROPY, LENGTH, TEXTS
from tests.masking import by_hand
from tests.reference import log_softmax

NAMES = ("uniform", "cosine_low", "cosine_high", "beta")
USUAL = Masking(draw_alpha=1.5, draw_beta=1.5, replace=(1.0, 0.0, 0.0))
LAWS = {name: dataclasses.replace(USUAL, draw=name) for name in NAMES}


# --- the weights of the bound ---------------------------------------------------------------------


@pytest.mark.parametrize("name", LAWS)
def test_bound_weights_divide_by_count_and_chance(name):
    n = 20
    chances = drawn_quotas.quota_probabilities(LAWS[name], 24)
    weights = drawn_quotas.bound_weights(LAWS[name], 24)
    counts = np.arange(1, n + 1)
    np.testing.assert_allclose(weights[n, counts] * chances[n, counts] * counts, 1)


def test_weights_of_a_power_have_a_mean_of_1():
    weights = drawn_quotas.bound_weights(LAWS["uniform"], 24, 0.5)
    products = drawn_quotas.quota_probabilities(LAWS["uniform"], 24) * np.arange(25)
    means = (products * weights)[1:].sum(1) / products[1:].sum(1)
    np.testing.assert_allclose(means, 1)


# --- the bound ------------------------------------------------------------------------------------


def corrupt(batch: dict, settings: Masking, gamma: float = 1.0) -> dict:
    """Return a batch masked at drawn rates, with the weights of the bound."""
    length = batch["tokens"].shape[1]
    drawn = drawn_quotas.make_rate_tables(settings, length, gamma)
    step_inputs = tiny.make_step_inputs(settings, length)._replace(drawn=drawn)
    out, _ = tiny._apply(batch, step_inputs, Masking(rounding=settings.rounding), length)
    return jax.tree.map(np.asarray, out)


def sum_contributions(settings: Masking, count: int, reverse: bool = False) -> np.ndarray:
    """Return what each of `count` texts adds to the bound, a token, by true conditionals."""
    rng = np.random.default_rng(0)
    texts = TEXTS[rng.choice(len(TEXTS), count, p=CHANCES)]
    batch = by_hand.equal_rows(count, LENGTH + 2)
    batch |= {"tokens": markov.rows(texts), "places": batch["example_ids"]}
    out = corrupt(batch, settings)
    masked = out["inputs"][:, 1:-1] == tiny.SPECIAL.mask
    weights = out["bound_weights"].max(1)
    if reverse:
        table = drawn_quotas.bound_weights(settings, LENGTH)
        weights = table[LENGTH, LENGTH + 1 - masked.sum(1)]
    sums = []
    for text, hidden in zip(texts, masked, strict=True):
        chances = markov.conditionals(text, hidden)[np.arange(LENGTH), text]
        sums.append(-np.log(chances)[hidden].sum())
    return np.array(sums) * weights / LENGTH


@pytest.mark.parametrize(
    ("name", "rounding"), [*((name, "unbiased") for name in LAWS), ("uniform", "nearest")]
)
def test_bound_of_true_conditionals_is_the_entropy(name, rounding):
    """And weights in the reverse order give another number."""
    settings = dataclasses.replace(LAWS[name], rounding=rounding)
    found = sum_contributions(settings, 3000)
    error = found.std() / math.sqrt(len(found))
    assert abs(found.mean() - ENTROPY) < 3 * error
    assert error < 0.03 * ENTROPY
    reverse = sum_contributions(settings, 3000, reverse=True)
    assert abs(reverse.mean() - ENTROPY) > 3 * reverse.std() / math.sqrt(len(reverse))


# --- the loss -------------------------------------------------------------------------------------


def test_diffusion_loss_is_the_formula():
    """Example by example: the sum of cross-entropies over k P(k | n), and n tokens."""
    batch = corrupt(tiny.batch(8, 24, examples=2, seed=2), LAWS["uniform"])
    logits = np.random.default_rng(0).normal(size=(8, 24, tiny.VOCAB))
    allowed = logits.copy()
    allowed[..., tiny.SPECIAL.mask] = -np.inf
    chances = drawn_quotas.quota_probabilities(LAWS["uniform"], 24)
    total = tokens = 0.0
    for row in range(8):
        used = np.flatnonzero(batch["predict_weights"][row])
        examples = batch["segment_ids"][row, batch["predict_positions"][row]]
        for example in (1, 2):
            n = int(((batch["segment_ids"][row] == example) & (batch["unit_ids"][row] >= 0)).sum())
            tokens += n
            own = [slot for slot in used if examples[slot] == example]
            for slot in own:
                target = batch["predict_targets"][row, slot]
                entropy = -log_softmax(allowed[row, slot])[target]
                total += entropy / (len(own) * chances[n, len(own)])
    found = objectives.TABLE["diffusion"].loss(jnp.asarray(logits, jnp.float32), batch)
    assert float(found["diffusion_loss"][0]) == pytest.approx(total, rel=1e-5)
    assert float(found["diffusion_loss"][1]) == tokens


@pytest.mark.parametrize("gamma", [0.0, 0.5])
def test_power_of_the_weights_counts_predictions(gamma):
    """A gamma of 0 is `mlm`; below 1 the loss is a mean over predicted tokens."""
    batch = corrupt(tiny.batch(8, 24, examples=2, seed=2), LAWS["uniform"], gamma)
    logits = np.random.default_rng(0).normal(size=(8, 24, tiny.VOCAB)).astype(np.float32)
    objective = objectives.TABLE["diffusion"].configure(knobs.Objective(gamma=gamma))
    total, count = objective.loss(logits, batch)["diffusion_loss"]
    assert float(count) == batch["predict_weights"].sum()
    plain, _ = objectives.TABLE["mlm"].loss(logits, batch)["mlm_loss"]
    assert (float(total) == pytest.approx(float(plain), rel=1e-6)) == (gamma == 0)
