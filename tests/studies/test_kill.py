"""A study whose launcher and workers are killed at random moments is completed by the same command,
and is the same.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from bert_jax.studies import results
from bert_jax.studies.definition import expand, load_study
from bert_jax.studies.folder import StudyFolder
from tests import outcomes, texts

KILLS = 10
FILE = """
from bert_jax.config import load_file, override
from bert_jax.studies.definition import Budget, Comparison, Study, Suite, axis


def get_study(scale=""):
    base = load_file({config!r})
    for knob, value in {knobs!r}.items():
        override(base, knob, value)
    return Study(
        question="Does anything get lost?",
        base=base,
        axes=(axis("masking.rate", (0.15, 0.4)),),
        seeds=(0,),
        budget=Budget("tokens", (30 * 16 * 32, 60 * 16 * 32)),
        evaluations={{"validation": Suite("pretrain"), "cross_rate": Suite("cross_rate")}},
        comparisons=(Comparison("masking.rate", "15 %", ("validation/mlm_loss",)),),
        trunk=scale != "apart",
    )
"""
KNOBS = {"pairs": "none", "optim.schedule": "wsd", "checkpoints.best": "", "logging.every": "1"}
KNOBS |= {"checkpoints.every": "5", "evals.validation.every": "20"}


def start(study: str, workdir: Path) -> subprocess.Popen:
    """Start the command that runs a study, two groups at a time."""
    return texts.start("study", "run", study, f"--workdir={workdir}", "--jobs=2")


def list_workers(workdir: Path) -> list[int]:
    """List workers, also those of an earlier launcher that are still saving."""
    wanted = {"bert_jax.study", "work", f"--workdir={workdir}"}
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it may have ended
            if wanted <= {*(process / "cmdline").read_bytes().decode().split("\0")}:
                found.append(int(process.name))
    return found


def kill(pid: int) -> None:
    """Kill a process that may have ended meanwhile."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def kill_at_random(study: str, workdir: Path) -> None:
    """Run a study until it is done, and kill its processes at random moments."""
    chance, killed = random.Random(0), {"launcher": 0, "worker": 0}
    process = start(study, workdir)
    while sum(killed.values()) < KILLS:
        time.sleep(chance.uniform(1, 5))
        if process.poll() == 0:
            break
        if process.poll() is not None:  # a worker was killed under that launcher
            _, err = process.communicate()
            assert process.returncode == 1, err
            process = start(study, workdir)
        running = list_workers(workdir)
        if not running:  # a launcher takes long to begin on a busy machine
            continue
        if chance.random() < 0.5:
            kill(chance.choice(running))
            killed["worker"] += 1
        else:
            kill(process.pid)
            process.communicate()
            killed["launcher"] += 1
            process = start(study, workdir)
    _, err = process.communicate(timeout=1200)
    if process.returncode:  # a worker was killed under the last launcher
        process = start(study, workdir)
        _, err = process.communicate(timeout=1200)
    assert process.returncode == 0, err
    assert sum(killed.values()) >= KILLS // 2, f"it ended after {killed}: too soon to show anything"
    assert min(killed.values()) >= 1, killed


@pytest.mark.fault(24)
@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_kills_of_any_process_change_nothing(tmp_path):
    """Its longer cells go on from shorter ones; without kills and trunks each bit is the same."""
    folder = tmp_path / "lost"
    folder.mkdir()
    text = FILE.format(config=str(texts.config_file(tmp_path)), knobs=KNOBS)
    (folder / "study.py").write_text(text)
    study = str(folder)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    process = start(f"{study}:apart", whole)
    _, err = process.communicate(timeout=1200)
    assert process.returncode == 0, err
    kill_at_random(study, broken)

    cells = expand(load_study(study)[1])
    assert [cell.fork for cell in cells] == [0, 24] * 2
    for cell in cells:
        ours, theirs = (StudyFolder(workdir).cell(cell.id) for workdir in (broken, whole))
        states = [outcomes.state(folder, cell.config.steps)[0] for folder in (ours, theirs)]
        assert [n for n in states[0] if states[0][n].tobytes() != states[1][n].tobytes()] == []
        rows = map(json.loads, (ours / "metrics.jsonl").read_text().splitlines())
        updates = [row["step"] for row in rows if "train/loss" in row]
        # A cell whose trunk was killed before the fork makes all its updates.
        branched = json.loads((ours / "config.json").read_text())["branch_from"]
        first = cell.fork if branched.endswith(f"@{cell.fork}") else 0
        assert updates == list(range(first + 1, cell.config.steps + 1))
    found = [results.read_results(StudyFolder(workdir)) for workdir in (broken, whole)]
    for one, other in zip(*found, strict=True):  # curves from step 0, for equal budgets
        assert (one.metrics, one.history) == (other.metrics, other.history)
        assert one.spent("tokens") == other.spent("tokens")
