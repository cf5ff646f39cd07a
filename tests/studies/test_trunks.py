"""Cells of a study that share a trunk: no update is made twice. test_plan.py has their plans."""

import shutil
from types import SimpleNamespace
from typing import Any

import pytest

from bert_jax.checkpoints import manifest
from bert_jax.studies import launch, results, worker
from bert_jax.studies.definition import Budget, Study, axis
from tests.studies.small import make_branching, write_groups, write_study

FORK = 16  # 80 % of the shorter length


@pytest.fixture
def study() -> Study:
    """Two rates, two seeds and two lengths, which share a trunk."""
    return make_branching(axes=(axis("masking.rate", (0.15, 0.4)),), seeds=(0, 1))


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
        (folder / "meta").mkdir(parents=True)
        (folder / "meta" / "metadata").write_text('{"owed": ["validation"]}')
        manifest.write_manifest(folder, FORK, None)
        launcher.start_groups()
        assert started == [short.id]
        manifest.write_evaluations(folder, 2.0, {"owed": []})
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


def test_branch_keeps_its_fork_when_a_length_is_added(tmp_path):
    """The new cell is the trunk from now on, and has not begun."""
    place = write_study(tmp_path, make_branching())
    short, long = place.read_cells()
    fork = f'{{"step": {FORK}, "branch_from": "digest@{FORK}"}}\n'
    for cell, lines in (short, '{"step": 8}\n{"step": 20}\n'), (long, f'{fork}{{"step": 24}}\n'):
        (place.cell(cell.id) / "checkpoints" / "20").mkdir(parents=True)
        (place.cell(cell.id) / "config.json").write_text(fork)
        (place.cell(cell.id) / "metrics.jsonl").write_text(lines)
    write_study(tmp_path, make_branching(budget=Budget("steps", (20, 30, 40))))
    cells = {cell.id: cell for cell in place.read_cells()}
    edited = cells[long.id]
    assert edited.fork == 24
    found = worker.Worker(place, 20, worker.work).find_branch(edited)
    assert found.branch_from == f"digest@{FORK}"
    assert [row["step"] for row in results._list_lines(place, edited, cells)] == [8, FORK, 24]
