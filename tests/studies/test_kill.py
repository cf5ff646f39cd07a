"""A study whose launcher and workers are killed at random moments is completed by the same command,
and is the same.
"""

from __future__ import annotations

import random
import subprocess
import time
from pathlib import Path

import pytest

from bert_jax.studies.folder import StudyFolder
from tests import outcomes, texts, workers

KILLS = 10
STUDY = """
from bert_jax.config import load_file
from bert_jax.studies.definition import Comparison, Study, Suite, axis


def get_study(scale="cpu"):
    base = load_file({config!r})
    base.steps = 60
    base.pairs = "none"
    base.checkpoints.every = 5
    base.checkpoints.best = ""
    base.evals.validation.every = 20
    return Study(
        question="Does anything get lost?",
        base=base,
        axes=(axis("masking.rate", (0.15, 0.3, 0.6)),),
        seeds=(0, 1),
        evaluations={{"validation": Suite("pretrain"), "cross_rate": Suite("cross_rate")}},
        comparisons=(Comparison("masking.rate", "15 %", ("validation/mlm_loss",)),),
    )
"""


def begin(folder: Path, workdir: Path) -> subprocess.Popen:
    words = ["study", "run", str(folder), f"--workdir={workdir}", "--jobs=2"]
    return texts.start(*words)


@pytest.mark.fault(24)
@pytest.mark.slow
def test_ten_kills_change_nothing(tmp_path):
    folder = tmp_path / "lost"
    folder.mkdir()
    (folder / "study.py").write_text(STUDY.format(config=str(texts.config_file(tmp_path))))
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    process = begin(folder, whole)
    _, err = process.communicate(timeout=1200)
    assert process.returncode == 0, err
    chance, killed = random.Random(0), {"launcher": 0, "worker": 0}
    process = begin(folder, broken)
    while sum(killed.values()) < KILLS:
        time.sleep(chance.uniform(1, 8))
        if process.poll() is not None:
            assert process.returncode in (0, 1), process.communicate()[1]
            break
        running = workers.list_workers(broken)
        if running and chance.random() < 0.5:
            workers.kill(chance.choice(running))
            killed["worker"] += 1
        else:
            workers.kill(process.pid)
            process.communicate()
            killed["launcher"] += 1
            process = begin(folder, broken)
    _, err = process.communicate(timeout=1200)
    if process.returncode:  # a worker was killed under the last launcher
        process = begin(folder, broken)
        _, err = process.communicate(timeout=1200)
    assert process.returncode == 0, err
    assert sum(killed.values()) == KILLS, (
        f"the study ended after {killed}: too soon to show anything"
    )
    assert min(killed.values()) >= 2, killed
    assert workers.read_metrics(broken) == workers.read_metrics(whole)
    for cell in workers.read_metrics(whole):
        outcomes.assert_same(StudyFolder(broken).cell(cell), StudyFolder(whole).cell(cell), 60)
