"""Files that users name with --output: replaced as files, and never anything else."""

from __future__ import annotations

import contextlib
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


@pytest.mark.fault(42)
@every_command
def test_output_device_is_written_into(command, write, tmp_path, capsys):
    """As root, a rename would turn /dev/null into a file for the whole machine."""
    null, full = device(tmp_path / "null", 3), device(tmp_path / "full", 7)
    assert write(command, null) == 0
    capsys.readouterr()
    assert write(command, full) == 4
    error, hint = capsys.readouterr().err.splitlines()[-2:]
    assert error == f"error: disk full: {full} is a device without room"
    assert hint == "hint: choose another --output"
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


@pytest.mark.fault(44)
@every_command
def test_output_that_is_no_file_is_refused_at_once(command, write, tmp_path, capsys):
    """A pipe without a reader would block for ever, and a disk would lose its contents."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    kinds = {pipe: "a named pipe", tmp_path: "a folder"}
    with contextlib.suppress(PermissionError):
        os.mknod(tmp_path / "disk", 0o666 | stat.S_IFBLK, os.makedev(0, 250))  # of no driver
        kinds[tmp_path / "disk"] = "a device"
    for path, kind in kinds.items():
        before = path.stat()
        assert write(command, path) == 2
        error, hint = capsys.readouterr().err.splitlines()[-2:]
        assert f"{kind}, not a file" in error or "is a folder" in error
        assert "--output" in hint
        assert path.stat().st_ino == before.st_ino


@pytest.mark.parametrize("kind", ["file", "pipe", "closed"])
def test_output_descriptor_must_be_writable(tmp_path, kind):
    """A descriptor for reading is refused before the work, and so is a number of none."""
    file, name = tmp_path / "file", tmp_path / "name"
    file.write_text("what was there before")
    reading, writing = os.pipe() if kind == "pipe" else (os.open(file, os.O_RDONLY), None)
    name.symlink_to(f"/proc/self/fd/{reading}")
    try:
        if writing is not None:
            other = tmp_path / "other"
            other.symlink_to(f"/proc/self/fd/{writing}")
            disk.check_output(other)
        if kind == "closed":
            os.close(reading)
        with pytest.raises(ConfigError, match="cannot write") as caught:
            disk.check_output(name)
        assert caught.value.hint == "choose another --output"
    finally:
        for descriptor in (writing, None if kind == "closed" else reading):
            if descriptor is not None:
                os.close(descriptor)
    assert file.read_text() == "what was there before"
    assert name.is_symlink()


@pytest.mark.parametrize("opened", ["file", "pipe", "another"])
def test_output_standard_output_gets_the_page(names, tmp_path, opened):
    """It is written behind what its file holds, and not in place of that file.

    A link of this folder stands for /dev/stdout, which a failure of this test would replace.
    """
    log, name = tmp_path / "log", tmp_path / "stdout"
    log.write_text("earlier\n")
    with log.open("ab") as stream:
        number = stream.fileno() if opened == "another" else 1
        name.symlink_to(f"/proc/self/fd/{number}")
        found = subprocess.run(
            [sys.executable, "-m", "bert_jax.report", str(names["run"]), f"--output={name}"],
            stdout=stream if opened == "file" else subprocess.PIPE,
            pass_fds=[stream.fileno()],
            check=True,
        )
    assert name.is_symlink()
    printed = log.read_text() if opened == "file" else found.stdout.decode()
    assert log.read_text().startswith("earlier\n")
    assert printed.endswith(f"{name}\n")
    page = log.read_text() if opened == "another" else printed
    assert page.count("</html>") == 1
