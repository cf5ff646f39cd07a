"""What a study is written with: axes and their points, a budget, evaluations, comparisons."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bert_jax.config import knobs
from bert_jax.errors import ConfigError

if TYPE_CHECKING:
    import ml_collections


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

    def __post_init__(self) -> None:
        _several("a comparison's metrics", self.metrics, str, 'metrics=("EVALUATION/METRIC",)')


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

    def __post_init__(self) -> None:
        _several("axes", self.axes, Axis, "axes=(axis(…),)")
        _several("seeds", self.seeds, int, "seeds=(0, 1, 2), or seeds=(0,)")
        _several("comparisons", self.comparisons, Comparison, "comparisons=(Comparison(…),)")
        _several("published", self.published, str, "published=(ROW,)")
        named = isinstance(self.evaluations, Mapping)
        _need(
            named, "evaluations", self.evaluations, 'evaluations={"validation": Suite("pretrain")}'
        )
        for name, one in self.evaluations.items():
            _need(
                isinstance(one, (Suite, Finetune)),
                f"evaluations[{name!r}]",
                one,
                "a Suite or a Finetune",
            )
        _need(
            isinstance(self.budget, (Budget, type(None))),
            "budget",
            self.budget,
            'budget=Budget("tokens", 1e9)',
        )
        _need(self.keep is None or callable(self.keep), "keep", self.keep, "keep=lambda points: …")
        named = isinstance(self.base, Mapping) or hasattr(self.base, "to_dict")
        _need(named, "base", self.base, "a ConfigDict, such as that of bert_jax.config.default()")


def _several(what: str, values: Any, kind: type, hint: str) -> None:
    right = isinstance(values, Sequence) and not isinstance(values, str)
    _need(right, what, values, f"{hint}: with the comma, for it is a tuple")
    for value in values:
        _need(isinstance(value, kind) and not isinstance(value, bool), what, value, hint)


def _need(holds: bool, what: str, value: Any, hint: str) -> None:
    if not holds:
        raise ConfigError(
            f"a study's {what.removeprefix('a ')}: {type(value).__name__} {str(value)[:80]!r}", hint
        )


@dataclasses.dataclass(frozen=True)
class Cell:
    """One run of a study."""

    id: str
    config: knobs.Config
    labels: dict[str, str]
    values: dict[str, float | str | None]
    seed: int
    vocabulary: int | None = None  # its real size, once known

    @property
    def vocab_size(self) -> int:
        """Tokens of its vocabulary; as long as nobody knows, as many as are asked for."""
        return self.vocabulary or self.config.tokenizer.vocab_size


# --- axes -----------------------------------------------------------------------------------------


def axis(path: str, values: Iterable[Any], labels: Iterable[str] = ()) -> Axis:
    """One knob, value by value."""
    values = list(values)
    return zipped(path, [path], [[value] for value in values], list(labels))


def zipped(
    name: str, paths: Sequence[str], rows: Sequence[Sequence[Any]], labels: Sequence[str] = ()
) -> Axis:
    """Several knobs that vary together, row by row."""
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
        drawn = (
            row[0] if isinstance(row[0], (int, float)) and not isinstance(row[0], bool) else label
        )
        points.append(Point(label, drawn, tuple(zip(paths, row, strict=True))))
    return Axis(name, tuple(points))


def variants(name: str, points: Mapping[str, Mapping[str, Any]]) -> Axis:
    """Named sets of knobs."""
    return Axis(
        name,
        tuple(Point(label, label, tuple(changes.items())) for label, changes in points.items()),
    )


def between(low: float, high: float, count: int) -> tuple[float, ...]:
    """A range of `count` values, both ends included."""
    if count < 2:
        raise ConfigError(f"a range from {low} to {high} has {count} values", "two or more")
    return tuple(round(low + (high - low) * i / (count - 1), 12) for i in range(count))


def _label(path: str, value: Any) -> str:
    if (
        isinstance(value, float)
        and path.endswith("rate")
        and not path.startswith("optim.")
        and 0 <= value <= 1
    ):
        return f"{100 * value:g} %"
    return f"{value:.12g}" if isinstance(value, float) else str(value)
