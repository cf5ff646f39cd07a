"""Quotas of drawn rates: their tables against plain numpy, and how often the tables are sent."""

import dataclasses

import jax
import numpy as np
import pytest

from bert_jax.config.knobs import Masking
from bert_jax.errors import DivergedError
from bert_jax.masking import corrupt, drawn_quotas, draws, quotas, rates
from bert_jax.training import program
from bert_jax.training.ledger import Ledger
from bert_jax.training.step import compute_inputs
from tests import tiny
from tests.masking.by_hand import LAWS, count_by_example, read_law


@pytest.mark.parametrize(("runs", "step"), [(1, "jit"), (2, "jit"), (1, "pmap")])
def test_tables_cross_to_the_devices_once(runs, step):
    """The weights of the bound alone are 65 x 65 float32; an update sends less than 100 bytes."""
    law = {"objectives__diffusion__weight": 1, "masking__draw": "uniform", "pairs": "none"}
    law |= {"masking__replace": "1,0,0", "sequence_length": 64}
    config = tiny.config(**law, batch_size=8, parallel__step=step)
    mesh = program.mesh_for(config, runs)
    made = program.Program(config, tiny.SPECIAL, tiny.VOCAB, mesh, runs)
    made._update = lambda state, batch, step_inputs: step_inputs
    step_inputs = [compute_inputs(config, 0)] * runs
    first, second = (made.update({}, tiny.batch(8, 64), step_inputs) for _ in range(2))
    sent = [leaf.nbytes for leaf in jax.tree.leaves(second) if not isinstance(leaf, jax.Array)]
    assert sum(sent) < 100 * runs
    assert all(map(lambda a, b: a is b, *map(jax.tree.leaves, (first.drawn, second.drawn))))
    weights = np.asarray(second.drawn.weights).reshape(-1, 65, 65)
    np.testing.assert_array_equal(weights[-1], step_inputs[0].drawn.weights)


ROUNDINGS = {"uniform": "unbiased", "beta": "nearest", "cosine_low": "nearest"}
ROUNDINGS |= {"cosine_high": "unbiased"}


@pytest.mark.parametrize(("name", "rounding"), ROUNDINGS.items())
def test_draw_quotas_rounds_length_times_rate(name, rounding):
    """At least 1; another rounding of float32 may tip what is almost between two numbers."""
    settings = dataclasses.replace(LAWS[name], rounding=rounding)
    b = tiny.batch(512, 48, seed=1, examples=2)
    u = np.asarray(jax.jit(draws.draw_u)(b, np.uint32(0))) / 2**32
    lengths = count_by_example(b, b["unit_ids"] >= 0)
    product = np.maximum(lengths * read_law(settings, u), 1)
    if rounding == "unbiased":
        border, word = product % 1, tiny.rounding_draws(b, 0) / 2**32
        expected, near = np.floor(product) + (word < border), np.abs(word - border)
    else:
        expected, near = np.round(product), np.abs(product % 1 - 0.5)
    out, ledger = tiny.mask(b, settings, slots=48)
    selected = count_by_example(b, tiny.chosen(out))
    sure = (near > 1e-4) & (lengths > 0)
    assert sure.mean() > 0.95
    np.testing.assert_array_equal(selected[sure], expected[sure])
    decile = np.minimum((u * 10).astype(int), 9)
    by_hand = [selected[decile == d].sum() for d in range(10)]
    assert [ledger[f"masked_decile_{d}"][0] for d in range(10)] == by_hand


@pytest.mark.parametrize("rounding", ["unbiased", "nearest"])
def test_a_law_without_width_is_a_fixed_rate(rounding):
    """For every length, also if the product with 15 % is exactly between two numbers."""
    same = Masking(draw="uniform", draw_low=0.15, draw_high=0.15, rounding=rounding)
    lengths = np.arange(2049, dtype=np.int32)[:, None]
    u = np.arange(2049, dtype=np.uint32)[:, None] * np.uint32(0x9E3779B9)
    word = u * np.uint32(0x85EBCA6B) if rounding == "unbiased" else None
    found = corrupt.draw_quotas(drawn_quotas.make_rate_tables(same, 2048), u, lengths, word)
    fixed = quotas.selection_quotas(same, 0.15, 2048)
    more = 0 if word is None else word[:, 0] < fixed.chance
    np.testing.assert_array_equal(np.asarray(found)[:, 0], fixed.whole + more)


@pytest.mark.parametrize("rounding", ["unbiased", "nearest"])
@pytest.mark.parametrize("name", LAWS)
def test_quota_probabilities_are_counts_of_draws(name, rounding):
    settings = dataclasses.replace(LAWS[name], rounding=rounding)
    chances = drawn_quotas.quota_probabilities(settings, 24)
    exact = np.maximum(24 * read_law(settings, (np.arange(400_000) + 0.5) / 400_000), 1)
    if rounding == "nearest":
        by_hand = np.bincount(exact.round().astype(int), minlength=26)
    else:
        whole, up = exact.astype(int), exact % 1
        by_hand = np.bincount(whole, 1 - up, 26) + np.bincount(whole + 1, up, 26)
    np.testing.assert_allclose(chances[24], by_hand[:25] / 400_000, atol=1e-4)
    np.testing.assert_allclose(chances[1:].sum(1), 1)


@pytest.mark.parametrize(
    ("name", "rounding"), [("uniform", "nearest"), ("beta", "unbiased"), ("cosine_low", "unbiased")]
)
def test_make_rate_tables_tells_the_ledger_the_law(name, rounding):
    """It accepts rates drawn by the law, and stops a run whose rates another law has drawn."""
    settings = dataclasses.replace(LAWS[name], rounding=rounding)
    other = dataclasses.replace(settings, draw="cosine_high" if name == "uniform" else "uniform")
    expected = drawn_quotas.make_rate_tables(settings, 48).expected

    def add_updates(drawn_by: Masking) -> Ledger:
        ledger = Ledger(settings, length=48)
        tables = drawn_quotas.make_rate_tables(drawn_by, 48)._replace(expected=expected)
        step_inputs = tiny.make_step_inputs(settings, 48)._replace(drawn=tables)
        for step in range(4):
            b = tiny.batch(256, 48, seed=step)
            b["places"] += 256 * step
            metrics = tiny._apply(b, step_inputs, Masking(rounding=rounding), 48)[1]
            ledger.add(jax.tree.map(float, metrics), rates.rate_at(settings, step, 4), 256, step)
        return ledger

    totals = add_updates(settings).totals
    assert sum(totals[f"asked_decile_{d}"] for d in range(10)) == totals["asked"]
    with pytest.raises(DivergedError, match=r"quotas of draws in decile \d sum to"):
        add_updates(other)
