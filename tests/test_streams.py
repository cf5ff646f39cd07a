"""Standard streams that are full or closed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def shell(command: str) -> subprocess.CompletedProcess:
    line = f"exec {sys.executable} -m bert_jax.cli {command}"
    return subprocess.run(["sh", "-c", line], stderr=subprocess.PIPE, text=True, check=False)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
@pytest.mark.parametrize("command", ["--help", "train --help"])
def test_standard_output_without_room(command):
    done = shell(f"{command} > /dev/full")
    assert done.returncode == 2
    assert done.stderr.startswith(
        "error: standard output cannot be written: No space left on device\nhint: "
    )
    assert done.stderr.count("\n") == 2


def test_standard_output_that_is_closed():
    done = shell("--version >&-")
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, "error: standard output is closed")


def test_standard_input_and_error_that_are_closed(tmp_path):
    done = shell(f"--version <&- 2>&- > {tmp_path / 'out'}")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "out").read_text().startswith("bert-jax ")
