"""Files are replaced in one move, and a full disk is told by the place that is full."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from bert_jax import cli, plan
from bert_jax.errors import ConfigError
from bert_jax.system import disk
from tests import saved, texts

COMMANDS = {
    "evaluate": "evaluate --checkpoint={run} --suite=nsp",
    "report": "report {run}",
    "plan": "plan --config={config} --target=cpu:8",
}
every_command = pytest.mark.parametrize("command", COMMANDS)


@pytest.fixture(scope="module")
def names(base, tmp_path_factory) -> dict[str, Path]:
    """What commands read, by the names in COMMANDS."""
    config = texts.configure(base, model__hidden=16)
    run = saved.run(tmp_path_factory.mktemp("runs") / "run", config, {10: 1.0})
    row = {"step": 10, "time": 1.0, "train/loss": 2.0}
    (run / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    return {"run": run, "config": Path(base)}


@pytest.fixture
def write(names, monkeypatch):
    """Run a command with an output; plan compiles nothing."""
    monkeypatch.setattr(plan, "run", lambda *_, **__: {"fits": True})

    def run(command: str, output: Path) -> int:
        words = COMMANDS[command].format(**names).split()
        return cli.execute([*words, f"--output={output}"])

    return run


def make_device(path: Path, minor: int) -> Path:
    """Make a node of a memory device (3 is null, 7 is full)."""
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
    null = make_device(tmp_path / "null", 3)
    full = make_device(tmp_path / "full", 7)
    assert write(command, null) == 0
    capsys.readouterr()
    assert write(command, full) == 4
    assert f"error: disk full: {full} needs more than " in capsys.readouterr().err
    assert stat.S_ISCHR(null.stat().st_mode)
    assert sorted(tmp_path.iterdir()) == [full, null]


@every_command
def test_output_link_stays_and_its_target_changes(command, write, tmp_path):
    file, link, early = (tmp_path / name for name in ("file", "link", "early"))
    file.write_text("earlier")
    link.symlink_to(file)
    early.symlink_to("later")
    assert write(command, link) == write(command, early) == 0
    assert link.is_symlink()
    assert early.is_symlink()
    assert "earlier" not in file.read_text()
    assert len(file.read_text()) == len((tmp_path / "later").read_text()) > 10


def test_output_in_shared_memory_is_replaced(tmp_path_factory):
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("no /dev/shm here")
    file = Path(f"/dev/shm/test-{os.getpid()}")
    try:
        for text in ("first", "second"):
            disk.write_output(file, text)
        assert file.read_text() == "second"
    finally:
        file.unlink()


def test_output_that_is_a_folder_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="is a folder"):
        disk.check_output(tmp_path)
    disk.check_output(tmp_path / "new" / "file")
    assert list((tmp_path / "new").iterdir()) == []  # the attempt leaves nothing behind


def test_write_that_fails_keeps_the_old_file(tmp_path):
    disk.write(tmp_path / "file", "old")
    with pytest.raises(TypeError), disk.replacing(tmp_path / "file") as draft:
        draft.write("no bytes")
    assert (tmp_path / "file").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_page_on_standard_output_follows_its_text(names, tmp_path):
    log = tmp_path / "log"
    log.write_text("earlier\n")
    with log.open("ab") as stream:
        command = [sys.executable, "-m", "bert_jax.report", str(names["run"])]
        subprocess.run([*command, "--output=/dev/stdout"], stdout=stream, check=True)
    page = log.read_text()
    assert page.startswith("earlier\n")
    assert page.count("</html>") == 1


@pytest.mark.fault(4)
def test_full_standard_output_is_named():
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "bert_jax.cli", "--help"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 4
    error, hint = done.stderr.splitlines()
    assert error == "error: disk full: standard output takes no more"
    assert hint.startswith("hint: ")


@pytest.mark.parametrize("error", [OSError(28, "No space"), OSError(122, "quota")])
def test_full_disk_is_found_among_causes(error, tmp_path):
    outer = RuntimeError("outer")
    outer.__cause__ = error
    assert disk.is_full(outer)
    assert not disk.is_full(OSError(5, "input/output"))
    with pytest.raises(disk.DiskFull, match="what needs 9"):
        raise disk.full(tmp_path / "gone" / "file", 9 * 10**18, "what")
