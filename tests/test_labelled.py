"""The stream of a task's batches, and what grouping rows by length does to it and what it leaves
alone.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.config import knobs
from bert_jax.data import tokenizer
from bert_jax.data.batches import order
from bert_jax.data.labelled import batches as labelled
from bert_jax.data.labelled import examples, features
from bert_jax.data.labelled.batches import rounded

WORDS = tokenizer.Tokenizer([*tokenizer.SPECIALS, "a", "b"], tokenizer.Style())
MANY = (
    np.random.default_rng(0).geometric(0.04, 3_000).clip(1, 120)
)  # words of many texts, most of them short


def source(sizes, batch_size: int, group: str = "length", seed: int = 0) -> labelled.Source:
    """Of texts with so many words, which with [CLS] and [SEP] are as many tokens and two."""
    rows = [
        examples.Example(f"f:{n}", str(n), "a " * size, label=n % 2) for n, size in enumerate(sizes)
    ]
    config = knobs.Config(batch_size=batch_size, data_seed=seed, task=knobs.Task(group=group))
    return labelled.Source(
        features.encode(rows, "classify", WORDS, config.task, 128, train=True),
        WORDS.special,
        config,
    )


@pytest.fixture(scope="module", params=["none", "length"])
def many(request) -> labelled.Source:
    return source(MANY, 32, request.param)


def ids_of(of: labelled.Source, steps: range) -> np.ndarray:
    return np.concatenate([of.batch(step)["example_ids"][:, 0] for step in steps])


def shares(of: labelled.Source, steps: range) -> float:
    """Real tokens of what is computed."""
    batches = [of.batch(step)["segment_ids"] > 0 for step in steps]
    return sum(real.sum() for real in batches) / sum(real.size for real in batches)


@given(
    count=st.integers(1, 70),
    size=st.integers(1, 20),
    seed=st.integers(0, 99),
    group=st.sampled_from(["none", "length"]),
    window=st.integers(1, 5),
)
def test_every_row_comes_once_an_epoch_whatever_the_batch_size(count, size, seed, group, window):
    of = source(MANY[:count], size, group, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(labelled, "WINDOW", window)
        ids = ids_of(of, range(-(-3 * count // size)))
    for epoch in range(3):
        assert sorted(ids[epoch * count : (epoch + 1) * count]) == list(range(count))


def test_orders_differ_by_epoch_and_seed(many):
    count = len(MANY)
    ids = ids_of(many, range(-(-2 * count // 32)))
    other = ids_of(source(MANY, 32, many._group, seed=1), range(-(-count // 32)))
    for another in (ids[count:], other):
        assert (ids[:count] == another[:count]).mean() < 0.01


@pytest.mark.parametrize("hosts", [2, 4, 8])
def test_hosts_have_parts_of_the_same_batches_in_any_order_of_calls(many, hosts):
    fresh, each = source(MANY, 32, many._group), 32 // hosts
    for step in (187, 3, 93, 94, 0):  # 93 holds the end of an epoch and the beginning of the next
        whole = many.batch(step)
        parts = [
            fresh.batch(step, slice(host * each, (host + 1) * each))
            for host in reversed(range(hosts))
        ]
        for name, values in whole.items():
            np.testing.assert_array_equal(
                np.concatenate([part[name] for part in parts[::-1]]), values, err_msg=name
            )


def test_without_groups_the_order_and_the_name_of_the_stream_are_what_they_were():
    """The order by its definition; its name is as in earlier versions, so that runs resume."""
    sizes = MANY[:50]
    of = source(sizes, 8, "none", seed=5)
    expected = [
        order.permute(np.arange(50), 50, order.key(5, 0x54415348, epoch)) for epoch in range(3)
    ]
    np.testing.assert_array_equal(ids_of(of, range(18)), np.concatenate(expected)[: 18 * 8])
    row = [examples.Example("f:1", "0", "a b", label=0)]
    found = features.encode(row, "classify", WORDS, knobs.Task(), 8, train=True)
    known = "d3303d346f2586605e6ff62054755049fbe050647ff909ab9b385ebce49c2460"
    assert labelled.Source(found, WORDS.special, knobs.Config()).fingerprint == known
    grouped = dataclasses.replace(knobs.Config(), task=knobs.Task(group="length"))
    assert labelled.Source(found, WORDS.special, grouped).fingerprint != known


# --- rows of like length --------------------------------------------------------------------------


def test_a_batch_holds_rows_that_are_neighbours_by_length_in_their_window():
    """The batches of a window are what its rows make when they are sorted; the windows are cut from
    the old order.
    """
    of, plain = source(MANY, 32), source(MANY, 32, "none")
    whole = len(MANY) // 32  # 93 batches of the first epoch: three windows of 31
    windows = np.array_split(ids_of(plain, range(whole)), 3)
    lengths = MANY + 2
    expected = sorted(
        tuple(part) for rows in windows for part in np.sort(lengths[rows]).reshape(-1, 32)
    )
    batches = [ids_of(of, range(step, step + 1)) for step in range(whole)]
    assert sorted(tuple(lengths[rows]) for rows in batches) == expected
    company = [
        next(n for n, rows in enumerate(windows) if set(batch) <= set(rows)) for batch in batches
    ]
    assert np.bincount(company).tolist() == [31, 31, 31]
    np.testing.assert_array_equal(
        ids_of(of, range(93, 94)), ids_of(plain, range(93, 94))
    )  # of two epochs: as it was


def test_batches_of_all_lengths_come_in_random_order():
    of = source(MANY, 32)
    for epoch in (0, 5):
        longest = [of.batch(step)["tokens"].shape[1] for step in range(epoch * 94, epoch * 94 + 93)]
        halves = [np.mean(longest[:46]), np.mean(longest[46:])]
        assert abs(halves[0] - halves[1]) < 0.35 * np.mean(longest)  # four times what chance does
        assert abs(np.corrcoef(longest[1:], longest[:-1])[0, 1]) < 0.4


def test_an_epoch_of_one_window_has_no_more_padding_than_any_batches_could():
    """Sorted rows in runs of a batch have the least sum of the longest: what the source pads to
    follows from it.
    """
    sizes, size = MANY[:256], 16
    least = sum(rounded(int(part.max())) for part in np.sort(sizes + 2).reshape(-1, size))
    for seed in range(3):
        found = sum(
            source(sizes, size, seed=seed).batch(step)["tokens"].shape[1] for step in range(16)
        )
        assert found == least
        assert (
            sum(
                source(sizes, size, "none", seed).batch(step)["tokens"].shape[1]
                for step in range(16)
            )
            > least
        )


def test_little_is_padding_where_lengths_are_skewed():
    steps = range(5 * len(MANY) // 32)  # windows, and the batches between epochs too
    before, after = shares(source(MANY, 32, "none"), steps), shares(source(MANY, 32), steps)
    assert before < 0.3
    assert after > 0.7
