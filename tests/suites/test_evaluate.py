"""What the command `evaluate` writes while it computes and at its end; see also its transcript."""

from __future__ import annotations

import json
import math
import sys

from bert_jax import cli
from bert_jax.interop import runs
from bert_jax.suites import sts
from bert_jax.suites.base import Progress


def test_evaluate_writes_nan_as_null(run, monkeypatch, capsys):
    found = {"mean": {"spearman": math.nan, "pairs": 2}}
    monkeypatch.setattr(runs, "open_run", lambda path, tokenizer="": run)
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
