"""Selection against loops over the units of one example, as the original has them."""

from __future__ import annotations

import functools

import jax
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.masking import selection
from tests import toy
from tests.masking.by_hand import BATCHES, list_units, mark, take_fairly

QUOTAS = st.lists(st.integers(0, 16), min_size=6, max_size=6)


def draw_scores(b, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return scores and boundaries [B, L]; of 40 values, so that some scores are equal."""
    rng = np.random.default_rng(seed)
    shape = b["tokens"].shape
    scores = rng.integers(0, 40, shape).astype(np.uint32) << 20
    return scores, rng.integers(0, 2**32, shape, dtype=np.uint32)


@functools.partial(jax.jit, static_argnums=0)
def select(rule, b, scores, boundary, *quotas):
    """Return the tokens [B, L] that a rule selects."""
    units = selection.sort_units(b, scores, boundary)
    if rule == "slice":
        chosen = selection.select_slice(units, *quotas)
    else:
        chosen = selection.RULES[rule](units, *quotas, units.size > 0)
    return selection.spread_over_tokens(units, chosen.taken, b["unit_ids"])


def select_by_hand(b, scores, boundary, quotas) -> np.ndarray:
    taken = [
        (row, take_fairly(units, quotas[row, slot], boundary[row]))
        for row, slot, units in list_units(b, scores)
    ]
    return mark(b, taken)


@given(BATCHES, QUOTAS, st.integers(0, 6))
def test_select_slice_is_a_difference_of_quotas(b, quotas, more):
    """Of what the rule selects with either, which are nested."""
    low = np.array(quotas, np.int32).reshape(3, 2)
    scores, boundary = draw_scores(b)
    inner, outer = (select("fair", b, scores, boundary, quota) for quota in (low, low + more))
    np.testing.assert_array_equal(inner, select_by_hand(b, scores, boundary, low))
    assert (outer | ~inner).all()
    hit = select("slice", b, scores, boundary, low, low + more)
    np.testing.assert_array_equal(hit, outer & ~inner)


def test_select_fairly_is_exact_in_a_long_row():
    """65,533 tokens: by themselves, or 40,000 of them in one unit."""
    b = toy.batch(1, 65_535, seed=5)
    b["segment_ids"][:] = 1
    b["unit_ids"][0, 1:-1] = np.arange(1, 65_534)
    b["unit_ids"][0, [0, -1]] = -1
    rng = np.random.default_rng(0)
    scores, boundary = rng.integers(0, 2**32, (2, 1, 65_535), dtype=np.uint32)
    quotas = [np.full((1, 1), n, np.int32) for n in (65_533, 40_001, 7)]
    for quota in quotas:
        assert select("fair", b, scores, boundary, quota).sum() == quota.item()
    b["unit_ids"][0, 1:40_001] = 1
    for quota in quotas[1:]:
        by_hand = select_by_hand(b, scores, boundary, quota)
        np.testing.assert_array_equal(select("fair", b, scores, boundary, quota), by_hand)
