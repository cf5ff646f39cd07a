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


def test_differences_see_bit_type_and_shape(tmp_path):
    changed = {"zero": -0.0, "kind": np.zeros(2, np.float32), "shape": np.zeros((2, 1))}
    first = {"zero": 0.0, "kind": np.zeros(2), "shape": np.zeros(2), "same": 1}
    for name, arrays in (("old", first), ("new", first | changed)):
        (tmp_path / name / "run").mkdir(parents=True)
        np.savez(tmp_path / name / "run" / "arrays.npz", **arrays)
    for number, values in enumerate(((0.0, -0.0), (1, 1.0), (1, True), ("1", 1))):
        for name, value in zip(("old", "new"), values, strict=True):
            (tmp_path / name / "run" / f"{number}.json").write_text(json.dumps({"value": value}))
    old, new = (read(tmp_path / name / "run", {}) for name in ("old", "new"))
    found = [line for line in differences(old, new) if not line.startswith(" ")]
    assert [line.split()[:2] for line in found] == [
        *([f"run/{number}.json:", "2"] for number in range(4)),
        ["run/arrays.npz:", "6"],
    ]
    assert list(differences(old, new, '"value": |arrays')) == list(differences(old, old)) == []
    assert next(differences(old, {})) == "nothing to compare"
    assert list(differences(old, old | {"more": []})) == ["more: only in new"]


def test_read_leaves_out_times_and_places(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "results.csv").write_text("cell,loss,seconds,ended\nab,1.5,2,now\n")
    line = {"path": f"{run}/a", "train/mfu": 1, "loss": [1], "clock": {"seconds": {"step": 1}}}
    (run / "metrics.jsonl").write_text(json.dumps(line) + "\nno JSON")
    (run / "summary.md").write_text("# study\n- commit 12ab\n- 2 CPU cores\n- 2026-01-31\n")
    (run / "report.html").write_text("<p>1.5 s</p>")
    first = ["{", '"path": "FOLDER/a"', '"loss": [', "1", "]", '"clock": {}', "}"]
    assert read(run, {str(run): "FOLDER"}) == {
        "run/metrics.jsonl": [*first, "no JSON"],
        "run/results.csv": ["[", "{", '"cell": "ab"', '"loss": "1.5"', "}", "]"],
        "run/summary.md": ["# study", "- 2 CPU cores"],
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
