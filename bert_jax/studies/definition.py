"""A study is a file: a base config, axes to vary, seeds, a budget, evaluations, and what is to be compared.

`experiments/NAME/study.py` defines `get_study(scale="cpu") -> Study`. `expand` makes its cells and checks every one of
them against the typed config before anything runs. A cell is named by what it trains: editing a study adds cells and
leaves others out, and never makes one run again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_collections

from bert_jax import config as configs
from bert_jax import knobs, quotas
from bert_jax.data.tasks import TASKS
from bert_jax.errors import ConfigError

SUITES = {  # name of a suite -> fields of `suites.base.Ask` it reads; a test holds them to `suites.TABLE`
    "pretrain": ("changes",),
    "nsp": ("changes", "source", "split", "limit"),
    "cross_rate": ("changes",),
    "pll": ("changes", "source", "limit", "within_word"),
    "blimp": ("source", "limit", "within_word"),
    "sts": ("changes", "task", "source", "split", "limit"),
    "probe": ("changes", "task", "source", "split", "limit"),
}
BUDGETS = ("steps", "tokens", "predictions", "flops")


@dataclasses.dataclass(frozen=True)
class Point:
    """One value of an axis: its name, where it is drawn, and the knobs it sets."""

    label: str
    value: float | str | None
    changes: tuple[tuple[str, Any], ...]


@dataclasses.dataclass(frozen=True)
class Axis:
    """What is varied."""

    name: str
    points: tuple[Point, ...]


@dataclasses.dataclass(frozen=True)
class Budget:
    """What every cell gets the same amount of.

    Tokens are batch_size * sequence_length a step, predictions those times the mean prediction rate.
    """

    kind: str
    amount: float


@dataclasses.dataclass(frozen=True)
class Suite:
    """An evaluation by a suite of `bert_jax/suites`."""

    name: str
    ask: tuple[tuple[str, Any], ...] = ()


@dataclasses.dataclass(frozen=True)
class Finetune:
    """An evaluation by fine-tuning: the recipe of a task, changed."""

    task: str
    changes: tuple[tuple[str, Any], ...] = ()


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The points of an axis against one of them, by some metrics: EVALUATION/METRIC."""

    axis: str
    baseline: str
    metrics: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Study:
    """A question and what would answer it."""

    question: str
    base: ml_collections.ConfigDict
    axes: tuple[Axis, ...]
    seeds: tuple[int, ...]
    evaluations: Mapping[str, Suite | Finetune]
    budget: Budget | None = None  # None: the steps of each config
    comparisons: tuple[Comparison, ...] = ()
    published: tuple[str, ...] = ()  # rows of `published.py`
    pair_seeds: bool = False  # whether the order of the data follows the seed too: such cells do not train together
    keep: Callable[[dict[str, Point]], bool] | None = None  # which of the crossed points there are
    notes: str = ""


@dataclasses.dataclass(frozen=True)
class Cell:
    """One run of a study."""

    id: str
    config: knobs.Config
    labels: dict[str, str]
    values: dict[str, float | str | None]
    seed: int


# --- axes -----------------------------------------------------------------------------------------------------------


def axis(path: str, values: Iterable[Any], labels: Iterable[str] = ()) -> Axis:
    """One knob, value by value."""
    values = list(values)
    return zipped(path, [path], [[value] for value in values], list(labels))


def zipped(name: str, paths: Sequence[str], rows: Sequence[Sequence[Any]], labels: Sequence[str] = ()) -> Axis:
    """Several knobs that vary together, row by row."""
    if labels and len(labels) != len(rows):
        raise ConfigError(f"axis {name!r} has {len(rows)} points and {len(labels)} labels", "one label a point")
    if odd := [row for row in rows if len(row) != len(paths)]:
        raise ConfigError(f"axis {name!r}: {odd[0]!r} is not a value for each of {', '.join(paths)}", "one a path")
    points = []
    for number, row in enumerate(rows):
        label = labels[number] if labels else ", ".join(map(_label, paths, row))
        drawn = row[0] if isinstance(row[0], (int, float)) and not isinstance(row[0], bool) else label
        points.append(Point(label, drawn, tuple(zip(paths, row, strict=True))))
    return Axis(name, tuple(points))


def variants(name: str, points: Mapping[str, Mapping[str, Any]]) -> Axis:
    """Named sets of knobs."""
    return Axis(name, tuple(Point(label, label, tuple(changes.items())) for label, changes in points.items()))


def between(low: float, high: float, count: int) -> tuple[float, ...]:
    """A range of `count` values, both ends included."""
    if count < 2:
        raise ConfigError(f"a range from {low} to {high} has {count} values", "two or more")
    return tuple(round(low + (high - low) * i / (count - 1), 12) for i in range(count))


def _label(path: str, value: Any) -> str:
    if isinstance(value, float) and path.endswith("rate") and not path.startswith("optim.") and 0 <= value <= 1:
        return f"{100 * value:g} %"
    return f"{value:g}" if isinstance(value, float) else str(value)


# --- from a file to cells -------------------------------------------------------------------------------------------


def load(spec: str, overrides: Iterable[tuple[str, str]] = ()) -> tuple[str, Study]:
    """Name and study of `FOLDER[:ARGUMENT]`; overrides are knobs of its base, from the command line."""
    place, _, argument = spec.partition(":")
    path = Path(place)
    file = path / "study.py" if path.suffix != ".py" else path
    if not file.is_file():
        there = sorted(str(one.parent) for one in Path("experiments").glob("*/study.py"))
        raise ConfigError(
            f"no study at {place!r}", configs.suggest(place, there) if there else "a folder with study.py"
        )
    study = configs.load_file(f"{file}:{argument}" if argument else str(file), function="get_study")
    if not isinstance(study, Study):
        raise ConfigError(f"{file}: get_study returned {type(study).__name__}", "it returns a Study")
    for knob, text in overrides:
        configs.override(study.base, knob, text)
    return file.resolve().parent.name, study


def expand(study: Study) -> list[Cell]:
    """Every cell, in order: axes crossed, the first the slowest, seeds the fastest."""
    check(study)
    base = json.loads(json.dumps(study.base.to_dict()))
    cells: list[Cell] = []
    seen: dict[str, str] = {}
    for points in itertools.product(*(axis.points for axis in study.axes)):
        chosen = dict(zip((axis.name for axis in study.axes), points, strict=True))
        if study.keep is not None and not study.keep(chosen):
            continue
        first = _resolved(study, base, [change for point in points for change in point.changes])
        for seed in study.seeds:
            config = _with_seed(study, first, seed)
            labels = {name: point.label for name, point in chosen.items()}
            name = identity(config)
            if name in seen:
                raise ConfigError(f"{_where(labels)} is the same run as {seen[name]}", "leave one of the points out")
            seen[name] = _where(labels)
            cells.append(Cell(name, config, labels, {axis: p.value for axis, p in chosen.items()}, seed))
    if not cells:
        raise ConfigError("the study has no cell", "keep refuses all of them")
    return cells


def identity(config: knobs.Config) -> str:
    """Names a run by what is trained: knobs that change nothing of it do not count."""
    tree = {k: v for k, v in configs.flat(configs.to_dict(config)).items() if not configs.free_on_resume(k)}
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:12]


def _resolved(study: Study, base: dict[str, Any], changes: Sequence[tuple[str, Any]]) -> knobs.Config:
    tree = json.loads(json.dumps(base))  # plain dicts: a ConfigDict takes ten times as long
    for path, value in changes:
        configs.check_path(path)
        *sections, name = path.split(".")
        node = tree
        for section in sections:
            node = node.setdefault(section, {})
        node[name] = value
    config = configs.resolve(tree)
    if study.budget is None:
        return config
    return configs.resolve(tree | {"steps": steps_of(study.budget, config)})


def _with_seed(study: Study, config: knobs.Config, seed: int) -> knobs.Config:
    return dataclasses.replace(config, seed=seed, data_seed=seed if study.pair_seeds else config.data_seed)


def _where(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {label}" for name, label in labels.items()) or "the base"


# --- budgets --------------------------------------------------------------------------------------------------------


def steps_of(budget: Budget, config: knobs.Config) -> int:
    """How many steps spend a budget, at least one."""
    return max(1, round(budget.amount / per_step(budget.kind, config)))


def per_step(kind: str, config: knobs.Config) -> float:
    """What a step spends of a budget."""
    tokens = config.batch_size * config.sequence_length
    if kind == "flops":
        from bert_jax.studies.groups import flops_per_step

        return flops_per_step(config, config.tokenizer.vocab_size)
    return {"steps": 1.0, "tokens": float(tokens), "predictions": tokens * predicted(config)}[kind]


def predicted(config: knobs.Config) -> float:
    """The share of tokens predicted, on average over training."""
    if "mlm" not in config.objectives:
        return 1.0
    masking = config.masking
    if masking.prediction_rate is not None:
        return masking.prediction_rate
    return (masking.rate + quotas.rate_at(masking, config.steps, config.steps)) / 2


# --- what must hold -------------------------------------------------------------------------------------------------


def check(study: Study) -> None:
    """Refuses what cannot be meant, before any cell is made."""
    names = [axis.name for axis in study.axes]
    _need(len(set(names)) == len(names), f"two axes have one name: {', '.join(names)}", "rename one")
    for axis in study.axes:
        labels = [point.label for point in axis.points]
        _need(bool(labels), f"axis {axis.name!r} has no points", "give it values")
        _need(len(set(labels)) == len(labels), f"axis {axis.name!r} has a point twice: {', '.join(labels)}", "labels=…")
    _need(bool(study.seeds), "the study has no seeds", "seeds=(0, 1, 2)")
    _need(len(set(study.seeds)) == len(study.seeds), f"a seed twice: {study.seeds}", "leave one out")
    if study.budget is not None:
        _need(
            study.budget.kind in BUDGETS,
            f"no budget {study.budget.kind!r}",
            configs.suggest(study.budget.kind, BUDGETS),
        )
        amount = study.budget.amount
        _need(math.isfinite(amount) and amount > 0, f"a budget of {amount}", "a number above 0")
    for name, evaluation in study.evaluations.items():
        _check_evaluation(name, evaluation)
    for comparison in study.comparisons:
        _need(
            comparison.axis in names, f"no axis {comparison.axis!r} to compare", configs.suggest(comparison.axis, names)
        )
        points = next(axis.points for axis in study.axes if axis.name == comparison.axis)
        labels = [point.label for point in points]
        _need(
            comparison.baseline in labels,
            f"axis {comparison.axis!r} has no point {comparison.baseline!r}",
            configs.suggest(comparison.baseline, labels),
        )
        for metric in comparison.metrics:
            first, slash, _ = metric.partition("/")
            _need(
                bool(slash) and first in study.evaluations,
                f"{metric!r} is of no evaluation of the study",
                f"EVALUATION/METRIC; evaluations are {', '.join(study.evaluations)}",
            )


def _check_evaluation(name: str, evaluation: Suite | Finetune) -> None:
    _need(bool(name) and not set(name) & set("/. "), f"{name!r} cannot name an evaluation", "letters and underscores")
    if isinstance(evaluation, Finetune):
        _need(evaluation.task in TASKS, f"no task {evaluation.task!r}", configs.suggest(evaluation.task, TASKS))
        for path, _ in evaluation.changes:
            configs.check_path(path)
        return
    _need(
        evaluation.name in SUITES, f"no suite {evaluation.name!r} for a study", configs.suggest(evaluation.name, SUITES)
    )
    for field, _ in evaluation.ask:
        known = (*SUITES[evaluation.name], "batch_size")
        _need(field in known, f"suite {evaluation.name} is not asked {field!r}", configs.suggest(field, known))


def _need(holds: bool, message: str, hint: str) -> None:
    if not holds:
        raise ConfigError(message, hint)
