"""What a run says while it trains: metrics.jsonl, samples.jsonl, TensorBoard events, a progress bar or plain lines.

A line of metrics.jsonl is a JSON object: `step`, `time` (seconds the run has worked, over all its resumes), then flat
names. A number that is not finite is written as null. One of samples.jsonl has `step`, and what `samples.py` says of a
sentence: `text`, `answers`, `predictions`.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from bert_jax.config import knobs
from bert_jax.errors import CheckpointError
from bert_jax.reporting import records
from bert_jax.system import disk
from bert_jax.training import history
from bert_jax.training.events import Events

RESULTS = {
    "loss",
    *(metric for metrics in knobs.METRICS.values() for metric in metrics),
}  # of a task
EVERY = 10.0  # seconds between plain progress lines


class Writer:
    """Writes the metrics of one run, from process 0; a resumed run first drops what lies after its step."""

    def __init__(
        self,
        workdir: Path,
        total_steps: int,
        start_step: int,
        tensorboard: bool = True,
        quiet: bool = False,
        before: Mapping[str, history.Runs] | None = None,
        seconds: float | None = None,
    ):
        """Open the files; what lies after the step is dropped, and what is gone of before it is said.

        Args:
          workdir: the run's folder.
          total_steps: of the run.
          start_step: it goes on from.
          tensorboard: whether to write events too.
          quiet: write everything and show nothing: of many runs at once one shows how far they are.
          before: `history` when the checkpoint of the start step was saved.
          seconds: the run had worked by then; without it, what its last line says.
        """
        import jax  # here: what runs wrote is read by reports too, which have no need of it

        self.active, self.quiet = jax.process_index() == 0, quiet
        self.total, self.start = total_steps, start_step
        self._began = self._spoke = time.monotonic()
        self._offset = seconds or 0.0
        self._first: tuple[int, float] | None = (
            None  # step and time of the first line: the first step compiles
        )
        self._latest: dict[str, float] = {}
        self._events: Events | None = None
        self.history: dict[str, history.Runs] = {}  # by kind of line, the steps there are lines of
        self._failed = False  # a write: nothing more is expected of the files
        self._bar: tqdm | None = None
        if not self.active:
            return
        path, self._samples = Path(workdir) / records.METRICS, Path(workdir) / records.SAMPLES
        for line in truncate(path, start_step):
            self._note(history.kind(line), line["step"])
            if seconds is None:  # a checkpoint of an older version
                self._offset = max(self._offset, float(line.get("time") or 0.0))
        for line in truncate(self._samples, start_step) if self._samples.exists() else ():
            self._note(history.SAMPLES, line["step"])
        for name, gone in history.missing(before or {}, self.history).items():
            file = self._samples if name == history.SAMPLES else path
            had = f"{history.described(gone)}, that it had when step {start_step} was saved"
            said = f"{file} lacks the lines of {name}, {had}"
            print(f"warning: {said}: the run goes on, and its curves have a gap", file=sys.stderr)
        self._file = path.open("a", encoding="utf-8")
        if tensorboard:
            with self._disk(Path(workdir) / "tensorboard"):
                self._events = Events(Path(workdir) / "tensorboard", start_step)
        if sys.stderr.isatty() and not quiet:
            self._bar = tqdm(
                total=total_steps,
                initial=start_step,
                unit="step",
                dynamic_ncols=True,
                file=sys.stderr,
                smoothing=0.1,
            )

    @property
    def seconds(self) -> float:
        """The seconds the run has worked, over all its resumes."""
        return self._offset + time.monotonic() - self._began

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Adds one line for `step`, and shows how far the run is."""
        if not self.active:
            return
        clean = {name: _number(value) for name, value in values.items()}
        line = {"step": int(step), "time": round(self.seconds, 3), **clean}
        with self._disk():
            self._file.write(json.dumps(line, allow_nan=False) + "\n")
            self._file.flush()
        self._note(history.kind(line), step)
        if self._events is not None:
            with self._disk(Path(self._file.name).with_name("tensorboard")):
                self._events.add(
                    step, {name: value for name, value in clean.items() if value is not None}
                )
        self._show(step, {name: value for name, value in clean.items() if value is not None})

    def show(self, step: int, samples: Sequence[Mapping[str, Any]]) -> None:
        """Adds what a model makes of some sentences at `step`, and says it of the first."""
        if not self.active or not samples:
            return
        with self._disk(self._samples), self._samples.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps({"step": int(step), **one}) + "\n" for one in samples)
            file.flush()
            os.fsync(file.fileno())
        self._note(history.SAMPLES, step)
        if not self.quiet:
            self.note(f"step {step}: {_sample(samples[0])}")

    def note(self, text: str) -> None:
        """One line on standard error that leaves the bar whole."""
        if not self.active:
            return
        if self._bar is not None:
            self._bar.write(text, file=sys.stderr)
        else:
            print(text, file=sys.stderr, flush=True)

    def _note(self, kind: str, step: int) -> None:
        history.add(self.history.setdefault(kind, []), int(step))

    def flush(self) -> None:
        """Everything written so far is on the disk: called before a checkpoint of the same step."""
        if not self.active:
            return
        with self._disk():
            self._file.flush()
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Flushes and closes; a second time does nothing."""
        if not self.active:
            return
        self.active = False
        if self._bar is not None:
            self._bar.close()
        if self._events is not None:
            self._events.close()
        with contextlib.suppress(OSError) if self._failed else self._disk():
            self._file.close()  # writes what it still holds, which may have been said not to fit

    @contextlib.contextmanager
    def _disk(self, file: Path | None = None) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._failed = True
            if disk.is_full(error):
                raise disk.full(file or self._file.name) from error
            hint = "free some space, then run the same command again: it goes on from the last checkpoint"
            raise CheckpointError(
                f"cannot write {file or self._file.name}: {error.strerror}", hint
            ) from error

    def _show(self, step: int, values: dict[str, float]) -> None:
        if self.quiet:
            return
        now = time.monotonic()
        evaluated = any(name.startswith("eval/") for name in values)
        self._latest.update(values)
        if self._bar is not None:
            self._bar.set_postfix_str(_summary(self._latest), refresh=False)
            self._bar.update(step - self._bar.n)
            if evaluated:
                self.note(f"step {step}: {_evaluation(values)}")
            return
        if evaluated or now - self._spoke >= EVERY or (self._first is None and step > self.start):
            self._spoke = now
            text = f"step {step}/{self.total}  {_evaluation(values) if evaluated else _summary(self._latest)}"
            self.note(text + ("" if evaluated else self._left(step, now)))
        if self._first is None:
            self._first = (step, now)

    def _left(self, step: int, now: float) -> str:
        if self._first is None or step <= self._first[0]:
            return ""
        seconds = (now - self._first[1]) / (step - self._first[0]) * (self.total - step)
        return f"  {tqdm.format_interval(seconds)} left"


def truncate(path: Path, step: int) -> list[dict[str, Any]]:
    """Drop the lines after `step` and a torn last one, in one move; return those that stay.

    A run that starts anew (step 0) drops everything.
    """
    kept = (
        [line for line in records.rows(path) if line["step"] <= step]
        if step > 0 and path.exists()
        else []
    )
    disk.write(path, "".join(json.dumps(line) + "\n" for line in kept))
    return kept


def _number(value: Any) -> float | int | None:
    """A JSON number: Python's, numpy's and jax's scalars; null for what is not finite."""
    if isinstance(value, int):
        return int(value)
    number = float(value)
    return number if math.isfinite(number) else None


def _sample(row: Mapping[str, Any]) -> str:
    """A sentence with the likeliest token in each of its gaps, and what stood there."""
    said = iter(f"[{one[0]['token']} {one[0]['probability']:.0%}]" for one in row["predictions"])
    text = re.sub(r"\[MASK\]|…$", lambda gap: next(said, gap[0]), row["text"])
    return f"{text}  (was {', '.join(row['answers'])})"


def _summary(values: Mapping[str, float]) -> str:
    """Loss, accuracies and speed of the latest training lines, as far as they are known."""
    parts = []
    for name, text in [
        ("train/loss", "loss {:.3f}"),
        ("train/tokens_per_second", "{:,.0f} tokens/s"),
    ]:
        if name in values:
            parts.append(text.format(values[name]))
    accuracies = [
        f"{name.removeprefix('train/').removesuffix('_accuracy')} {value:.1%}"
        for name, value in values.items()
        if name.startswith("train/") and name.endswith("accuracy")
    ]
    return "  ".join([*parts[:1], *accuracies, *parts[1:]])


def _evaluation(values: Mapping[str, float]) -> str:
    """The results of an evaluation, in the order given; baselines, intervals and counts are in the file."""
    parts: list[str] = []
    for name, value in values.items():
        _, evaluation, metric = name.split("/") if name.count("/") == 2 else ("", "", "")
        if metric.endswith(("_loss", "_accuracy")) or metric in RESULTS:
            text = f"{value:.1%}" if metric.endswith("accuracy") else f"{value:.3f}"
            parts.append(f"{metric if parts else f'{evaluation}: {metric}'} {text}")
    return "  ".join(parts)
