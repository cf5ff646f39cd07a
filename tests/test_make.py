"""The commands of a newcomer, and what gates a change: the Makefile and .ci/run, with stand-ins for
what they call.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.texts import ROOT

# A bert-jax whose training is interrupted where a file says so, and which goes on where it was.
COMMAND = """#!/bin/sh
case "$1" in
  train)
    mkdir -p runs/demo && echo trained >> runs/demo/steps
    if [ -e interrupt ]; then exit 75; fi ;;
  predict) if [ -e refuse ]; then exit 2; fi ;;
esac
"""
# A Python, as far as .ci/run asks.
PYTHON = """#!/bin/sh
case "$2" in
  *VERSION*) exit 0 ;;
  *sys.executable*) echo "$0" ;;
  *) exit 1 ;;
esac
"""


def write_program(path: Path, text: str) -> Path:
    """Write a program that can be run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_demo_goes_on_after_an_interrupt(tmp_path):
    """Once it has ended to its last line, it begins anew."""
    for file in ("Makefile", "requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / file, tmp_path)
    write_program(tmp_path / ".venv" / "bin" / "bert-jax", COMMAND)
    (tmp_path / ".venv" / ".made").touch()

    def demo(stop: str = "") -> tuple[bool, int]:
        """Tell whether it ended well, and how often it has trained since it began anew."""
        if stop:
            (tmp_path / stop).touch()
        # Not the VENV that a make around these tests was given.
        words = ["make", "demo", "VENV=.venv"]
        run = subprocess.run(words, cwd=tmp_path, capture_output=True, timeout=60)
        if stop:
            (tmp_path / stop).unlink()
        steps = (tmp_path / "runs" / "demo" / "steps").read_text().splitlines()
        return run.returncode == 0, len(steps)

    assert [demo("interrupt"), demo("refuse"), demo()] == [(False, 1), (False, 2), (True, 3)]
    assert [demo("interrupt"), demo()] == [(False, 1), (True, 2)]


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        (["3.11", "3.12", "3.13"], ["3.11", "3.13"]),
        (["3.11", "3.12"], ["3.11", "3.12"]),
        (["3.13"], ["3.13"]),
        ([], []),
    ],
)
def test_ci_checks_the_oldest_and_the_newest_python(tmp_path, there, expected):
    tools = tmp_path / "bin"
    for version in there:
        write_program(tools / f"python{version}", PYTHON.replace("VERSION", version))
    write_program(tools / "make", '#!/bin/sh\necho "$@"\n')
    for name in ("bash", "dirname", "sh"):
        (tools / name).symlink_to(shutil.which(name) or "")
    env = {"PATH": str(tools), "HOME": str(tmp_path), "PYENV_ROOT": str(tmp_path)}
    words = [str(ROOT / ".ci" / "run")]
    run = subprocess.run(words, capture_output=True, text=True, env=env, timeout=60)
    checked = [f"lint test VENV=.venv-{v} PYTHON={tools / f'python{v}'}" for v in expected]
    assert run.stdout.splitlines() == checked
    assert run.returncode == (0 if there else 2)


def test_uv_makes_an_environment_with_pip(tmp_path, monkeypatch):
    """The commands of the pages install extras with pip."""
    for file in ("Makefile", "requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / file, tmp_path)
    write_program(tmp_path / "bin" / "uv", '#!/bin/sh\necho "$@"\n')
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    words = ["make", "venv", "VENV=new"]
    run = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert "venv --quiet --seed " in run.stdout
