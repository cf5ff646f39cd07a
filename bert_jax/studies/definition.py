"""Load a study file and expand it into cells.

`experiments/NAME/study.py` defines `get_study(scale="cpu") -> Study`: a base config, axes to vary,
seeds, a budget, evaluations and comparisons. `expand` makes the cells and checks every one of them
against the typed config before anything runs. A cell's name is a hash of what it trains, so editing
a study adds cells and leaves others out, but never trains the same cell twice.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
import math
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from bert_jax import config as configs
from bert_jax import recipes
from bert_jax.config import knobs, script, shipped, table, validation
from bert_jax.config.conditions import Idle
from bert_jax.config.costs import per_step
from bert_jax.data import tasks
from bert_jax.errors import ConfigError
from bert_jax.interop.vocabulary import vocabulary_size
from bert_jax.studies import measures, trunks
from bert_jax.studies.identity import identity as identity
from bert_jax.studies.identity import trained_knobs as trained_knobs
from bert_jax.studies.report.published import CLAIMS, TABLES
from bert_jax.studies.spec import (
    BUDGET,
    Axis,
    Budget,
    Cell,
    Claimed,
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
from bert_jax.suites import SUITES

__all__ = ["Axis", "Budget", "Cell", "Claimed", "Comparison", "Finetune", "Point", "Study", "Suite"]
__all__ += ["axis", "between", "variants", "zipped"]
__all__ += ["check", "expand", "identity", "load"]

BUDGETS = ("steps", "tokens", "predictions", "flops")
LONG = 2**31  # steps, until the budget determines them

logger = logging.getLogger(__name__)


def load(spec: str, overrides: Iterable[tuple[str, str]] = ()) -> tuple[str, Study]:
    """Load the study `FOLDER[:ARGUMENT]` or `NAME[:ARGUMENT]`; return its name and the study.

    Args:
      spec: the study's folder or file, and the argument of its `get_study`.
      overrides: knobs of the base config to change, from the command line.
    """
    place, _, argument = spec.partition(":")
    file = shipped.find_study(place)
    if not file.is_relative_to(place):
        logger.info(f"{place}: {file}")
    with _importing_beside(file.resolve()):
        spec = f"{file}:{argument}" if argument else str(file)
        study = configs.load_file(spec, function="get_study")
    if not isinstance(study, Study):
        raise ConfigError(
            f"{file}: get_study returned {type(study).__name__}", "it returns a Study"
        )
    settled, changes = _settled(study), list(overrides)
    for knob, _ in changes:
        said = f"config.{knob} is not set by the base: {settled.get(knob)}"
        _need(knob not in settled, said, "edit the study")
    configs.overrides(study.base, changes)
    return file.resolve().parent.name, study


@contextlib.contextmanager
def _importing_beside(file: Path) -> Iterator[None]:
    """Let a study import from the folder that its own folder lies in, such as experiments.scales.

    Such modules are loaded anew for each study, because other checkouts have the same names.
    """
    package = file.parents[1].name
    loaded = getattr(sys.modules.get(package), "__file__", None) is not None
    if len(file.parents) < 3 or loaded:  # a package of that name is no folder of studies
        yield
        return
    before = _forget_modules(package)
    sys.path.insert(0, str(file.parents[2]))
    try:
        yield
    finally:
        sys.path.remove(str(file.parents[2]))
        _forget_modules(package)
        sys.modules.update(before)


def _forget_modules(package: str) -> dict[str, ModuleType]:
    """Take a package and its modules out of those that are imported, and return them."""
    names = [name for name in sys.modules if f"{name}.".startswith(f"{package}.")]
    return {name: sys.modules.pop(name) for name in names}


def expand(study: Study, vocabulary: Callable[[knobs.Config], int] | None = None) -> list[Cell]:
    """List every cell: the axes crossed, the first varying slowest and the seeds fastest.

    Args:
      study: the study.
      vocabulary: returns the real vocabulary size of a config, which a budget of FLOPs needs; by
        default only for vocabularies that are given or prepared.
    """
    size = vocabulary or vocabulary_size
    check(study)
    factors = study.factors
    cells: list[Cell] = []
    seen: dict[str, str] = {}
    idle: dict[str, Idle] | None = None  # knobs of the base that do nothing in any cell
    for points in itertools.product(*(factor.points for factor in factors)):
        chosen = dict(zip((factor.name for factor in factors), points, strict=True))
        if not _kept(study, chosen):
            continue
        labels = {name: point.label for name, point in chosen.items()}
        values = {name: point.value for name, point in chosen.items()}
        try:
            changes = dict(change for point in points for change in point.changes)
            amount = values.get(BUDGET, study.budget and study.budget.amount)
            first, known, of_base = _resolved(study, changes, amount, size)
            validation.trainable(first)
        except ConfigError as error:
            raise ConfigError(f"{_where(labels)}: {error}", error.hint) from error
        for seed in study.seeds:
            config = dataclasses.replace(
                first, seed=seed, data_seed=seed if study.pair_seeds else first.data_seed
            )
            name, where = identity(config), _where(labels)
            same = f"{where} is the same run as {seen.get(name)}"
            _need(name not in seen, same, "leave one of them out")
            seen[name] = where
            cells.append(Cell(name, config, labels, values, seed, known))
        idle = {path: knob for path, knob in of_base.items() if idle is None or path in idle}
    _need(bool(cells), "the study has no cell", "keep refuses all of them")
    for knob in (idle or {}).values():
        raise knob.error("in every cell, ")
    measures.check(study, sorted({name for cell in cells for name in cell.config.scored}))
    finetunings(study, [cell.config for cell in cells])
    return trunks.shared(cells) if study.trunk else cells


def _resolved(
    study: Study, changes: Mapping[str, Any], amount: Any, size: Callable[[knobs.Config], int]
) -> tuple[knobs.Config, int | None, dict[str, Idle]]:
    """Resolve the config of a point; refuse a knob that the point sets to no effect.

    Returns:
      The config, the size of its vocabulary where the budget depends on it, and the knobs of the
      base that have no effect in it.
    """
    tree, known = configs.copied(study.base), None
    configs.assign(tree, changes)
    if budget := study.budget:
        configs.assign(tree, {"steps": LONG})
        endless = configs.settle(tree)[0]
        known = size(endless) if budget.kind == "flops" else None
        cost = per_step(budget.kind, endless, known or endless.tokenizer.vocab_size)
        configs.assign(tree, {"steps": max(1, round(amount / cost))})
    config, idle = configs.settle(tree, said=changes)
    for knob in idle:
        if any(_overlap(knob.path, path) for path in changes):
            raise knob.error()
    return config, known, {knob.path: knob for knob in idle}


def _kept(study: Study, chosen: dict[str, Point]) -> bool:
    try:
        with script.apart():
            return study.keep is None or bool(study.keep(chosen))
    except Exception as error:  # an error of the user's function, of whatever type
        raise ConfigError(
            f"keep: {type(error).__name__}: {error}",
            f"it is given the points by axis: {', '.join(chosen)}",
        ) from error


def _where(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {label}" for name, label in labels.items()) or "the base"


# --- validation -----------------------------------------------------------------------------------


def check(study: Study) -> None:
    """Refuse an invalid study before any cell is made."""
    _check_axes(study)
    _need(bool(study.seeds), "the study has no seeds", "seeds=(0, 1, 2)")
    distinct = len(set(study.seeds)) == len(study.seeds)
    _need(distinct, f"a seed twice: {study.seeds}", "leave one out")
    for seed in study.seeds:
        configs.checked("seed", seed)
    if study.budget is not None:
        kind = study.budget.kind
        _known(kind, BUDGETS, f"no budget {kind!r}")
        for amount in study.budget.amounts:
            right = math.isfinite(amount) and amount > 0
            _need(right, f"a budget of {amount}", "a number above 0")
    for name, evaluation in study.evaluations.items():
        plain = re.fullmatch(r"\w+", name) is not None
        _need(plain, f"{name!r} names an evaluation", "letters, digits and _ only")
        amounts = study.budget.amounts if study.budget else ()
        for amount in evaluation.budgets:
            said = f"evaluation {name!r} is made after a budget of {amount!r}"
            hint = f"the study's are {', '.join(f'{each:g}' for each in amounts) or 'none'}"
            _need(amount in amounts and len(amounts) > 1, said, hint)
        if isinstance(evaluation, Suite):
            _check_suite(evaluation)
        else:
            _known(evaluation.task, tasks.TASKS, f"no task {evaluation.task!r}")
            for path, value in evaluation.changes:
                configs.checked(path, value)
    for comparison in study.comparisons:
        _check_comparison(study, comparison)
    for claimed in study.claims:
        _check_claim(study, claimed)
    for row in study.published:
        _known(row, TABLES, f"no published row {row!r}")


def _study_knobs(study: Study) -> dict[str, str]:
    """Return the knobs that the study's fields set, and for each the field that sets it."""
    reasons = {"seed": "seeds=(0, 1, 2) are the study's"}
    if study.pair_seeds:
        reasons["data_seed"] = "pair_seeds=True takes it from the seed"
    if study.budget is not None:
        amount = f"{' or '.join(f'{a:g}' for a in study.budget.amounts)} {study.budget.kind}"
        reasons["steps"] = f"they follow from the budget of {amount}"
    return reasons


def _settled(study: Study) -> dict[str, str]:
    """Return the knobs whose value in the base is never used, and for each the reason."""
    reasons = _study_knobs(study)
    for factor in study.axes:
        for path in _paths(factor):
            if all(path in dict(point.changes) for point in factor.points):
                reasons[path] = f"axis {factor.name!r} varies it"
    return reasons


def _paths(factor: Axis) -> list[str]:
    return list(dict.fromkeys(path for point in factor.points for path, _ in point.changes))


def _overlap(path: str, other: str) -> bool:
    return path == other or path.startswith(f"{other}.") or other.startswith(f"{path}.")


def _check_axes(study: Study) -> None:
    names = [factor.name for factor in study.factors]
    distinct = len(set(names)) == len(names)
    _need(distinct, f"two axes have one name: {', '.join(names)}", "rename one")
    reserved = _study_knobs(study)
    owners: dict[str, str] = {}
    for factor in study.factors:
        name, labels = f"axis {factor.name!r}", [point.label for point in factor.points]
        _need(bool(labels), f"{name} has no points", "give it values")
        distinct = len(set(labels)) == len(labels)
        _need(distinct, f"{name} has a point twice: {', '.join(labels)}", "labels=…")
        for path in _paths(factor):
            table.find_knob(path)
            other = next((owner for known, owner in owners.items() if _overlap(path, known)), "")
            both = f"axes {other!r} and {factor.name!r} both set config.{path}"
            _need(not other, both, "one would undo the other")
            _need(path not in reserved, f"{name} sets config.{path}", reserved.get(path, ""))
        owners |= dict.fromkeys(_paths(factor), factor.name)


def _check_suite(suite: Suite) -> None:
    known = [name for name, row in SUITES.items() if row.metrics]
    _known(suite.name, known, f"no suite {suite.name!r} for a study")
    options, source = SUITES[suite.name].options, "source" in dict(suite.ask)
    unasked = {"config", "submission"}  # a cell has its own config
    reads, others = (options.list_fields(which) - unasked for which in (source, not source))
    defaults = {field.name: field.default for field in dataclasses.fields(options)}
    for field, value in suite.ask:
        where = f" {'beside' if source else 'without'} a source" if field in others else ""
        said = f"suite {suite.name} has no option {field!r}{where}"
        _known(field, sorted(reads), said)
        kind, setting = type(defaults[field]), f"suite {suite.name}: {field} = {value!r}"
        right = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
        _need(right, setting, f"a value of type {kind.__name__}")
        if field == "task":
            _known(value, tasks.TASKS, f"no task {value!r}")
        if field == "changes":
            scratch = configs.default()
            for path, text in value:
                setting = f"suite {suite.name}: {path} = {text!r}"
                _need(isinstance(text, str), setting, "text, as on a command line")
                configs.override(scratch, path, text)
                configs.checked(path, table.read_text(path, text))
                validation.in_evaluation(path)


def finetunings(study: Study, cells: Iterable[knobs.Config]) -> list[tuple[str, knobs.Config]]:
    """List the name and config of every fine-tuning of the cells; refuse an invalid recipe."""
    starts = {config.model: config for config in cells}.values()
    resolved = []
    for (name, evaluation), start in itertools.product(study.evaluations.items(), starts):
        if isinstance(evaluation, Finetune):
            changes = dict(evaluation.changes)
            try:
                tree = recipes.finetuning(evaluation.task, "a cell", changes, start)
                config = configs.resolve(tree)
                validation.trainable(config)
            except ConfigError as error:
                raise ConfigError(f"evaluation {name!r}: {error}", error.hint) from error
            resolved.append((name, config))
    return resolved


def _check_comparison(study: Study, comparison: Comparison) -> None:
    axes = {factor.name: [point.label for point in factor.points] for factor in study.factors}
    name, baseline = comparison.axis, comparison.baseline
    _known(name, axes, f"no axis {name!r} to compare")
    _known(baseline, axes[name], f"axis {name!r} has no point {baseline!r}")
    none = f"a comparison over {name!r} has no metrics"
    _need(bool(comparison.metrics), none, "EVALUATION/METRIC, or several")
    hint = f"EVALUATION/METRIC; evaluations are {', '.join(study.evaluations)}"
    for metric in comparison.metrics:
        first, _, rest = metric.partition("/")
        named = first in study.evaluations and bool(rest)
        _need(named, f"{metric!r} names no evaluation of the study", hint)


def _check_claim(study: Study, claimed: Claimed) -> None:
    _known(claimed.claim, CLAIMS, f"no published claim {claimed.claim!r}")
    compared = Comparison(claimed.axis, claimed.baseline, (claimed.metric,))
    _check_comparison(study, compared)
    _check_comparison(study, dataclasses.replace(compared, baseline=claimed.point))
    if claimed.more_at is not None:
        said = f"{claimed.claim}: more_at = {claimed.more_at!r}"
        texts = isinstance(claimed.more_at, tuple) and [type(e) for e in claimed.more_at]
        _need(texts == 3 * [str], said, '("size", "large", "base"): an axis and two of its points')
        other, *points = claimed.more_at
        _need(other != claimed.axis and len({*points}) == 2, said, "another axis, and two points")
        _need(claimed.within is None, f"{said} and within", "one of them")
        for label in points:
            _check_comparison(study, Comparison(other, label, (claimed.metric,)))
    said = f"{claimed.claim}: effect = {claimed.effect}, least = {claimed.least}"
    right = claimed.effect > claimed.least >= 0 and (claimed.within is None or claimed.within > 0)
    _need(right, said, "effect above least, both as gains by the metric, and within above 0")


def _need(holds: bool, message: str, hint: str) -> None:
    if not holds:
        raise ConfigError(message, hint)


def _known(word: str, options: Collection[str], message: str) -> None:
    _need(word in options, message, configs.suggest(word, options))
