"""What `compare_checkouts.py` sees and passes over; slow: it finds what is planted in a copy."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests import compare_checkouts
from tests.compare_checkouts import Side, differences, read

ROOT = Path(__file__).resolve().parents[1]


def lines(old: object, new: object, **settings: str) -> list[str]:
    """Return what is said of one value in one file."""
    return list(differences({"file": {"value": old}}, {"file": {"value": new}}, **settings))


# --- differences ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (0.0, -0.0),
        (1, 1.0),
        (1, True),
        (1.0, np.nan),
        ("1", 1),
        (b"a", b"b"),
        (None, []),
        (np.zeros(2), np.zeros(2, np.float32)),
        (np.zeros(2), np.zeros((2, 1))),
        (np.zeros(2), np.array([0.0, np.nan])),
    ],
)
def test_differences_see_every_bit_type_and_shape(old, new):
    assert lines(old, new)[0] == "file: 1 of 1 values differ"
    assert lines(old, new, ignore="^file: value$") == lines(old, old) == lines(new, new) == []


def test_differences_show_the_largest_five():
    old = {f"array {n}": np.ones(2) for n in range(8)}
    new = {f"array {n}": np.ones(2) + n / 1e3 for n in range(8)}
    first, *rest = differences({"params": old}, {"params": new})
    assert first == "params: 7 of 8 values differ"
    assert [line.split(":")[0] for line in rest] == [f"  array {n}" for n in (7, 6, 5, 4, 3)]


def test_differences_name_files_and_values_of_one_side():
    there = {"a": {"x": 1}, "b": {"x": 1}}
    assert list(differences(there, {"a": {"x": 1}})) == ["b: only in old"]
    assert list(differences({"a": {"x": 1}}, there)) == ["b: only in new"]
    found = list(differences({"a": {"x": 1}}, {"a": {"x": 1, "y": 2}}))
    assert found == ["a: 1 of 2 values differ", "  y: '(missing)' -> 2"]


# --- reading --------------------------------------------------------------------------------------


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
    assert found["run/metrics.jsonl"] == {"path": "FOLDER/a", "loss": 1}
    names = ("metrics.jsonl", "model.safetensors", "results.csv", "summary.md", "tokens.npy")
    assert list(found) == [f"run/{name}" for name in names]
    assert found["run/results.csv"] == {"[0].cell": "ab", "[0].loss": "1.5"}
    assert list(found["run/summary.md"].values()) == ["# study", "- 2 CPU cores"]
    assert found["run/model.safetensors"] == {"bytes": b"weights"}
    assert found["run/tokens.npy"]["array"].tolist() == [0, 1, 2]


# --- running --------------------------------------------------------------------------------------


def test_side_runs_its_checkout_with_a_users_flags(tmp_path, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_parallel_codegen_split_count=4")
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "true")
    side = Side(ROOT, tmp_path / "side")
    said = side.python("import bert_jax, os; print(bert_jax.__file__, *os.environ)").stdout.split()
    assert Path(said[0]).parents[1] == ROOT
    assert "XLA_FLAGS" not in said
    assert "JAX_DISABLE_MOST_OPTIMIZATIONS" not in said


# --- the whole ------------------------------------------------------------------------------------


def planted(folder: Path, old: str = "", new: str = "") -> Path:
    """Copy this checkout and replace a text that stands in the package once."""
    for name in ("bert_jax", "configs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    if old:
        (file,) = [one for one in folder.rglob("*.py") if old in one.read_text()]
        assert file.read_text().count(old) == 1
        file.write_text(file.read_text().replace(old, new))
    return folder


def compared(new: Path) -> tuple[int, str]:
    """Return exit code and output of comparing this checkout with another in one scenario."""
    command = [sys.executable, compare_checkouts.__file__, str(ROOT), str(new), "--only=sop"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert not done.stderr
    return done.returncode, done.stdout


@pytest.mark.slow
def test_a_checkout_does_not_differ_from_its_copy(tmp_path):
    code, said = compared(planted(tmp_path / "copy"))
    assert (code, said.split()[:2]) == (0, ["same", "sop"]), said


@pytest.mark.slow
def test_a_slightly_larger_learning_rate_is_found(tmp_path):
    change = ("return peak * (last + ", "return peak * (1 + 1e-7) * (last + ")
    code, said = compared(planted(tmp_path / "copy", *change))
    assert (code, said.split()[:2]) == (1, ["DIFFERENT", "sop"])
    assert "sop/checkpoints/24/params: " in said
    assert "sop/checkpoints/24/rest: " in said
    assert "of the largest value" in said
