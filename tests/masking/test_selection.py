"""Selection of whole units, also in a row of 65,535 tokens, where 32 bits only just suffice.

That rules select what the loops of `by_hand.py` do, and views their slices, is in test_corrupt.py.
"""

import itertools

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.config.knobs import Masking
from bert_jax.masking import selection, units
from tests import tiny
from tests.masking.by_hand import BATCHES, equal_rows, list_units, mark, take_fairly

COUNTS = np.round(20_000 / (1 + np.arange(tiny.VOCAB))).astype(np.int64)  # as words of a language


@jax.jit
def select(b, scores, boundary, quota):
    """Return the tokens [B, L] that are selected fairly."""
    units = selection.sort_units(b, scores, boundary)
    taken = selection.select_fairly(units, quota, units.size > 0).taken
    return selection.spread_over_tokens(units, taken, b["unit_ids"])


def test_select_fairly_is_exact_in_a_long_row():
    """65,533 tokens: by themselves, or 40,000 of them in one unit."""
    b = equal_rows(1, 65_535)
    rng = np.random.default_rng(0)
    scores, boundary = rng.integers(0, 2**32, (2, 1, 65_535), dtype=np.uint32)
    scores[:, ::2] = scores[:, 1:2]  # many are equal: the first column comes first
    quotas = [np.full((1, 1), n, np.int32) for n in (65_533, 40_001, 7)]
    for quota in quotas:
        assert select(b, scores, boundary, quota).sum() == quota.item()
    b["unit_ids"][0, 1:40_001] = 1
    ((_, _, units),) = list_units(b, scores)
    for quota in quotas[1:]:
        wanted = mark(b, [(0, take_fairly(units, quota.item(), boundary[0]))])
        np.testing.assert_array_equal(select(b, scores, boundary, quota), wanted)


def weighted(b, power: float, counts=COUNTS):
    weights = units.frequency_weights(counts, power)
    return b | {"unit_scales": units.unit_scales(b["tokens"], b["unit_ids"], weights)}


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


@given(BATCHES, st.sampled_from([0.15, 0.4]), st.sampled_from(["fair", "skip"]))
def test_equal_weights_leave_masks_as_they_are(b, rate, overflow):
    settings = Masking(rate=rate, unit="word", overflow=overflow)
    plain, _ = tiny.mask(b, settings, 3)
    for power, counts in ((0.0, COUNTS), (-0.5, np.full(tiny.VOCAB, 32))):
        same, ledger = tiny.mask(weighted(b, power, counts), settings, 3)
        for key, value in plain.items():
            np.testing.assert_array_equal(same[key], value, err_msg=key)
        share = ledger["weight_fraction"][0] / ledger["weight_fraction"][1]
        selected = ledger["masked_fraction"][0] / ledger["masked_fraction"][1]
        assert share == pytest.approx(selected, rel=1e-5)


@pytest.mark.parametrize(("power", "quota"), [(-1.0, 1), (-0.5, 3), (0.5, 2)])
def test_weighted_selection_is_a_race(power, quota):
    """The chance of a token to be among the first, by all orders of five, within 4.5 sigma."""
    rows, tokens = 10_000, np.array([5, 9, 15, 30, 55])
    b = equal_rows(rows, 7)
    b["tokens"][:, 1:6] = tokens
    weights = (COUNTS[tokens] / COUNTS.sum()) ** power
    expected = np.zeros(5)
    for order in itertools.permutations(range(5)):
        left = np.cumsum(weights[[*order]][::-1])[::-1]
        expected[[*order[:quota]]] += np.prod(weights[[*order]] / left)
    hit = tiny.chosen(tiny.mask(weighted(b, power), Masking(rate=quota / 5, rounding="nearest"))[0])
    error = 4.5 * np.sqrt(expected * (1 - expected) / rows)
    assert (np.abs(hit[:, 1:6].mean(0) - expected) < error).all()
    assert (np.abs(expected - quota / 5) > error).any()  # the test can fail
