"""The families of a study: runs that differ only in one axis and the seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bert_jax.studies.cell_result import Result
from bert_jax.studies.spec import Axis


@dataclass(frozen=True)
class Family:
    """Runs that differ only in one axis and the seed.

    `runs` maps the label of each point of the axis to the runs of its seeds.
    """

    name: str  # labels of the other axes
    runs: Mapping[str, list[Result]]


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
