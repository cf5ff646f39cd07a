"""Random words against calls of the generator for one token and one example at a time."""

import jax
import numpy as np

from bert_jax.masking import draws
from tests import tiny


def test_draw_token_bits_needs_only_counters():
    b = tiny.batch(3, 16, seed=3, examples=2)
    b["copies"] += 5
    words = np.stack(draws.draw_token_bits(b, np.uint32(7)), axis=-1)
    for row, column in np.argwhere(b["segment_ids"] > 0):
        slot = b["segment_ids"][row, column] - 1
        place = b["copies"][row, slot], b["example_ids"][row, slot], b["positions"][row, column]
        key = jax.random.key(np.uint32(7), impl="threefry2x32")
        for counter in place:
            key = jax.random.fold_in(key, int(counter))
        np.testing.assert_array_equal(words[row, column], jax.random.bits(key, (4,)))


def test_draw_u_steps_by_the_golden_ratio():
    places = np.arange(2_000, dtype=np.int32)[:, None]
    b = {"places": places, "copies": np.full_like(places, 3)}
    u = np.asarray(draws.draw_u(b, np.uint32(7)))[:, 0]
    shift = int(draws.draw_shift(np.uint32(7), np.int32(3)))
    by_hand = [(place * 0x9E3779B9 + shift) % 2**32 for place in range(2_000)]
    assert u.tolist() == by_hand
    for seed, copy in ((8, 3), (7, 4)):
        assert int(draws.draw_shift(np.uint32(seed), np.int32(copy))) != shift
