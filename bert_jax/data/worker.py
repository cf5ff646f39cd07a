"""Worker processes that import this package's data modules, and no jax.

A pool of the standard library imports the caller's main module again in every worker, and jax with
it. Here a worker is `python -m bert_jax.data.worker`: a plain interpreter that reads pickled calls
from its parent and answers them. It ends as soon as its parent is gone, so no worker writes into
the folder of the run that takes its place.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from bert_jax.errors import Stopped

ONE_CORE = {  # environment of a worker: one core and little address space
    "TOKENIZERS_PARALLELISM": "false",
    "RAYON_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "2",
}


class Workers:
    """Processes that call functions; a single worker is this process itself."""

    def __init__(self, count: int):
        self.count = count
        self._processes: list[subprocess.Popen] = []
        self._threads = ThreadPoolExecutor(count)  # a thread for each process
        self._own = threading.local()  # the process of a thread

    def run(self, function: Callable, calls: Sequence[tuple]) -> Iterator[tuple[int, Any]]:
        """Call a function of a module with each tuple of arguments, in any order.

        Yields the index and the result of each call. An exception of a worker is raised again here,
        with the worker's traceback as a note. A worker that dies raises Stopped.
        """
        if self.count == 1 or len(calls) < 2:
            yield from ((index, function(*call)) for index, call in enumerate(calls))
            return
        indices = {
            self._threads.submit(self._call, function, call): index
            for index, call in enumerate(calls)
        }
        for future in as_completed(indices):
            yield indices[future], future.result()

    def _call(self, function: Callable, call: tuple) -> Any:
        """Let this thread's worker make a call."""
        if not hasattr(self._own, "process"):
            self._own.process = self._start()
        worker = self._own.process
        try:
            pickle.dump((function, call), worker.stdin)
            worker.stdin.flush()
            # Unpickling is safe here: our own child wrote this, it is never read from a file.
            failed, answer = pickle.load(worker.stdout)
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            worker.kill()
            raise Stopped(
                f"a worker ended with code {worker.wait()} in {function.__name__}",
                "run the same command again, it continues; if memory was short, lower "
                "config.corpus.workers",
            ) from error
        if failed:
            raise answer
        return answer

    def _start(self) -> subprocess.Popen:
        path = os.pathsep.join(filter(None, sys.path))
        worker = subprocess.Popen(
            [sys.executable, "-m", "bert_jax.data.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **ONE_CORE, "PYTHONPATH": path},
        )
        self._processes.append(worker)
        return worker

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        """Kill every worker at once; the next start repeats the calls that are unfinished."""
        for worker in self._processes:
            worker.kill()
        self._threads.shutdown(cancel_futures=True)
        for worker in self._processes:
            worker.wait()
            for pipe in (worker.stdin, worker.stdout):
                with contextlib.suppress(OSError):  # of flushing to a worker that is gone
                    pipe and pipe.close()


def serve() -> None:
    """Answer calls on standard input, in a worker, until it closes or the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches workers too: the parent decides
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # text that a library prints must not mix with the answers
    while True:
        try:
            function, call = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        answers.write(_answer(function, call))
        answers.flush()


def _answer(function: Callable, call: tuple) -> bytes:
    """Return a pickled pair: whether a call failed, and its result or exception."""
    try:
        return pickle.dumps((False, function(*call)))
    except Exception as error:  # whatever a call raises: the parent raises it again
        trace = traceback.format_exc()
        error.add_note(f"in a worker:\n{trace}")
        try:
            return pickle.dumps((True, error))
        except Exception:  # an exception of a library that cannot be sent
            return pickle.dumps((True, RuntimeError(f"in a worker:\n{trace}")))


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)


if __name__ == "__main__":
    serve()
