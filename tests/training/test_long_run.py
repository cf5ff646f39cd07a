"""What 10,000 updates and 100 saves leave behind, with updates that compute nothing."""

from __future__ import annotations

import gc
from typing import Any

import psutil
import pytest

from bert_jax import train
from bert_jax.checkpoints.manifest import list_steps
from bert_jax.training.program import Program
from bert_jax.training.run import Run
from tests import texts

pytestmark = pytest.mark.slow
STEPS, SAVES, EVALUATIONS, BEST = 10_000, 100, 2_500, 5_000
MEBIBYTE = 2**20


def measure_process() -> tuple[int, int, int]:
    """Return the resident bytes, open files and threads of this process."""
    gc.collect()
    process = psutil.Process()
    return process.memory_info().rss, process.num_fds(), process.num_threads()


def test_memory_files_threads_and_saves_stay_few(base, tmp_path, monkeypatch, one_device):
    """The updates repeat the metrics of the first; the process is measured at every 1,000th."""
    config = texts.configure(
        base,
        steps=STEPS,
        logging__every=100,
        checkpoints__every=STEPS // SAVES,
        checkpoints__keep=3,
        checkpoints__at="(300, 4_000)",
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

    record = Run.record_evaluation

    def rank(self: Run, name: str, metrics: dict[str, float], samples: Any, step: int) -> None:
        record(self, name, metrics | {"mlm_loss": float(abs(step - BEST))}, samples, step)

    monkeypatch.setattr(Program, "update", repeat)
    monkeypatch.setattr(Run, "record_evaluation", rank)
    train.run(config, tmp_path / "run", command=[])
    assert len(measured) == STEPS // 1_000
    early, late = measured[2], measured[-1]
    assert late[0] - early[0] < 64 * MEBIBYTE
    assert late[1] <= early[1] + 4  # a save may be under way
    assert late[2] <= early[2] + 4
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == STEPS // 100 + STEPS // EVALUATIONS
    kept = [300, 4_000, BEST, 9_800, 9_900, 10_000]
    assert list_steps(tmp_path / "run" / "checkpoints") == kept
