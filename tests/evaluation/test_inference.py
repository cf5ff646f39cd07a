"""Plans of inference: every row once and in few shapes, and outputs of these rows alone."""

from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.data.task_stream import round_length
from bert_jax.evaluation import inference

LENGTHS = st.lists(st.integers(1, 300), max_size=9).map(
    lambda some: np.repeat(some, 12).astype(int)
)


@given(LENGTHS, st.integers(1, 9), st.booleans())
def test_plan_by_length_begins_with_the_longest(lengths, size, shrink):
    plan = inference.plan_by_length(lengths, size, shrink)
    rows = [row for batch in plan for row in batch.rows]
    assert sorted(rows) == [*range(len(lengths))]
    assert (np.diff(lengths[rows]) <= 0).all()
    for batch in plan:
        assert batch.length == round_length(int(lengths[batch.rows].max()))
        assert len(batch.rows) <= batch.size <= size
        whole = batch.size == size
        assert whole or (shrink and batch.size == 1 << (len(batch.rows) - 1).bit_length())


@given(LENGTHS, st.integers(0, 9))
def test_plan_by_shape_pads_rows_of_a_batch_alike(lengths, size):
    mesh: Any = SimpleNamespace(shape={"data": 2, "fsdp": 2})
    plan = inference.plan_by_shape(lengths, mesh, size, tokens=128)
    assert sorted(row for batch in plan for row in batch.rows) == [*range(len(lengths))]
    assert [batch.length for batch in plan] == sorted((b.length for b in plan), reverse=True)
    for batch in plan:
        padded = [round_length(int(n), inference.FINEST) for n in lengths[batch.rows]]
        assert padded == [batch.length] * len(padded)
        assert len(padded) <= batch.size
        assert batch.size % 4 == 0, "four devices split the rows"
        assert batch.size == 4 or batch.size - 4 < (size or 128 // batch.length)


def test_run_plan_fetches_late_and_drops_padding():
    said: list[Any] = []

    def compute(batch: inference.Planned) -> dict[str, np.ndarray]:
        said.append(batch.rows.tolist())
        return {"rows": np.arange(batch.size), "all": np.float32(7)}

    plan = inference.plan_in_order(5, 2, length=8)
    for rows, found in inference.run_plan(compute, plan, lambda *done: said.append(done)):
        said.append((rows.tolist(), found["rows"].tolist(), float(found["all"])))
    first, second, last = ([0, 1], [0, 1], 7.0), ([2, 3], [0, 1], 7.0), ([4], [0], 7.0)
    begun = [[0, 1], (1, 3), [2, 3], first, (2, 3), [4], second, (3, 3), last]
    assert said == begun
