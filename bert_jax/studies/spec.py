"""The types a study file is written with: axes and points, budget, evaluations, comparisons."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bert_jax.config import knobs
from bert_jax.errors import ConfigError

if TYPE_CHECKING:
    import ml_collections


BUDGET = "budget"  # the axis of a budget of several amounts
SPLIT = "masking.replace"  # [MASK], random and the same token
SPLIT_ORDER = "[MASK]/same/random"  # of a split's label: that of table 8 of BERT's paper


@dataclasses.dataclass(frozen=True)
class Point:
    """A value of an axis, and the knobs it sets."""

    label: str
    value: float | str | None  # its position in figures
    changes: tuple[tuple[str, Any], ...]


@dataclasses.dataclass(frozen=True)
class Axis:
    """A factor of the study: the points that are varied."""

    name: str
    points: tuple[Point, ...]

    def __post_init__(self) -> None:
        changes = [(point.label, *change) for point in self.points for change in point.changes]
        for label, path, value in changes:
            # Reports write the order of the shares beside the labels.
            if self.name == path == SPLIT and "/" in label and label != _label(path, value):
                raise ConfigError(
                    f"axis {self.name!r}: the split {value} is labelled {label!r}",
                    f"its label is {_label(path, value)!r}, in the order {SPLIT_ORDER}",
                )


@dataclasses.dataclass(frozen=True)
class Budget:
    """An amount of training that every cell gets; several amounts are an axis named "budget".

    A step has batch_size * sequence_length tokens, of each view of an example; its predictions are
    the tokens times the mean prediction rate, divided by the views.
    """

    kind: str
    amount: float | tuple[float, ...]

    @property
    def amounts(self) -> tuple[float, ...]:
        """The amounts, of which most studies have one."""
        return self.amount if isinstance(self.amount, tuple) else (self.amount,)


@dataclasses.dataclass(frozen=True)
class Suite:
    """An evaluation by a suite of `bert_jax/suites`."""

    name: str
    ask: tuple[tuple[str, Any], ...] = ()
    budgets: tuple[float, ...] = ()  # amounts of the budget after which it is made; empty: all


@dataclasses.dataclass(frozen=True)
class Finetune:
    """An evaluation by fine-tuning: the recipe of a task, and changes to it."""

    task: str
    changes: tuple[tuple[str, Any], ...] = ()
    budgets: tuple[float, ...] = ()  # as of a suite


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A comparison of the points of an axis with one of them, by metrics EVALUATION/METRIC."""

    axis: str
    baseline: str
    metrics: tuple[str, ...]

    def __post_init__(self) -> None:
        _several("a comparison's metrics", self.metrics, str, 'metrics=("EVALUATION/METRIC",)')


@dataclasses.dataclass(frozen=True)
class Claimed:
    """A published claim, and the difference between two points of an axis that stands for it here.

    State it before anything runs, or say in study.py that it was stated later. The report gives the
    verdict of each family (the points of all other axes) by the simultaneous interval of the study.
    """

    claim: str  # a row of `report/published.toml`
    axis: str
    point: str  # claimed to be better by the metric than the baseline
    baseline: str
    metric: str  # EVALUATION/METRIC
    effect: float  # the difference that is looked for, above 0, in the metric's unit
    least: float = 0.0  # a difference must be above it to count
    within: float | None = None  # the margin, of a claim that nothing differs
    # An axis and two of its points: claimed is that the gain is larger at the first of them than at
    # the second, and the difference is that of both gains.
    more_at: tuple[str, str, str] | None = None

    @property
    def place(self) -> set[tuple[str, str]]:
        """The axes and points of the cells whose gain is claimed."""
        return {(self.axis, self.point), *([self.more_at[:2]] if self.more_at else [])}


@dataclasses.dataclass(frozen=True)
class Study:
    """A question, and the experiment that answers it."""

    question: str
    base: ml_collections.ConfigDict
    axes: tuple[Axis, ...]
    seeds: tuple[int, ...]
    evaluations: Mapping[str, Suite | Finetune]
    budget: Budget | None = None  # None: the steps of each config
    comparisons: tuple[Comparison, ...] = ()
    claims: tuple[Claimed, ...] = ()
    published: tuple[str, ...] = ()  # tables of `report/published.toml`
    # Whether the order of the data follows the seed too; cells of different seeds then cannot train
    # together.
    pair_seeds: bool = False
    keep: Callable[[dict[str, Point]], bool] | None = None  # selects among the crossed points
    # Whether cells of optim.schedule=wsd train the stable phase that they have in common once.
    trunk: bool = False
    notes: str = ""
    instead: str = ""  # the argument of `get_study` to name where the data is not on the machine

    def __post_init__(self) -> None:
        _several("axes", self.axes, Axis, "axes=(axis(…),)")
        _several("seeds", self.seeds, int, "seeds=(0, 1, 2), or seeds=(0,)")
        _several("comparisons", self.comparisons, Comparison, "comparisons=(Comparison(…),)")
        _several("claims", self.claims, Claimed, "claims=(Claimed(…),)")
        _several("published", self.published, str, "published=(ROW,)")
        right, hint = isinstance(self.evaluations, Mapping), '{"validation": Suite("pretrain")}'
        _need(right, "evaluations", self.evaluations, f"evaluations={hint}")
        for name, evaluation in self.evaluations.items():
            right, field = isinstance(evaluation, (Suite, Finetune)), f"evaluations[{name!r}]"
            _need(right, field, evaluation, "a Suite or a Finetune")
            _several(f"{field}.budgets", evaluation.budgets, object, "budgets=(6e6,)")
        right = isinstance(self.budget, (Budget, type(None)))
        _need(right, "budget", self.budget, 'budget=Budget("tokens", 1e9)')
        for amount in self.budget.amounts if self.budget else ():
            right = isinstance(amount, (int, float)) and not isinstance(amount, bool)
            _need(right, "budget", amount, 'Budget("tokens", 1e9) or Budget("tokens", (1e9, 2e9))')
        _need(isinstance(self.trunk, bool), "trunk", self.trunk, "trunk=True")
        _need(isinstance(self.instead, str), "instead", self.instead, 'instead="docstrings"')
        right = self.keep is None or callable(self.keep)
        _need(right, "keep", self.keep, "keep=lambda points: …")
        right = isinstance(self.base, Mapping) or hasattr(self.base, "to_dict")
        _need(right, "base", self.base, "a ConfigDict, such as that of bert_jax.config.default()")

    @property
    def factors(self) -> tuple[Axis, ...]:
        """The axes, and the budget where it has several amounts."""
        if self.budget is None or not isinstance(self.budget.amount, tuple):
            return self.axes
        kind, amounts = self.budget.kind, self.budget.amount
        points = (Point(f"{amount:,.12g} {kind}", amount, ()) for amount in amounts)
        return (*self.axes, Axis(BUDGET, tuple(points)))


def _several(field: str, values: Any, kind: type, hint: str) -> None:
    right = isinstance(values, Sequence) and not isinstance(values, str)
    _need(right, field, values, f"{hint}: with the comma, for it is a tuple")
    for value in values:
        _need(isinstance(value, kind) and not isinstance(value, bool), field, value, hint)


def _need(holds: bool, field: str, value: Any, hint: str) -> None:
    if not holds:
        raise ConfigError(
            f"a study's {field.removeprefix('a ')}: {type(value).__name__} {str(value)[:80]!r}",
            hint,
        )


@dataclasses.dataclass(frozen=True)
class Cell:
    """A run of a study."""

    id: str
    config: knobs.Config
    labels: dict[str, str]
    values: dict[str, float | str | None]
    seed: int
    vocabulary: int | None = None  # the real size, once known
    trunk: str = ""  # CELL@STEP: the cell whose first updates are also those of this one

    @property
    def fork(self) -> int:
        """The step at which the cell goes on from its trunk; 0 without one."""
        return int(self.trunk.rpartition("@")[2] or 0)

    @property
    def vocab_size(self) -> int:
        """The size of the vocabulary; the configured size until the real one is known."""
        return self.vocabulary or self.config.tokenizer.vocab_size


# --- axes -----------------------------------------------------------------------------------------


def axis(path: str, values: Iterable[Any], labels: Iterable[str] = ()) -> Axis:
    """Vary one knob over some values."""
    return zipped(path, [path], [[value] for value in values], list(labels))


def zipped(
    name: str, paths: Sequence[str], rows: Sequence[Sequence[Any]], labels: Sequence[str] = ()
) -> Axis:
    """Vary several knobs together, a row of values for each point."""
    if labels and len(labels) != len(rows):
        raise ConfigError(
            f"axis {name!r} has {len(rows)} points and {len(labels)} labels", "one label a point"
        )
    if odd := [row for row in rows if len(row) != len(paths)]:
        raise ConfigError(
            f"axis {name!r}: {odd[0]!r} is not a value for each of {', '.join(paths)}", "one a path"
        )
    points = []
    for number, row in enumerate(rows):
        label = labels[number] if labels else ", ".join(map(_label, paths, row))
        numeric = isinstance(row[0], (int, float)) and not isinstance(row[0], bool)
        position = row[0] if numeric else label
        points.append(Point(label, position, tuple(zip(paths, row, strict=True))))
    return Axis(name, tuple(points))


def variants(name: str, points: Mapping[str, Mapping[str, Any]]) -> Axis:
    """Vary named sets of knobs."""
    sets = [Point(label, label, tuple(changes.items())) for label, changes in points.items()]
    return Axis(name, tuple(sets))


def between(low: float, high: float, count: int) -> tuple[float, ...]:
    """Return `count` evenly spaced values, both ends included."""
    if count < 2:
        raise ConfigError(f"a range from {low} to {high} has {count} values", "two or more")
    return tuple(round(low + (high - low) * i / (count - 1), 12) for i in range(count))


def _is_split(value: Any) -> bool:
    """Tell whether a value is three numbers; anything else is refused with the config."""
    if not isinstance(value, (tuple, list)) or len(value) != 3:
        return False
    return all(isinstance(share, (int, float)) for share in value)


def _label(path: str, value: Any) -> str:
    if path == SPLIT and _is_split(value):
        mask, random, same = value
        return "/".join(f"{100 * share:g}" for share in (mask, same, random))
    if not isinstance(value, float):
        return str(value)
    share = path.endswith("rate") and not path.startswith("optim.") and 0 <= value <= 1
    return f"{100 * value:g} %" if share else f"{value:.12g}"
