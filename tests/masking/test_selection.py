"""Selection of whole units in a row of 65,535 tokens, where 32 bits only just suffice.

That rules select what the loops of `by_hand.py` do, and views their slices, is in test_corrupt.py.
"""

from __future__ import annotations

import jax
import numpy as np

from bert_jax.masking import selection
from tests import toy
from tests.masking.by_hand import list_units, mark, take_fairly


@jax.jit
def select(b, scores, boundary, quota):
    """Return the tokens [B, L] that are selected fairly."""
    units = selection.sort_units(b, scores, boundary)
    taken = selection.select_fairly(units, quota, units.size > 0).taken
    return selection.spread_over_tokens(units, taken, b["unit_ids"])


def test_select_fairly_is_exact_in_a_long_row():
    """65,533 tokens: by themselves, or 40,000 of them in one unit."""
    b = toy.batch(1, 65_535, seed=5)
    b["segment_ids"][:] = 1
    b["unit_ids"][0, 1:-1] = np.arange(1, 65_534)
    b["unit_ids"][0, [0, -1]] = -1
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
