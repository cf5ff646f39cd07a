"""`study sweep`: the study it stands for, and what it refuses."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from bert_jax import cli
from bert_jax.config import run_knobs
from bert_jax.studies import sweep
from bert_jax.studies.definition import Budget, Study, expand
from tests import texts

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
TINY = str(CONFIGS / "tiny.py")


def make(
    *axes: str, config: str = TINY, seeds: int = 3, budget: Budget | None = None, **overrides: str
) -> Study:
    changes = [(path.replace("__", "."), text) for path, text in overrides.items()]
    return sweep.make_study(sweep.Sweep(config, changes, axes, seeds, budget))


def test_values_are_crossed_with_one_another_and_seeds():
    study = make(
        "masking.rate=0.15,0.3",
        "config.masking.replace=(0.8,0.1,0.1),(1,0,0)",
        steps="600",
        evals__validation__every="600",
    )
    cells = expand(study)
    found = [(c.config.masking.rate, c.config.masking.replace, c.seed) for c in cells]
    splits = ((0.8, 0.1, 0.1), (1.0, 0.0, 0.0))
    assert found == list(itertools.product((0.15, 0.3), splits, (0, 1, 2)))
    assert {cell.config.steps for cell in cells} == {600}
    compared = [(one.axis, one.baseline, one.metrics) for one in study.comparisons]
    loss = ("validation/mlm_loss",)
    assert compared == [("masking.rate", "15 %", loss), ("masking.replace", "80/10/10", loss)]


def test_value_in_brackets_may_hold_others():
    (varied,) = make('masking.phases=((0.5,0.3,"step"),(1.0,0.15,"linear")), ()').axes
    falls = ((0.5, 0.3, "step"), (1.0, 0.15, "linear"))
    assert [dict(point.changes)["masking.phases"] for point in varied.points] == [falls, ()]


CAUSAL = {
    "pairs": "none",
    "model__causal": "true",
    "checkpoints__best": "",
    "objectives__mlm__weight": "none",
    "objectives__causal_lm__weight": "1",
}


@pytest.mark.parametrize(
    ("config", "overrides", "suite", "metric"),
    [
        ("tiny.py", {}, "pretrain", "mlm_loss"),
        ("pretrain.py:base", CAUSAL, "pretrain", "causal_lm_loss"),
        ("finetune.py:mrpc", {"task__source": "files:none.tsv"}, "task", "f1"),
    ],
)
def test_values_are_compared_by_what_is_trained(config, overrides, suite, metric):
    study = make("optim.learning_rate=2e-5,5e-5", config=f"{CONFIGS / config}", **overrides)
    assert study.evaluations["validation"].name == suite
    assert study.comparisons[0].metrics == (f"validation/{metric}",)


def test_missing_tracker_is_told_before_any_cell(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(run_knobs.TRACKERS, "wandb", "package_that_nobody_has")
    words = ["study", "sweep", f"--config={texts.config_file(tmp_path)}"]
    words += ["--axis=masking.rate=0.15,0.3", "--config.logging.trackers=wandb"]
    assert cli.execute([*words, f"--workdir={tmp_path / 'w'}"]) == 2
    assert "tracker wandb needs the package package_that_nobody_has" in capsys.readouterr().err
    assert not (tmp_path / "w" / "cells").exists()
