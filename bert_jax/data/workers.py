"""Processes that call functions of the data room, and import no jax."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from typing import Any

from bert_jax.errors import Stopped

ONE_CORE = {  # environment of a worker: one core and little address space
    "TOKENIZERS_PARALLELISM": "false",
    "RAYON_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "2",
}


def run_calls(
    processes: int, function: Callable, calls: Sequence[tuple]
) -> Iterator[tuple[int, Any]]:
    """Call a function of a module with each tuple of arguments, in any order.

    Yields the index and the result of each call. A single process is this one. A worker that dies
    raises Stopped. After an error every worker is killed, and the next start repeats its call.
    """
    if processes == 1 or len(calls) < 2:
        yield from ((index, function(*call)) for index, call in enumerate(calls))
        return
    context = multiprocessing.get_context("spawn")
    pool = futures.ProcessPoolExecutor(processes, context, _begin, (os.getpid(),))
    try:
        with _hiding_main():  # processes start while calls are submitted
            pending = {pool.submit(function, *call): index for index, call in enumerate(calls)}
        for future in futures.as_completed(pending):
            yield pending[future], future.result()
    except futures.BrokenExecutor as error:
        raise Stopped(
            f"a worker ended in {function.__name__}",
            "run the same command again, it continues; if memory was short, lower "
            "config.corpus.workers",
        ) from error
    finally:
        for process in multiprocessing.active_children():
            process.kill()
        pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def _hiding_main() -> Iterator[None]:
    """Show new processes an empty main module, because they would import the real one and jax."""
    main = sys.modules["__main__"]
    environment = dict(os.environ)
    sys.modules["__main__"] = types.ModuleType("__main__")
    os.environ.update(ONE_CORE)
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        os.environ.clear()
        os.environ.update(environment)


def _begin(parent: int) -> None:
    """Prepare a worker: it ends with its parent; only the parent handles Ctrl-C and prints."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(2, 1)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """End as soon as the parent is gone, or it would write into the folder of the next start."""
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)
