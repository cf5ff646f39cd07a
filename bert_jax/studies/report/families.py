"""The axes of a study, and its families: runs that differ only in one axis and the seed."""

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
    """An axis of a study, as study.json lists it: its name, and labels and values of its points."""

    name: str
    labels: tuple[str, ...]
    values: tuple[Any, ...]

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


@dataclass(frozen=True)
class Family:
    """Runs that differ only in one axis and the seed.

    `runs` maps the label of each point of the axis to the runs of its seeds.
    """

    name: str  # labels of the other axes
    runs: Mapping[str, list[Result]]


def list_axes(study: Mapping[str, Any]) -> list[Axis]:
    """List the axes of a study from its study.json."""
    return [
        Axis(
            axis["name"],
            tuple(point["label"] for point in axis["points"]),
            tuple(point["value"] for point in axis["points"]),
        )
        for axis in study.get("axes", [])
    ]


def name_place(axes: Sequence[Axis], labels: Mapping[str, str]) -> str:
    """Join the labels of a cell on some axes to a name, such as "masking rate 40 %, word"."""
    return ", ".join(axis.qualify(labels[axis.name]) for axis in axes if axis.name in labels)


def group_families(axes: Sequence[Axis], results: Sequence[Result], name: str) -> list[Family]:
    """Divide results into families, within which only the axis `name` and the seed vary.

    The points of a family are in the order of the axis, whatever the order of the results.
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
