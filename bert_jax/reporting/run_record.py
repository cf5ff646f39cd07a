"""What a run has written, read for its pages: config, metrics by step, and saved checkpoints."""

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from bert_jax.checkpoints import manifest
from bert_jax.errors import MissingError
from bert_jax.reporting import metric_names, records
from bert_jax.system import folder_locks, jsons

Curves = dict[str, list[tuple[int, float]]]  # metric -> (step, value), by step
Kept = Sequence[tuple[int, float | None]]  # steps and their metrics, the one that is served first
Baseline = tuple[str, float, str]  # what it is called, its value, and what it means


@dataclass(frozen=True)
class RunRecord:
    """What a run's folder tells about the run; a field is empty if its file is missing."""

    folder: Path
    recorded: dict[str, Any]  # its config.json
    environment: dict[str, Any]
    rows: list[dict[str, Any]]  # of metrics.jsonl, by step
    kept: Kept
    training: bool  # whether a process holds the folder

    @cached_property
    def curves(self) -> Curves:
        """The finite values of each metric, as {metric: [(step, value), …]} sorted by step."""
        return _collect_curves(self.rows, self.recorded)

    @property
    def steps(self) -> int:
        """The number of steps in the config; 0 if it is unknown."""
        steps = self.recorded.get("steps")
        return steps if isinstance(steps, int) else 0

    @property
    def step(self) -> int:
        """The last step that has metrics, or the step that is served if that is later."""
        last = self.rows[-1]["step"] if self.rows else 0
        return max(last, self.served or 0)

    @property
    def seconds(self) -> float:
        """The seconds that the run has worked, over all its resumes."""
        return max((row.get("time") or 0.0 for row in self.rows), default=0.0)

    @property
    def served(self) -> int | None:
        """The step of the checkpoint that commands open; None if no checkpoint is known."""
        return self.kept[0][0] if self.kept else None

    @property
    def mark(self) -> int | None:
        """The step that is served, for charts to mark; None if it is the last step."""
        return self.served if self.served and self.served < self.step else None

    @property
    def ranked_by(self) -> str:
        """The validation metric that ranks checkpoints; "" if they are not ranked."""
        best = find_section(self.recorded, "checkpoints").get("best")
        return f"eval/validation/{best}" if best else ""

    @property
    def state(self) -> str:
        """The state of the run in a few words, such as "finished"."""
        if not self.rows:
            return "imported" if self.kept else "begun" if self.training else "not begun"
        if self.step >= self.steps > 0:
            return "finished"
        if self._is_out_of_patience():
            return "ended early"
        return "training now" if self.training else "stopped"

    def _is_out_of_patience(self) -> bool:
        """Tell whether the last `patience` evaluations, or more, were misses: see `Run.ended`."""
        patience = find_section(self.recorded, "checkpoints").get("patience") or 0
        direction = metric_names.find_direction(self.ranked_by)
        best = -math.inf
        misses = 0
        for row in self.rows:
            if self.ranked_by not in row:
                continue
            value = row[self.ranked_by]
            if jsons.is_finite(value) and direction * value > best:
                best = direction * value
                misses = 0
            else:
                misses += best > -math.inf
        return 0 < patience <= misses

    def last(self, name: str) -> float | None:
        """Return the last value of a training metric; None without a value."""
        points = self.curves.get(f"train/{name}")
        return points[-1][1] if points else None

    def find_served(self, name: str) -> tuple[int, float]:
        """Return (step, value) of a metric at the step that is served, or else at its last step."""
        points = self.curves[name]
        return next((point for point in points if point[0] == self.served), points[-1])

    def list_suites(self) -> list[str]:
        """List the names of the run's evaluations."""
        names = [name.split("/") for name in self.curves if name.startswith("eval/")]
        return list(dict.fromkeys(parts[1] for parts in names if len(parts) == 3))

    def list_results(self, suite: str) -> list[str]:
        """List the results of an evaluation, without its baselines, intervals and counts."""
        prefix = f"eval/{suite}/"
        names = [name.removeprefix(prefix) for name in self.curves if name.startswith(prefix)]
        return [name for name in names if metric_names.is_result(name)]

    def find_baseline(self, suite: str, name: str) -> Baseline | None:
        """Return (name, value, meaning) of a metric's baseline; None if it has none.

        The name is "the unigram", for example, and `suite` is the evaluation that has the metric.
        """
        references, words = metric_names.list_baselines(name)
        for reference in references:
            if points := self.curves.get(f"eval/{suite}/{reference}"):
                return words, points[-1][1], metric_names.find_meaning(reference)
        return (
            ("chance", metric_names.CHANCE[name], "What guessing reaches.")
            if name in metric_names.CHANCE
            else None
        )

    def list_warnings(self) -> list[str]:
        """Warn if the last loss is not finite, or if the last updates were skipped."""
        last: dict[str, Any] = next((r for r in reversed(self.rows) if "train/loss" in r), {})
        parts = ["the loss is not finite"] if last.get("train/loss", 0) is None else []
        if skipped := last.get("train/skipped_in_row"):
            parts.append(f"{skipped:.0f} updates in a row were not made")
        where = f"At step {last.get('step'):,}, the last one, " if parts else ""
        return [f"{where}{' and '.join(parts)}."] if parts else []


def read_run(folder: Path) -> RunRecord:
    """Read what a run has written to its folder."""
    return RunRecord(
        folder=folder,
        recorded=_read_object(folder / "config.json"),
        environment=_read_object(folder / "environment.json"),
        rows=records.read_sorted(folder / records.METRICS),
        kept=manifest.list_metrics(folder),
        training=folder_locks.is_held(folder),
    )


def is_run(folder: Path) -> bool:
    """Tell whether a folder is the folder of a run."""
    known = {"objectives", "model"} <= _read_object(folder / "config.json").keys()
    return known or (folder / records.METRICS).is_file()


def check_run(folder: Path) -> None:
    """Refuse a folder that is not the folder of a run."""
    if not folder.is_dir():
        hint = "give the folder that `bert-jax train --workdir=…` made"
        raise MissingError(f"no run in {folder}: there is no such folder", hint)
    if is_run(folder):
        return
    hint = "a run has config.json and metrics.jsonl, which `bert-jax train --workdir=…` writes"
    if (folder / "study.json").exists():
        hint = f"it is a study: `bert-jax study report --workdir={folder}`; its runs are in cells/"
    raise MissingError(f"no run in {folder}", hint)


def find_section(recorded: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a section of a recorded config; {} if it is missing."""
    value = recorded.get(name)
    return value if isinstance(value, dict) else {}


def _read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object; return {} if the file is missing or incomplete."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _collect_curves(rows: list[dict[str, Any]], recorded: dict[str, Any]) -> Curves:
    """Collect the finite values of each metric, as {metric: [(step, value), …]} sorted by step.

    For a task, the names of training metrics begin with its objective, but those of evaluations do
    not. So the objective is dropped from the names. SQuAD's scores, which are published in per
    cent, become shares.
    """
    curves: Curves = defaultdict(list)
    objective = next(iter(find_section(recorded, "objectives")), "")
    tuned = bool(find_section(recorded, "task").get("source"))
    for row in rows:
        for key, value in row.items():
            name = key
            if tuned and key.startswith(f"train/{objective}_"):
                name = f"train/{key.removeprefix(f'train/{objective}_')}"
            if "/" not in name or (name != key and name in row):
                continue
            if jsons.is_finite(value):
                hundreds = objective == "span" and name.endswith(("exact", "f1"))
                curves[name].append((row["step"], value / 100 if hundreds else value))
    return dict(curves)
