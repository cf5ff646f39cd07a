"""`study sweep`: the study it stands for, and what it refuses."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from bert_jax import cli
from bert_jax.config import costs, run_knobs
from bert_jax.errors import ConfigError
from bert_jax.studies import sweep
from bert_jax.studies.definition import Budget, Study, expand
from bert_jax.studies.folder import StudyFolder
from tests import texts

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
TINY = str(CONFIGS / "tiny.py")


def make(
    *axes: str, config: str = TINY, seeds: int = 3, budget: Budget | None = None, **overrides: str
) -> Study:
    changes = [(path.replace("__", "."), text) for path, text in overrides.items()]
    return sweep.make_study(sweep.Sweep(config, changes, axes, seeds, budget))


def run(workdir: Path, *words: str, config: str = TINY, code: int = 0) -> None:
    words = ("study", "sweep", f"--config={config}", f"--workdir={workdir}", *words)
    assert cli.execute([*words]) == code


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


def test_seed_is_no_axis():
    with pytest.raises(ConfigError, match=r"axis 'seed' sets config\.seed"):
        expand(make("seed=1,2"))


@pytest.mark.parametrize("kind", ["tokens", "flops"])
def test_every_cell_gets_the_budget(kind):
    """Whatever else varies, here the rows of an update or the width."""
    axis = {"tokens": "batch_size=8,32", "flops": "model.hidden=64,128"}[kind]
    amount = {"tokens": 2e9, "flops": 2e12}[kind]
    cells = expand(make(axis, seeds=1, budget=Budget(kind, amount)), lambda _: 5_000)
    steps = [cell.config.steps for cell in cells]
    assert steps[0] > 1.5 * steps[1]
    for cell in cells:
        update = cell.config.batch_size * cell.config.sequence_length
        if kind == "flops":
            update = costs.flops_per_step(cell.config, cell.vocab_size)
        assert cell.config.steps * update == pytest.approx(amount, abs=update / 2)


def test_another_value_keeps_the_cells_there_are():
    few, more = (
        {cell.id for cell in expand(make(f"masking.rate={values}"))}
        for values in ("0.15,0.3", "0.15,0.3,0.45")
    )
    assert few < more


def test_missing_tracker_is_told_before_any_cell(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(run_knobs.TRACKERS, "wandb", "package_that_nobody_has")
    words = ["--axis=masking.rate=0.15,0.3", "--config.logging.trackers=wandb"]
    run(tmp_path / "w", *words, config=str(texts.config_file(tmp_path)), code=2)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "error: tracker wandb needs the package package_that_nobody_has"
    assert lines[1].startswith("hint: install it: ")
    assert not (tmp_path / "w" / "cells").exists()


def test_dry_run_is_named_by_the_workdir(tmp_path, capsys, monkeypatch):
    config = str(texts.config_file(tmp_path))
    words = ["--axis=masking.rate=0.15,0.3", "--dry-run", "--flops-per-second=1e9"]
    run(tmp_path / "w", *words, config=config)
    told = capsys.readouterr().out
    assert "study w: 6 cells" in told
    assert " FLOPs, about " in told
    assert not (tmp_path / "w").exists()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    run(Path(), "--axis=masking.rate=0.15,0.3", "--dry-run", config=config)
    assert "study here: 6 cells" in capsys.readouterr().out


@pytest.mark.slow
def test_sweep_is_run_reported_and_extended(tmp_path, capfd):
    config = str(texts.config_file(tmp_path))
    short = ["--config.steps=12", "--config.evals.validation.every=6", "--config.pairs=none"]
    run(tmp_path / "w", "--axis=masking.rate=0.15,0.6", "--seeds=1", *short, config=config)
    place = StudyFolder(tmp_path / "w")
    assert {place.read_state(cell).name for cell in place.cells()} == {"done"}
    assert "masking.rate" in place.report.read_text()
    before = {cell.id: place.read_trained(cell.id) for cell in place.cells()}
    capfd.readouterr()
    run(place.workdir, "--axis=masking.rate=0.15,0.4,0.6", "--seeds=1", *short, config=config)
    assert "3 done of 3 cells" in capfd.readouterr().err
    assert before == {cell: place.read_trained(cell) for cell in before}
