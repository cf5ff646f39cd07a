"""The paper's grid: every cell once, finished ones never again, the best of n named as such."""

import sys

import numpy as np

from bert_jax.studies import actions, definition
from bert_jax.studies.engines import base
from experiments.finetune import grid
from tests.texts import ROOT

TINY = f"init_from={ROOT}/tests/golden/huggingface/pretraining,sequence_length=24"
WORKER = '''
"""Leaves what training and evaluating leave, and notes it."""

import sys
from pathlib import Path

from bert_jax.studies.folder import StudyFolder

flags = dict(word[2:].split("=", 1) for word in sys.argv[1:])
place = StudyFolder(Path(flags["workdir"]))
listed = place.read_group(flags["group"]).cells
for cell in [cell for cell in place.read_cells() if cell.id in listed]:
    place.write_trained(cell.id, 2, 1.0, "done")
    score = cell.values["batch_size"] / 100 + (0.3 if cell.seed == 2 else 0.0)
    place.write_result(cell, "dev", {"accuracy": score, "loss": 1.0}, 0.5, {})
    with (place.workdir.parent / "ran").open("a") as file:
        file.write(f"{cell.id} {cell.seed}\\n")
'''


def test_grid_goes_on_and_runs_nothing_twice(tmp_path, monkeypatch, capsys):
    (tmp_path / "worker.py").write_text(WORKER)
    monkeypatch.setattr(base, "WORKER", (sys.executable, str(tmp_path / "worker.py")))
    monkeypatch.setattr(actions, "_write_report", lambda place: "")

    def run(*flags: str) -> list[str]:
        config = f"--config={ROOT}/configs/finetune.py:classify,{TINY}"
        data = f"--config.task.source=files:{ROOT}/experiments/complaints/complaints.tsv"
        words = ["grid.py", config, data, f"--workdir={tmp_path / 'w'}", "--rate=5e-5"]
        monkeypatch.setattr(sys, "argv", [*words, "--batch=16,32", "--epochs=1", *flags])
        assert grid.main() == 0
        return (tmp_path / "ran").read_text().splitlines()

    assert sorted(line[-1] for line in run("--seeds=0,1")) == [*"0011"]
    ran = run("--seeds=0,1,2")
    assert len(set(ran)) == len(ran) == 6
    said = capsys.readouterr().out
    values = [0.32, 0.32, 0.62]
    assert f"| 32 | 5e-05 | 1 | 3 | {np.mean(values):.4f} | {np.std(values, ddof=1):.4f} |" in said
    assert "best mean: batch 32, rate 5e-05, epochs 1" in said
    best = "best of all 6 runs on the development data they were chosen on (optimistic): 0.6200"
    assert best in said
    assert run("--seeds=0,1,2", "--report-only", "--metric=loss") == ran
    assert "mean loss" in capsys.readouterr().out


def test_papers_grid_has_eighteen_cells_paired_by_seed():
    spec = ";".join([*grid.GRID.values(), f"{ROOT}/configs/finetune.py:mrpc,{TINY}"])
    cells = definition.expand(definition.load_study(f"{grid.__file__}:{spec}")[1])
    assert len({tuple(cell.values.values()) for cell in cells}) == 18
    assert len({cell.id for cell in cells}) == 18 * 5
    assert all(cell.config.data_seed == cell.seed for cell in cells)
