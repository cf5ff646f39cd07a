"""Results of a study's cells, and the axes and families that they are compared in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bert_jax.config import costs
from bert_jax.config.knobs import Config
from bert_jax.masking import rates
from bert_jax.studies.folder import State
from bert_jax.studies.spec import SPLIT, SPLIT_ORDER, Cell

LEDGER = (
    "masked_fraction",
    "quota_fraction",
    "mask_token_fraction",
    "random_fraction",
    "kept_fraction",
)
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
SPENT = ("tokens", "predictions", "flops")


@dataclass(frozen=True)
class History:
    """Metrics a cell wrote during training: evaluations by step, and the means of its ledger."""

    evaluations: Mapping[str, list[tuple[int, float]]] = field(default_factory=dict)
    ledger: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """State, costs and metrics of one cell, which is one run and its evaluations."""

    entry: Cell
    state: State
    metrics: Mapping[str, float]  # EVALUATION/METRIC, finite ones
    errors: Mapping[str, str] = field(default_factory=dict)  # of evaluations that failed
    seconds: float = 0.0  # the cell's share of the time its group trained
    evaluation_seconds: float = 0.0
    parameters: int | None = None
    hardware: str = ""
    begun: str = ""  # when the study was begun, in ISO format
    ended: str = ""  # when the last result was written
    history: History = History()
    vocabulary: int | None = None  # its real size, once known
    costs: Mapping[str, float] = field(default_factory=dict)  # of a row of results.csv
    # Fingerprints of corpus and vocabulary: of the cell by "", of a fine-tuning by its name.
    data: Mapping[str, Sequence[str]] = field(default_factory=dict)
    evaluated: Mapping[str, str] = field(default_factory=dict)  # evaluation -> hash of what it is
    taken: bool = False  # from tables, of another workdir or machine

    def spent(self, kind: str, step: int | None = None) -> float:
        """Return the steps, tokens, predictions or FLOPs up to a step; default: the current one."""
        if step is None and kind in self.costs:
            return self.costs[kind]
        return self.clock(kind)(self.state.step if step is None else step)

    def clock(self, kind: str) -> Callable[[int], float]:
        """Make the function from steps of this cell to the budget they spend."""
        config = self.entry.config
        return make_clock(kind, config, self.vocabulary or config.tokenizer.vocab_size)


def make_clock(kind: str, config: Config, vocab_size: int) -> Callable[[int], float]:
    """Make the function from a number of steps to the budget they spend.

    If the masking rate has phases, early steps predict another number of tokens than late ones.
    """
    per_step = costs.per_step(kind, config, vocab_size)
    masking = config.masking
    fixed = not masking.phases or masking.prediction_rate is not None
    if kind != "predictions" or fixed:
        return lambda step: step * per_step
    tokens = per_step / costs.predicted_share(config)
    last = max(config.steps - 1, 1)
    return lambda step: step * tokens * rates.mean_rate(masking, (step - 1) / last)


@dataclass(frozen=True)
class Axis:
    """Knob or set of knobs that a study varies, with its points, as study.json lists them."""

    name: str
    labels: tuple[str, ...]
    values: tuple[Any, ...]

    @property
    def numeric(self) -> bool:
        """True if all points are distinct numbers, which have places on a line."""
        numbers = {value for value in self.values if type(value) in (int, float)}
        return len(numbers) == len(self.values) > 1

    @property
    def words(self) -> str:
        """The name for readers."""
        return KNOBS.get(self.name, (self.name.rpartition(".")[2].replace("_", " "),))[0]

    @property
    def title(self) -> str:
        """The title of the axis in figures, with its unit."""
        unit = KNOBS.get(self.name, ("", ""))[1]
        return f"{self.words} ({unit})" if unit else self.words

    def qualify(self, label: str) -> str:
        """Write a label for use next to labels of other axes; a number follows the axis' name."""
        return f"{self.words} {label}" if self.numeric else label


@dataclass(frozen=True)
class Family:
    """Results that differ in one axis only: label of a point -> its runs, one for each seed."""

    name: str  # labels of the other axes
    runs: Mapping[str, list[Result]]


def list_axes(study: Mapping[str, Any]) -> list[Axis]:
    """List the axes of a study.json."""
    return [
        Axis(
            axis["name"],
            tuple(point["label"] for point in axis["points"]),
            tuple(point["value"] for point in axis["points"]),
        )
        for axis in study.get("axes", [])
    ]


def name_place(axes: Sequence[Axis], labels: Mapping[str, str]) -> str:
    """Name a place among the cells by its labels on some of the axes."""
    return ", ".join(axis.qualify(labels[axis.name]) for axis in axes if axis.name in labels)


def group_families(axes: Sequence[Axis], results: Sequence[Result], name: str) -> list[Family]:
    """Group results by all other axes, then by the points of an axis, in the order of the points.

    Cells of several parts of a study may be listed in another order.
    """
    others = [axis for axis in axes if axis.name != name]
    labels = next((axis.labels for axis in axes if axis.name == name), ("",))
    grouped: dict[tuple[int, ...], dict[str, list[Result]]] = {}
    for result in results:
        chosen = result.entry.labels
        place = tuple(axis.labels.index(chosen[axis.name]) for axis in others)
        grouped.setdefault(place, {}).setdefault(chosen.get(name, ""), []).append(result)
    families = []
    for place in sorted(grouped):
        runs = {label: grouped[place][label] for label in labels if label in grouped[place]}
        at = {axis.name: axis.labels[i] for axis, i in zip(others, place, strict=True)}
        families.append(Family(name_place(others, at), runs))
    return families
