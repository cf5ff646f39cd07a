"""Selection against loops over the units of one example, as the original has them."""

from __future__ import annotations

import functools
from itertools import chain

import jax
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.masking import selection
from tests import toy
from tests.masking.by_hand import BATCHES, list_units, mark, take_as_the_original, take_fairly

QUOTAS = st.lists(st.integers(0, 16), min_size=6, max_size=6)


def draw_scores(b, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return scores and boundaries [B, L]; of 40 values, so that some scores are equal."""
    rng = np.random.default_rng(seed)
    shape = b["tokens"].shape
    scores = rng.integers(0, 40, shape).astype(np.uint32) << 20
    return scores, rng.integers(0, 2**32, shape, dtype=np.uint32)


@functools.partial(jax.jit, static_argnums=0)
def run_rule(rule, b, scores, boundary, *quotas):
    """Return the tokens [B, L] that each rule call selects, and the last quota and shortfall."""
    units = selection.sort_units(b, scores, boundary)
    among, hits = units.size > 0, []
    for quota in quotas:
        chosen = rule(units, quota, among)
        among = chosen.taken
        hits.append(selection.spread_over_tokens(units, chosen.taken, b["unit_ids"]))
    return hits, chosen.quota, chosen.shortfall


@given(BATCHES, QUOTAS)
def test_select_fairly_is_the_loop(b, quotas):
    quotas = np.array(quotas, np.int32).reshape(3, 2)
    scores, boundary = draw_scores(b)
    (hit,), quota, short = run_rule(selection.select_fairly, b, scores, boundary, quotas)
    by_hand = [
        (row, take_fairly(units, quotas[row, slot], boundary[row]))
        for row, slot, units in list_units(b, scores)
    ]
    np.testing.assert_array_equal(hit, mark(b, by_hand))
    np.testing.assert_array_equal(quota, quotas)
    assert not short.any()


@given(BATCHES, QUOTAS, QUOTAS)
def test_select_skipping_is_the_original_loop(b, quotas, fewer):
    """Twice: the predictions are selected among the units that are corrupted."""
    asked = [np.array(each, np.int32).reshape(3, 2) for each in (quotas, fewer)]
    scores, boundary = draw_scores(b)
    (hit, again), quota, short = run_rule(selection.select_skipping, b, scores, boundary, *asked)
    first, second = [], []
    for row, slot, units in list_units(b, scores):
        first.append((row, take_as_the_original(units, asked[0][row, slot])))
        second.append((row, take_as_the_original(first[-1][1], asked[1][row, slot])))
        missing = quota[row, slot] - len([*chain(*second[-1][1])])
        assert 0 <= missing <= short[row, slot] < max(map(len, units))
    np.testing.assert_array_equal(hit, mark(b, first))
    np.testing.assert_array_equal(again, mark(b, second))


@given(BATCHES, QUOTAS, st.integers(0, 6))
def test_select_slice_is_a_difference(b, quotas, more):
    low = np.array(quotas, np.int32).reshape(3, 2)
    scores, boundary = draw_scores(b)
    outer, inner = (
        run_rule(selection.select_fairly, b, scores, boundary, quota)[0][0]
        for quota in (low + more, low)
    )
    units = selection.sort_units(b, scores, boundary)
    found = selection.select_slice(units, low, low + more)
    hit = selection.spread_over_tokens(units, found.taken, b["unit_ids"])
    assert (outer | ~inner).all()  # nested over quotas
    np.testing.assert_array_equal(hit, outer & ~inner)
    assert (np.asarray(found.quota) == more).all()


def test_select_fairly_is_exact_in_a_long_row():
    """65,533 tokens: by themselves, or 40,000 of them in one unit."""
    b = toy.batch(1, 65_535, seed=5)
    b["segment_ids"][:] = 1
    b["unit_ids"][0, 1:-1] = np.arange(1, 65_534)
    b["unit_ids"][0, [0, -1]] = -1
    rng = np.random.default_rng(0)
    scores, boundary = rng.integers(0, 2**32, (2, 1, 65_535), dtype=np.uint32)
    quotas = [np.full((1, 1), n, np.int32) for n in (65_533, 40_001, 39_999, 7)]
    for quota in quotas:
        (hit,), *_ = run_rule(selection.select_fairly, b, scores, boundary, quota)
        assert hit.sum() == quota.item()
    b["unit_ids"][0, 1:40_001] = 1
    for quota in quotas:
        (hit,), *_ = run_rule(selection.select_fairly, b, scores, boundary, quota)
        ((row, _, units),) = list_units(b, scores)
        by_hand = take_fairly(units, quota.item(), boundary[row])
        np.testing.assert_array_equal(hit, mark(b, [(row, by_hand)]))
