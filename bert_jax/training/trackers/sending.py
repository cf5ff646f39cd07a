"""Rows of metrics on their way to a tracker that may be slow, or not answer.

A thread hands them over, so that training neither waits for the tracker nor ends with it. The run
keeps `trackers/NAME.json`: the id of its tracked run, and the last step that was handed over. A
resumed run, also after a kill, continues that tracked run: it sends the lines of metrics.jsonl that
are missing there, and no step twice.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import json
import logging
import queue
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from bert_jax.errors import CheckpointError
from bert_jax.system import disk, jsons
from bert_jax.training.trackers import Place, short

logger = logging.getLogger(__name__)

PATIENCE = 20.0  # seconds that the end of a run waits for its trackers
AGAIN = "delete it to begin another tracked run, which gets all steps"
Row = tuple[int, dict[str, float]]  # what the lines of a step say


class Client(Protocol):
    """A tracked run, as its package has it; every method may raise."""

    run: str  # its id
    held: int | None  # its last step, where it knows better than who handed the rows over

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Hand over a row."""

    def finish(self, finished: bool) -> None:
        """End the tracked run, until it is resumed."""


@dataclasses.dataclass
class Record:
    """What a run knows of its tracked run."""

    run: str = ""
    step: int = 0  # the last one handed over
    before: int = 0  # the last one that the tracked run had when it was last opened
    config: str = ""  # a hash

    @staticmethod
    def read(file: Path, place: Place) -> Record:
        """Read the record; a run that began anew with another config has another tracked run."""
        text = json.dumps(place.config, sort_keys=True)
        fresh = Record(config=hashlib.sha256(text.encode()).hexdigest())
        if not file.exists():
            return fresh
        steps = range(2**63)
        schema = {"run": str, "step": steps, "before": steps, "config": str}
        known = Record(**jsons.read(file, CheckpointError, schema, hint=AGAIN))
        return known if place.start or known.config == fresh.config else fresh

    def write(self, file: Path) -> None:
        """Write the record."""
        disk.write(file, json.dumps(dataclasses.asdict(self)) + "\n")


def begin(name: str, place: Place, client: Callable[[str], Client]) -> Sender:
    """Continue the tracked run of a run, or begin one; send what it lacks of metrics.jsonl.

    `client` opens the tracked run with an id; with an empty one it begins a new one.
    """
    file = place.record(name)
    file.parent.mkdir(exist_ok=True)
    record = Record.read(file, place)
    opened = client(record.run)
    record.run = opened.run
    if opened.held is not None:
        record.step = min(record.step, max(record.before, opened.held))
    record.before = record.step
    record.write(file)
    sender = Sender(name, opened, record, file)
    for line in place.lines:
        numbers = {key: value for key, value in line.items() if isinstance(value, (int, float))}
        sender.add(line["step"], {key: v for key, v in numbers.items() if "/" in key})
    return sender


class Sender:
    """A tracker that a thread hands the rows to, each once."""

    def __init__(self, name: str, client: Client, record: Record, file: Path):
        self._name, self._client, self._record, self._file = name, client, record, file
        self._held = record.step
        self._row: Row = (0, {})  # of the latest step, whose lines may not all be there
        self._queue: queue.SimpleQueue[Row | None] = queue.SimpleQueue()
        self._finished = self._warned = False
        self._thread = threading.Thread(target=self._send, name=name, daemon=True)
        self._thread.start()

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Take the numbers of a line; the lines of a step become one row."""
        if step != self._row[0]:
            self._queue_row()
            self._row = (step, {})
        self._row[1].update(values)

    def close(self, finished: bool) -> None:
        """Hand over what is left, and wait for that a while."""
        self._finished = finished
        self._queue_row()
        self._queue.put(None)
        self._thread.join(PATIENCE)
        if self._thread.is_alive():
            self._warn(f"it has not taken everything within {PATIENCE:.0f} seconds")

    def _queue_row(self) -> None:
        if self._row[1] and self._row[0] > self._held:
            self._queue.put(self._row)

    def _send(self) -> None:
        """Hand over row after row; rows that were refused are tried again with the next one."""
        waiting: collections.deque[Row] = collections.deque()
        ending = False
        while not ending:
            row = self._queue.get()
            ending = row is None
            waiting.extend([row] if row else [])
            try:
                while waiting:
                    self._client.log(*waiting[0])
                    self._record.step, _ = waiting.popleft()
                    self._record.write(self._file)
                if ending:
                    self._client.finish(self._finished)
            except Exception as error:  # of whichever kind the package has
                self._warn(short(error))

    def _warn(self, problem: str) -> None:
        """Warn of the first problem; more of them say nothing new."""
        if not self._warned:
            self._warned = True
            logger.warning(
                f"tracker {self._name}: {problem}; the run goes on, metrics.jsonl has everything, "
                "and what is missing there is sent once it answers, or when the run is resumed"
            )
