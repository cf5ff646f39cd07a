"""The axes of a study, and the families of results that are compared over an axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bert_jax.studies.cell_result import Result
from bert_jax.studies.spec import SPLIT, SPLIT_ORDER

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
