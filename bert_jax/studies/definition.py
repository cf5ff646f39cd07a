"""Load a study file and expand it into cells.

`experiments/NAME/study.py` defines `get_study(scale="cpu") -> Study`: a base config, axes to vary,
seeds, a budget, evaluations and comparisons. `expand` makes the cells. It checks each of them
against the typed config before anything runs. The name of a cell is a hash of what it trains. So
editing a study adds cells and leaves others out, but never trains the same cell twice.
"""

import contextlib
import dataclasses
import itertools
import logging
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from bert_jax import config as configs
from bert_jax.config import knobs, shipped, table, validation
from bert_jax.config.conditions import Idle
from bert_jax.config.costs import per_step
from bert_jax.errors import ConfigError, need, suggest
from bert_jax.interop.vocabulary import vocabulary_size
from bert_jax.studies import measures, trunks
from bert_jax.studies.identity import identity as identity
from bert_jax.studies.published import CLAIMS, TABLES
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
    check_known,
    variants,
    zipped,
)

__all__ = ["Axis", "Budget", "Cell", "Claimed", "Comparison", "Finetune", "Point", "Study", "Suite"]
__all__ += ["axis", "variants", "zipped"]
__all__ += ["check_study", "expand", "identity", "load_study", "override_base", "select_cells"]

BUDGETS = ("steps", "tokens", "predictions", "flops")
LONG = 2**31  # steps, until the budget determines them
SEED = "seed"  # the name of seeds for --only

logger = logging.getLogger(__name__)


# --- loading --------------------------------------------------------------------------------------


def load_study(spec: str, overrides: Iterable[tuple[str, str]] = ()) -> tuple[str, Study]:
    """Load the study `FOLDER[:ARGUMENT]` or `NAME[:ARGUMENT]`; return its name and the study.

    Args:
      spec: the study's folder, file or name, and the argument of its `get_study`.
      overrides: knobs of the base config to change, from the command line.
    """
    place, _, argument = spec.partition(":")
    file = shipped.find_study(place)
    if not file.is_relative_to(place):
        logger.info(f"{place}: {file}")
    # A study may import from the folder around its own, such as experiments.scales.
    sys.path.insert(0, str([*file.resolve().parents][:3][-1]))
    try:
        study = configs.load_file(
            f"{file}:{argument}" if argument else str(file), function="get_study"
        )
    finally:
        sys.path.pop(0)
    if not isinstance(study, Study):
        problem = f"{file}: get_study returned {type(study).__name__}"
        raise ConfigError(problem, "it returns a Study")
    override_base(study, overrides)
    return file.resolve().parent.name, study


def override_base(study: Study, overrides: Iterable[tuple[str, str]]) -> None:
    """Change knobs of a study's base config; refuse knobs that the study sets in every cell."""
    settled = _list_fixed_knobs(study)
    changes = list(overrides)
    for knob, _ in changes:
        said = f"config.{knob} is not set by the base: {settled.get(knob)}"
        need(knob not in settled, said, "leave it out, or change what sets it")
    configs.overrides(study.base, changes)


def _list_fixed_knobs(study: Study) -> dict[str, str]:
    """Return {path: reason} of the knobs that the base config cannot set.

    The study sets these knobs in every cell, for example by an axis or its budget.
    """
    reasons = {"seed": "the study's seeds set it"}
    if study.pair_seeds:
        reasons["data_seed"] = "pair_seeds=True takes it from the seed"
    if study.budget is not None:
        amount = f"{' or '.join(f'{a:g}' for a in study.budget.amounts)} {study.budget.kind}"
        reasons["steps"] = f"they follow from the budget of {amount}"
    for factor in study.axes:
        for path in _list_paths(factor):
            if all(path in dict(point.changes) for point in factor.points):
                reasons[path] = f"axis {factor.name!r} varies it"
    return _list_reset_knobs(study, reasons) | reasons


def _list_reset_knobs(study: Study, settled: Iterable[str]) -> dict[str, str]:
    """Return {path: reason} of the knobs that are reset in every cell by a knob of `settled`."""
    points = [point for factor in study.axes for point in factor.points]
    empty = [path for point in points for path, value in point.changes if value in (None, "")]
    reasons = {}
    for path in settled:
        resets = () if path in empty else table.find_knob(path).traits.resets  # as in `assign`
        for name in resets:
            other = f"{path.rpartition('.')[0]}.{name}".removeprefix(".")
            reasons[other] = f"every cell sets {path}, which resets it"
    return reasons


def _list_paths(factor: Axis) -> list[str]:
    return list(dict.fromkeys(path for point in factor.points for path, _ in point.changes))


# --- cells ----------------------------------------------------------------------------------------


def expand(study: Study, find_size: Callable[[knobs.Config], int] | None = None) -> list[Cell]:
    """List the cells of a study: every combination of points and seeds.

    The first axis varies slowest and the seeds fastest.

    Args:
      study: the study.
      find_size: returns the real size of a config's vocabulary, which a budget of FLOPs needs. The
        default finds it only if the vocabulary is given or already prepared.
    """
    check_study(study)
    records = measures.record_evaluations(study)
    cells: dict[str, Cell] = {}
    idle: dict[str, Idle] | None = None  # knobs of the base that do nothing in any cell
    for points in itertools.product(*(factor.points for factor in study.factors)):
        chosen = {factor.name: p for factor, p in zip(study.factors, points, strict=True)}
        if not _is_kept(study, chosen):
            continue
        labels = {name: point.label for name, point in chosen.items()}
        values = {name: point.value for name, point in chosen.items()}
        try:
            first, size, of_base = _resolve(study, points, values, find_size or vocabulary_size)
            validation.check_trainable(first)
        except ConfigError as error:
            raise ConfigError(f"{_format_place(labels)}: {error}", error.hint) from error
        evaluations = measures.select_evaluations(records, first, values)
        for seed in study.seeds:
            data_seed = seed if study.pair_seeds else first.data_seed
            config = dataclasses.replace(first, seed=seed, data_seed=data_seed)
            cell = Cell(
                identity(config), config, labels, values, seed, size, evaluations=evaluations
            )
            if same := cells.get(cell.id):
                twice = f"{_format_place(labels)} is the same run as {_format_place(same.labels)}"
                raise ConfigError(twice, "leave one of them out")
            cells[cell.id] = cell
        idle = {path: knob for path, knob in of_base.items() if idle is None or path in idle}
    need(bool(cells), "the study has no cell", "it needs seeds, points, and a keep that keeps some")
    for knob in (idle or {}).values():
        raise knob.error("in every cell, ")
    every = [*cells.values()]
    measures.check_metrics(study, sorted({name for cell in every for name in cell.config.scored}))
    measures.list_finetunings(study, [cell.config for cell in every])
    return trunks.assign_trunks(every) if study.trunk else every


def _resolve(
    study: Study,
    points: Iterable[Point],
    values: Mapping[str, Any],
    find_size: Callable[[knobs.Config], int],
) -> tuple[knobs.Config, int | None, dict[str, Idle]]:
    """Make the config of a combination of points; refuse a changed knob that has no effect.

    Returns:
      The config, the size of its vocabulary if the budget depends on it, and the knobs of the base
      config that have no effect in it.
    """
    changes = dict(change for point in points for change in point.changes)
    tree = configs.copy_tree(study.base)
    size = None
    configs.assign(tree, changes)
    if budget := study.budget:
        configs.assign(tree, {"steps": LONG})
        endless = configs.resolve_and_list_idle(tree)[0]
        if budget.kind == "flops":
            size = find_size(endless)
        cost = per_step(budget.kind, endless, size or endless.tokenizer.vocab_size)
        amount = values.get(BUDGET, budget.amount)
        configs.assign(tree, {"steps": max(1, round(amount / cost))})
    config, idle = configs.resolve_and_list_idle(tree, said=changes)
    for knob in idle:
        if any(_overlap(knob.path, path) for path in changes):
            raise knob.error()
    return config, size, {knob.path: knob for knob in idle}


def _is_kept(study: Study, chosen: dict[str, Point]) -> bool:
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return study.keep is None or bool(study.keep(chosen))
    except Exception as error:  # an error of the user's function, of whatever type
        hint = f"it is given the points by axis: {', '.join(chosen)}"
        raise ConfigError(f"keep: {type(error).__name__}: {error}", hint) from error


def _format_place(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {label}" for name, label in labels.items()) or "the base"


# --- validation -----------------------------------------------------------------------------------


def check_study(study: Study) -> None:
    """Refuse a study that is invalid in itself, before its cells are made."""
    _check_distinct("an axis", [factor.name for factor in study.factors])
    owners: dict[str, str] = {}
    for factor in study.factors:
        _check_distinct(f"axis {factor.name!r}: a point", factor.labels)
        for path in _list_paths(factor):
            table.find_knob(path)
            for known, owner in owners.items():
                both = f"axes {owner!r} and {factor.name!r} both set config.{path}"
                need(not _overlap(path, known), both, "one would undo the other")
        owners |= dict.fromkeys(_list_paths(factor), factor.name)
    for seed in study.seeds:
        configs.check_knob("seed", seed)
    if study.budget is not None:
        kind = study.budget.kind
        check_known(kind, BUDGETS, f"no budget {kind!r}")
        for amount in study.budget.amounts:
            right = math.isfinite(amount) and amount > 0
            need(right, f"a budget of {amount}", "a number above 0")
    measures.check_evaluations(study)
    for comparison in study.comparisons:
        _check_points(study, comparison.axis, comparison.baseline)
    for claimed in study.claims:
        check_known(claimed.claim, CLAIMS, f"no published claim {claimed.claim!r}")
        _check_points(study, claimed.axis, claimed.baseline, claimed.point)
        said = f"{claimed.claim}: effect = {claimed.effect}"
        need(claimed.effect > 0, said, "a gain by the metric, above 0")
        if claimed.more_at is not None:
            said = f"{claimed.claim}: more_at = {claimed.more_at!r}"
            other = len(claimed.more_at) == 3 and claimed.more_at[0] != claimed.axis
            need(other, said, "another axis and two of its points")
            _check_points(study, *claimed.more_at)
    for row in study.published:
        check_known(row, TABLES, f"no published row {row!r}")


def _check_distinct(what: str, names: Sequence[str]) -> None:
    """Refuse a name that occurs twice among the axes, or among the points of an axis."""
    twice = next((name for name in names if names.count(name) > 1), None)
    need(twice is None, f"{what} twice: {twice}", "leave one out, or give it another name")


def _check_points(study: Study, name: str, *labels: str) -> None:
    """Refuse an axis that the study lacks, or labels of points that the axis lacks."""
    axes = {factor.name: factor.labels for factor in study.factors}
    check_known(name, axes, f"no axis {name!r} to compare")
    for label in labels:
        check_known(label, axes[name], f"axis {name!r} has no point {label!r}")


def _overlap(path: str, other: str) -> bool:
    return path == other or path.startswith(f"{other}.") or other.startswith(f"{path}.")


# --- parts ----------------------------------------------------------------------------------------


def select_cells(
    study: Study, cells: Sequence[Cell], only: Sequence[str]
) -> tuple[Study, list[Cell]]:
    """Return a study reduced to some points and seeds, and its cells.

    The cells keep the names that they have in the whole study.

    Args:
      study: the whole study.
      cells: all its cells.
      only: texts AXIS=VALUE, where the value is the label or value of a point, or a seed. Several
        texts for one axis select several points.
    """
    points: dict[str, dict[str | float, str]] = {}
    for factor in study.factors:
        points[factor.name] = {_read_value(str(p.value)): p.label for p in factor.points}
        points[factor.name] |= {point.label: point.label for point in factor.points}
    points[SEED] = {str(seed): str(seed) for seed in study.seeds}
    chosen: dict[str, set[str]] = {}
    for text in only:
        name, equals, value = text.partition("=")
        need(bool(equals), f"--only {text!r} has no value", "write --only AXIS=VALUE")
        check_known(name, points, f"--only: no axis {name!r}")
        label = points[name].get(value) or points[name].get(_read_value(value))
        if label is None:
            hint = suggest(value, dict.fromkeys(points[name].values()))
            raise ConfigError(f"--only: {name} has no point {value!r}", hint)
        chosen.setdefault(name, set()).add(label)
    part = []
    for cell in cells:
        labels = cell.labels | {SEED: str(cell.seed)}
        if all(labels[name] in chosen[name] for name in chosen):
            part.append(cell)
    need(bool(part), f"no cell is left by --only {' --only '.join(only)}", "leave one out")
    left = {factor.name: {cell.labels[factor.name] for cell in part} for factor in study.factors}
    cut = [Axis(f.name, tuple(p for p in f.points if p.label in left[f.name])) for f in study.axes]
    budget = study.budget
    if budget and BUDGET in left:
        amounts: list[Any] = [cell.values[BUDGET] for cell in part]
        budget = Budget(budget.kind, tuple(dict.fromkeys(amounts)))
    seeds = tuple(seed for seed in study.seeds if any(cell.seed == seed for cell in part))
    return dataclasses.replace(study, axes=tuple(cut), budget=budget, seeds=seeds), part


def _read_value(text: str) -> str | float:
    """Return the number that a text stands for, such as 2e6; any other text as it is."""
    with contextlib.suppress(ValueError):
        return float(text)
    return text
