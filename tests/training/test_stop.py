"""A stop signal never waits for an evaluation: the same command makes up for it."""

import os
import signal
from pathlib import Path

import pytest

from bert_jax import train
from bert_jax.checkpoints import manifest
from bert_jax.config import knobs
from bert_jax.errors import Stopped
from bert_jax.evaluation import corpus
from bert_jax.training import runs
from tests import outcomes, texts

KNOBS = {"steps": 6, "checkpoints__every": 100, "evals__validation__every": 3}
LOSS = "eval/validation/mlm_loss"


@pytest.fixture(scope="module")
def whole(base, tmp_path_factory) -> tuple[knobs.Config, Path]:
    """A run that nothing stops, and its config."""
    config = texts.configure(base, **KNOBS)
    workdir = tmp_path_factory.mktemp("whole") / "run"
    with texts.one_device():
        train.run(config, workdir, command=[])
    return config, workdir


def read_losses(workdir: Path) -> dict[int, float]:
    """Return the loss of each step that was evaluated."""
    return {line["step"]: line[LOSS] for line in outcomes.metrics(workdir) if LOSS in line}


@pytest.mark.fault(1, 2)
@pytest.mark.parametrize(("when", "step"), [("before it", 3), ("in it", 6)])
def test_stop_saves_without_the_evaluation_that_is_due(
    whole, tmp_path, monkeypatch, one_device, when, step
):
    config, unstopped = whole
    calls: list[int] = []

    def send_signal() -> None:
        calls.append(step)
        if len(calls) == step // 3:
            os.kill(os.getpid(), signal.SIGTERM)

    evaluate = corpus.Evaluator.__call__
    list_due = runs.Runs.list_due

    def interrupt(evaluator, params, *rest):
        send_signal()
        return evaluate(evaluator, params, *rest)

    def list_and_interrupt(self, now):
        due = list_due(self, now)
        if due:
            send_signal()
        return due

    with monkeypatch.context() as patch:
        if when == "in it":
            patch.setattr(corpus.Evaluator, "__call__", interrupt)
        else:
            patch.setattr(runs.Runs, "list_due", list_and_interrupt)
        with pytest.raises(Stopped, match=f"stopped at step {step} of 6, saved"):
            train.run(config, tmp_path, command=[])
    assert manifest.list_steps(tmp_path / "checkpoints") == [step]
    assert [*read_losses(tmp_path)] == [3, 6][: step // 3 - 1]

    for _ in range(2):  # the second attempt finds nothing to do
        train.run(config, tmp_path, command=[])
        assert outcomes.metrics(tmp_path) == outcomes.metrics(unstopped)
    metrics, damaged = manifest.read_metrics(tmp_path / "checkpoints")
    assert not damaged
    assert metrics[step] == pytest.approx(read_losses(unstopped)[step])
