"""Packed rows hold every example once; little is empty, and losses are equal.

That a packed example is the example alone is in tests/net/test_batches.py.
"""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.batch import Batch
from bert_jax.data import packing
from bert_jax.system.trees import flatten_tree
from tests import tiny
from tests.marks import mark_slow
from tests.updates import advance


def count_best_fit(sizes: list[int], length: int, most: int) -> int:
    """Rows that best fit needs if it places one example after the other, the longest first."""
    rows: list[tuple[int, int]] = []  # tokens and examples left
    for n in sorted(sizes, reverse=True):
        fitting = [row for row in rows if row[0] >= n and row[1]]
        best = min(fitting, default=(length, most))
        if fitting:
            rows.remove(best)
        rows.append((best[0] - n, best[1] - 1))
    return len(rows)


@given(st.lists(st.integers(1, 24), min_size=1, max_size=80), st.integers(1, 6))
def test_plan_rows_places_each_example_tightly(sizes, most):
    groups = packing.plan_rows(np.bincount(sizes, minlength=25), 24, most)
    held = Counter(n for rows, lengths in groups for n in lengths for _ in range(rows))
    assert held == Counter(sizes)
    assert all(rows > 0 and sum(lengths) <= 24 and len(lengths) <= most for rows, lengths in groups)
    count = packing.count_rows(groups)
    assert count <= 1.1 * count_best_fit(sizes, 24, most) + 1
    table = packing.assign_examples(groups, np.array(sizes), most)
    assert table.shape == (count, most)
    assert sorted(table[table >= 0].tolist()) == list(range(len(sizes)))
    for row in table:
        mine = row[row >= 0]
        assert sum(sizes[i] for i in mine) <= 24
        assert (row[: len(mine)] >= 0).all()  # the slots that are used come first
    examples, real, alone = packing.measure_efficiency(groups, 24)
    assert examples == pytest.approx(len(sizes) / count)
    assert real == pytest.approx(sum(sizes) / (24 * count))
    assert alone == pytest.approx(sum(sizes) / (24 * len(sizes)))


def make_packed_and_plain(rows: int, length: int) -> tuple[Batch, Batch]:
    """The same examples in packed rows, and each in a row of its own."""
    packed = tiny.batch(rows, length, seed=5, examples=3)
    plain = tiny.batch(3 * rows, length, seed=6)
    for key, value in plain.items():
        value[...] = -1 if key in ("unit_ids", "labels") else 0
    for row, slot in itertools.product(range(rows), range(3)):
        at, own = 3 * row + slot, packed["segment_ids"][row] == slot + 1
        size = own.sum()
        for key in ("tokens", "type_ids", "positions"):
            plain[key][at, :size] = packed[key][row, own]
        plain["segment_ids"][at, :size] = 1
        units = packed["unit_ids"][row, own]
        plain["unit_ids"][at, :size] = np.where(units >= 0, units - np.argmax(own), -1)
        for key in ("example_ids", "copies", "labels"):
            plain[key][at, 0] = packed[key][row, slot]
    return packed, plain


MODERN = "position=rotary rotary_base_near=50 window=3 global_every=2 norm=pre first_norm=false "
MODERN += "biases=false type_vocab=0 pooling=mean pooler=transform"
RELATIVE = "position=relative position_buckets=6 max_positions=12 layer_weights=true "
RELATIVE += "attention_gate=true window=6 global_every=2"


@pytest.mark.parametrize("model", mark_slow(("", MODERN, RELATIVE), [""]))
def test_packed_rows_have_the_same_loss_and_gradients(model):
    packed, plain = make_packed_and_plain(4, 48)
    shape = {"sequence_length": 48, "optim__clip_norm": 0, "model__layers": 2 if model else 1}
    shape |= dict(f"model__{setting}".split("=") for setting in model.split())
    both = tiny.config(batch_size=4, packing=3, **shape), tiny.config(batch_size=12, **shape)
    (one,), state1 = advance(both[0], [packed], devices=1)
    (other,), state2 = advance(both[1], [plain], devices=1)
    for key in other:
        assert one[key] == pytest.approx(other[key], rel=1e-5, abs=1e-7), key
    assert one["examples_per_row"] == 3
    first, second = (flatten_tree(tiny.find_moments(state).mu) for state in (state1, state2))
    for key in first:  # first moments: sums of gradients
        a, b = np.asarray(first[key]), np.asarray(second[key])
        np.testing.assert_allclose(b, a, atol=1e-5 * max(np.abs(a).max(), 1e-3), err_msg=key)
