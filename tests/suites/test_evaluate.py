"""What the command `evaluate` writes beside what its transcript shows."""

from __future__ import annotations

import json
import math

from bert_jax import cli
from bert_jax.interop import runs
from bert_jax.suites import sts


def test_evaluate_writes_nan_as_null(run, monkeypatch, capsys):
    found = {"mean": {"spearman": math.nan, "pairs": 2}}
    monkeypatch.setattr(runs, "open_run", lambda path, tokenizer="": run)
    monkeypatch.setattr(sts, "score", lambda run, options: (found, {}))
    assert cli.execute(["evaluate", "--model=m", "--suite=sts"]) == 0
    assert json.loads(capsys.readouterr().out) == {"sts": {"mean": {"spearman": None, "pairs": 2}}}
