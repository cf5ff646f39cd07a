"""Faults that strike before an update, in an evaluation or in a save.

    python -m tests.fault_points POINT:STEP:ACTION train --config=...

Points are `step`, with the update's number, and `evaluation`, with that of a batch, from 0.
Actions: kill (SIGKILL), hang (SIGSTOP), term, raise and sleep=SECONDS. A step of `*` is any step.
PLACE:STEP kills the process at a place of `checkpoints/interrupts.py`. The package knows nothing of
them: functions of its modules are replaced.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

SIGNALS = {"kill": signal.SIGKILL, "hang": signal.SIGSTOP, "term": signal.SIGTERM}
Reach = Callable[[str, int], None]


def read_fault(fault: str) -> Reach:
    """Return the fault that POINT:STEP:ACTION describes."""
    point, step, action = fault.split(":")
    kind, _, argument = action.partition("=")

    def reach(name: str, number: int) -> None:
        if name != point or step not in ("*", str(number)):
            return
        if kind in SIGNALS:
            os.kill(os.getpid(), SIGNALS[kind])
        elif kind == "raise":
            raise RuntimeError("a fault of the tests")
        else:
            assert kind == "sleep"
            time.sleep(float(argument))

    return reach


def fill(folder: Path) -> Path:
    """Write a file that takes every byte left in a small file system; return its path."""
    filler = folder / "filler"
    with filler.open("ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))
    return filler


def stop_at(owner: Any, name: str, number: int, replace: Callable[..., None] = setattr) -> None:
    """Send a stop signal before a function's call of a number, which counts from 1."""
    function = getattr(owner, name)
    calls: list[int] = []

    def call(*arguments: Any) -> Any:
        calls.append(number)
        if len(calls) == number:
            os.kill(os.getpid(), signal.SIGTERM)
        return function(*arguments)

    replace(owner, name, call)


def plant(module: ModuleType, reach: Reach, replace: Callable[..., None] = setattr) -> None:
    """Have a module of the package reach its point: training.runs or evaluation.inference."""
    changed: Any = module
    if module.__name__.endswith("runs"):
        inputs = changed.Runs.compute_inputs

        def inputs_or_fault(self: Any, step: int) -> Any:
            reach("step", step)
            return inputs(self, step)

        replace(changed.Runs, "compute_inputs", inputs_or_fault)
        return
    compute_all = changed.run_plan

    def run_or_fault(compute: Any, plan: Any, *rest: Any, **named: Any) -> Any:
        numbers = iter(range(len(plan)))

        def compute_or_fault(batch: Any) -> Any:
            outputs = compute(batch)
            reach("evaluation", next(numbers))
            return outputs

        return compute_all(compute_or_fault, plan, *rest, **named)

    replace(changed, "run_plan", run_or_fault)


if __name__ == "__main__":
    from bert_jax import cli
    from bert_jax.evaluation import inference
    from bert_jax.training import runs
    from tests.checkpoints import interrupts

    where, *numbers = sys.argv[1].split(":")
    if where in interrupts.PLACES:
        interrupts.interrupt_save(where, int(numbers[0]), interrupts.kill)
    else:
        for subject in (runs, inference):
            plant(subject, read_fault(sys.argv[1]))
    cli.main(sys.argv[2:])
