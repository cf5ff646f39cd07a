"""Time contestants in interleaved turns, each in a process of its own, so that noise is shared.

Every round gives each contestant a turn of some calls. The result of a turn is the median of its
calls. Contestants are compared by the medians of their turns, and the quartiles of the ratios
within rounds show how reliable the comparison is.

Run as a program, this file is the process of one contestant, whose argument names its function.
Each line of standard input is a number of calls, and each answer is a JSON line. The Python of a
rival may lack jax, so only the standard library is imported here.
"""

import contextlib
import importlib
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

TURN = 1.0  # seconds of a turn, at least one call
REST = 0.3  # seconds between turns: threads of the last contestant may still spin for work
HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


class Ready(NamedTuple):
    """A contestant that is ready to be timed."""

    call: Callable[[], None]  # returns when the work is done
    units: float  # of work in a call
    unit: str
    about: dict[str, Any]  # further properties, for the results
    after: Callable[[], None] = lambda: None  # restores the state after a call, untimed


@dataclass(frozen=True)
class Contestant:
    """A function that makes a `Ready`, in a module of this folder, and the Python that runs it."""

    name: str
    module: str
    function: str
    arguments: Mapping[str, Any]
    python: str = sys.executable
    keeps_memory: bool = True  # whether the C allocator keeps freed memory, as in training
    folder: Path = HERE


@dataclass(frozen=True)
class Result:
    """The measured turns of a contestant."""

    name: str
    units: float
    unit: str
    about: Mapping[str, Any]
    first_seconds: float  # until the end of the first call, including compilation
    turns: Sequence[float]  # the median seconds of each turn
    fastest: float  # seconds of the fastest call
    faults: float  # median page faults of a call

    @property
    def seconds(self) -> float:
        """Return the seconds of a call."""
        return statistics.median(self.turns)


def compare(contestants: Sequence[Contestant], rounds: int) -> list[Result]:
    """Start all contestants and give each a turn in every round; rotate who begins a round."""
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(_start(contestant)) for contestant in contestants]
        for worker in workers:
            began = time.perf_counter()
            worker.ask(1)
            whole = time.perf_counter() - began  # with the untimed work after the call
            worker.calls = max(1, math.ceil(TURN / max(whole, 1e-6)))
        for number in range(rounds):
            first = number % len(workers)
            for worker in [*workers[first:], *workers[:first]]:
                time.sleep(REST)
                worker.take_turn()
            print(f"round {number + 1} of {rounds}", file=sys.stderr)
        return [worker.result() for worker in workers]


def ratio(numerator: Result, denominator: Result) -> tuple[float, float, float]:
    """Return (ratio of the seconds of a call, its lower quartile over rounds, its upper one)."""
    pairs = zip(numerator.turns, denominator.turns, strict=True)
    ratios = [above / below for above, below in pairs]
    low = high = ratios[0]
    if len(ratios) > 1:
        low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return numerator.seconds / denominator.seconds, low, high


class _Worker:
    """The process of a contestant, and the turns that it has had."""

    def __init__(self, process: subprocess.Popen[str], errors: IO[str], name: str):
        self._process = process
        self._errors = errors
        self._name = name
        self._turns: list[float] = []
        self._faults: list[float] = []
        self._fastest = math.inf
        self.calls = 1  # of a turn
        self._about = self._answer()

    def take_turn(self) -> None:
        self.ask(1)  # not counted: caches and memory went cold while others worked
        answer = self.ask(self.calls)
        self._turns.append(statistics.median(answer["seconds"]))
        self._faults.append(statistics.median(answer["faults"]))
        self._fastest = min(self._fastest, *answer["seconds"])

    def result(self) -> Result:
        faults = statistics.median(self._faults)
        return Result(
            self._name, **self._about, turns=self._turns, fastest=self._fastest, faults=faults
        )

    def ask(self, calls: int) -> dict[str, Any]:
        assert self._process.stdin is not None
        # If the process has ended, `_answer` says why.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{calls}\n")
            self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line:
            return json.loads(line)
        code = self._process.wait()
        self._errors.seek(0)
        raise SystemExit(f"{self._errors.read()}\n{self._name} ended with code {code}")


@contextlib.contextmanager
def _start(contestant: Contestant) -> Iterator[_Worker]:
    spec = {
        "folder": str(contestant.folder),
        "module": contestant.module,
        "function": contestant.function,
        "arguments": dict(contestant.arguments),
        "keeps_memory": contestant.keeps_memory,
    }
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    command = [contestant.python, str(HERE / "turns.py"), json.dumps(spec)]
    with tempfile.TemporaryFile("w+") as errors:
        print(f"starting {contestant.name}", file=sys.stderr)
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        with process:  # closes its pipes and waits for it
            try:
                yield _Worker(process, errors, contestant.name)
            finally:
                process.kill()


def serve() -> None:
    """Be the process of a contestant: make calls on request, and sleep while others work."""
    spec = json.loads(sys.argv[1])
    answers = sys.stdout
    sys.stdout = sys.stderr  # so that what libraries print is no answer
    sys.path.insert(0, spec["folder"])
    if spec["keeps_memory"]:
        from bert_jax.system import allocator  # needs the standard library only

        allocator.retain_memory()
    began = time.perf_counter()
    ready: Ready = getattr(importlib.import_module(spec["module"]), spec["function"])(
        **spec["arguments"]
    )
    ready.call()
    ready.after()
    first = time.perf_counter() - began
    about = {"units": ready.units, "unit": ready.unit, "about": ready.about, "first_seconds": first}
    print(json.dumps(about), file=answers, flush=True)
    for line in sys.stdin:
        seconds, faults = [], []
        for _ in range(int(line)):
            before = _count_page_faults()
            began = time.perf_counter()
            ready.call()
            seconds.append(time.perf_counter() - began)
            faults.append(_count_page_faults() - before)
            ready.after()
        print(json.dumps({"seconds": seconds, "faults": faults}), file=answers, flush=True)


def _count_page_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


if __name__ == "__main__":
    serve()
