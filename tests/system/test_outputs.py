"""Files that users name with --output: replaced as files, and never anything else."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from bert_jax import cli, plan
from bert_jax.system import disk
from tests import saved, texts

COMMANDS = {
    "evaluate": "evaluate --checkpoint={run} --suite=nsp",
    "report": "report {run}",
    "reports": "report {run} {other}",
    "inspect": "inspect attention --model={run} --text=cat",
    "plan": "plan --config={config} --target=cpu:8",
}
every_command = pytest.mark.parametrize("command", COMMANDS)


@pytest.fixture(scope="module")
def names(base, tmp_path_factory) -> dict[str, Path]:
    """What commands read, by the names in COMMANDS."""
    folder, config = tmp_path_factory.mktemp("runs"), texts.configure(base, model__hidden=16)
    runs = {name: saved.run(folder / name, config, {10: 1.0}) for name in ("run", "other")}
    for run in runs.values():
        row = {"step": 10, "time": 1.0, "train/loss": 2.0}
        (run / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    return {**runs, "config": Path(base)}


@pytest.fixture
def write(names, monkeypatch):
    """Run a command with an output; plan compiles nothing."""
    monkeypatch.setattr(plan, "run", lambda *_, **__: {"fits": True})

    def run(command: str, output: Path) -> int:
        words = COMMANDS[command].format(**names).split()
        return cli.execute([*words, f"--output={output}"])

    return run


def device(path: Path, minor: int) -> Path:
    """Make a node of a memory device (3 is null, 7 is full) in a temporary folder."""
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, minor))
        path.open("ab").close()
    except PermissionError:
        pytest.skip("device nodes need root")
    return path


@pytest.mark.fault(4)
@every_command
def test_output_device_is_written_into(command, write, tmp_path, capsys):
    """As root, a rename would turn /dev/null into a file for the whole machine."""
    null, full = device(tmp_path / "null", 3), device(tmp_path / "full", 7)
    assert write(command, null) == 0
    capsys.readouterr()
    assert write(command, full) == 4
    error, hint = capsys.readouterr().err.splitlines()[-2:]
    assert error.startswith(f"error: disk full: {full} needs more than ")
    assert hint.startswith("hint: ")
    assert stat.S_ISCHR(null.stat().st_mode)
    assert stat.S_ISCHR(full.stat().st_mode)
    assert sorted(tmp_path.iterdir()) == [full, null]


@every_command
def test_output_link_stays_and_its_target_changes(command, write, tmp_path):
    file, link, early = (tmp_path / name for name in ("file", "link", "early"))
    file.write_text("what was there before")
    link.symlink_to(file)
    early.symlink_to("later")
    assert write(command, link) == write(command, early) == 0
    assert link.is_symlink()
    assert early.is_symlink()
    assert "what was there before" not in file.read_text()
    assert len(file.read_text()) == len((tmp_path / "later").read_text()) > 10


@every_command
def test_output_that_is_a_folder_is_refused(command, write, tmp_path, capsys):
    assert write(command, tmp_path) == 2
    error, hint = capsys.readouterr().err.splitlines()[-2:]
    assert "is a folder" in error
    assert "--output" in hint


def test_file_in_shared_memory_is_replaced():
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK):
        pytest.skip("no /dev/shm here")
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        file = Path(folder) / "page.html"
        for text in ("first", "second"):
            disk.write_output(file, text)
        assert file.read_text() == "second"


def test_standard_output_gets_the_page(names, tmp_path):
    """It is written behind what its file holds, and not in place of that file."""
    log = tmp_path / "log"
    log.write_text("earlier\n")
    with log.open("ab") as stream:
        command = [sys.executable, "-m", "bert_jax.report", str(names["run"])]
        subprocess.run([*command, "--output=/dev/stdout"], stdout=stream, check=True)
    page = log.read_text()
    assert page.startswith("earlier\n")
    assert page.count("</html>") == 1
    assert page.endswith("/dev/stdout\n")
