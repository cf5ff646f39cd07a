"""Workers answer calls, end with their parent, and import no jax."""

from __future__ import annotations

import builtins
import operator
import signal
from pathlib import Path

import pytest

from bert_jax.data import encode, tokenizer, workers
from bert_jax.errors import DataError, Stopped

MODULES = (
    "[name for name in __import__('sys').modules if name in ('jax', 'flax', 'optax', 'pyarrow')]"
)


def test_run_gives_results_and_errors_of_calls():
    with workers.Workers(2) as two:
        found = sorted(two.run(operator.add, [(i, 1) for i in range(7)]))
        assert found == [(i, i + 1) for i in range(7)]
        with pytest.raises(ZeroDivisionError):
            list(two.run(operator.truediv, [(1, 0), (1, 0)]))
        with pytest.raises(DataError, match="no tokenizer at") as told:
            list(two.run(tokenizer.load, [(Path("/nonexistent"),)] * 2))
        assert told.value.hint


def test_run_stops_if_a_worker_dies():
    with workers.Workers(2) as two, pytest.raises(Stopped, match="a worker ended") as caught:
        list(two.run(signal.raise_signal, [(9,), (9,)]))
    assert caught.value.code == 75


def test_workers_import_neither_jax_nor_arrow():
    with workers.Workers(2) as two:
        with pytest.raises(DataError, match="no tokenizer at"):
            list(two.run(encode.load_words, [(Path("x"),)] * 2))
        assert [found for _, found in two.run(builtins.eval, [(MODULES,)] * 2)] == [[], []]
