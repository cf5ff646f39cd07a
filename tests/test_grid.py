"""The paper's grid: every cell once, finished ones never again, and the best of n apart from the
means.
"""

import csv
import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

FILE = Path(__file__).resolve().parents[1] / "experiments" / "finetune" / "grid.py"
SPEC = importlib.util.spec_from_file_location("grid", FILE)
grid = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(grid)


def accuracy(cell: dict, seed: int) -> float:
    return (
        0.5
        + cell["batch_size"] / 1000
        + 100 * cell["optim.learning_rate"]
        + (0.3 if seed == 2 else 0.0)
    )


@pytest.fixture
def trained(monkeypatch):
    """Runs that write what `bert-jax train` does, noted in the order they are made."""
    made = []

    def run(flags, workdir, cell, seed):
        made.append((tuple(cell.values()), seed))
        where = grid.folder(workdir, cell, seed)
        where.mkdir(parents=True, exist_ok=True)
        lines = [{"step": 1, "eval/validation/accuracy": 0.99}, {"step": 2, "train/loss": 0.1}]
        lines.append({"step": 2, "eval/validation/accuracy": accuracy(cell, seed)})
        (where / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        (where / "config.json").write_text(json.dumps({"checkpoints": {"best": "accuracy"}}))
        if len(made) == 5:  # it is stopped after its evaluation, before its end
            return 75
        (where / "report.html").write_text("")
        return 0

    monkeypatch.setattr(grid, "run", run)
    return made


def call(monkeypatch, workdir: Path, *more: str) -> int:
    monkeypatch.setattr(
        sys, "argv", ["grid.py", "--config=c.py:x", f"--workdir={workdir}", "--seeds=0,1,2", *more]
    )
    return grid.main()


def test_a_stopped_grid_goes_on_and_runs_nothing_twice(tmp_path, monkeypatch, trained, capsys):
    small = ("--batch=16,32", "--rate=5e-5", "--epochs=1")
    assert call(monkeypatch, tmp_path, *small) == 75
    assert call(monkeypatch, tmp_path, *small) == 0
    assert [seed for _, seed in trained] == [
        0,
        0,
        1,
        1,
        2,
        2,
        2,
    ]  # every seed of all cells before the next
    assert len(set(trained)) == 6
    assert call(monkeypatch, tmp_path, *small) == 0
    assert len(trained) == 7
    said = capsys.readouterr().out
    rows = list(csv.DictReader((tmp_path / "results.csv").read_text().splitlines()))
    assert len(rows) == 6
    for row in rows:  # the last evaluation, not the best
        cell = {
            "batch_size": float(row["batch_size"]),
            "optim.learning_rate": float(row["optim.learning_rate"]),
        }
        assert float(row["accuracy"]) == pytest.approx(accuracy(cell, int(row["seed"])))
    values = [accuracy({"batch_size": 32, "optim.learning_rate": 5e-5}, seed) for seed in range(3)]
    assert f"| 32 | 5e-05 | 1 | 3 | {np.mean(values):.4f} | {np.std(values, ddof=1):.4f} |" in said
    assert "best mean: batch 32, rate 5e-05, epochs 1" in said
    assert (
        f"best of all 6 runs on the development data they were chosen on (optimistic): "
        f"{max(values):.4f}" in said
    )


def test_the_papers_grid_has_eighteen_cells():
    cells = grid.cells(grid.AXES)
    assert len({tuple(cell.values()) for cell in cells}) == len(cells) == 18
    assert len({grid.folder(Path(), cell, 0) for cell in cells}) == 18


def test_other_flags_need_another_folder(tmp_path, monkeypatch, trained):
    small = ("--batch=16", "--rate=5e-5", "--epochs=1", "--seeds=0")
    assert call(monkeypatch, tmp_path, *small) == 0
    with pytest.raises(SystemExit, match="use another --workdir"):
        call(monkeypatch, tmp_path, *small, "--config.task.rows=10")
