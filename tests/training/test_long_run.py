"""What 10,000 updates and 100 saves leave behind, with updates that compute nothing."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import psutil
import pytest

from bert_jax import train
from bert_jax.checkpoints.steps import list_steps
from bert_jax.training.program import Program
from tests import texts

pytestmark = pytest.mark.slow
STEPS, SAVES, EVALUATIONS = 10_000, 100, 2_500
MEBIBYTE = 2**20


def measure_process() -> tuple[int, int, int]:
    """Return the resident bytes, open files and threads of this process."""
    gc.collect()
    process = psutil.Process()
    return process.memory_info().rss, process.num_fds(), process.num_threads()


@pytest.fixture(scope="module")
def run(base, tmp_path_factory) -> tuple[Path, list[tuple[int, int, int]]]:
    """A run whose updates repeat the metrics of the first, and the process at every 1,000th."""
    workdir = tmp_path_factory.mktemp("long") / "run"
    config = texts.configure(
        base,
        steps=STEPS,
        logging__every=100,
        checkpoints__every=STEPS // SAVES,
        checkpoints__keep=2,
        checkpoints__at="(150,7000)",
        evals__validation__every=EVALUATIONS,
        batch_size=4,
        masking__replace="(1,0,0)",  # nothing is left to chance: the ledger would stop the run
        masking__rounding="nearest",
    )
    real, first, measured = Program.update, [], []

    def repeat(self: Program, state: Any, batch: Any, inputs: Any) -> tuple[Any, Any]:
        if not first:
            state, metrics = real(self, state, batch, inputs)
            first.append(metrics)
            return state, metrics
        state = {**state, "step": state["step"] + 1}
        if int(state["step"]) % 1_000 == 0:
            measured.append(measure_process())
        return state, first[0]

    with pytest.MonkeyPatch.context() as patch, texts.one_device():
        patch.setattr(Program, "update", repeat)
        train.run(config, workdir, command=[])
    return workdir, measured


def test_memory_files_and_threads_do_not_grow(run):
    _, measured = run
    assert len(measured) == STEPS // 1_000
    early, late = measured[2], measured[-1]
    assert late[0] - early[0] < 64 * MEBIBYTE
    assert late[1] <= early[1] + 4  # a save may be under way
    assert late[2] <= early[2] + 4


def test_kept_steps_are_the_last_the_named_and_the_best(run):
    workdir, _ = run
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    losses = {
        line["step"]: line["eval/validation/mlm_loss"]
        for line in lines
        if "eval/validation/mlm_loss" in line
    }
    assert len(losses) == STEPS // EVALUATIONS
    best = {step for step, loss in losses.items() if loss == min(losses.values())}
    kept = set(list_steps(workdir / "checkpoints"))
    named = {150, 7_000, STEPS - STEPS // SAVES, STEPS}
    assert named <= kept
    assert len(kept - named) <= 1
    assert kept & best


def test_metrics_file_grows_by_logged_lines_only(run):
    workdir, _ = run
    text = (workdir / "metrics.jsonl").read_text()
    assert len(text.splitlines()) == STEPS // 100 + STEPS // EVALUATIONS
    assert len(text) < 1_500 * len(text.splitlines())
