"""Workers answer calls, and end with their parent."""

import multiprocessing
import operator
import signal
import time
from pathlib import Path

import pytest

from bert_jax.data import tokenizer
from bert_jax.data.workers import run_calls
from bert_jax.errors import DataError, Stopped


def test_run_calls_gives_results_and_errors():
    found = sorted(run_calls(2, operator.add, [(i, 1) for i in range(7)]))
    assert found == [(i, i + 1) for i in range(7)]
    with pytest.raises(ZeroDivisionError):
        list(run_calls(2, operator.truediv, [(1, 0), (1, 0)]))
    with pytest.raises(DataError, match="no tokenizer at") as told:
        list(run_calls(2, tokenizer.load_tokenizer, [(Path("/nonexistent"),)] * 2))
    assert told.value.hint


def test_run_calls_stops_if_a_worker_dies():
    with pytest.raises(Stopped, match="a worker ended") as caught:
        list(run_calls(2, signal.raise_signal, [(9,), (9,)]))
    assert caught.value.code == 75


def test_run_calls_ends_its_own_processes_only():
    other = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(60,))
    other.start()
    list(run_calls(2, abs, [(1,), (2,)]))
    assert multiprocessing.active_children() == [other]
    other.kill()
    other.join()
