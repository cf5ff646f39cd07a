"""A stop signal never waits for an evaluation: the same command makes up for it."""

import dataclasses
import shutil
from pathlib import Path

import pytest

from bert_jax import train
from bert_jax.checkpoints import manifest
from bert_jax.config import knobs
from bert_jax.errors import Stopped
from bert_jax.evaluation import corpus
from bert_jax.training import run, runs
from tests import fault_points, outcomes, texts

KNOBS = {"steps": 6, "checkpoints__every": 100, "evals__validation__every": 3}
LOSS = "eval/validation/mlm_loss"


def configure(base: Path, *names: str) -> knobs.Config:
    """Return the config of a run with evaluations of these names, which are alike."""
    config = texts.configure(base, **KNOBS)
    return dataclasses.replace(config, evals=dict.fromkeys(names, config.evals["validation"]))


@pytest.fixture(scope="module")
def whole(base, tmp_path_factory) -> tuple[knobs.Config, Path]:
    """A run that nothing stops, and its config."""
    config = configure(base, "validation", "extra")
    workdir = tmp_path_factory.mktemp("whole") / "run"
    with texts.one_device():
        train.run(config, workdir, command=[])
    return config, workdir


def read_losses(workdir: Path) -> dict[int, float]:
    """Return the loss of each step that was evaluated."""
    return {line["step"]: line[LOSS] for line in outcomes.metrics(workdir) if LOSS in line}


def die(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.fault(1, 2)
@pytest.mark.parametrize(
    ("owner", "name", "call", "step", "owed"),
    [(runs.Runs, "list_due", 3, 3, 2), (corpus.Evaluator, "__call__", 4, 6, 1)],
    ids=["before them", "in the second"],
)
def test_stop_saves_without_evaluations_that_are_due(
    whole, base, tmp_path, monkeypatch, one_device, owner, name, call, step, owed
):
    """A second stop, and a kill, come while the next attempts make up for them."""
    config, unstopped = whole
    workdir = tmp_path / "run"
    with monkeypatch.context() as patch:
        fault_points.stop_at(owner, name, call, patch.setattr)
        with pytest.raises(Stopped, match=f"stopped at step {step} of 6, saved"):
            train.run(config, workdir, command=[])
    assert manifest.list_steps(workdir / "checkpoints") == [step]
    assert [*read_losses(workdir)] == ([] if owed == 2 else [3, 6])
    if owed == 1:  # an evaluation that was removed is owed no more
        shutil.copytree(workdir, tmp_path / "removed")
        train.run(configure(base, "validation"), tmp_path / "removed", command=[])
        saved = tmp_path / "removed" / "checkpoints" / str(step)
        assert manifest.read_record(saved)["owed"] == []

    with monkeypatch.context() as patch:
        fault_points.stop_at(corpus.Evaluator, "__call__", owed, patch.setattr)
        with pytest.raises(Stopped, match=f"stopped at step {step} of 6, saved"):
            train.run(config, workdir, command=[])
        patch.setattr(run.Run, "save_evaluations", die)
        with pytest.raises(KeyboardInterrupt):
            train.run(config, workdir, command=[])
    train.run(config, workdir, command=[])
    assert outcomes.metrics(workdir) == outcomes.metrics(unstopped)
    assert manifest.read_record(workdir / "checkpoints" / str(step))["owed"] == []
    metrics, damaged = manifest.read_metrics(workdir / "checkpoints")
    assert not damaged
    assert metrics[step] == pytest.approx(read_losses(unstopped)[step])
