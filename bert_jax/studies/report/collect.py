"""What the cells of a study found so far: from their folders, as they are now, to results.csv and the report."""

from __future__ import annotations

import csv
import io
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bert_jax.config import costs, quotas
from bert_jax.config.knobs import Config
from bert_jax.errors import DataError
from bert_jax.reporting import records
from bert_jax.reporting.metric_names import is_result
from bert_jax.studies import files
from bert_jax.studies.folder import Entry, Place, State
from bert_jax.system.jsons import Maybe

LEDGER = (
    "masked_fraction",
    "quota_fraction",
    "mask_token_fraction",
    "random_fraction",
    "kept_fraction",
)

ENVIRONMENT = {
    "parameters": Maybe(int),
    "machine": Maybe({"backend": Maybe(str), "cores": Maybe(int), "devices": Maybe([str])}),
}
FIRST = (
    "cell",
    "state",
    "seed",
    "step",
    "steps",
    "tokens",
    "predictions",
    "flops",
    "seconds",
    "evaluation_seconds",
)
LAST = ("parameters", "attempts", "error", "hardware", "ended")


@dataclass(frozen=True)
class History:
    """What a cell wrote while it trained: evaluations by step, and means of its ledger."""

    evaluations: Mapping[str, list[tuple[int, float]]] = field(default_factory=dict)
    ledger: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """A cell, how far it is, and what it found."""

    entry: Entry
    state: State
    metrics: Mapping[str, float]  # EVALUATION/METRIC, finite ones
    errors: Mapping[str, str]  # of evaluations that came to nothing
    seconds: float = 0.0  # its share of the time its group trained
    evaluation_seconds: float = 0.0
    parameters: int | None = None
    hardware: str = ""
    begun: str = ""  # when the first attempt began, in ISO format
    ended: str = ""  # when the last thing was noted
    history: History = History()
    vocabulary: int | None = None  # its real size, once known

    def spent(self, kind: str, step: int | None = None) -> float:
        """Steps, tokens, predictions or FLOPs up to a step; up to where it is, if none is given."""
        return self.clock(kind)(self.state.step if step is None else step)

    def clock(self, kind: str) -> Callable[[int], float]:
        """What so many of its steps spend of a budget."""
        return clock(
            kind, self.entry.config, self.vocabulary or self.entry.config.tokenizer.vocab_size
        )


@dataclass(frozen=True)
class Axis:
    """What is varied, as study.json says."""

    name: str
    labels: tuple[str, ...]
    values: tuple[Any, ...]

    @property
    def numeric(self) -> bool:
        """Whether its points have places on a line."""
        numbers = [
            v for v in self.values if isinstance(v, (int, float)) and not isinstance(v, bool)
        ]
        return len(numbers) == len(self.values) > 1 and len(set(numbers)) == len(numbers)

    def said(self, label: str) -> str:
        """A point's label where other axes' labels are about: a number says of what it is."""
        return (
            f"{self.name.rpartition('.')[2].replace('_', ' ')} {label}" if self.numeric else label
        )


@dataclass(frozen=True)
class Family:
    """Arms that differ in one axis alone: point -> a cell for every seed."""

    name: str  # labels of the other axes
    arms: Mapping[str, list[Result]]


def results(place: Place, history: bool = True) -> list[Result]:
    """Every cell that study.json lists; without their histories it is quicker."""
    if not place.read_study():
        raise DataError(
            f"no study in {place.workdir}", "`bert-jax study run STUDY --workdir=…` makes one"
        )
    return [_result(place, entry, history) for entry in place.cells()]


def _result(place: Place, entry: Entry, history: bool) -> Result:
    state, trained = place.state(entry), place.trained(entry.id)
    metrics: dict[str, float] = {}
    errors: dict[str, str] = {}
    seconds = 0.0
    for name in entry.evaluations:
        found = place.read_result(entry, name) or {}
        seconds += float(found.get("seconds") or 0)
        values = {f"{name}/{key}": value for key, value in (found.get("metrics") or {}).items()}
        metrics |= {key: float(value) for key, value in values.items() if _finite(value)}
        if found.get("error"):
            errors[name] = str(found["error"])
    environment = (
        files.read(place.cell(entry.id) / "environment.json", ENVIRONMENT) or {}
    )  # {}: not begun
    share = float(trained.get("seconds") or 0) or state.seconds / _group_size(place, entry)
    read = _history(place, entry.id) if history else History()
    parameters, machine = environment.get("parameters"), environment.get("machine") or {}
    vocabulary = environment.get("vocabulary") or entry.vocabulary
    times = sorted(str(note["time"]) for note in place.attempts(entry.id) if "time" in note)
    begun, ended = (times[0], times[-1]) if times else ("", "")
    hardware = _hardware(machine)
    return Result(
        entry,
        state,
        metrics,
        errors,
        share,
        seconds,
        parameters,
        hardware,
        begun,
        ended,
        read,
        vocabulary,
    )


def _hardware(machine: Mapping[str, Any]) -> str:
    """What a cell ran on: accelerators, or the cores of a processor."""
    if machine.get("backend", "cpu") == "cpu":
        return f"{machine['cores']} CPU cores" if machine.get("cores") else ""
    return ", ".join(map(str, machine.get("devices", [])))


def _group_size(place: Place, entry: Entry) -> int:
    """How many cells the clock of a cell runs for."""
    try:
        return max(1, len(place.read_group(entry.group)["cells"]))
    except DataError:  # not planned yet
        return 1


def _history(place: Place, cell: str) -> History:
    path = place.cell(cell) / records.METRICS
    curves: dict[str, dict[int, float]] = defaultdict(dict)
    sums: dict[str, list[float]] = defaultdict(list)
    for row in records.rows(path) if path.exists() else ():
        for key, value in row.items():
            kind, _, name = key.partition("/")
            if kind == "eval" and is_result(name) and _finite(value):
                curves[name][row["step"]] = value
            elif kind == "train" and name in LEDGER and _finite(value):
                sums[name].append(value)
    ledger = {name: math.fsum(values) / len(values) for name, values in sums.items()}
    return History({name: sorted(found.items()) for name, found in curves.items()}, ledger)


def _finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def clock(kind: str, config: Config, vocab_size: int) -> Callable[[int], float]:
    """What so many steps spend of a budget; under a schedule the first have another prediction rate than the last."""
    each, masking = costs.per_step(kind, config, vocab_size), config.masking
    if (
        kind != "predictions"
        or masking.schedule == "constant"
        or masking.prediction_rate is not None
    ):
        return lambda step: step * each
    tokens = each / costs.predicted(config)
    return lambda step: (
        step * tokens * (masking.rate + quotas.rate_at(masking, step - 1, config.steps)) / 2
    )


# --- arms -----------------------------------------------------------------------------------------------------------


def axes(study: Mapping[str, Any]) -> list[Axis]:
    """The axes of a study.json."""
    return [
        Axis(
            one["name"],
            *(tuple(point[key] for point in one["points"]) for key in ("label", "value")),
        )
        for one in study.get("axes", [])
    ]


def families(study: Mapping[str, Any], found: Sequence[Result], axis: str) -> list[Family]:
    """Cells by what they share besides an axis and the seed; arms in the order of the axis."""
    others = [one for one in axes(study) if one.name != axis]
    labels = next((one.labels for one in axes(study) if one.name == axis), ())
    grouped: dict[str, dict[str, list[Result]]] = {}
    for cell in found:
        name = ", ".join(other.said(cell.entry.labels[other.name]) for other in others)
        grouped.setdefault(name, {}).setdefault(cell.entry.labels.get(axis, ""), []).append(cell)
    order = labels or ("",)
    return [
        Family(name, {label: arms[label] for label in order if label in arms})
        for name, arms in grouped.items()
    ]


# --- results.csv ----------------------------------------------------------------------------------------------------


def rows(place: Place) -> list[dict[str, Any]]:
    """One flat row a cell, finished or not; what it has not found, it lacks."""
    return [row(one) for one in results(place, history=False)]


def row(one: Result) -> dict[str, Any]:
    """The row of a cell."""
    entry, state = one.entry, one.state
    out: dict[str, Any] = {"cell": entry.id, "state": state.name}
    for axis, label in entry.labels.items():
        out |= dict(zip(_columns(axis), (label, entry.values[axis]), strict=True))
    out |= {"seed": entry.seed, "step": state.step, "steps": state.steps}
    out |= {kind: one.spent(kind) for kind in ("tokens", "predictions", "flops")}
    out |= {
        "seconds": round(one.seconds, 3),
        "evaluation_seconds": round(one.evaluation_seconds, 3),
    }
    error = "; ".join(
        [*filter(None, [state.error]), *(f"{name}: {text}" for name, text in one.errors.items())]
    )
    out |= {"parameters": one.parameters, "attempts": state.attempts, "error": error}
    out |= {"hardware": one.hardware, "ended": one.ended}
    return out | dict(sorted(one.metrics.items()))


def _columns(axis: str) -> tuple[str, str]:
    """Of an axis: labels and values; an axis called as another column is set apart."""
    name = f"axis.{axis}" if axis in (*FIRST, *LAST) else axis
    return name, f"{name}.value"


def write_csv(place: Place, found: Sequence[Result] | None = None) -> None:
    """Writes results.csv in one move: what a cell is, what it cost, then metrics by name."""
    table = rows(place) if found is None else [row(one) for one in found]
    axis = [name for one in axes(place.read_study()) for name in _columns(one.name)]
    fixed = [*FIRST[:2], *axis, *FIRST[2:], *LAST]
    names = [*fixed, *sorted({key for one in table for key in one} - set(fixed))]
    text = io.StringIO()
    writing = csv.DictWriter(text, names, restval="", lineterminator="\n")
    writing.writeheader()
    writing.writerows(table)
    files.write_text(place.csv, text.getvalue())


def read_csv(place: Place) -> list[Result]:
    """Read results.csv back: what a summary needs of cells whose folders are not there. Their configs are not in it."""
    names = [one.name for one in axes(place.read_study())]
    try:
        table = list(csv.DictReader(io.StringIO(place.csv.read_text(encoding="utf-8"))))
        return [_of_row(line, names) for line in table]
    except (KeyError, ValueError) as error:
        raise DataError(
            f"{place.csv}: {type(error).__name__}: {error}", "restore it: it is a study's own"
        ) from error


def _of_row(line: Mapping[str, str], names: Sequence[str]) -> Result:
    """Make a cell of its row."""
    columns = {name: _columns(name) for name in names}
    labels = {name: line[label] for name, (label, _) in columns.items()}
    values: dict[str, Any] = {name: line[value] for name, (_, value) in columns.items()}
    fixed = {*FIRST, *LAST, *(column for pair in columns.values() for column in pair)}
    metrics = {key: float(text) for key, text in line.items() if key not in fixed and text}
    entry = Entry(line["cell"], Config(), labels, values, int(line["seed"]), {})
    state = State(line["state"], int(line["attempts"]), "", int(line["step"]), int(line["steps"]))
    seconds = float(line["seconds"]), float(line["evaluation_seconds"])
    return Result(entry, state, metrics, {}, *seconds, None, line["hardware"], "", line["ended"])
