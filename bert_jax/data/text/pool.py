"""A pool of worker processes that import this package's data modules and nothing else.

`multiprocessing` would import the caller's main module again in every worker, and jax with it. Here
a worker is a plain interpreter that reads pickled calls from its parent and answers them. joblib's
loky imports no main module either, but its workers outlive a parent that is killed: they finish
their call, and write into the folder of the run that takes its place. loky also starts two
processes that track resources, and needs semaphores in /dev/shm.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import tqdm

from bert_jax.errors import Stopped, UserError
from bert_jax.system import folder_locks

START = (
    "import sys; sys.path[:] = eval(sys.argv[1]); from bert_jax.data.text import pool; pool.serve()"
)
SMALL = {  # environment of a worker: one core and little address space
    "TOKENIZERS_PARALLELISM": "false",
    "RAYON_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "2",
}


class Pool:
    """A pool that calls functions in `workers` processes; with one worker, in this process."""

    def __init__(self, workers: int):
        self.workers = workers
        self._idle: list[subprocess.Popen] = []
        self._all: list[subprocess.Popen] = []
        self._threads = ThreadPoolExecutor(workers) if workers > 1 else None

    def map(self, function: str, calls: Sequence[tuple]) -> Iterator[tuple[int, Any]]:
        """Call "module:function" with each tuple of arguments; yield (index, result) as calls end.

        UserError and OSError are raised again as they are, any other error as a RuntimeError with
        the worker's traceback, and the death of a worker as Stopped.
        """
        if self._threads is None or len(calls) < 2:
            callee = _function(function)
            yield from ((i, callee(*call)) for i, call in enumerate(calls))
            return
        waiting = list(enumerate(calls))[::-1]
        running: dict[Future, int] = {}
        while waiting or running:
            while waiting and len(running) < self.workers:
                index, call = waiting.pop()
                running[self._threads.submit(self._call, function, call)] = index
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in sorted(done, key=running.__getitem__):
                yield running.pop(future), future.result()

    def _call(self, function: str, call: tuple) -> Any:
        worker = self._idle.pop() if self._idle else self._start()
        assert worker.stdin is not None
        assert worker.stdout is not None
        try:
            pickle.dump((function, call), worker.stdin)
            worker.stdin.flush()
            # Unpickling is safe here: our own child wrote this, it is never read from a file.
            kind, value = pickle.load(worker.stdout)
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            worker.kill()
            raise Stopped(
                f"a worker ended with code {worker.wait()} in {function}",
                "run the same command again, it continues; if memory was short, lower "
                "config.corpus.workers",
            ) from error
        self._idle.append(worker)
        if kind == "user":
            raise value
        if kind == "error":
            raise RuntimeError(f"in a worker:\n{value}")
        return value

    def _start(self) -> subprocess.Popen:
        worker = subprocess.Popen(
            [sys.executable, "-c", START, repr(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **SMALL},
        )
        self._all.append(worker)
        return worker

    def close(self) -> None:
        """Kill every worker at once; unfinished calls are repeated by the next start."""
        for worker in self._all:
            worker.kill()
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)
        for worker in self._all:
            worker.wait()
            for pipe in (worker.stdin, worker.stdout):
                with contextlib.suppress(OSError):  # of flushing to a worker that is gone
                    pipe and pipe.close()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _function(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def serve() -> None:
    """Answer calls on standard input, in a worker, until it closes or the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches workers too: the parent decides
    parent = os.getppid()
    threading.Thread(target=_exit_with, args=(parent,), daemon=True).start()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # text that a library prints must not mix with the answers
    while True:
        try:
            function, call = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer: tuple[str, Any] = ("value", _function(function)(*call))
        except (UserError, OSError) as error:  # the parent turns an OSError into a user's error
            answer = ("user", error)
        except Exception:  # whatever a call raises: the parent raises it again
            answer = ("error", traceback.format_exc())
        pickle.dump(answer, answers)
        answers.flush()


def _exit_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)


# --- around long work -----------------------------------------------------------------------------


@contextlib.contextmanager
def lock(file: Path, log: Callable[[str], None]) -> Iterator[None]:
    """Hold a lock, after waiting for its holder; the system releases it when a process ends."""
    text = f"waiting for another process that prepares {file.with_suffix('')}"
    with folder_locks.wait(file, lambda: log(text)):
        yield


@contextlib.contextmanager
def progress(
    name: str, weights: list[int], todo: list[int], unit: str, log: Callable[[str], None]
) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal, and a line every ten seconds elsewhere.

    The weights are of all calls, in units; `todo` are the calls that earlier starts have not
    finished. Yields a function to call with the index of each finished call.
    """
    total = sum(weights)
    ready = total - sum(weights[i] for i in todo)
    if todo and len(todo) < len(weights):
        log(f"{name}: {len(weights) - len(todo)} of {len(weights)} were done before")
    bar = tqdm.tqdm(
        total=total, initial=ready, desc=name, unit=unit, unit_scale=True, disable=None, leave=False
    )
    start = last_line = time.monotonic()
    fresh = 0

    def advance(index: int) -> None:
        nonlocal fresh, last_line
        fresh += weights[index]
        bar.update(weights[index])
        now = time.monotonic()
        if bar.disable and now - last_line > 10 and fresh:
            left = (total - ready - fresh) / fresh * (now - start)
            log(f"{name}: {(ready + fresh) / max(1, total):.0%}, {left:.0f} s left")
            last_line = now

    with bar:
        yield advance
