"""What must hold for each training row: on any devices, after a kill, fused, and exported.

A row of the table is a training row, a test a column. Two rows are quick, the others slow.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.net import golden
from tests.net.commands import make_environment, run_commands
from tests.net.rows import ROWS, command
from tests.net.train_rows import Numbers, measure, read_numbers, write_folder

FROZEN = golden.read("training")
QUICK = ("nsp", "packing")
SLOW = [name for name in ROWS if name not in QUICK]
LAYOUTS = ("parallel.data=2", "parallel.fsdp=2", "parallel.step=pmap")
SAVE_OFTEN = "checkpoints.every=4"
EVERY = pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)


def differences(name: str, found: Numbers) -> list[str]:
    """Return what differs from the row's frozen numbers."""
    return golden.find_differences(FROZEN[name], found, ROWS[name].tolerance)


# --- devices --------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
@EVERY
def test_row_is_the_same_on_two_devices(tmp_path, name, layout):
    changed = f"{name}:{layout}"
    found = measure(tmp_path / "rows", [changed], devices=2)
    assert differences(name, found[changed]) == []


# --- a kill inside a save -------------------------------------------------------------------------


def kill_inside_a_save(folder: Path, words: list[str], saves: Path) -> bool:
    """Kill a command when its second save has begun to write; tell whether it was caught."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bert_jax.cli", *words],
        cwd=folder,
        env=make_environment(folder),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while process.poll() is None:
        names = os.listdir(saves) if saves.is_dir() else []
        if "4" in names and any("tmp" in name for name in names):
            os.killpg(process.pid, signal.SIGKILL)
        time.sleep(0.001)
    return process.returncode == -signal.SIGKILL


def read_steps(workdir: Path) -> dict[int, dict[str, float]]:
    """Return the numbers of each step, the last time that the step was made."""
    lines = map(json.loads, (workdir / "metrics.jsonl").read_text().splitlines())
    found: dict[int, dict[str, float]] = {}
    for line in lines:
        found.setdefault(line["step"], {}).update(line)
    for numbers in found.values():
        for key in [k for k in numbers if "/" not in k or re.search("second|memory|mfu|wait", k)]:
            del numbers[key]
    return found


@EVERY
def test_row_killed_in_a_save_resumes_its_bits(tmp_path, name):
    folder = tmp_path / "rows"
    write_folder(folder)
    killed, whole = (
        command(f"{name}:{SAVE_OFTEN}", "killed"),
        command(f"{name}:{SAVE_OFTEN}", "whole"),
    )
    for _ in range(3):  # a save is short, and may end before it is seen
        shutil.rmtree(folder / "killed", ignore_errors=True)
        if kill_inside_a_save(folder, killed, folder / "killed" / "checkpoints"):
            break
    else:
        pytest.fail("no save was seen while it was written")
    results = run_commands(folder, [killed, whole], make_environment(folder))
    assert [result.code for result in results] == [0, 0], results
    assert read_steps(folder / "killed") == read_steps(folder / "whole")


# --- next to another run --------------------------------------------------------------------------


@EVERY
def test_row_fused_is_the_row_alone(tmp_path, name):
    folder = tmp_path / "rows"
    write_folder(folder)
    words = command(name, "sweep")
    rate = next((w for w in words if w.startswith("--config.optim.learning_rate=")), "=2e-3")
    rates = f"{rate.rpartition('=')[2]},5e-4"
    sweep = ["study", "sweep", *words[1:], f"--axis=optim.learning_rate={rates}", "--seeds=1"]
    sweep += ["--fuse=2", "--jobs=1"]
    (result,) = run_commands(folder, [sweep], make_environment(folder))
    assert result.code == 0, result.stderr
    cells = [read_numbers(path) for path in sorted((folder / "sweep" / "cells").iterdir())]
    assert len(cells) == 2
    assert min((differences(name, cell) for cell in cells), key=len) == []


# --- compiled once --------------------------------------------------------------------------------


@EVERY
def test_row_compiles_nothing_after_two_updates(tmp_path, name):
    """Runs of more updates compile as many programs, and each needs some."""
    folder = tmp_path / "rows"
    write_folder(folder)
    commands = [command(f"{name}:steps={steps}", f"runs/{steps}") for steps in (4, 8, 16)]
    environment = make_environment(folder, JAX_LOG_COMPILES="1")
    results = run_commands(folder, commands, environment)
    assert [result.code for result in results] == [0, 0, 0], results
    compiled = [len(re.findall("Compiling ", result.stderr)) for result in results]
    assert compiled[0] > 0
    assert compiled[1] == compiled[2]


# --- another project's format ---------------------------------------------------------------------


@EVERY
def test_row_is_exported_whole_or_refused(tmp_path, name):
    """The export, evaluated on the row's text, has the row's numbers."""
    folder = tmp_path / "rows"
    write_folder(folder)
    words = command(name, "row")
    read = re.compile(r"--config\.(corpus|evals|examples|pairs|sequence_length)\b")
    commands = [
        words,
        ["export", "--model=row", "--output=exported"],
        ["import", "--model=exported", "--output=imported"],
        ["evaluate", "--model=row", "--output=row.json"],
        [
            "evaluate",
            "--model=imported",
            "--output=imported.json",
            words[1],
            *filter(read.match, words),
        ],
    ]
    results = run_commands(folder, commands, make_environment(folder))
    refused = golden.read("refused_exports").get(name)
    if refused:  # the number of the command, and words of its message
        number, words = refused
        assert (results[number].code, words in results[number].stderr) == (2, True)
        return
    assert [result.code for result in results] == [0] * 5, results
    scores = [json.loads((folder / f"{model}.json").read_text()) for model in ("row", "imported")]
    assert golden.find_differences(*scores, 2e-5) == []
