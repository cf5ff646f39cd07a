"""The process of a contestant: it makes calls on request, and sleeps while others work.

    python -m bert_jax.benchmarks.worker \\
        '{"make": "bert_jax.benchmarks.ours:train_step", "arguments": {...}}'

Standard input has a number of calls in each line. Standard output is JSON lines: first the
contestant's units and properties, then for each input line the seconds and page faults of every
call.
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
    """A contestant that is ready to be timed."""

    call: Callable[[], None]  # returns when the work is done
    units: float  # of work in a call
    unit: str
    about: dict[str, Any]  # further properties, for the results
    after: Callable[[], None] = lambda: None  # restores the state after a call, untimed


def main() -> None:
    """Answer requests until the input ends."""
    spec = json.loads(sys.argv[1])
    answers, sys.stdout = sys.stdout, sys.stderr  # so that output of libraries is no answer
    if spec.get("retain", True):
        from bert_jax.system import allocator

        allocator.retain()
    module, _, name = spec["make"].partition(":")
    began = time.perf_counter()
    ready: Ready = getattr(importlib.import_module(module), name)(**spec["arguments"])
    ready.call()
    ready.after()
    first = time.perf_counter() - began
    about = {"units": ready.units, "unit": ready.unit, "about": ready.about, "first_seconds": first}
    print(json.dumps(about), file=answers, flush=True)
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
