"""Results of a study's cells so far, read from their folders for results.csv and the report."""

from __future__ import annotations

import csv
import io
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bert_jax.config import costs
from bert_jax.config.knobs import Config
from bert_jax.errors import DataError
from bert_jax.masking import rates
from bert_jax.reporting import records
from bert_jax.reporting.metric_names import is_result
from bert_jax.studies import files
from bert_jax.studies.folder import Entry, State, StudyFolder
from bert_jax.studies.spec import SPLIT, SPLIT_ORDER
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
KNOBS = {  # knob -> words for readers, and its unit in the title of an axis
    "masking.rate": ("masking rate", "share of tokens"),
    "masking.prediction_rate": ("prediction rate", "share of tokens"),
    SPLIT: ("split", f"{SPLIT_ORDER}, %"),
    "masking.unit": ("masking unit", ""),
    "masking.dupe_factor": ("copies of masks", ""),
    "optim.learning_rate": ("peak learning rate", ""),
    "optim.warmup_steps": ("warm-up", "updates"),
    "steps": ("training length", "updates"),
    "batch_size": ("batch size", "rows"),
    "sequence_length": ("length of rows", "tokens"),
    "tokenizer.vocab_size": ("vocabulary size", "tokens"),
}
# Columns of results.csv; those of the axes stand behind the identity, metrics at the end.
IDENTITY = ("cell", "state")
SPENT = ("tokens", "predictions", "flops")
PROGRESS = ("seed", "step", "steps", *SPENT, "seconds", "evaluation_seconds")
LAST = ("parameters", "attempts", "error", "hardware", "ended")
FIXED = (*IDENTITY, *PROGRESS, *LAST)


@dataclass(frozen=True)
class History:
    """Metrics a cell wrote during training: evaluations by step, and the means of its ledger."""

    evaluations: Mapping[str, list[tuple[int, float]]] = field(default_factory=dict)
    ledger: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """State, costs and metrics of one cell, which is one run and its evaluations."""

    entry: Entry
    state: State
    metrics: Mapping[str, float]  # EVALUATION/METRIC, finite ones
    errors: Mapping[str, str]  # of evaluations that failed
    seconds: float = 0.0  # the cell's share of the time its group trained
    evaluation_seconds: float = 0.0
    parameters: int | None = None
    hardware: str = ""
    begun: str = ""  # when the first attempt began, in ISO format
    ended: str = ""  # when the last note was made
    history: History = History()
    vocabulary: int | None = None  # its real size, once known
    costs: Mapping[str, float] = field(default_factory=dict)  # of a row of results.csv

    def spent(self, kind: str, step: int | None = None) -> float:
        """Return the steps, tokens, predictions or FLOPs up to a step; default: the current one."""
        if step is None and kind in self.costs:
            return self.costs[kind]
        return self.clock(kind)(self.state.step if step is None else step)

    def clock(self, kind: str) -> Callable[[int], float]:
        """Return the function from steps of this cell to the budget they spend."""
        config = self.entry.config
        return clock(kind, config, self.vocabulary or config.tokenizer.vocab_size)


@dataclass(frozen=True)
class Axis:
    """Knob or set of knobs that a study varies, with its points, as study.json lists them."""

    name: str
    labels: tuple[str, ...]
    values: tuple[Any, ...]

    @property
    def numeric(self) -> bool:
        """Return whether all points are distinct numbers, which have places on a line."""
        numbers = [
            v for v in self.values if isinstance(v, (int, float)) and not isinstance(v, bool)
        ]
        return len(numbers) == len(self.values) > 1 and len(set(numbers)) == len(numbers)

    @property
    def words(self) -> str:
        """Return the name for readers."""
        return KNOBS.get(self.name, (self.name.rpartition(".")[2].replace("_", " "),))[0]

    @property
    def title(self) -> str:
        """Return the title of the axis in figures, with its unit."""
        unit = KNOBS.get(self.name, ("", ""))[1]
        return f"{self.words} ({unit})" if unit else self.words

    def qualified(self, label: str) -> str:
        """Return a label to stand beside those of other axes: a number says which knob it is."""
        return f"{self.words} {label}" if self.numeric else label


@dataclass(frozen=True)
class Family:
    """Results that differ in one axis alone: label of a point -> its runs, one for each seed."""

    name: str  # labels of the other axes
    runs: Mapping[str, list[Result]]


def results(place: StudyFolder, history: bool = True) -> list[Result]:
    """Read every cell that study.json lists; without their histories this is quicker."""
    study = place.read_study()
    if not study:
        raise DataError(
            f"no study in {place.workdir}", "`bert-jax study run STUDY --workdir=…` makes one"
        )
    there = {entry.id: entry for entry in place.cells()}
    return [
        read_result(place, there[cell], history) if cell in there else _lost(place, cell, there)
        for cell in study.get("cells", [])
    ]


def _lost(place: StudyFolder, cell: str, there: Mapping[str, Entry]) -> Result:
    """Return a cell whose folder is gone, as one that waits: without it, means would hide the gap.

    Its config is that of another seed at the same point, else of any cell: nothing was measured.
    """
    study = place.read_study()
    if cell not in study.get("expected", {}):
        raise DataError(f"{place.study} lists {place.cell(cell)}, which is not there", files.AGAIN)
    labels, seed = (study["expected"][cell][key] for key in ("labels", "seed"))
    alike = [entry for entry in there.values() if entry.labels == labels]
    config = next((entry.config for entry in [*alike, *there.values()]), Config())
    points = {axis["name"]: axis["points"] for axis in study["axes"]}
    values = {
        name: next(point["value"] for point in points[name] if point["label"] == label)
        for name, label in labels.items()
    }
    missing = tuple(study.get("evaluations", {}))
    state = State("waiting", error=f"not here: {files.AGAIN}", steps=config.steps, missing=missing)
    entry = Entry(cell, config, labels, values, seed, evaluations=study.get("evaluations", {}))
    return Result(entry, state, {}, {})


def read_result(place: StudyFolder, entry: Entry, history: bool) -> Result:
    """Read what a cell's folder says of it."""
    state, trained = place.state(entry), place.trained(entry.id)
    metrics: dict[str, float] = {}
    errors: dict[str, str] = {}
    evaluation_seconds = 0.0
    for name in entry.evaluations:
        record = place.read_result(entry, name) or {}
        evaluation_seconds += float(record.get("seconds") or 0)
        values = {f"{name}/{key}": value for key, value in (record.get("metrics") or {}).items()}
        metrics |= {key: float(value) for key, value in values.items() if _finite(value)}
        if record.get("error"):
            errors[name] = str(record["error"])
    environment = files.read(place.cell(entry.id) / "environment.json", ENVIRONMENT) or {}
    times = sorted(str(note["time"]) for note in place.attempts(entry.id) if "time" in note)
    return Result(
        entry,
        state,
        metrics,
        errors,
        float(trained.get("seconds") or 0) or state.seconds / _group_size(place, entry),
        evaluation_seconds,
        environment.get("parameters"),
        _hardware(environment.get("machine") or {}),
        begun=times[0] if times else "",
        ended=times[-1] if times else "",
        history=_history(place, entry) if history else History(),
        vocabulary=environment.get("vocabulary") or entry.vocabulary,
    )


def _hardware(machine: Mapping[str, Any]) -> str:
    """Name the accelerators a cell ran on, or count the cores of its processor."""
    if machine.get("backend", "cpu") == "cpu":
        cores = machine.get("cores") or 0
        return f"{cores} CPU core{'s' * (cores != 1)}" if cores else ""
    return ", ".join(map(str, machine.get("devices", [])))


def _group_size(place: StudyFolder, entry: Entry) -> int:
    """Count the cells that train in one program with a cell and share its time."""
    try:
        return max(1, len(place.read_group(entry.group)["cells"]))
    except DataError:  # not planned yet
        return 1


def _lines(place: StudyFolder, entry: Entry) -> list[dict[str, Any]]:
    """Return the lines of a cell's metrics; before the fork of a branch, those of its trunk."""
    path = place.cell(entry.id) / records.METRICS
    own = list(records.rows(path)) if path.exists() else []
    trunk = entry.trunk.rpartition("@")[0]
    if not (own and "branch_from" in own[0] and (place.cell(trunk) / "cell.json").exists()):
        return own
    return [r for r in _lines(place, place.read_cell(trunk)) if r["step"] <= entry.fork] + own


def _history(place: StudyFolder, entry: Entry) -> History:
    curves: dict[str, dict[int, float]] = defaultdict(dict)
    ledger: dict[str, list[float]] = defaultdict(list)
    for row in _lines(place, entry):
        for key, value in row.items():
            kind, _, name = key.partition("/")
            if kind == "eval" and is_result(name) and _finite(value):
                curves[name][row["step"]] = value
            elif kind == "train" and name in LEDGER and _finite(value):
                ledger[name].append(value)
    means = {name: math.fsum(values) / len(values) for name, values in ledger.items()}
    return History({name: sorted(curve.items()) for name, curve in curves.items()}, means)


def _finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def clock(kind: str, config: Config, vocab_size: int) -> Callable[[int], float]:
    """Return the function from a number of steps to the budget they spend.

    Where the masking rate has phases, early steps predict another number of tokens than late ones.
    """
    per_step, masking = costs.per_step(kind, config, vocab_size), config.masking
    fixed = not masking.phases or masking.prediction_rate is not None
    if kind != "predictions" or fixed:
        return lambda step: step * per_step
    tokens = per_step / costs.predicted(config)
    last = max(config.steps - 1, 1)
    return lambda step: step * tokens * rates.mean_rate(masking, (step - 1) / last)


# --- families ----------------------------------------------------------------------------------


def axes(study: Mapping[str, Any]) -> list[Axis]:
    """Return the axes of a study.json."""
    return [
        Axis(
            axis["name"],
            *(tuple(point[key] for point in axis["points"]) for key in ("label", "value")),
        )
        for axis in study.get("axes", [])
    ]


def placed(study: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Name a place among the cells by its labels on some of the axes."""
    named = [axis for axis in axes(study) if axis.name in labels]
    return ", ".join(axis.qualified(labels[axis.name]) for axis in named)


def families(study: Mapping[str, Any], results: Sequence[Result], axis: str) -> list[Family]:
    """Group results by all other axes, then by the points of `axis`, in the order of the points.

    Cells of several parts of a study may be listed in another order.
    """
    others = [other for other in axes(study) if other.name != axis]
    labels = next((known.labels for known in axes(study) if known.name == axis), ("",))
    grouped: dict[str, dict[str, list[Result]]] = {}
    order: dict[str, list[int]] = {}
    for result in results:
        chosen = result.entry.labels
        name = placed(study, {other.name: chosen[other.name] for other in others})
        order[name] = [other.labels.index(chosen[other.name]) for other in others]
        grouped.setdefault(name, {}).setdefault(chosen.get(axis, ""), []).append(result)
    return [
        Family(name, {label: grouped[name][label] for label in labels if label in grouped[name]})
        for name in sorted(grouped, key=order.__getitem__)
    ]


# --- results.csv -------------------------------------------------------------------------------


def row(result: Result) -> dict[str, Any]:
    """Return the flat row of a cell, finished or not; values that are missing have no key."""
    entry, state = result.entry, result.state
    out: dict[str, Any] = {"cell": entry.id, "state": state.name}
    for axis, label in entry.labels.items():
        out |= dict(zip(_columns(axis), (label, entry.values[axis]), strict=True))
    out |= {"seed": entry.seed, "step": state.step, "steps": state.steps}
    out |= {kind: result.spent(kind) for kind in SPENT}
    out["seconds"] = round(result.seconds, 3)
    out["evaluation_seconds"] = round(result.evaluation_seconds, 3)
    failures = [f"{name}: {text}" for name, text in result.errors.items()]
    out |= {"parameters": result.parameters, "attempts": state.attempts}
    out["error"] = "; ".join([*filter(None, [state.error]), *failures])
    out |= {"hardware": result.hardware, "ended": result.ended}
    return out | dict(sorted(result.metrics.items()))


def _columns(axis: str) -> tuple[str, str]:
    """Name the two columns of an axis, labels and values, unlike any fixed column."""
    name = f"axis.{axis}" if axis in FIXED else axis
    return name, f"{name}.value"


def write_csv(place: StudyFolder, results: Sequence[Result]) -> None:
    """Write results.csv in one move: what a cell is, what it cost, then metrics by name."""
    table = [row(result) for result in results]
    of_axes = [name for axis in axes(place.read_study()) for name in _columns(axis.name)]
    fixed = [*IDENTITY, *of_axes, *PROGRESS, *LAST]
    names = [*fixed, *sorted({key for line in table for key in line} - set(fixed))]
    text = io.StringIO()
    writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    files.write_text(place.csv, text.getvalue())


def read_csv(place: StudyFolder) -> list[Result]:
    """Read results.csv back, for a summary of cells whose folders are gone; it has no configs."""
    names = [axis.name for axis in axes(place.read_study())]
    try:
        table = list(csv.DictReader(io.StringIO(place.csv.read_text(encoding="utf-8"))))
        return [_from_row(line, names) for line in table]
    except (KeyError, ValueError) as error:
        raise DataError(
            f"{place.csv}: {type(error).__name__}: {error}",
            "restore the results.csv that `bert-jax study` wrote",
        ) from error


def _from_row(line: Mapping[str, str], names: Sequence[str]) -> Result:
    """Make a result from its row; `names` are those of the axes."""
    columns = {name: _columns(name) for name in names}
    labels = {name: line[label] for name, (label, _) in columns.items()}
    values: dict[str, Any] = {name: line[value] for name, (_, value) in columns.items()}
    fixed = {*FIXED, *(column for pair in columns.values() for column in pair)}
    metrics = {key: float(text) for key, text in line.items() if key not in fixed and text}
    entry = Entry(line["cell"], Config(), labels, values, int(line["seed"]))
    state = State(line["state"], int(line["attempts"]), "", int(line["step"]), int(line["steps"]))
    return Result(
        entry,
        state,
        metrics,
        {},
        float(line["seconds"]),
        float(line["evaluation_seconds"]),
        int(line["parameters"]) if line["parameters"] else None,
        line["hardware"],
        ended=line["ended"],
        costs={kind: float(line[kind]) for kind in SPENT if line.get(kind)},
    )
