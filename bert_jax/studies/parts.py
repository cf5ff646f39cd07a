"""A part of a study: the cells of `--only AXIS=VALUE`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from bert_jax.config import suggest
from bert_jax.errors import ConfigError
from bert_jax.studies.spec import BUDGET, Axis, Budget, Cell, Study

SEED = "seed"


def select(study: Study, cells: Sequence[Cell], only: Sequence[str]) -> tuple[Study, list[Cell]]:
    """Return a part of a study, and its cells, which have the names that they have in the whole.

    Args:
      study: the whole study.
      cells: all its cells.
      only: AXIS=VALUE each, with the label of a point, its value, or a seed. Several of one axis
        select several points.
    """
    chosen: dict[str, set[str]] = {}
    for text in only:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--only {text!r} has no value", "write --only AXIS=VALUE")
        chosen.setdefault(name, set()).add(_find_label(study, name, value))
    if not chosen:
        return study, list(cells)
    part = [
        cell
        for cell in cells
        if all((cell.labels | {SEED: str(cell.seed)})[name] in chosen[name] for name in chosen)
    ]
    if not part:
        raise ConfigError(f"no cell is left by --only {' --only '.join(only)}", "leave one out")
    labels = {name: {cell.labels[name] for cell in part} for name in part[0].labels}
    axes = tuple(_cut(axis, labels[axis.name]) for axis in study.axes)
    budget = study.budget
    if budget and BUDGET in labels:
        points = next(axis for axis in study.factors if axis.name == BUDGET).points
        left = tuple(
            a for p, a in zip(points, budget.amounts, strict=True) if p.label in labels[BUDGET]
        )
        budget = Budget(budget.kind, left)
    seeds = {cell.seed for cell in part}
    kept = tuple(seed for seed in study.seeds if seed in seeds)
    return dataclasses.replace(study, axes=axes, budget=budget, seeds=kept), part


def _find_label(study: Study, name: str, value: str) -> str:
    """Return the label of the point of an axis that a user names."""
    axes = {axis.name: axis.points for axis in study.factors}
    if name not in (*axes, SEED):
        raise ConfigError(f"--only: no axis {name!r}", suggest(name, [*axes, SEED]))
    points = {str(seed): str(seed) for seed in study.seeds}
    if name != SEED:
        points = {str(point.value): point.label for point in axes[name]}
        points |= {point.label: point.label for point in axes[name]}
    if value not in points:
        labels = list(dict.fromkeys(points.values()))
        raise ConfigError(f"--only: {name} has no point {value!r}", suggest(value, labels))
    return points[value]


def _cut(axis: Axis, labels: set[str]) -> Axis:
    return Axis(axis.name, tuple(point for point in axis.points if point.label in labels))
