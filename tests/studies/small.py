"""A small study and its parts, which tests of this folder vary."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path
from typing import Any

from bert_jax import config as configs
from bert_jax.studies.definition import Cell, Study, Suite, axis, expand
from bert_jax.studies.folder import StudyFolder
from bert_jax.studies.groups import Group, plan_groups
from bert_jax.studies.measures import record_evaluations
from tests import texts

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
    plain = Study(
        question="How much?",
        base=make_base(),
        axes=(axis("masking.rate", RATES),),
        seeds=(0, 1),
        evaluations={"validation": Suite("pretrain")},
    )
    return dataclasses.replace(plain, **changes)


FILE = """
from bert_jax.config import load_file, override
from bert_jax.studies.definition import Budget, Comparison, Study, Suite, axis


def get_study(scale=""):
    base = load_file({config!r})
    for knob, value in {knobs!r}.items():
        override(base, knob, value)
    return Study(question="Does anything get lost?", base=base, {fields})
"""


def write_file(folder: Path, knobs: dict[str, str], fields: str) -> Path:
    """Write a text, and a study of small runs on it; return the folder of its study.py."""
    config = str(texts.config_file(folder))
    (folder / "lost").mkdir()
    text = FILE.format(config=config, knobs=knobs, fields=fields)
    (folder / "lost" / "study.py").write_text(text)
    return folder / "lost"


def start_study(study: str, workdir: Path) -> subprocess.Popen:
    """Start the command that runs a study, two groups at a time."""
    return texts.start("study", "run", study, f"--workdir={workdir}", "--jobs=2")


def write_study(workdir: Path, study: Study, cells: list[Cell] | None = None) -> StudyFolder:
    """Write the study.json of a study with some of its cells."""
    place = StudyFolder(workdir)
    record = {"name": "x", "evaluations": record_evaluations(study)}
    place.write_study(record, expand(study) if cells is None else cells)
    return place


def write_groups(place: StudyFolder) -> list[Group]:
    """Plan and write the groups of a study, the shortest first."""
    planned = plan_groups(place.cells(), "auto", 1)
    for group in planned:
        place.write_group(group.id, [cell.id for cell in group.cells], group.slots)
    return sorted(planned, key=lambda group: group.cells[0].config.steps)
