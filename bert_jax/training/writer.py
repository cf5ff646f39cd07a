"""The metrics of a run: metrics.jsonl, samples.jsonl, its trackers, and progress lines.

A line of metrics.jsonl is a JSON object: `step`, `time` (seconds the run has worked, over all its
resumes), then flat names. A number that is not finite is written as null. The first line of a
branch names its trunk and the step of the fork, `branch_from`. A line of samples.jsonl has `step`
and the predictions of a sentence (evaluation/samples.py): `text`, `answers`, `predictions`; or of a
task what was got wrong (evaluation/mistakes.py).
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from tqdm import tqdm

from bert_jax.config import knobs
from bert_jax.errors import CheckpointError
from bert_jax.reporting import records
from bert_jax.system import disk
from bert_jax.training import trackers

logger = logging.getLogger(__name__)

# Metrics of tasks that a progress line shows.
RESULTS = {"loss", *(metric for metrics in knobs.METRICS.values() for metric in metrics)}
EVERY = 10.0  # seconds between plain progress lines


class Writer:
    """The files of metrics of one run, written by process 0, and its progress on standard error."""

    def __init__(
        self,
        workdir: Path,
        total_steps: int,
        start_step: int,
        names: Sequence[str] = (),
        quiet: bool = False,
        seconds: float = 0.0,
        branch_from: str = "",
        config: Mapping[str, Any] | None = None,
    ):
        """Open the files, and drop their lines after the start step.

        With `quiet`, the files are written and no progress is shown, which one of many runs shows
        for all. `seconds` is the time that the run had worked when the checkpoint of the start step
        was saved. A branch begins, at the start step, with no line but one that names its trunk,
        `branch_from`. The trackers of these `names` are told the `config`.
        """
        self.active, self.quiet = jax.process_index() == 0, quiet
        self.total, self.start = total_steps, start_step
        self._began = self._shown = time.monotonic()
        self._offset = seconds
        # Step and time of the first line, which the time left is estimated from: compilation lies
        # before it.
        self._first: tuple[int, float] | None = None
        self._latest: dict[str, float] = {}
        self.finished = False  # set when training has come to its end
        self._failed = False  # once a write failed, errors of closing the files add nothing
        self._bar: tqdm | None = None
        if not self.active:
            return
        path, self._samples = Path(workdir) / records.METRICS, Path(workdir) / records.SAMPLES
        truncate(path, 0 if branch_from else start_step)
        if self._samples.exists():
            truncate(self._samples, start_step)
        self._trackers = trackers.Trackers(names, Path(workdir), start_step, config or {})
        self._file = path.open("a", encoding="utf-8")
        if branch_from:
            self._append({"step": start_step, "time": 0.0, "branch_from": branch_from})
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
        """Return the seconds the run has worked, over all its resumes."""
        return self._offset + time.monotonic() - self._began

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Write a line of metrics, and show how far the run is."""
        if not self.active:
            return
        clean = {name: _number(value) for name, value in values.items()}
        self._append({"step": int(step), "time": round(self.seconds, 3), **clean})
        finite = {name: value for name, value in clean.items() if value is not None}
        self._trackers.add(int(step), finite)
        self._show(step, finite)

    def _append(self, line: dict[str, Any]) -> None:
        with self._disk_errors():
            self._file.write(json.dumps(line, allow_nan=False) + "\n")
            self._file.flush()

    def show(self, step: int, samples: Sequence[Mapping[str, Any]]) -> None:
        """Write what the model predicts for samples, and show it for the first sentence of them."""
        if not self.active or not samples:
            return
        with self._disk_errors(self._samples), self._samples.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps({"step": int(step), **row}) + "\n" for row in samples)
            file.flush()
            os.fsync(file.fileno())
        if not self.quiet and "predictions" in samples[0]:
            logger.info(f"step {step}  guesses: {_sample(samples[0])}")

    def flush(self) -> None:
        """Bring everything written so far to the disk, before a checkpoint of the same step."""
        if not self.active:
            return
        with self._disk_errors():
            self._file.flush()
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Flush and close the files; a second call does nothing."""
        if not self.active:
            return
        self.active = False
        if self._bar is not None:
            self._bar.close()
        self._trackers.close(self.finished)
        with contextlib.suppress(OSError) if self._failed else self._disk_errors():
            self._file.close()  # writes what its buffer holds, of which a full disk may be known

    @contextlib.contextmanager
    def _disk_errors(self, file: Path | None = None) -> Iterator[None]:
        """Turn an error of writing a file, metrics.jsonl by default, into one of the user."""
        try:
            yield
        except OSError as error:
            self._failed = True
            if disk.is_full(error):
                raise disk.full(file or self._file.name) from error
            raise CheckpointError(
                f"cannot write {file or self._file.name}: {error.strerror}",
                "free some space, then run the same command again: "
                "it goes on from the last checkpoint",
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
                logger.info(f"step {step}: {_evaluation(values)}")
            return
        if evaluated or now - self._shown >= EVERY or (self._first is None and step > self.start):
            self._shown = now
            text = f"{_summary(self._latest)}{self._left(step, now)}"
            logger.info(f"step {step}/{self.total}  {_evaluation(values) if evaluated else text}")
        if self._first is None:
            self._first = (step, now)

    def _left(self, step: int, now: float) -> str:
        if self._first is None or step <= self._first[0]:
            return ""
        seconds = (now - self._first[1]) / (step - self._first[0]) * (self.total - step)
        return f"  {tqdm.format_interval(seconds)} left"


def truncate(path: Path, step: int) -> None:
    """Drop the lines after `step` and a torn last line, atomically.

    A run that starts anew, at step 0, drops everything.
    """
    kept = []
    if step > 0 and path.exists():
        kept = [line for line in records.rows(path) if line["step"] <= step]
    disk.write(path, "".join(json.dumps(line) + "\n" for line in kept))


def _number(value: Any) -> float | int | None:
    """Convert a scalar of Python, numpy or jax to a JSON number; None if it is not finite."""
    if isinstance(value, int):
        return int(value)
    number = float(value)
    return number if math.isfinite(number) else None


def _sample(row: Mapping[str, Any]) -> str:
    """Return a sentence with the likeliest token in each of its gaps, and the right answers."""
    best = (ranked[0] for ranked in row["predictions"])
    fills = (f"[{guess['token']} {guess['probability']:.0%}]" for guess in best)
    text = re.sub(r"\[MASK\]|…$", lambda gap: next(fills, gap[0]), row["text"])
    return f"{text}  (was {', '.join(row['answers'])})"


def _summary(values: Mapping[str, float]) -> str:
    """Return loss, accuracies and speed of the latest training lines, as far as they are known."""
    formats = {"train/loss": "loss {:.3f}", "train/tokens_per_second": "{:,.0f} tokens/s"}
    parts = [text.format(values[name]) for name, text in formats.items() if name in values]
    accuracies = [
        f"{name.removeprefix('train/').removesuffix('_accuracy')} {value:.1%}"
        for name, value in values.items()
        if name.startswith("train/") and name.endswith("accuracy")
    ]
    return "  ".join([*parts[:1], *accuracies, *parts[1:]])


def _evaluation(values: Mapping[str, float]) -> str:
    """Return the results of an evaluation in their order.

    Baselines, intervals and counts are left to the file.
    """
    parts: list[str] = []
    for name, value in values.items():
        _, evaluation, metric = name.split("/") if name.count("/") == 2 else ("", "", "")
        if metric.endswith(("_loss", "_accuracy")) or metric in RESULTS:
            text = f"{value:.1%}" if metric.endswith("accuracy") else f"{value:.3f}"
            parts.append(f"{metric if parts else f'{evaluation}: {metric}'} {text}")
    return "  ".join(parts)
