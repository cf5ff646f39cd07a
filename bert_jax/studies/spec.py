"""The types of a study: axes, budget, evaluations, comparisons and claims, and its record."""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import ml_collections
import msgspec

from bert_jax.config import knobs
from bert_jax.errors import need, suggest

BUDGET = "budget"  # the axis of a budget of several amounts
SPLIT = "masking.replace"  # [MASK], random and the same token
SPLIT_ORDER = "[MASK]/same/random"  # of a split's label: that of table 8 of BERT's paper
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


class Point(msgspec.Struct, frozen=True, omit_defaults=True):
    """A point of an axis: its label, its value, and the knobs it sets.

    It is a Struct, and no dataclass, because study.json leaves out its default.
    """

    label: str
    value: float | str | None  # its position in figures
    changes: tuple[tuple[str, Any], ...] = ()  # not recorded in study.json


@dataclasses.dataclass(frozen=True)
class Axis:
    """A factor of the study: a name, and the points among which it varies."""

    name: str
    points: tuple[Point, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of the points."""
        return tuple(point.label for point in self.points)

    @property
    def values(self) -> tuple[Any, ...]:
        """The values of the points."""
        return tuple(point.value for point in self.points)

    @property
    def numeric(self) -> bool:
        """True if the values of all points are different numbers."""
        numbers = {value for value in self.values if type(value) in (int, float)}
        return len(numbers) == len(self.values) > 1

    @property
    def words(self) -> str:
        """The name of the axis for readers, such as "masking rate"."""
        return KNOBS.get(self.name, (self.name.rpartition(".")[2].replace("_", " "),))[0]

    @property
    def title(self) -> str:
        """The title of the axis in figures, with its unit."""
        unit = KNOBS.get(self.name, ("", ""))[1]
        return f"{self.words} ({unit})" if unit else self.words

    def qualify(self, label: str) -> str:
        """Write a label so that it can be read next to labels of other axes.

        A label that is a number follows the name of its axis, as in "vocabulary size 8192".
        """
        return f"{self.words} {label}" if self.numeric else label


@dataclasses.dataclass(frozen=True)
class Budget:
    """The amount of training of every cell; several amounts form an axis named "budget".

    A step has batch_size * sequence_length tokens. Each view of an example has a row of its own
    among them. The predictions of a step are its tokens times the mean prediction rate, divided by
    the number of views.
    """

    kind: str  # steps, tokens, predictions or flops
    amount: float | tuple[float, ...]

    def __post_init__(self) -> None:
        if isinstance(self.amount, list):
            object.__setattr__(self, "amount", tuple(self.amount))

    @property
    def amounts(self) -> tuple[float, ...]:
        """The amounts as a tuple, even if there is only one."""
        return self.amount if isinstance(self.amount, tuple) else (self.amount,)


@dataclasses.dataclass(frozen=True)
class Suite:
    """An evaluation by a suite of `bert_jax/suites`, with options of the suite."""

    name: str
    ask: tuple[tuple[str, Any], ...] = ()  # the suite's options
    budgets: tuple[float, ...] = ()  # amounts of the budget after which it is made; empty: all


@dataclasses.dataclass(frozen=True)
class Finetune:
    """An evaluation by fine-tuning: a task, and changes to its recipe."""

    task: str
    changes: tuple[tuple[str, Any], ...] = ()
    budgets: tuple[float, ...] = ()  # as of a suite


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A comparison of the points of an axis with a baseline point, by metrics EVALUATION/METRIC."""

    axis: str
    baseline: str
    metrics: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Claimed:
    """A published claim, and the difference between two points of an axis that tests it here.

    State it before anything runs, or say in study.py that it was stated later. The report gives a
    verdict for each combination of the other axes' points, by the simultaneous interval of the
    difference.
    """

    claim: str  # a row of `published.toml`
    axis: str
    point: str  # claimed to be better by the metric than the baseline
    baseline: str
    metric: str  # EVALUATION/METRIC
    effect: float  # the difference that is looked for, above 0, in the metric's unit
    within: float | None = None  # the margin, of a claim that nothing differs
    # An axis and two of its points: claimed is that the gain is larger at the first of them than at
    # the second, and the difference is that of both gains.
    more_at: tuple[str, str, str] | None = None

    @property
    def place(self) -> set[tuple[str, str]]:
        """The (axis, point) pairs of the cells that are claimed to be better."""
        return {(self.axis, self.point), *([self.more_at[:2]] if self.more_at else [])}


@dataclasses.dataclass(frozen=True)
class Study:
    """A question, and the experiment that answers it: base config, axes, seeds, evaluations."""

    question: str
    base: ml_collections.ConfigDict
    axes: tuple[Axis, ...]
    seeds: tuple[int, ...]
    evaluations: Mapping[str, Suite | Finetune]
    budget: Budget | None = None  # None: the steps of each config
    comparisons: tuple[Comparison, ...] = ()
    claims: tuple[Claimed, ...] = ()
    published: tuple[str, ...] = ()  # tables of `published.toml`
    # Whether the order of the data follows the seed too; cells of different seeds then cannot train
    # together.
    pair_seeds: bool = False
    keep: Callable[[dict[str, Point]], bool] | None = None  # selects among the crossed points
    # Whether cells of optim.schedule=wsd train the stable phase that they have in common once.
    trunk: bool = False
    notes: str = ""
    instead: str = ""  # the argument of `get_study` to name where the data is not on the machine

    def __post_init__(self) -> None:
        fields = ("axes", "seeds", "comparisons", "claims", "published")
        kinds = dict(zip(fields, (Axis, int, Comparison, Claimed, str), strict=True))
        for field, kind in kinds.items():
            values = getattr(self, field)
            # Most often only the comma of a tuple is missing.
            right = isinstance(values, (tuple, list)) and all(isinstance(v, kind) for v in values)
            hint = f"a tuple of {kind.__name__}, with the comma: {field}=(…,)"
            need(right, f"a study's {field} cannot be {str(values)[:80]}", hint)
        right = self.budget is None or isinstance(self.budget, Budget)
        said = f"a study's budget cannot be {str(self.budget)[:80]}"
        need(right, said, 'budget=Budget("tokens", 2e6)')

    @property
    def factors(self) -> tuple[Axis, ...]:
        """The axes, and the budget if it has several amounts."""
        if self.budget is None or not isinstance(self.budget.amount, tuple):
            return self.axes
        kind = self.budget.kind
        points = [Point(f"{each:,.12g} {kind}", each, ()) for each in self.budget.amount]
        return (*self.axes, Axis(BUDGET, tuple(points)))


class StudyRecord(msgspec.Struct, kw_only=True):
    """A study as study.json has it."""

    name: str
    spec: str  # the argument that named it
    question: str = ""
    axes: tuple[Axis, ...] = ()  # with the budget if it has several amounts
    seeds: tuple[int, ...] = ()
    budget: Budget | None = None
    evaluations: dict[str, dict[str, Any]] = {}
    comparisons: tuple[Comparison, ...] = ()
    claims: tuple[Claimed, ...] = ()
    published: tuple[str, ...] = ()
    notes: str = ""
    # Where and when it was run:
    begun: str = ""
    versions: dict[str, str | None] = {}
    git_commit: str | None = None
    commits: tuple[str, ...] = ()  # all that trained or evaluated cells
    command: tuple[str, ...] = ()
    machine: dict[str, Any] = {}
    config: dict[str, Any]  # of the first cell
    cells: dict[str, dict[str, Any]]


def check_known(word: str, options: Collection[str], message: str) -> None:
    """Refuse a word that is not one of the options; suggest the nearest option."""
    need(word in options, message, suggest(word, options))


@dataclasses.dataclass(frozen=True)
class Cell:
    """A run of a study: its config, its labels and values on the axes, and its evaluations."""

    id: str
    config: knobs.Config
    labels: dict[str, str]
    values: dict[str, float | str | None]
    seed: int
    vocabulary: int | None = None  # the real size, once known
    trunk: str = ""  # CELL@STEP: the cell whose first updates are also those of this one
    evaluations: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)

    @property
    def fork(self) -> int:
        """The step at which the cell goes on from its trunk; 0 without a trunk."""
        return int(self.trunk.rpartition("@")[2] or 0)


# --- axes -----------------------------------------------------------------------------------------


def axis(path: str, values: Iterable[Any], labels: Iterable[str] = ()) -> Axis:
    """Make an axis that varies one knob over some values."""
    return zipped(path, [path], [[value] for value in values], list(labels))


def zipped(
    name: str, paths: Sequence[str], rows: Sequence[Sequence[Any]], labels: Sequence[str] = ()
) -> Axis:
    """Make an axis that varies several knobs together; each row has their values at a point."""
    points = []
    for row, label in zip(rows, labels or [""] * len(rows), strict=True):
        changes = tuple(zip(paths, row, strict=True))
        label = label or ", ".join(_format_value(path, value) for path, value in changes)
        numeric = isinstance(row[0], (int, float)) and not isinstance(row[0], bool)
        points.append(Point(label, row[0] if numeric else label, changes))
    return Axis(name, tuple(points))


def variants(name: str, points: Mapping[str, Mapping[str, Any]]) -> Axis:
    """Make an axis whose points are named sets of knobs."""
    sets = [Point(label, label, tuple(changes.items())) for label, changes in points.items()]
    return Axis(name, tuple(sets))


def _format_value(path: str, value: Any) -> str:
    """Format the label of a knob's value; rates become percentages.

    A split of corruption is written in the order of SPLIT_ORDER.
    """
    if path == SPLIT and isinstance(value, (tuple, list)) and len(value) == 3:
        mask, random, same = value
        return "/".join(f"{100 * share:g}" for share in (mask, same, random))
    if not isinstance(value, float):
        return str(value)
    if path.endswith("rate") and not path.startswith("optim.") and 0 <= value <= 1:
        return f"{100 * value:g} %"
    return f"{value:.12g}"
