"""A study is a file: a base config, axes to vary, seeds, a budget, evaluations, and what is to be compared.

`experiments/NAME/study.py` defines `get_study(scale="cpu") -> Study`. `expand` makes its cells and checks every one of
them against the typed config before anything runs. A cell is named by what it trains: editing a study adds cells and
leaves others out, and never makes one run again.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from bert_jax import config as configs
from bert_jax import recipes
from bert_jax.config import knobs, script, validation
from bert_jax.config.costs import per_step, predicted
from bert_jax.config.effects import Idle, in_evaluation
from bert_jax.data import tasks
from bert_jax.errors import ConfigError
from bert_jax.interop.vocabulary import vocabulary_size
from bert_jax.studies import measures
from bert_jax.studies.report.published import TABLE as PUBLISHED
from bert_jax.studies.spec import (
    Axis,
    Budget,
    Cell,
    Comparison,
    Finetune,
    Point,
    Study,
    Suite,
    axis,
    between,
    variants,
    zipped,
)

__all__ = ["Axis", "Budget", "Cell", "Comparison", "Finetune", "Point", "Study", "Suite"]
__all__ += ["axis", "between", "variants", "zipped"]
__all__ += ["check", "expand", "identity", "load", "per_step", "predicted", "steps_of"]

SUITES = {  # name of a suite -> fields of `suites.base.SuiteOptions` it reads; a test holds them to `suites.TABLE`
    "pretrain": ("changes",),
    "nsp": ("changes", "source", "split", "limit"),
    "cross_rate": ("changes",),
    "pll": ("changes", "source", "limit", "within_word"),
    "blimp": ("source", "limit", "within_word"),
    "sts": ("changes", "task", "source", "split", "limit"),
    "probe": ("changes", "task", "source", "split", "limit"),
}
ASKED = {  # and the type of each
    **dict.fromkeys(("source", "split", "task"), str),
    **dict.fromkeys(("limit", "batch_size"), int),
    "changes": tuple,
    "within_word": bool,
}
BUDGETS = ("steps", "tokens", "predictions", "flops")
COUNT = (
    "checkpoints.patience",
    "parallel.step",
)  # may change on resume, and change what is trained
ENDING = tuple(  # where evaluations may end training: what decides when they are and what they find
    f"evals.validation.{one.name}"
    for one in dataclasses.fields(knobs.Eval)
    if one.name != "batch_size"
)
LONG = 2**31  # steps, until a budget says how many


def load(spec: str, overrides: Iterable[tuple[str, str]] = ()) -> tuple[str, Study]:
    """Name and study of `FOLDER[:ARGUMENT]`; overrides are knobs of its base, from the command line."""
    place, _, argument = spec.partition(":")
    path = Path(place)
    file = path / "study.py" if path.suffix != ".py" else path
    if not file.is_file():
        there = sorted(str(one.parent) for one in Path("experiments").glob("*/study.py"))
        raise ConfigError(
            f"no study at {place!r}", _near(place, there) if there else "a folder with study.py"
        )
    study = configs.load_file(f"{file}:{argument}" if argument else str(file), function="get_study")
    if not isinstance(study, Study):
        raise ConfigError(
            f"{file}: get_study returned {type(study).__name__}", "it returns a Study"
        )
    settled = _settled(study)
    changes = list(overrides)
    for knob, _ in changes:
        _need(
            knob not in settled,
            f"config.{knob} is not the base's to say: {settled.get(knob)}",
            "edit the study",
        )
    configs.overrides(study.base, changes)
    return file.resolve().parent.name, study


def expand(study: Study, vocabulary: Callable[[knobs.Config], int] | None = None) -> list[Cell]:
    """Every cell, in order: axes crossed, the first the slowest, seeds the fastest.

    A budget of FLOPs needs the real size of a config's vocabulary: `vocabulary` tells it, by default only of those that
    are given or prepared.
    """
    size = vocabulary or vocabulary_size
    check(study)
    cells: list[Cell] = []
    seen: dict[str, str] = {}
    idle: dict[str, Idle] | None = None  # knobs of the base that do nothing in any cell
    for points in itertools.product(*(one.points for one in study.axes)):
        chosen = dict(zip((one.name for one in study.axes), points, strict=True))
        if not _kept(study, chosen):
            continue
        labels = {name: point.label for name, point in chosen.items()}
        values = {name: point.value for name, point in chosen.items()}
        try:
            changes = dict(change for point in points for change in point.changes)
            first, known, of_base = _resolved(study, changes, size)
            validation.trainable(first)
        except ConfigError as error:
            raise ConfigError(f"{_where(labels)}: {error}", error.hint) from error
        _need(
            not first.parallel.distributed,
            "a worker of a study is one process, and parallel.distributed is set",
            "train such a run with `bert-jax train`, one job of several processes each",
        )
        for seed in study.seeds:
            config = dataclasses.replace(
                first, seed=seed, data_seed=seed if study.pair_seeds else first.data_seed
            )
            name = identity(config)
            _need(
                name not in seen,
                f"{_where(labels)} is the same run as {seen.get(name)}",
                "leave one of them out",
            )
            seen[name] = _where(labels)
            cells.append(Cell(name, config, labels, values, seed, known))
        idle = {path: one for path, one in of_base.items() if idle is None or path in idle}
    _need(bool(cells), "the study has no cell", "keep refuses all of them")
    for one in (idle or {}).values():
        raise one.error("in every cell, ")
    measures.check(study, sorted({name for cell in cells for name in cell.config.objectives}))
    finetunings(study, [cell.config for cell in cells])
    return cells


def identity(config: knobs.Config) -> str:
    """Names a run by what is trained: by the knobs that differ from their defaults, so that new ones rename nothing.

    Those that change nothing of what is trained do not count, nor does it matter how the same is said.
    """
    return hashlib.sha256(json.dumps(told(config), sort_keys=True).encode()).hexdigest()[:12]


def told(config: knobs.Config) -> dict[str, Any]:
    """The knobs that name a run."""
    masking = config.masking
    if masking.schedule == "constant" and masking.prediction_rate == masking.rate:
        config = dataclasses.replace(
            config, masking=dataclasses.replace(masking, prediction_rate=None)
        )
    usual, found = _usual(), configs.flat(configs.to_dict(config))
    counts = COUNT + (ENDING if config.checkpoints.patience else ())
    return {
        k: v
        for k, v in found.items()
        if usual.get(k, ...) != v and (k in counts or not configs.free_on_resume(k))
    }


@functools.cache
def _usual() -> dict[str, Any]:
    ends = {
        f"objectives.{name}.end": True for name in knobs.OBJECTIVES
    }  # of objectives that are not there by default
    return ends | configs.BEFORE | configs.flat(configs.to_dict(knobs.Config()))


def steps_of(budget: Budget, config: knobs.Config, vocab_size: int) -> int:
    """How many steps spend a budget, to the nearest one."""
    return max(1, round(budget.amount / per_step(budget.kind, config, vocab_size)))


def _resolved(
    study: Study, changes: Mapping[str, Any], size: Callable[[knobs.Config], int]
) -> tuple[knobs.Config, int | None, dict[str, Idle]]:
    """The config of a point, the size of its vocabulary where the budget depends on it, and what its base sets in vain.

    What the point itself sets must have an effect.
    """
    tree, known = configs.copied(study.base), None
    configs.assign(tree, changes)
    if study.budget is not None:
        configs.assign(tree, {"steps": LONG})
        endless = configs.settle(tree)[0]
        known = size(endless) if study.budget.kind == "flops" else None
        configs.assign(
            tree, {"steps": steps_of(study.budget, endless, known or endless.tokenizer.vocab_size)}
        )
    config, idle = configs.settle(tree, said=changes)
    for one in idle:
        if any(_overlap(one.path, path) for path in changes):
            raise one.error()
    return config, known, {one.path: one for one in idle}


def _kept(study: Study, chosen: dict[str, Point]) -> bool:
    try:
        with script.apart():
            return study.keep is None or bool(study.keep(chosen))
    except Exception as error:  # whatever a user's function raises is reported as the user's
        raise ConfigError(
            f"keep: {type(error).__name__}: {error}",
            f"it is given the points by axis: {', '.join(chosen)}",
        ) from error


def _where(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {label}" for name, label in labels.items()) or "the base"


# --- what must hold -------------------------------------------------------------------------------------------------


def check(study: Study) -> None:
    """Refuses what cannot be meant, before any cell is made."""
    names = [one.name for one in study.axes]
    _need(
        len(set(names)) == len(names), f"two axes have one name: {', '.join(names)}", "rename one"
    )
    given = _given(study)
    owners: dict[str, str] = {}
    for one in study.axes:
        _check_axis(one)
        for path in _paths(one):
            other = next((owner for known, owner in owners.items() if _overlap(path, known)), "")
            _need(
                not other,
                f"axes {other!r} and {one.name!r} both set config.{path}",
                "one would undo the other",
            )
            _need(path not in given, f"axis {one.name!r} sets config.{path}", given.get(path, ""))
        owners |= dict.fromkeys(_paths(one), one.name)
    _need(bool(study.seeds), "the study has no seeds", "seeds=(0, 1, 2)")
    _need(
        len(set(study.seeds)) == len(study.seeds), f"a seed twice: {study.seeds}", "leave one out"
    )
    for seed in study.seeds:
        configs.checked("seed", seed)
    if study.budget is not None:
        kind, amount = study.budget.kind, study.budget.amount
        _need(kind in BUDGETS, f"no budget {kind!r}", _near(kind, BUDGETS))
        _need(math.isfinite(amount) and amount > 0, f"a budget of {amount}", "a number above 0")
    for name, evaluation in study.evaluations.items():
        _need(
            re.fullmatch(r"\w+", name) is not None,
            f"{name!r} names an evaluation",
            "letters, digits and _ only",
        )
        if isinstance(evaluation, Suite):
            _check_suite(evaluation)
        else:
            _need(
                evaluation.task in tasks.TASKS,
                f"no task {evaluation.task!r}",
                _near(evaluation.task, tasks.TASKS),
            )
            for path, value in evaluation.changes:
                configs.checked(path, value)
    for comparison in study.comparisons:
        _check_comparison(study, comparison)
    for row in study.published:
        _need(row in PUBLISHED, f"no published row {row!r}", _near(row, PUBLISHED))


def _given(study: Study) -> dict[str, str]:
    """Knobs that the study itself says -> how."""
    found = {"seed": "seeds=(0, 1, 2) are the study's"}
    if study.pair_seeds:
        found["data_seed"] = "pair_seeds=True takes it from the seed"
    if study.budget is not None:
        found["steps"] = (
            f"they follow from the budget of {study.budget.amount:g} {study.budget.kind}"
        )
    return found


def _settled(study: Study) -> dict[str, str]:
    """Knobs that no value of the base has a say in -> what has."""
    found = _given(study)
    for one in study.axes:
        for path in _paths(one):
            if all(path in dict(point.changes) for point in one.points):
                found[path] = f"axis {one.name!r} varies it"
    return found


def _paths(one: Axis) -> list[str]:
    return list(dict.fromkeys(path for point in one.points for path, _ in point.changes))


def _overlap(path: str, other: str) -> bool:
    return path == other or path.startswith(f"{other}.") or other.startswith(f"{path}.")


def _check_axis(one: Axis) -> None:
    labels = [point.label for point in one.points]
    _need(bool(labels), f"axis {one.name!r} has no points", "give it values")
    _need(
        len(set(labels)) == len(labels),
        f"axis {one.name!r} has a point twice: {', '.join(labels)}",
        "labels=…",
    )
    for path in _paths(one):
        section = dataclasses.is_dataclass(configs.check_path(path))
        _need(
            not section,
            f"config.{path} is a section, not a value",
            f"a point sets knobs of it: {path}.KNOB",
        )


def _check_suite(suite: Suite) -> None:
    known = SUITES.get(suite.name)
    _need(known is not None, f"no suite {suite.name!r} for a study", _near(suite.name, SUITES))
    assert known is not None
    for field, value in suite.ask:
        fields = (*known, "batch_size")
        _need(field in fields, f"suite {suite.name} is not asked {field!r}", _near(field, fields))
        right = isinstance(value, ASKED[field]) and (
            ASKED[field] is bool or not isinstance(value, bool)
        )
        _need(
            right,
            f"suite {suite.name}: {field} = {value!r}",
            f"a value of type {ASKED[field].__name__}",
        )
        if field == "task":
            _need(value in tasks.TASKS, f"no task {value!r}", _near(value, tasks.TASKS))
        if field == "changes":
            scratch = configs.default()
            for path, text in value:
                _need(
                    isinstance(text, str),
                    f"suite {suite.name}: {path} = {text!r}",
                    "text, as on a command line",
                )
                configs.override(scratch, path, text)
                in_evaluation(path)


def finetunings(study: Study, cells: Iterable[knobs.Config]) -> list[tuple[str, knobs.Config]]:
    """Name and config of every way in which cells are fine-tuned: their recipes hold together, and name data."""
    starts = {config.model: config for config in cells}.values()
    found = []
    for (name, one), start in itertools.product(study.evaluations.items(), starts):
        if isinstance(one, Finetune):
            try:
                config = configs.resolve(
                    recipes.finetuning(one.task, "a cell", dict(one.changes), start)
                )
                validation.trainable(config)
            except ConfigError as error:
                raise ConfigError(f"evaluation {name!r}: {error}", error.hint) from error
            found.append((name, config))
    return found


def _check_comparison(study: Study, comparison: Comparison) -> None:
    axes = {one.name: [point.label for point in one.points] for one in study.axes}
    name, baseline = comparison.axis, comparison.baseline
    _need(name in axes, f"no axis {name!r} to compare", _near(name, axes))
    _need(
        baseline in axes[name],
        f"axis {name!r} has no point {baseline!r}",
        _near(baseline, axes[name]),
    )
    _need(
        bool(comparison.metrics),
        f"a comparison over {name!r} has no metrics",
        "EVALUATION/METRIC, or several",
    )
    for metric in comparison.metrics:
        first, slash, rest = metric.partition("/")
        _need(
            first in study.evaluations and bool(slash) and bool(rest),
            f"{metric!r} is of no evaluation of the study",
            f"EVALUATION/METRIC; evaluations are {', '.join(study.evaluations)}",
        )


def _need(holds: bool, message: str, hint: str) -> None:
    if not holds:
        raise ConfigError(message, hint)


def _near(word: str, options: Iterable[str]) -> str:
    return configs.suggest(word, list(options))
