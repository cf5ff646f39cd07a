"""Measure contestants in interleaved turns, each in a process of its own, so that noise is shared.

Every round gives each contestant a turn of some calls. The result of a turn is the median of its
calls, and contestants are compared by the medians of their turns. The quartiles of the ratios
within rounds show how reliable the comparison is.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from bert_jax.errors import ConfigError
from bert_jax.system.durations import duration

logger = logging.getLogger(__name__)

TURN = 1.0  # seconds of a turn, at least one call
REST = 0.3  # seconds between turns: threads of the last contestant may still spin for work
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Contestant:
    """A function of a variant, which a worker process calls, and the settings of the process."""

    name: str
    make: str  # MODULE:FUNCTION
    arguments: Mapping[str, Any]
    python: str = sys.executable
    retain: bool = True  # whether the C allocator keeps freed memory


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
        """Seconds of a call."""
        return statistics.median(self.turns)

    @property
    def rate(self) -> float:
        """Units per second."""
        return self.units / self.seconds


def compare(contestants: Sequence[Contestant], rounds: int) -> list[Result]:
    """Start all contestants and give each a turn in every round; rotate who begins a round."""
    for contestant in contestants:  # checked before the first contestant compiles for a minute
        if shutil.which(contestant.python) is None:
            raise ConfigError(
                f"cannot run {contestant.python}: it is no program", "name a Python with --python"
            )
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(_worker(contestant)) for contestant in contestants]
        for worker in workers:
            began = time.perf_counter()
            worker.ask(1)
            whole = time.perf_counter() - began  # with the work after the timed call
            worker.calls = max(1, math.ceil(TURN / max(whole, 1e-6)))
        began = time.monotonic()
        for round_ in range(rounds):
            first = round_ % len(workers)
            for worker in [*workers[first:], *workers[:first]]:
                time.sleep(REST)
                worker.turn()
            left = (time.monotonic() - began) * (rounds / (round_ + 1) - 1)
            text = f"round {round_ + 1} of {rounds}, about {duration(left, rough=True)} left"
            logger.info(text)
        return [worker.result() for worker in workers]


def ratio(numerator: Result, denominator: Result) -> tuple[float, float, float]:
    """Return the ratio of the seconds of a call, and its quartiles over rounds."""
    ratios = [a / b for a, b in zip(numerator.turns, denominator.turns, strict=True)]
    low = high = ratios[0]
    if len(ratios) > 1:
        low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return numerator.seconds / denominator.seconds, low, high


# --- processes ------------------------------------------------------------------------------------


class _Worker:
    """The process of a contestant, and the turns it has had."""

    def __init__(self, process: subprocess.Popen[str], errors: IO[str], name: str):
        self._process, self._errors, self._name = process, errors, name
        self._turns: list[float] = []
        self._faults: list[float] = []
        self._fastest = math.inf
        self.calls = 1  # of a turn
        self._about = self._answer()

    def turn(self) -> None:
        self.ask(1)  # not counted: caches and memory went cold while others worked
        answer = self.ask(self.calls)
        self._turns.append(statistics.median(answer["seconds"]))
        self._faults.append(statistics.median(answer["faults"]))
        self._fastest = min(self._fastest, *answer["seconds"])

    def result(self) -> Result:
        return Result(
            name=self._name,
            **self._about,
            turns=self._turns,
            fastest=self._fastest,
            faults=statistics.median(self._faults),
        )

    def ask(self, calls: int) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{calls}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # the process has ended; `_answer` raises the reason
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line:
            return json.loads(line)
        code = self._process.wait()
        self._errors.seek(0)
        lines = [text.strip() for text in self._errors.read().splitlines() if text.strip()]
        last = lines[-1] if lines else "no error was printed"
        hint = "install torch and transformers, or name a Python that has them with --python"
        raise ConfigError(
            f"{self._name} ended with code {code}: {last}", hint if "No module" in last else ""
        )


@contextlib.contextmanager
def _worker(contestant: Contestant) -> Iterator[_Worker]:
    spec = {
        "make": contestant.make,
        "arguments": dict(contestant.arguments),
        "retain": contestant.retain,
    }
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    command = [contestant.python, "-m", "bert_jax.benchmarks.worker", json.dumps(spec)]
    with tempfile.TemporaryFile("w+") as errors:
        logger.info(f"starting {contestant.name}")
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        try:
            yield _Worker(process, errors, contestant.name)
        finally:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
