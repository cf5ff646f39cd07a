"""The paper's grid: every cell once, finished ones never again, and the best of n apart from the
means.
"""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from bert_jax.studies import actions, definition
from bert_jax.studies.engines import base

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "experiments" / "finetune" / "grid.py"
SPEC = importlib.util.spec_from_file_location("grid", FILE)
grid = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(grid)

TINY = f"init_from={ROOT}/tests/golden/huggingface/pretraining,sequence_length=24"
WORKER = '''
"""Leaves what training and evaluating leave, and notes it."""

import sys
from pathlib import Path

from bert_jax.studies.folder import StudyFolder

flags = dict(word[2:].split("=", 1) for word in sys.argv[1:])
place = StudyFolder(Path(flags["workdir"]))
listed = place.read_group(flags["group"]).cells
for cell in [cell for cell in place.cells() if cell.id in listed]:
    batch, rate, _ = cell.values.values()
    accuracy = 0.5 + batch / 1000 + 100 * rate + (0.3 if cell.seed == 2 else 0.0)
    place.write_trained(cell.id, 2, 1.0, "done")
    place.write_result(cell, "dev", {"accuracy": accuracy, "loss": 1.0}, 0.5, {})
    with (place.workdir.parent / "ran").open("a") as file:
        file.write(f"{cell.id} {cell.seed}\\n")
'''


def accuracy(batch: int, rate: float, seed: int) -> float:
    """Say what the worker writes."""
    return 0.5 + batch / 1000 + 100 * rate + (0.3 if seed == 2 else 0.0)


@pytest.fixture
def call(tmp_path, monkeypatch):
    """The command, with a worker of our own."""
    (tmp_path / "worker.py").write_text(WORKER)
    worker = (sys.executable, str(tmp_path / "worker.py"))
    monkeypatch.setattr(base, "WORKER", worker)
    monkeypatch.setattr(actions, "_write_report", lambda place: "")

    def run(*flags: str) -> list[str]:
        config = f"--config={ROOT}/configs/finetune.py:classify,{TINY}"
        data = f"--config.task.source=files:{ROOT}/experiments/complaints/complaints.tsv"
        words = ["grid.py", config, data, f"--workdir={tmp_path / 'w'}", "--rate=5e-5"]
        monkeypatch.setattr(sys, "argv", [*words, "--epochs=1", *flags])
        assert grid.main() == 0
        return (tmp_path / "ran").read_text().splitlines()

    return run


def test_a_grid_goes_on_and_runs_nothing_twice(call, capsys):
    assert sorted(line[-1] for line in call("--batch=16,32", "--seeds=0,1")) == [*"0011"]
    ran = call("--batch=16,32", "--seeds=0,1,2")
    assert len(set(ran)) == len(ran) == 6
    capsys.readouterr()
    assert call("--batch=16,32", "--seeds=0,1,2") == ran
    said = capsys.readouterr().out
    values = [accuracy(32, 5e-5, seed) for seed in range(3)]
    assert f"| 32 | 5e-05 | 1 | 3 | {np.mean(values):.4f} | {np.std(values, ddof=1):.4f} |" in said
    assert "best mean: batch 32, rate 5e-05, epochs 1" in said
    assert (
        f"best of all 6 runs on the development data they were chosen on (optimistic): "
        f"{max(values):.4f}" in said
    )
    assert call("--batch=16,32", "--seeds=0,1,2", "--report-only", "--metric=loss") == ran
    assert "mean loss" in capsys.readouterr().out


def test_the_papers_grid_has_eighteen_cells_that_are_paired_by_seed():
    spec = ";".join([*grid.GRID.values(), f"{ROOT}/configs/finetune.py:mrpc,{TINY}"])
    cells = definition.expand(definition.load(f"{FILE}:{spec}")[1])
    assert len({tuple(cell.values.values()) for cell in cells}) == 18
    assert len({cell.id for cell in cells}) == 18 * 5
    assert all(cell.config.data_seed == cell.seed for cell in cells)


def test_cells_of_other_flags_are_not_compared_with_these(call, tmp_path, capsys):
    call("--batch=16", "--seeds=0")
    capsys.readouterr()
    assert len(call("--batch=16", "--seeds=0", "--config.task.rows=10")) == 2
    assert "best of all 1 runs" in capsys.readouterr().out
    assert len([*(tmp_path / "w" / "cells").iterdir()]) == 2


def test_a_dry_run_says_epochs_and_an_older_grid_is_refused(call, tmp_path, monkeypatch, capsys):
    (tmp_path / "ran").touch()
    call("--batch=16", "--seeds=0", "--dry-run")
    said = capsys.readouterr().out
    assert "1 epochs" in said
    assert "what epochs take follows from the data" in said
    assert "1,000,000" not in said
    (tmp_path / "w").mkdir(exist_ok=True)
    (tmp_path / "w" / "flags.json").write_text("{}")
    with pytest.raises(AssertionError):
        call("--batch=16", "--seeds=0")
    assert "a grid of an older version" in capsys.readouterr().err
