"""Cells of a study that share a trunk: how they are planned, and that no update is made twice."""

from __future__ import annotations

import dataclasses
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from bert_jax import config as configs
from bert_jax.config import load_file
from bert_jax.errors import ConfigError
from bert_jax.studies import launch, plan, worker
from bert_jax.studies.definition import Budget, Cell, Study, axis, expand, variants
from bert_jax.studies.groups import plan_groups
from bert_jax.train import train
from bert_jax.training import ledger, program
from tests import texts
from tests.studies.small import (
    make_base,
    make_study,
    write_groups,
    write_study,
)

STEPS = (20, 40)
FORK = 16  # 80 % of the shorter length


def define(base: Any, **changes: Any) -> Study:
    for path, value in {
        "pairs": "none",
        "batch_size": 8,
        "sequence_length": 16,
        "optim.schedule": "wsd",
        "optim.warmup_steps": 5,
        "checkpoints.best": "",
        "checkpoints.every": 12,
        "logging.every": 1,  # a line for each update
    }.items():
        configs.put(base, path.split("."), value)
    fields = {"axes": (axis("masking.rate", (0.15, 0.4)),), "evaluations": {}}
    fields |= {"budget": Budget("steps", STEPS), "trunk": True}
    return make_study(base=base, **{**fields, **changes})


@pytest.fixture
def study() -> Study:
    return define(make_base())


def test_longer_cell_goes_on_where_a_shorter_decays(study):
    cells = expand(study)
    assert [cell.config.steps for cell in cells] == [20, 20, 40, 40] * 2
    assert [cell.labels["budget"] for cell in cells[1:3]] == ["20 steps", "40 steps"]
    for short, long in zip(cells[0:2] + cells[4:6], cells[2:4] + cells[6:8], strict=True):
        assert (short.trunk, short.fork) == ("", 0)
        assert (long.trunk, long.fork) == (f"{short.id}@{FORK}", FORK)
        assert long.config.masking.rate == short.config.masking.rate
        assert (short.config.checkpoints.at, long.config.checkpoints.at) == ((FORK,), (32,))
    longer = dataclasses.replace(study, budget=Budget("steps", (*STEPS, 100)), seeds=(0,))
    assert expand(longer)[2].trunk == f"{cells[2].id}@32"  # from the longest
    alone = expand(dataclasses.replace(study, trunk=False))
    assert [cell.id for cell in alone] == [cell.id for cell in cells]  # the same runs
    assert not any(cell.trunk for cell in alone)


def test_only_what_acts_after_a_fork_may_differ(study):
    def forks(**changes: Any) -> list[int]:
        return [cell.fork for cell in expand(dataclasses.replace(study, seeds=(0,), **changes))]

    decays = axis("optim.decay_fraction", (0.5, 0.2))
    assert forks(axes=(decays,), budget=Budget("steps", 40)) == [0, 20]
    ends = axis("optim.final_fraction", (0.0, 0.1))
    assert sorted(forks(axes=(ends,), budget=Budget("steps", 40))) == [0, 32]
    assert forks(axes=(axis("optim.learning_rate", (1e-3, 2e-3)),)) == [0, FORK] * 2
    shares = variants("warm-up", {"share": {"optim.warmup_fraction": 0.1}})
    assert forks(axes=(shares,)) == [0, 0]  # other steps of warm-up
    falling = {"masking.rate": 0.4, "masking.phases": ((1.0, 0.2, "linear"),)}
    assert forks(axes=(variants("rate", {"falls": falling}),)) == [0, 0]
    kinds = axis("optim.schedule", ("linear", "wsd"))
    assert forks(axes=(kinds,)) == [0, 0, 0, FORK]
    with pytest.raises(ConfigError, match="no cell has a stable phase") as error:
        forks(axes=(axis("optim.schedule", ("linear", "cosine")),))
    assert "wsd" in error.value.hint


def test_plan_counts_shared_updates_once(study):
    def describe(cells: list[Cell]) -> str:
        groups = plan_groups(cells, "auto", 1)
        cost = plan.describe_cost(groups, 1, 0.0, 0.0)
        return plan.describe_plan("lengths", cells, groups, [], cost)

    told, without = map(describe, (expand(study), expand(dataclasses.replace(study, trunk=False))))
    assert "4 of 8 cells continue another cell, which saves 64 of 240 updates (27%)" in told
    assert "continue another" not in without
    flops = [float(re.search(r"takes (\S+) FLOPs", text)[1]) for text in (told, without)]
    assert flops[0] == pytest.approx(flops[1] * (240 - 64) / 240, rel=0.05)


class Remembering:
    """An engine that notes what is started, and runs nothing."""

    parallel = most = 2
    processes = 1

    def __init__(self) -> None:
        self.started: list[str] = []

    def start(self, groups: list[str]) -> Iterator[str]:
        self.started += groups
        yield from groups


def test_group_waits_until_its_trunk_has_come_so_far(study, tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "LOOK", 0.0)
    place = write_study(tmp_path, study)
    short, long = write_groups(place)
    engine = Remembering()
    launcher = launch.Launcher(place, [short, long], engine)
    folders = [place.cell(cell.id) / "checkpoints" / str(FORK) for cell in short.cells]
    place.write_trained(long.cells[0].id, 40, 1.0, "done")  # the other one still needs its trunk
    launcher.start_groups()
    assert engine.started == [short.id]
    (place.cell(long.cells[0].id) / "trained.json").unlink()
    for folder in folders:
        launcher.start_groups()
        assert engine.started == [short.id]
        folder.mkdir(parents=True)
    launcher.start_groups()
    assert engine.started == [short.id, long.id]
    for folder in folders:
        shutil.rmtree(folder)
    other = Remembering()
    launch.Launcher(place, [long], other).start_groups()
    assert other.started == [long.id]  # nobody will bring the others so far


@pytest.mark.parametrize("reached", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_shared_updates_are_made_once(tmp_path, monkeypatch, reached):
    """Each update of each run is counted where it is made, by a program that computes nothing.

    A trunk that never came to the fork spares nothing, and the longer cells are trained all the
    same.
    """
    made: Counter[tuple[int, int]] = Counter()
    names = ("masked", "mask_token", "random", "kept", "quota", "asked", "expected", "predicted")
    zeros = (*(f"{name}_fraction" for name in (*names, "predict_quota")), "skipped_in_row", "loss")

    def update(_: Any, state: Any, batch: Any, inputs: Any) -> Any:
        made.update((int(one.seed), int(one.quotas.whole[-1])) for one in inputs)
        return state, dict.fromkeys(zeros, (np.zeros(len(inputs)), np.ones(len(inputs))))

    monkeypatch.setattr(program.Program, "update", update)
    monkeypatch.setattr(ledger.Ledger, "list_checks", lambda self: ())  # of masks that nobody made
    base = load_file(str(texts.config_file(tmp_path)))
    base.model.hidden = 16
    study = define(base, axes=(axis("masking.rate", (0.15,)),))
    study.base.evals = {}
    place = write_study(tmp_path / "w", study)
    planned = write_groups(place)
    with texts.one_device():
        for group in planned:
            if group.cells[0].trunk and not reached:
                for cell in group.cells:
                    found = place.saved(cell.trunk.partition("@")[0], cell.fork)
                    assert found is not None
                    shutil.rmtree(found)
            worker.work(place, group.id, train)
    assert made.keys() == {(0, 2), (1, 2)}
    assert set(made.values()) == {sum(STEPS) - (FORK if reached else 0)}
    assert [place.read_trained(cell.id).step for cell in place.cells()] == [20, 20, 40, 40]
