"""What `compare_checkouts.py` sees and passes over; slow: it finds what is planted in a copy."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.texts import ROOT
from tests.tools import compare_checkouts
from tests.tools.compare_checkouts import differences, read


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (0.0, -0.0),
        (1, 1.0),
        (1, True),
        ("1", 1),
        (np.zeros(2), np.zeros(2, np.float32)),
        (np.zeros(2), np.zeros((2, 1))),
    ],
)
def test_differences_see_bit_type_and_shape(old, new):
    one, two = {"file": {"value": old}}, {"file": {"value": new}}
    assert next(differences(one, two)) == "file: 1 of 1 values differ"
    for same in (differences(one, two, "^file: value$"), differences(one, one)):
        assert list(same) == []
    assert list(differences(one, {})) == ["nothing to compare", "file: only in old"]


def test_read_leaves_out_times_and_places(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "results.csv").write_text("cell,loss,seconds,ended\nab,1.5,2,now\n")
    (run / "metrics.jsonl").write_text(json.dumps({"path": f"{run}/a", "loss": 1, "time": 2}))
    (run / "summary.md").write_text("# study\n- commit 12ab\n- 2 CPU cores\n- 2026-01-31\n")
    (run / "model.safetensors").write_bytes(b"weights")
    np.save(run / "tokens.npy", np.arange(3))
    (run / "report.html").write_text("<p>1.5 s</p>")
    found = read(run, {str(run): "FOLDER"})
    assert found["run/tokens.npy"].pop("array").tolist() == [0, 1, 2]
    assert found == {
        "run/metrics.jsonl": {"path": "FOLDER/a", "loss": 1},
        "run/model.safetensors": {"bytes": b"weights"},
        "run/results.csv": {"[0].cell": "ab", "[0].loss": "1.5"},
        "run/summary.md": {"[0]": "# study", "[1]": "- 2 CPU cores"},
        "run/tokens.npy": {},
    }


def compare_with(new: Path) -> tuple[int, str]:
    """Return exit code and output of comparing this checkout with another in one row."""
    command = [sys.executable, compare_checkouts.__file__, str(ROOT), str(new), "--only=sop"]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout


@pytest.mark.slow
def test_compare_finds_a_larger_learning_rate(tmp_path):
    """A copy of this checkout does not differ from it, until its learning rate is 1e-7 larger."""
    for name in ("bert_jax", "configs", "tests/net"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    code, said = compare_with(tmp_path)
    assert (code, said.split()[:2]) == (0, ["same", "sop"]), said
    old = "return peak * (last + "
    (file,) = [one for one in (tmp_path / "bert_jax").rglob("*.py") if old in one.read_text()]
    file.write_text(file.read_text().replace(old, "return peak * (1 + 1e-7) * (last + "))
    code, said = compare_with(tmp_path)
    assert (code, said.split()[:2]) == (1, ["DIFFERENT", "sop"])
    assert "sop/checkpoints/12/params: " in said
    assert "largest difference" in said
