"""One contestant of a benchmark, in a process of its own: it does as it is told, and sleeps while others work.

    python -m bert_jax.benchmarks.worker '{"make": "bert_jax.benchmarks.ours:train_step", "arguments": {...}}'

Standard input: a number of calls a line. Standard output: JSON, first what it is, then for each line the seconds and
the page faults of every call.
"""

from __future__ import annotations

import importlib
import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple


class Ready(NamedTuple):
    """A contestant: one call of it, how many of `unit` that is, and what else there is to say."""

    call: Callable[[], None]  # returns when the work is done
    units: float
    unit: str
    about: dict[str, Any]
    after: Callable[[], None] = lambda: None  # once a call was timed: puts things back


def main() -> None:
    """Answers until its input ends."""
    spec = json.loads(sys.argv[1])
    answers, sys.stdout = sys.stdout, sys.stderr  # what libraries print is no answer
    if spec.get("retain", True):
        from bert_jax.system import allocator

        allocator.retain()
    module, _, name = spec["make"].partition(":")
    began = time.perf_counter()
    ready: Ready = getattr(importlib.import_module(module), name)(**spec["arguments"])
    ready.call()
    ready.after()
    first = time.perf_counter() - began
    told = {"units": ready.units, "unit": ready.unit, "about": ready.about, "first_seconds": first}
    print(json.dumps(told), file=answers, flush=True)
    for line in sys.stdin:
        seconds, faults = [], []
        for _ in range(int(line)):
            before, began = _faults(), time.perf_counter()
            ready.call()
            seconds.append(time.perf_counter() - began)
            faults.append(_faults() - before)
            ready.after()
        print(json.dumps({"seconds": seconds, "faults": faults}), file=answers, flush=True)


def _faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


if __name__ == "__main__":
    main()
