"""Cells of a study that share a trunk: how they are planned, and that no update is made twice."""

from __future__ import annotations

import dataclasses
import shutil
from types import SimpleNamespace
from typing import Any

import pytest

from bert_jax.errors import ConfigError
from bert_jax.studies import launch, trunks, worker
from bert_jax.studies.definition import Budget, Study, axis, expand, variants
from tests.studies.small import make_base, make_study, write_groups, write_study

STEPS = (20, 40)
FORK = 16  # 80 % of the shorter length


@pytest.fixture
def study() -> Study:
    """Two rates, two seeds and two lengths, which share a trunk."""
    base = make_base(batch_size=8, sequence_length=16, checkpoints__best="")
    base.optim.update({"schedule": "wsd", "warmup_steps": 5})
    fields = {"axes": (axis("masking.rate", (0.15, 0.4)),), "evaluations": {}}
    return make_study(base=base, budget=Budget("steps", STEPS), trunk=True, **fields)


def test_longer_cell_goes_on_where_a_shorter_decays(study):
    cells = expand(study)
    assert [cell.config.steps for cell in cells] == [20, 20, 40, 40] * 2
    assert [cell.labels["budget"] for cell in cells[1:3]] == ["20 steps", "40 steps"]
    for short, long in zip(cells[0:2] + cells[4:6], cells[2:4] + cells[6:8], strict=True):
        assert (short.trunk, short.fork) == ("", 0)
        assert (long.trunk, long.fork) == (f"{short.id}@{FORK}", FORK)
        assert long.config.masking.rate == short.config.masking.rate
        assert (short.config.checkpoints.at, long.config.checkpoints.at) == ((FORK,), (32,))
    assert trunks.count_flops(long, 40) == pytest.approx(trunks.count_flops(short, 20) * 24 / 20)
    said = "4 of 8 cells continue another cell, which saves 64 of 240 updates (27%)"
    assert trunks.describe_saving(cells) == said
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
    falling = {"masking.rate": 0.4, "masking.phases": ((1.0, 0.2, "linear"),)}
    assert forks(axes=(variants("rate", {"falls": falling}),)) == [0, 0]
    kinds = axis("optim.schedule", ("linear", "wsd"))
    assert forks(axes=(kinds,)) == [0, 0, 0, FORK]
    with pytest.raises(ConfigError, match="no cell has a stable phase") as error:
        forks(axes=(axis("optim.schedule", ("linear", "cosine")),))
    assert "wsd" in error.value.hint


def test_group_waits_until_its_trunk_has_come_so_far(study, tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "LOOK", 0.0)
    place = write_study(tmp_path, study)
    short, long = write_groups(place)
    started: list[str] = []
    engine = SimpleNamespace(most=2, start=lambda groups: started.extend(groups) or groups)
    launcher = launch.Launcher(place, [short, long], engine)
    folders = [place.cell(cell.id) / "checkpoints" / str(FORK) for cell in short.cells]
    place.write_trained(long.cells[0].id, 40, 1.0, "done")  # the other one still needs its trunk
    launcher.start_groups()
    assert started == [short.id]
    (place.cell(long.cells[0].id) / "trained.json").unlink()
    for folder in folders:
        launcher.start_groups()
        assert started == [short.id]
        folder.mkdir(parents=True)
    launcher.start_groups()
    assert started == [short.id, long.id]
    for folder in folders:
        shutil.rmtree(folder)
    launch.Launcher(place, [long], engine).start_groups()
    assert started[2:] == [long.id]  # nobody will bring the others so far


@pytest.mark.parametrize("reached", [True, False])
def test_longer_cell_trains_as_a_branch(study, tmp_path, reached):
    """A trunk that never came to the fork spares nothing, and the longer cells are trained too."""
    place = write_study(tmp_path, study)
    branches: dict[str, str] = {}

    def train(runs: list[Any], **_: object) -> bool:
        for config, folder in runs:
            branches[folder.name] = config.branch_from
            steps = (FORK, config.steps) if reached else (config.steps,)
            for step in steps:
                (folder / "checkpoints" / str(step)).mkdir(parents=True)
        return False

    for group in write_groups(place):
        worker.work(place, group.id, train)
    for cell in place.read_cells():
        trunk = cell.trunk.partition("@")[0]
        branched = f"{place.cell(trunk)}@{FORK}" if trunk and reached else ""
        assert branches[cell.id] == branched
        assert place.read_trained(cell.id).step == cell.config.steps
