"""A study whose launcher and workers are killed at random moments is completed by the same command,
and is the same.
"""

from __future__ import annotations

import random
import time

import pytest

from bert_jax.studies.folder import StudyFolder
from tests import outcomes
from tests.studies import workers
from tests.studies.small import start_study, write_file

KILLS = 10
KNOBS = {"steps": "60", "pairs": "none", "checkpoints.every": "5", "checkpoints.best": ""}
FIELDS = """
    axes=(axis("masking.rate", (0.15, 0.3, 0.6)),),
    seeds=(0, 1),
    evaluations={"validation": Suite("pretrain"), "cross_rate": Suite("cross_rate")},
    comparisons=(Comparison("masking.rate", "15 %", ("validation/mlm_loss",)),),
"""


@pytest.mark.fault(24)
@pytest.mark.slow
def test_kills_of_any_process_change_nothing(tmp_path):
    study = str(write_file(tmp_path, {**KNOBS, "evals.validation.every": "20"}, FIELDS))
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    process = start_study(study, whole)
    _, err = process.communicate(timeout=1200)
    assert process.returncode == 0, err
    chance, killed = random.Random(0), {"launcher": 0, "worker": 0}
    process = start_study(study, broken)
    while sum(killed.values()) < KILLS:
        time.sleep(chance.uniform(1, 5))
        if process.poll() is not None:
            assert process.returncode in (0, 1), process.communicate()[1]
            if process.returncode == 0:
                break
            process = start_study(study, broken)  # a worker was killed under that launcher
        running = workers.list_workers(broken)
        if not running:  # a launcher takes long to begin on a busy machine
            continue
        if chance.random() < 0.5:
            workers.kill(chance.choice(running))
            killed["worker"] += 1
        else:
            workers.kill(process.pid)
            process.communicate()
            killed["launcher"] += 1
            process = start_study(study, broken)
    _, err = process.communicate(timeout=1200)
    if process.returncode:  # a worker was killed under the last launcher
        process = start_study(study, broken)
        _, err = process.communicate(timeout=1200)
    assert process.returncode == 0, err
    assert sum(killed.values()) >= KILLS // 2, (
        f"the study ended after {killed}: too soon to show anything"
    )
    assert min(killed.values()) >= 1, killed
    assert workers.read_metrics(broken) == workers.read_metrics(whole)
    for cell in workers.read_metrics(whole):
        outcomes.assert_same(StudyFolder(broken).cell(cell), StudyFolder(whole).cell(cell), 60)
