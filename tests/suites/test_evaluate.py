"""The command `evaluate`: several suites, a config of a task, JSON, help; and progress."""

from __future__ import annotations

import json
import math
import sys

import pytest

from bert_jax import cli
from bert_jax.interop import runs
from bert_jax.suites import sts
from bert_jax.suites.base import Progress


@pytest.fixture
def opened(run, monkeypatch):
    monkeypatch.setattr(runs, "open_run", lambda path, tokenizer="": run)


def test_evaluate_scores_several_suites(opened, tmp_path, capsys, one_device):
    (tmp_path / "a.txt").write_text("the cat sees.\n")
    output = tmp_path / "out.json"
    words = [
        "evaluate",
        "--model=m",
        "--suite=pretrain,pll",
        f"--source=files:{tmp_path / 'a.txt'}",
    ]
    assert cli.execute([*words, f"--output={output}"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["pretrain", "pll"]
    assert found["pll"]["texts"] == 1
    assert json.loads(output.read_text()) == found


def test_evaluate_writes_nan_as_null(opened, monkeypatch, capsys):
    found = {"mean": {"spearman": math.nan, "pairs": 2}}
    monkeypatch.setattr(sts, "score", lambda run, options: (found, {}))
    assert cli.execute(["evaluate", "--model=m", "--suite=sts"]) == 0
    assert json.loads(capsys.readouterr().out) == {"sts": {"mean": {"spearman": None, "pairs": 2}}}


def test_progress_says_how_long_it_will_take(capsys, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    progress = Progress("blimp: tokens")
    for seconds, done in ((10, 100), (60, 200), (70, 300), (600, 1000)):
        clock[0] = seconds
        progress(done, 1000)
    assert capsys.readouterr().err.splitlines() == [
        "blimp: tokens 200/1000, about 4 min left",
        "blimp: tokens 1000/1000",
    ]
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    Progress("pll: tokens")(1, 3)
    assert capsys.readouterr().err == "\rpll: tokens 1/3, about 0 s left\x1b[K"
