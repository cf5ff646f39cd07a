"""`study sweep`: the study it stands for, and what it refuses."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from bert_jax import cli
from bert_jax.config import costs, run_knobs
from bert_jax.studies import files, progress
from bert_jax.studies.definition import Budget, expand, load
from bert_jax.studies.folder import StudyFolder
from tests import texts

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
TINY = f"--config={CONFIGS / 'tiny.py'}"


def sweep(workdir: Path, *words: str, config: str = TINY, code: int = 0) -> None:
    assert cli.execute(["study", "sweep", config, f"--workdir={workdir}", *words]) == code


def written(workdir: Path, *words: str, config: str = TINY, monkeypatch) -> tuple:
    """The study that a sweep writes, without running it."""
    with monkeypatch.context() as patch:
        patch.setattr("bert_jax.studies.actions.run", lambda **_: None)
        sweep(workdir, *words, config=config)
    _, made = load(str(workdir))
    return made, expand(made)


def test_values_are_crossed_with_one_another_and_with_seeds(tmp_path, monkeypatch):
    made, cells = written(
        tmp_path / "w",
        "--axis=masking.rate=0.15,0.3",
        "--axis=config.masking.replace=(0.8,0.1,0.1),(1,0,0)",
        "--seeds=3",
        "--config.steps=600",
        "--config.evals.validation.every=600",
        monkeypatch=monkeypatch,
    )
    found = [(c.config.masking.rate, c.config.masking.replace, c.seed) for c in cells]
    splits = ((0.8, 0.1, 0.1), (1.0, 0.0, 0.0))
    assert found == list(itertools.product((0.15, 0.3), splits, (0, 1, 2)))
    assert {cell.config.steps for cell in cells} == {600}
    compared = [(one.axis, one.baseline, one.metrics) for one in made.comparisons]
    loss = ("validation/mlm_loss",)
    assert compared == [("masking.rate", "15 %", loss), ("masking.replace", "80/10/10", loss)]


@pytest.mark.parametrize(
    ("config", "words", "suite", "metric"),
    [
        ("tiny.py", ["--axis=seed=1,2"], "pretrain", "mlm_loss"),
        (
            "pretrain.py:base",
            [
                "--axis=optim.learning_rate=1e-4,2e-4",
                *(
                    "--config.pairs=none",
                    "--config.model.causal=true",
                    "--config.checkpoints.best=",
                ),
                *("--config.objectives.mlm.weight=none", "--config.objectives.causal_lm.weight=1"),
            ],
            "pretrain",
            "causal_lm_loss",
        ),
        (
            "finetune.py:mrpc",
            ["--axis=optim.learning_rate=2e-5,5e-5", "--config.task.source=files:none.tsv"],
            "task",
            "f1",
        ),
    ],
)
def test_values_are_compared_by_what_the_config_trains(
    config, words, suite, metric, tmp_path, monkeypatch
):
    if config == "tiny.py":  # the seed is no axis: seeds are the repetitions
        sweep(tmp_path / "w", *words, code=2)
        words = ["--axis=optim.learning_rate=1e-3,2e-3"]
    with monkeypatch.context() as patch:
        patch.setattr("bert_jax.studies.actions.run", lambda **_: None)
        sweep(tmp_path / "w", *words, config=f"--config={CONFIGS / config}")
    text = (tmp_path / "w" / "study.py").read_text()
    assert f'Suite("{suite}")' in text
    assert f'("validation/{metric}",)' in text


@pytest.mark.parametrize("kind", ["tokens", "flops"])
def test_sweep_gives_every_cell_the_budget(kind, tmp_path, monkeypatch):
    """Whatever else varies, here the rows of an update or the width."""
    axis = {"tokens": "batch_size=8,32", "flops": "model.hidden=64,128"}[kind]
    budget = {"tokens": 2_000_000_000, "flops": 2_000_000_000_000}[kind]
    monkeypatch.setattr("bert_jax.studies.actions.run", lambda **_: None)
    sweep(tmp_path / "w", f"--axis={axis}", "--seeds=1", f"--{kind}={budget}")
    made = load(str(tmp_path / "w"))[1]
    cells = expand(made, lambda _: 5_000)  # the size of the vocabulary
    assert made.budget == Budget(kind, budget)
    steps = [cell.config.steps for cell in cells]
    assert steps[0] > 1.5 * steps[1]
    for cell in cells:
        update = cell.config.batch_size * cell.config.sequence_length
        if kind == "flops":
            update = costs.flops_per_step(cell.config, cell.vocab_size)
        assert cell.config.steps * update == pytest.approx(made.budget.amount, abs=update / 2)


def test_a_tracker_that_cannot_begin_is_said_once_and_no_cell_is_tried(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setitem(run_knobs.TRACKERS, "wandb", "package_that_nobody_has")
    words = ["--axis=masking.rate=0.15,0.3", "--config.logging.trackers=wandb"]
    sweep(tmp_path / "w", *words, config=f"--config={texts.config_file(tmp_path)}", code=2)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "error: tracker wandb needs the package package_that_nobody_has"
    assert lines[1].startswith("hint: install it: ")
    assert not (tmp_path / "w" / "cells").exists()


def test_a_dry_run_says_the_cost_and_writes_nothing(tmp_path, capsys, monkeypatch):
    config = f"--config={texts.config_file(tmp_path)}"
    words = ["--axis=masking.rate=0.15,0.3", "--dry-run", "--flops-per-second=1e9"]
    sweep(tmp_path / "w", *words, config=config)
    said = capsys.readouterr().out
    assert "study w: 6 cells" in said
    assert "each cell: " in said
    assert " FLOPs, about " in said
    assert not (tmp_path / "w").exists()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    sweep(Path(), "--axis=masking.rate=0.15,0.3", "--dry-run", config=config)
    assert "study here: 6 cells" in capsys.readouterr().out


def test_another_value_keeps_the_cells_there_are(tmp_path, monkeypatch):
    def ids(values: str) -> set[str]:
        _, cells = written(tmp_path / "w", f"--axis=masking.rate={values}", monkeypatch=monkeypatch)
        return {cell.id for cell in cells}

    assert ids("0.15,0.3") < ids("0.15,0.3,0.45")


@pytest.mark.parametrize(
    ("there", "said"), [("study.json", "a study that no sweep made"), ("checkpoints", "a run")]
)
@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_a_folder_of_other_work_is_left_as_it_is(there, said, more, tmp_path, capsys):
    """A study of the same name would hide its cells, and a run would get a study.py."""
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / there).write_text("{}")
    sweep(tmp_path / "w", "--axis=masking.rate=0.15,0.3", *more, code=2)
    assert said in capsys.readouterr().err
    assert [file.name for file in (tmp_path / "w").iterdir()] == [there]


def test_the_written_study_quotes_any_command(tmp_path, monkeypatch):
    odd = tmp_path / 'a \\N """quoted""" folder'
    words = ["--axis=masking.rate=0.15,0.3", r"--config.optim.freeze=^encoder\."]
    made, _ = written(odd, *words, monkeypatch=monkeypatch)
    assert made.base.optim.freeze == r"^encoder\."


def test_the_line_of_a_running_study_has_the_mean_step_and_loss(tmp_path):
    """Of a file of metrics whose last lines are of an evaluation, and torn."""
    path = tmp_path / "metrics.jsonl"
    lines = [
        {"step": 10, "time": 1.0, "train/loss": 7.5},
        {"step": 20, "time": 2.0, "train/loss": 6.0},
        {"step": 20, "time": 3.0, "eval/validation/mlm_loss": 6.5},
    ]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines) + '{"step": 30, "tra')
    assert files.last_value(path, "train/loss") == 6.0
    assert files.last_step(path) == (20, 3.0)
    assert files.last_value(path, "train/other") is None
    assert files.last_value(tmp_path / "none", "train/loss") is None

    def cell(name: str, step: int):
        entry = type("Entry", (), {"id": name, "evaluations": {}, "fork": 0})
        state = type("State", (), {"name": "running", "step": step, "steps": 100, "missing": ()})
        about = {"entry": entry, "state": state, "seconds": 1.0, "evaluation_seconds": 0.0}
        return type("Result", (), about)

    both, expected = [cell("a", 20), cell("b", 40)], {"a": 60.0, "b": 60.0}
    losses = {"a": 6.0, "b": 5.0}
    now = progress.Progress(both, expected, {"a": "g", "b": "g"}, 1, losses, expected)
    assert now.line().startswith(
        "2 running of 2 cells; training at step 30 of 100, loss 5.500; about "
    )


@pytest.mark.slow
def test_a_sweep_is_run_reported_and_goes_on_as_the_study_it_wrote(tmp_path, capfd):
    config = f"--config={texts.config_file(tmp_path)}"
    short = ["--config.steps=12", "--config.evals.validation.every=6", "--config.pairs=none"]
    words = ["--axis=masking.rate=0.15,0.6", "--seeds=1", *short]
    sweep(tmp_path / "w", *words, config=config)
    place = StudyFolder(tmp_path / "w")
    assert {state.name for state in place.states().values()} == {"done"}
    assert "masking.rate" in place.report.read_text()
    study = place.workdir / "study.py"
    study.write_text(study.read_text().replace("(0.15, 0.6)", "(0.15, 0.4, 0.6)"))
    capfd.readouterr()
    assert cli.execute(["study", "run", str(place.workdir), f"--workdir={place.workdir}"]) == 0
    assert "3 done of 3 cells" in capfd.readouterr().err
