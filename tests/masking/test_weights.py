"""Masks that select some units more often: their order, its distribution, and where weights end."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.batch import HOST_KEYS
from bert_jax.config.knobs import Masking
from bert_jax.data import pipeline
from bert_jax.masking import selection, units
from tests import corpora, toy
from tests.masking.by_hand import BATCHES

COUNTS = np.round(20_000 / (1 + np.arange(toy.VOCAB))).astype(np.int64)  # as words of a language


def weighted(b, power: float, counts=COUNTS):
    weights = units.frequency_weights(counts, power)
    return b | {"unit_scales": units.unit_scales(b["tokens"], b["unit_ids"], weights)}


# --- times and weights ----------------------------------------------------------------------------


def test_sort_units_draws_exponential_times():
    """Of scores in order: -log(1 - s), but for the last of 4,096 cells, which has no end."""
    edges = np.arange(1, 2**12, dtype=np.int64) << 20
    near = [edges + offset for offset in (-513, -257, -256, -1, 0, 1, 255, 256, 512)]
    scores = np.unique(np.concatenate([*near, [0, 255, 256, 2**32 - 1]])) % 2**32
    scores = np.sort(scores).astype(np.uint32)
    times = np.asarray(jax.jit(selection._draw_times)(scores))
    assert times.dtype == np.float32
    assert (np.diff(times) >= 0).all()
    assert times[0] > 0
    inside = scores < 2**32 - 2**20
    later = 1 - (scores[inside] + 0.5) / 2**32  # share of the scores above
    assert np.abs(np.exp(-times[inside].astype(np.float64)) - later).max() < 3e-5
    last = np.asarray(selection._draw_times(np.arange(2**32 - 2**20, 2**32, 64, dtype=np.uint32)))
    assert last.mean() == pytest.approx(np.log(4096) + 1, rel=1e-3)


def test_sort_units_rounds_times_once():
    """No rounding but that of the last addition: fused or not, it is the same number."""
    scores = np.random.default_rng(0).integers(0, 2**32, 100_000, dtype=np.uint32)
    start, rise = selection._make_table().astype(np.float64).T
    cell, step = scores >> 20, (scores >> 8) & 4095
    product = rise[cell] * (2 * step + 1)
    np.testing.assert_array_equal(product, product.astype(np.float32))
    exact = (start[cell] + product).astype(np.float32)
    np.testing.assert_array_equal(np.asarray(jax.jit(selection._draw_times)(scores)), exact)


@given(BATCHES, st.sampled_from([-1.0, -0.5, 0.5]))
def test_unit_scales_are_means_of_token_weights(b, power):
    found = weighted(b, power)["unit_scales"]
    for row, (tokens, unit_ids) in enumerate(zip(b["tokens"], b["unit_ids"], strict=True)):
        for column in range(32):
            own = tokens[unit_ids == column]
            expected = np.mean((COUNTS[own] / COUNTS.sum()) ** power) if len(own) else 0
            assert found[row, column] * expected == pytest.approx(float(len(own) > 0), rel=1e-6)


def test_frequency_weights_of_unseen_tokens():
    weights = units.frequency_weights(np.array([0, 1, 7]), -1.0)
    np.testing.assert_allclose(weights, [8, 8, 8 / 7])


# --- the order ------------------------------------------------------------------------------------


@given(BATCHES, st.sampled_from([0.15, 0.4]), st.sampled_from(["fair", "skip"]))
def test_equal_weights_leave_masks_as_they_are(b, rate, overflow):
    settings = Masking(rate=rate, unit="word", overflow=overflow)
    plain, _ = toy.mask(b, settings, 3)
    for power, counts in ((0.0, COUNTS), (-0.5, np.full(toy.VOCAB, 32))):
        same, ledger = toy.mask(weighted(b, power, counts), settings, 3)
        for key, value in plain.items():
            np.testing.assert_array_equal(same[key], value, err_msg=key)
        share = ledger["weight_fraction"][0] / ledger["weight_fraction"][1]
        selected = ledger["masked_fraction"][0] / ledger["masked_fraction"][1]
        assert share == pytest.approx(selected, rel=1e-5)


@given(BATCHES, st.integers(0, 2**31))
def test_weighted_units_are_whole_and_nested(b, seed):
    b = weighted(b, -0.7)
    before = np.zeros(b["tokens"].shape, bool)
    for rate in (0.05, 0.15, 0.4, 0.8, 1.0):
        hit = toy.chosen(toy.mask(b, Masking(rate=rate, unit="word"), seed)[0])
        assert (hit | ~before).all()
        for row, unit_ids in enumerate(b["unit_ids"]):
            for unit in set(unit_ids[unit_ids >= 0]):
                assert len(set(hit[row][unit_ids == unit])) == 1
        before = hit
    assert (before == (b["unit_ids"] >= 0)).all()


def simulated(b, rate: float, power: float, draws: int, seed: int) -> np.ndarray:
    """How often each token is selected, [draws, B, L]: uniform draws, numpy's logarithm, a loop."""
    random = np.random.default_rng(seed)
    found = np.zeros((draws, *b["tokens"].shape), bool)
    weights = (COUNTS / COUNTS.sum()) ** power
    for row, (tokens, unit_ids) in enumerate(zip(b["tokens"], b["unit_ids"], strict=True)):
        members = [np.flatnonzero(unit_ids == unit) for unit in np.unique(unit_ids[unit_ids >= 0])]
        means = np.array([weights[tokens[own]].mean() for own in members])
        quota = max(1, round((unit_ids >= 0).sum() * rate))
        for draw in range(draws):
            order = np.argsort(-np.log(random.random(len(members))) / means)
            taken = 0
            for number in order:
                own = members[number]
                if taken + random.random() * len(own) < quota:
                    found[draw, row, own] = True
                taken += len(own)
                if taken >= quota:
                    break
    return found


@pytest.mark.parametrize(
    ("power", "rate", "longest"),
    [
        (-1.0, 0.2, 3),
        pytest.param(-0.5, 0.15, 1, marks=pytest.mark.slow),
        pytest.param(0.5, 0.3, 1, marks=pytest.mark.slow),
        pytest.param(-0.5, 0.4, 3, marks=pytest.mark.slow),
    ],
)
def test_weighted_rates_are_those_of_a_simulation(power, rate, longest):
    """Within three standard errors, of draws by another generator and numpy's logarithm."""
    draws = 200
    b = toy.batch(24, 40, seed=7, longest_unit=longest)
    ours = weighted(b, power)
    settings = Masking(rate=rate, unit="word", max_unit=longest, replace=(1.0, 0.0, 0.0))
    found = np.array([toy.chosen(toy.mask(ours, settings, seed)[0]) for seed in range(draws)])
    expected = simulated(b, rate, power, draws, seed=1)
    eligible = b["unit_ids"] >= 0
    ranks = np.argsort(np.argsort(COUNTS[b["tokens"][eligible]], kind="stable"), kind="stable")
    decile = np.full(eligible.shape, -1)
    decile[eligible] = ranks * 10 // len(ranks)
    rates = []
    for number in range(10):
        of = [x[:, decile == number].mean(axis=1) for x in (found, expected)]  # by draw
        error = np.sqrt(sum(x.var(ddof=1) / draws for x in of))
        assert abs(of[0].mean() - of[1].mean()) < 3 * error, number
        rates.append(of[0].mean())
    assert (rates[0] > rates[9] * 1.2) == (power < 0)
    assert (rates[9] > rates[0] * 1.2) == (power > 0)
    plain = np.array([toy.chosen(toy.mask(b, settings, seed)[0]) for seed in range(draws)])
    apart = [x[:, decile == 0].mean(axis=1) for x in (plain, expected)]
    error = np.sqrt(sum(x.var(ddof=1) / draws for x in apart))
    assert abs(apart[0].mean() - apart[1].mean()) > 6 * error  # the test can fail


# --- batches and programs -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    documents = corpora.random_documents(60, seed=0)
    shard = corpora.shard(documents, toy.VOCAB)
    made = corpora.prepared(tmp_path_factory.mktemp("weights"), [shard])
    return dataclasses.replace(made, unigrams=COUNTS)


WEIGHTED = {"masking__weights": "frequency"}


@pytest.mark.parametrize(
    "kind",
    [{}, {"packing": 3}, {"masking__dupe_factor": 2}, {"masking__unit": "word", "packing": 2}],
    ids=str,
)
def test_batch_holds_the_scales_of_its_units(prepared, kind):
    shape = {"sequence_length": 32, "pairs": "none", "batch_size": 8} | kind
    plain, ours = (
        pipeline.Source(prepared, "train", toy.config(**shape | more)) for more in ({}, WEIGHTED)
    )
    for step in (0, 5):
        batch = ours.batch(step)
        assert set(batch) == {*HOST_KEYS, "unit_scales"}
        for key, value in plain.batch(step).items():
            np.testing.assert_array_equal(batch[key], value, err_msg=key)
        np.testing.assert_array_equal(batch["unit_scales"], weighted(batch, -0.5)["unit_scales"])
    assert ours.fingerprint != plain.fingerprint
    held = pipeline.Source(prepared, "train", toy.config(**shape | WEIGHTED), seed=0)
    assert "unit_scales" not in held.evaluation_batch(0, 4)  # evaluations select all alike
