"""Contestants side by side: each in a process of its own, in turn, round after round, so that all see the same noise.

A round gives each contestant one turn, and a turn its median; what is compared are medians of turns. The quartiles of
their ratios within a round say how far these can be believed.
"""

from __future__ import annotations

import contextlib
import json
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

TURN = 1.0  # seconds of a turn, at least one call
REST = 0.3  # seconds between turns: threads of the one before may still spin for work
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Contestant:
    """What a worker is to make, with which Python, and whether its C allocator keeps memory."""

    name: str
    make: str  # MODULE:FUNCTION
    arguments: Mapping[str, Any]
    python: str = sys.executable
    retain: bool = True


@dataclass(frozen=True)
class Result:
    """The turns of one contestant."""

    name: str
    units: float
    unit: str
    about: Mapping[str, Any]
    first_seconds: float  # until its first call was over, compilation included
    turns: Sequence[float]  # the median of each, in seconds
    fastest: float  # call of all, in seconds
    faults: float  # page faults of a call, median

    @property
    def seconds(self) -> float:
        """Of one call."""
        return statistics.median(self.turns)

    @property
    def rate(self) -> float:
        """Units a second."""
        return self.units / self.seconds


def compare(contestants: Sequence[Contestant], rounds: int) -> list[Result]:
    """Starts all, then gives each a turn in every round; the one who begins a round begins it in turn."""
    for one in contestants:  # before the first of them has compiled for a minute
        if shutil.which(one.python) is None:
            raise ConfigError(
                f"cannot run {one.python}: it is no program", "name a Python with --python"
            )
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(_worker(one)) for one in contestants]
        turns: list[list[float]] = [[] for _ in workers]
        faults: list[list[float]] = [[] for _ in workers]
        fastest = [math.inf for _ in workers]
        calls = [max(1, math.ceil(TURN / max(_whole(worker), 1e-6))) for worker in workers]
        began = time.monotonic()
        for round_ in range(rounds):
            for place in range(len(workers)):
                at = (round_ + place) % len(workers)
                time.sleep(REST)
                workers[at].ask(
                    1
                )  # one that nobody counts: while others worked, caches and memory went cold
                found = workers[at].ask(calls[at])
                turns[at].append(statistics.median(found["seconds"]))
                faults[at].append(statistics.median(found["faults"]))
                fastest[at] = min(fastest[at], *found["seconds"])
            left = (time.monotonic() - began) * (rounds / (round_ + 1) - 1)
            print(
                f"round {round_ + 1} of {rounds}, about {left:.0f} s left",
                file=sys.stderr,
                flush=True,
            )
        return [
            Result(
                contestant.name,
                worker.told["units"],
                worker.told["unit"],
                worker.told["about"],
                worker.told["first_seconds"],
                mine,
                least,
                statistics.median(more),
            )
            for contestant, worker, mine, least, more in zip(
                contestants, workers, turns, fastest, faults, strict=True
            )
        ]


def _whole(worker: _Worker) -> float:
    """Seconds of a call, with what comes after it."""
    began = time.perf_counter()
    worker.ask(1)
    return time.perf_counter() - began


def ratio(one: Result, other: Result) -> tuple[float, float, float]:
    """Seconds of a call of `one` over those of `other`: of their medians; and the quartiles round by round."""
    found = [a / b for a, b in zip(one.turns, other.turns, strict=True)]
    low, _, high = (
        statistics.quantiles(found, n=4, method="inclusive") if len(found) > 1 else found * 3
    )
    return one.seconds / other.seconds, low, high


# --- processes ------------------------------------------------------------------------------------


class _Worker:
    def __init__(self, process: subprocess.Popen[str], errors: IO[str], name: str):
        self._process, self._errors, self._name = process, errors, name
        self.told = self._answer()

    def ask(self, calls: int) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{calls}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended: why, its answer says
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line:
            return json.loads(line)
        code = self._process.wait()
        self._errors.seek(0)
        last = next(
            (text for text in reversed(self._errors.read().splitlines()) if text.strip()),
            "no word of why",
        )
        lacks = "install torch and transformers, or name a Python that has them with --python"
        raise ConfigError(
            f"{self._name} ended with code {code}: {last.strip()}",
            lacks if "No module" in last else "",
        )


@contextlib.contextmanager
def _worker(one: Contestant) -> Iterator[_Worker]:
    spec = json.dumps({"make": one.make, "arguments": dict(one.arguments), "retain": one.retain})
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
    }
    command = [one.python, "-m", "bert_jax.benchmarks.worker", spec]
    with tempfile.TemporaryFile("w+") as errors:
        print(f"starting {one.name}", file=sys.stderr, flush=True)
        piped = subprocess.PIPE
        process = subprocess.Popen(
            command, stdin=piped, stdout=piped, stderr=errors, text=True, env=environment
        )
        try:
            yield _Worker(process, errors, one.name)
        finally:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
