"""The stream of a task's batches, and what grouping rows by length changes in it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax.config import knobs
from bert_jax.data import task_stream
from bert_jax.data.task_stream import TaskStream
from tests import EXAMPLES
from tests.data.letters import SPECIAL, encode, make_example

# Words of many texts, most of them short; with [CLS] and [SEP] a row has two more tokens.
MANY = np.random.default_rng(0).geometric(0.04, 3_000).clip(1, 120)


def make_stream(sizes, batch_size: int, group: str = "length", seed: int = 0) -> TaskStream:
    """Return a stream of texts with so many words."""
    rows = [make_example(n, text="a " * size, label=n % 2) for n, size in enumerate(sizes)]
    config = knobs.Config(batch_size=batch_size, data_seed=seed, task=knobs.Task(group=group))
    return TaskStream(encode(rows, "classify", 128, train=True), SPECIAL, config)


GROUPS = pytest.mark.parametrize("group", ["none", "length"])


@GROUPS
@settings(max_examples=EXAMPLES or 15)
@given(
    count=st.integers(1, 40),
    size=st.integers(1, 20),
    seed=st.integers(0, 99),
    window=st.integers(1, 5),
)
def test_stream_visits_each_row_once_an_epoch(group, count, size, seed, window):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task_stream, "WINDOW", window)
        stream = make_stream(MANY[:count], size, group, seed)
        batches = [stream.batch(step)["example_ids"][:, 0] for step in range(-(-3 * count // size))]
    ids = np.concatenate(batches)
    for epoch in range(3):
        assert sorted(ids[epoch * count : (epoch + 1) * count]) == list(range(count))


@GROUPS
def test_stream_gives_hosts_parts_of_one_batch(group):
    stream, fresh = make_stream(MANY, 32, group), make_stream(MANY, 32, group)
    for step in (187, 3, 93, 94, 0):  # 93 holds the end of an epoch and the beginning of the next
        parts = [fresh.batch(step, slice(start, start + 8)) for start in (24, 16, 8, 0)]
        for name, values in stream.batch(step).items():
            joined = np.concatenate([part[name] for part in parts[::-1]])
            np.testing.assert_array_equal(joined, values, err_msg=name)


def test_fingerprint_changes_with_rows_and_stream():
    streams = [(MANY[:9], 8), (MANY[:10], 8), (MANY[:9], 7), (MANY[:9], 8, "none")]
    streams += [(MANY[:9], 8, "length", 1)]
    found = [make_stream(*stream).fingerprint for stream in streams]
    assert len(set(found)) == len(found)
    assert make_stream(*streams[0]).fingerprint == found[0]
