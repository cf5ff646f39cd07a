"""Workers answer calls, end with their parent, and import no jax."""

from __future__ import annotations

import builtins
import operator
import signal
from pathlib import Path

import pytest

from bert_jax.data import encode, tokenizer, worker
from bert_jax.errors import DataError, Stopped

MODULES = (
    "[name for name in __import__('sys').modules if name in ('jax', 'flax', 'optax', 'pyarrow')]"
)


def test_results_come_with_the_number_of_their_call():
    with worker.Workers(2) as workers:
        found = sorted(workers.run(operator.add, [(i, 1) for i in range(7)]))
    assert found == [(i, i + 1) for i in range(7)]


def test_errors_keep_their_kind_and_place():
    missing = Path("/nonexistent")
    with worker.Workers(2) as workers:
        with pytest.raises(ZeroDivisionError) as caught:
            list(workers.run(operator.truediv, [(1, 0), (1, 0)]))
        assert "in a worker:\nTraceback" in caught.value.__notes__[0]
        with pytest.raises(DataError, match="no tokenizer at") as told:
            list(workers.run(tokenizer.load, [(missing,), (missing,)]))
        assert told.value.hint


def test_a_dead_worker_is_a_resumable_stop():
    with (
        worker.Workers(2) as workers,
        pytest.raises(Stopped, match="a worker ended with code -9") as caught,
    ):
        list(workers.run(signal.raise_signal, [(9,), (9,)]))
    assert caught.value.code == 75


def test_workers_import_neither_jax_nor_arrow():
    with worker.Workers(2) as workers:
        with pytest.raises(DataError, match="no tokenizer at"):
            list(workers.run(encode.load_words, [(Path("x"),)] * 2))
        assert [found for _, found in workers.run(builtins.eval, [(MODULES,)] * 2)] == [[], []]
