"""A small study and its parts, which tests of this folder vary."""

import dataclasses
from pathlib import Path
from typing import Any

from bert_jax import config as configs
from bert_jax.studies.definition import Budget, Cell, Study, Suite, axis, expand
from bert_jax.studies.folder import StudyFolder
from bert_jax.studies.groups import Group, plan_groups
from bert_jax.studies.measures import record_evaluations

RATES = (0.15, 0.3, 0.8)


def make_base(**changes: Any) -> Any:
    """Make the config of a small model without pairs; `a__b` is the knob a.b."""
    tree = configs.default()
    tree.pairs = "none"
    tree.model.size = "tiny"
    tree.steps = 1_000
    tree.optim.warmup_steps = 10
    for key, value in changes.items():
        configs.put(tree, key.split("__"), value)
    return tree


def make_study(**changes: Any) -> Study:
    """Make a study of three masking rates and two seeds."""
    evaluations = {"validation": Suite("pretrain")}
    plain = Study("How much?", make_base(), (axis("masking.rate", RATES),), (0, 1), evaluations)
    return dataclasses.replace(plain, **changes)


def make_branching(**changes: Any) -> Study:
    """Make a study whose longer cells go on from shorter ones, where these begin to decay."""
    base = make_base(batch_size=8, sequence_length=16, checkpoints__best="")
    base.optim.update({"schedule": "wsd", "warmup_steps": 5})
    usual = {"axes": (), "seeds": (0,), "evaluations": {}, "budget": Budget("steps", (20, 40))}
    return make_study(**{"base": base, "trunk": True, **usual, **changes})


def write_study(workdir: Path, study: Study, cells: list[Cell] | None = None) -> StudyFolder:
    """Write the study.json of a study with some of its cells."""
    place = StudyFolder(workdir)
    record = {"name": "x", "spec": "x", "evaluations": record_evaluations(study)}
    place.write_study(record, expand(study) if cells is None else cells)
    return place


def write_groups(place: StudyFolder) -> list[Group]:
    """Plan and write the groups of a study, the shortest first."""
    planned = plan_groups(place.read_cells(), "auto", 1)
    for group in planned:
        place.write_group(group.id, [cell.id for cell in group.cells], group.slots)
    return sorted(planned, key=lambda group: group.cells[0].config.steps)
