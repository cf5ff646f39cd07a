"""Run functions of this folder in worker processes, which do not import jax."""

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
    """Call a function with each tuple of arguments in several processes.

    Yields (index, result) of each call, in the order in which the calls end. With `processes` = 1
    the calls are made in this process. If a worker dies, Stopped is raised. After an error every
    worker is killed, and the next attempt makes the missing calls.
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
        for process in list(pool._processes.values()):  # of no pool but this
            process.kill()
        pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def _hiding_main() -> Iterator[None]:
    """Give new processes an empty main module; they would import the real one, and jax with it."""
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
    """Set up a worker: it ends with its parent, ignores Ctrl-C, and prints to standard error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(2, 1)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """End this process as soon as its parent is gone.

    Otherwise it would write into the folder that the next attempt works in.
    """
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)
