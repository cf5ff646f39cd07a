"""A stop signal never waits for an evaluation: the same command makes up for it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from bert_jax import train
from bert_jax.checkpoints import steps
from bert_jax.config import knobs
from bert_jax.errors import Stopped
from bert_jax.evaluation import corpus
from bert_jax.training import stop
from tests import outcomes, texts


def configure(folder: Path) -> knobs.Config:
    return texts.configure(
        texts.config_file(folder),
        steps=6,
        checkpoints__every=100,
        checkpoints__keep=3,
        evals__validation__every=3,
    )


def count_steps(workdir: Path) -> list[int]:
    """Return the steps that were evaluated, in the order of the lines."""
    return [
        line["step"] for line in outcomes.metrics(workdir) if "eval/validation/mlm_loss" in line
    ]


@pytest.mark.fault(1, 2)
@pytest.mark.parametrize(("when", "step"), [("before it", 3), ("in it", 6)])
def test_stop_saves_without_the_evaluation_that_is_due(tmp_path, monkeypatch, when, step):
    config = configure(tmp_path)
    train.run(config, tmp_path / "whole", command=[])
    calls: list[int] = []

    def send_signal() -> None:
        calls.append(step)
        if len(calls) == step // 3:
            os.kill(os.getpid(), signal.SIGTERM)

    evaluate = corpus.Evaluator.__call__
    should_stop = stop.StopFlag.should_stop

    def interrupt(evaluator, params, *rest):
        send_signal()
        return evaluate(evaluator, params, *rest)

    def stop_at(flag, now):
        if now % 3 == 0:
            send_signal()
        return should_stop(flag, now)

    with monkeypatch.context() as patch:
        if when == "in it":
            patch.setattr(corpus.Evaluator, "__call__", interrupt)
        else:
            patch.setattr(stop.StopFlag, "should_stop", stop_at)
        with pytest.raises(Stopped, match=f"stopped at step {step} of 6, saved"):
            train.run(config, tmp_path / "stopped", command=[])
    assert steps.list_steps(tmp_path / "stopped" / "checkpoints") == [step]
    assert count_steps(tmp_path / "stopped") == [3, 6][: step // 3 - 1]

    train.run(config, tmp_path / "stopped", command=[])
    assert count_steps(tmp_path / "stopped") == [3, 6]
    assert outcomes.metrics(tmp_path / "stopped") == outcomes.metrics(tmp_path / "whole")
    metrics, damaged = steps.read_metrics(tmp_path / "stopped" / "checkpoints")
    assert not damaged
    assert metrics[step] == pytest.approx(
        next(
            line["eval/validation/mlm_loss"]
            for line in outcomes.metrics(tmp_path / "whole")
            if line["step"] == step and "eval/validation/mlm_loss" in line
        )
    )
