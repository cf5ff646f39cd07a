"""The metrics of a run: metrics.jsonl, samples.jsonl, its trackers, and progress lines.

A line of metrics.jsonl is a JSON object: `step`, `time` (the seconds that the run has worked, over
all attempts), then metrics by name. A number that is not finite is written as null. The first line
of a branch names its trunk and the step of the fork, `branch_from`. A line of samples.jsonl has
`step` and the predictions for a sentence (evaluation/samples.py), or the mistakes in a task
(evaluation/mistakes.py).
"""

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

from bert_jax.config import knobs, to_dict
from bert_jax.errors import CheckpointError
from bert_jax.reporting import records
from bert_jax.system import disk
from bert_jax.training import trackers

logger = logging.getLogger(__name__)

# Metrics of tasks that a progress line shows.
RESULTS = {"loss", *(metric for metrics in knobs.METRICS.values() for metric in metrics)}
EVERY = 10.0  # seconds between plain progress lines


class Writer:
    """The metrics files of one run, which process 0 writes, and its progress on standard error."""

    def __init__(
        self,
        workdir: Path,
        config: knobs.Config,
        start: int,
        *,
        quiet: bool = False,
        seconds: float = 0.0,
        branches: bool = False,
        owed: Sequence[str] = (),
    ):
        """Open the files, and drop their lines after the step `start`.

        Args:
          workdir: the folder of the run.
          config: the config of the run.
          start: the step from which the run continues.
          quiet: write the files but show no progress, because another run of the program shows it.
          seconds: the seconds that the run had worked when step `start` was saved.
          branches: whether the run is a branch that begins at `start`; its first line names the
            trunk.
          owed: the evaluations that are still to be made at `start`; their lines are dropped too,
            because a process may be killed before it notes an evaluation as made.
        """
        self.finished = False  # set when training has come to its end
        self._active = jax.process_index() == 0
        self._quiet = quiet
        self._total = config.steps
        self._start = start
        self._began = self._shown = time.monotonic()
        self._offset = seconds
        # Step and time of the first line, which the time left is estimated from: compilation lies
        # before it.
        self._first: tuple[int, float] | None = None
        self._latest: dict[str, float] = {}
        self._failed = False  # once a write failed, errors of closing the files add nothing
        self._bar: tqdm | None = None
        if not self._active:
            return
        path = workdir / records.METRICS
        self._samples = workdir / records.SAMPLES
        truncate_metrics(path, 0 if branches else start, owed)
        if self._samples.exists():  # which has lines of `validation` alone
            truncate_metrics(self._samples, start - 1 if "validation" in owed else start)
        names = config.logging.trackers
        self._trackers = trackers.Trackers(names, workdir, start, to_dict(config))
        self._file = path.open("a", encoding="utf-8")
        if branches:
            self._append({"step": start, "time": 0.0, "branch_from": config.branch_from})
        if sys.stderr.isatty() and not quiet:
            self._bar = tqdm(
                total=self._total, initial=start, unit="step", dynamic_ncols=True, smoothing=0.1
            )

    @property
    def seconds(self) -> float:
        """The seconds that the run has worked, over all attempts."""
        return self._offset + time.monotonic() - self._began

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Write a line of metrics, pass it to the trackers, and show progress."""
        if not self._active:
            return
        clean: dict[str, float | None] = {}
        for name, value in values.items():
            number = value if isinstance(value, int) else float(value)
            clean[name] = number if math.isfinite(number) else None
        self._append({"step": step, "time": round(self.seconds, 3), **clean})
        finite = {name: value for name, value in clean.items() if value is not None}
        self._trackers.add(step, finite)
        if not self._quiet:
            self._show(step, finite)

    def write_samples(self, step: int, samples: Sequence[Mapping[str, Any]]) -> None:
        """Write the predictions for samples, and show those for the first sentence."""
        if not self._active or not samples:
            return
        with self._disk_errors(self._samples), self._samples.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps({"step": step, **row}) + "\n" for row in samples)
            file.flush()
            os.fsync(file.fileno())
        if not self._quiet and "predictions" in samples[0]:
            logger.info(f"step {step}  guesses: {_fill_gaps(samples[0])}")

    def flush(self) -> None:
        """Write everything so far to the disk, before a checkpoint of the same step."""
        if self._active:
            with self._disk_errors():
                self._file.flush()
                os.fsync(self._file.fileno())

    def close(self) -> None:
        """Flush and close the files; a second call does nothing."""
        if not self._active:
            return
        self._active = False
        if self._bar is not None:
            self._bar.close()
        self._trackers.close(self.finished)
        with contextlib.suppress(OSError) if self._failed else self._disk_errors():
            self._file.close()  # writes what its buffer holds, of which a full disk may be known

    def _append(self, line: dict[str, Any]) -> None:
        with self._disk_errors():
            self._file.write(json.dumps(line, allow_nan=False) + "\n")
            self._file.flush()

    @contextlib.contextmanager
    def _disk_errors(self, file: Path | None = None) -> Iterator[None]:
        """Convert an OSError of writing a file (metrics.jsonl) to an error with a hint."""
        try:
            yield
        except OSError as error:
            self._failed = True
            if disk.is_full(error):
                raise disk.make_full_error(file or self._file.name) from error
            raise CheckpointError(
                f"cannot write {file or self._file.name}: {error.strerror}", disk.HINT
            ) from error

    def _show(self, step: int, values: dict[str, float]) -> None:
        """Show the metrics of a step: on a terminal at once, otherwise every EVERY seconds."""
        now = time.monotonic()
        evaluation = _describe_evaluation(values)
        self._latest.update(values)
        if self._bar is not None:
            self._bar.set_postfix_str(_describe_training(self._latest), refresh=False)
            self._bar.update(step - self._bar.n)
            if evaluation:
                logger.info(f"step {step}: {evaluation}")
            return
        first = self._first is None and step > self._start
        if evaluation or first or now - self._shown >= EVERY:
            self._shown = now
            text = evaluation or f"{_describe_training(self._latest)}{self._estimate_left(step)}"
            logger.info(f"step {step}/{self._total}  {text}")
        if first:
            self._first = (step, now)

    def _estimate_left(self, step: int) -> str:
        if self._first is None or step <= self._first[0]:
            return ""
        pace = (time.monotonic() - self._first[1]) / (step - self._first[0])
        return f"  {tqdm.format_interval(pace * (self._total - step))} left"


def truncate_metrics(path: Path, step: int, owed: Sequence[str] = ()) -> None:
    """Drop the lines after `step`, and an incomplete last line; at step 0 drop all lines.

    At `step` itself the lines of the evaluations `owed` are dropped. The file is replaced in one
    move.
    """
    kept = []
    if step > 0 and path.exists():
        prefixes = tuple(f"eval/{name}/" for name in owed)
        for line in records.read_rows(path):
            again = line["step"] == step and any(key.startswith(prefixes) for key in line)
            if line["step"] <= step and not again:
                kept.append(line)
    disk.write(path, "".join(json.dumps(line) + "\n" for line in kept))


def _fill_gaps(row: Mapping[str, Any]) -> str:
    """Write a sentence with the likeliest token in each gap, and the right answers behind it."""
    best = (ranked[0] for ranked in row["predictions"])
    fills = (f"[{guess['token']} {guess['probability']:.0%}]" for guess in best)
    text = re.sub(r"\[MASK\]|…$", lambda gap: next(fills, gap[0]), row["text"])
    return f"{text}  (was {', '.join(row['answers'])})"


def _describe_training(values: Mapping[str, float]) -> str:
    """Write loss, accuracies and speed of training as text, as far as they are known."""
    parts = []
    if "train/loss" in values:
        parts.append(f"loss {values['train/loss']:.3f}")
    for name, value in values.items():
        if name.startswith("train/") and name.endswith("accuracy"):
            short = name.removeprefix("train/").removesuffix("_accuracy")
            parts.append(f"{short} {value:.1%}")
    if "train/tokens_per_second" in values:
        parts.append(f"{values['train/tokens_per_second']:,.0f} tokens/s")
    return "  ".join(parts)


def _describe_evaluation(values: Mapping[str, float]) -> str:
    """Write the main results of an evaluation as text, without baselines, intervals and counts."""
    parts: list[str] = []
    for name, value in values.items():
        if not name.startswith("eval/"):
            continue
        evaluation, metric = name.split("/")[1:]
        if metric.endswith(("_loss", "_accuracy")) or metric in RESULTS:
            label = metric if parts else f"{evaluation}: {metric}"
            text = f"{value:.1%}" if metric.endswith("accuracy") else f"{value:.3f}"
            parts.append(f"{label} {text}")
    return "  ".join(parts)
