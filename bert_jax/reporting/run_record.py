"""What a run has written, read once for its pages: config, metrics by step, and the steps kept."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from bert_jax.errors import DataError, MissingError
from bert_jax.reporting import records
from bert_jax.reporting.formats import rounded
from bert_jax.reporting.metric_names import is_result, lower_is_better
from bert_jax.system import folder_locks, jsons

Curves = dict[str, list[tuple[int, float]]]  # metric -> (step, value), by step
Kept = Sequence[tuple[int, float | None]]  # steps and their metrics, the one that is served first
FindKept = Callable[[Path], Kept]  # of a run's folder
VALIDATION = "validation"  # the evaluation by which the best step is chosen


@dataclass(frozen=True)
class RunRecord:
    """A run as its folder describes it; what is missing there is empty here."""

    folder: Path
    recorded: dict[str, Any]  # its config.json
    environment: dict[str, Any]
    rows: list[dict[str, Any]]  # of metrics.jsonl, by step
    kept: Kept
    training: bool  # whether a process holds the folder

    @cached_property
    def curves(self) -> Curves:
        """Return the finite values of every metric, by step."""
        return _curves(self.rows, self.recorded)

    @property
    def name(self) -> str:
        """Return the name of the folder."""
        return self.folder.resolve().name

    @property
    def step(self) -> int:
        """Return the last step with a line of metrics."""
        return max(self.rows[-1]["step"] if self.rows else 0, self.kept[0][0] if self.kept else 0)

    @property
    def steps(self) -> int:
        """Return the number of steps of the config; 0 where that is not known."""
        steps = self.recorded.get("steps")
        return steps if isinstance(steps, int) else 0

    @property
    def seconds(self) -> float:
        """Return the seconds the run has worked."""
        return max((float(row.get("time") or 0) for row in self.rows), default=0.0)

    @property
    def served(self) -> int | None:
        """Return the step that commands open; None where no checkpoint is known."""
        return self.kept[0][0] if self.kept else None

    @property
    def ranked_by(self) -> str:
        """Return the metric of the validation by which the best step is kept; empty for none."""
        best = subtree(self.recorded, "checkpoints").get("best")
        return f"eval/{VALIDATION}/{best}" if best and isinstance(best, str) else ""

    def at_served(self, name: str) -> tuple[int, float]:
        """Return step and value of a metric at the step that is served, else of its last line."""
        points = self.curves[name]
        return next((point for point in points if point[0] == self.served), points[-1])

    def suites(self) -> list[str]:
        """Return the names of the evaluations."""
        names = [name.split("/") for name in self.curves if name.startswith("eval/")]
        return list(dict.fromkeys(parts[1] for parts in names if len(parts) == 3))

    def results(self, suite: str) -> list[str]:
        """Return the metrics of an evaluation, without its baselines, intervals and counts."""
        prefix = f"eval/{suite}/"
        names = [name.removeprefix(prefix) for name in self.curves if name.startswith(prefix)]
        return [name for name in names if is_result(name)]

    def state(self) -> str:
        """Say in a few words how far the run is."""
        if not self.rows:
            return "imported" if self.kept else "begun" if self.training else "not begun"
        if self.step >= self.steps > 0:
            return "finished"
        if self._patience_is_over():
            return "ended early"
        return "training now" if self.training else "stopped"

    def _patience_is_over(self) -> bool:
        """Tell whether too many evaluations in a row were no better than the best."""
        patience = subtree(self.recorded, "checkpoints").get("patience") or 0
        values = [value for _, value in self.curves.get(self.ranked_by, [])]
        if not values or not patience:
            return False
        best = min(values) if lower_is_better(self.ranked_by) else max(values)
        return len(values) - 1 - values.index(best) >= patience

    def warnings(self) -> list[str]:
        """Say what is wrong with the run: its loss is no number, or updates are not made."""
        last: dict[str, Any] = next((r for r in reversed(self.rows) if "train/loss" in r), {})
        lost, skipped = last.get("train/loss", 0) is None, last.get("train/skipped_in_row")
        parts = ["the loss is not finite"] if lost else []
        parts += [f"{rounded(skipped)} updates in a row were not made"] if skipped else []
        where = f"At step {last['step']:,}, the last one, " if parts else ""
        return [f"{where}{' and '.join(parts)}."] if parts else []


def read(folder: Path, find_kept: FindKept | None = None) -> RunRecord:
    """Read a run's folder; `find_kept` tells which checkpoints it has."""
    folder = Path(folder)
    metrics = folder / records.METRICS
    rows = sorted(records.rows(metrics), key=lambda row: row["step"]) if metrics.exists() else []
    return RunRecord(
        folder=folder,
        recorded=_json(folder / "config.json"),
        environment=_json(folder / "environment.json"),
        rows=rows,
        kept=find_kept(folder) if find_kept else (),
        training=folder_locks.held(folder),
    )


def is_run(folder: Path) -> bool:
    """Tell whether a folder is a run."""
    known = {"objectives", "model"} <= _json(folder / "config.json").keys()
    return known or (folder / records.METRICS).is_file()


def check(folder: Path) -> None:
    """Refuse a folder that is no run."""
    if not folder.is_dir():
        hint = "give the folder that `bert-jax train --workdir=…` made"
        raise MissingError(f"no run in {folder}: there is no such folder", hint)
    if is_run(folder):
        return
    hint = "a run has config.json and metrics.jsonl, which `bert-jax train --workdir=…` writes"
    if (folder / "study.json").exists():
        hint = f"it is a study: `bert-jax study report --workdir={folder}`; its runs are in cells/"
    raise MissingError(f"no run in {folder}", hint)


def subtree(recorded: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a section of a recorded config; empty if it is missing."""
    value = recorded.get(name)
    return value if isinstance(value, dict) else {}


def _json(path: Path) -> dict[str, Any]:
    """Read a JSON object; return an empty one if it is missing or being written."""
    try:
        return jsons.read(path, DataError)
    except DataError:
        return {}


def _curves(rows: list[dict[str, Any]], recorded: dict[str, Any]) -> Curves:
    """Collect the values of every metric by step."""
    curves: Curves = defaultdict(list)
    objectives = list(subtree(recorded, "objectives"))
    hundreds = ("exact", "f1") if "span" in objectives else ()  # SQuAD's are published in per cent
    # A task's training metrics are named after its objective; its evaluation's have no such prefix.
    tuned = bool(subtree(recorded, "task").get("source") and objectives)
    prefix = f"train/{objectives[0]}_" if tuned else "?"
    for row in rows:
        for key, value in row.items():
            name = f"train/{key.removeprefix(prefix)}" if key.startswith(prefix) else key
            if name != key and name in row:
                continue
            if "/" in name and isinstance(value, (int, float)) and math.isfinite(value):
                curves[name].append((row["step"], value / (100 if name.endswith(hundreds) else 1)))
    return dict(curves)
