"""The two commands of a newcomer, and what gates a change: the Makefile and .ci/run, with stand-ins
for what they call.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import faster_compilation

ROOT = Path(__file__).resolve().parents[1]
FAKE = """#!/bin/sh
case "$2" in
  *VERSION*) exit 0 ;;
  *sys.executable*) echo "$0" ;;
  *) exit 1 ;;
esac
"""  # a Python, as far as the script asks


def _said(*words: str, **env: str) -> str:
    run = subprocess.run(
        words, cwd=ROOT, capture_output=True, text=True, env=os.environ | env, timeout=60
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_make_test_runs_tests_whatever_a_type_checker_says():
    plan = _said("make", "--dry-run", "test")
    assert "pytest" in plan
    assert "mypy" not in plan
    assert "ruff" not in plan


# A bert-jax whose training is interrupted where a file says so, and which goes on where it was.
COMMAND = """#!/bin/sh
case "$1" in
  train)
    mkdir -p runs/demo && echo trained >> runs/demo/steps
    if [ -e interrupt ]; then exit 75; fi ;;
  predict) if [ -e refuse ]; then exit 2; fi ;;
esac
"""


def test_demo_goes_on_after_an_interrupt(tmp_path):
    """Once it has ended to its last line, it begins anew."""
    for file in ("Makefile", "requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / file, tmp_path)
    command = tmp_path / ".venv" / "bin" / "bert-jax"
    command.parent.mkdir(parents=True)
    command.write_text(COMMAND)
    command.chmod(0o755)
    (tmp_path / ".venv" / ".made").touch()

    def demo(stop: str = "") -> tuple[bool, int]:
        """Whether it ended well, and how often it has trained since it began anew."""
        if stop:
            (tmp_path / stop).touch()
        # Not the VENV that a make around these tests was given.
        run = subprocess.run(
            ["make", "demo", "VENV=.venv"], cwd=tmp_path, capture_output=True, timeout=60
        )
        if stop:
            (tmp_path / stop).unlink()
        steps = (tmp_path / "runs" / "demo" / "steps").read_text().splitlines()
        return run.returncode == 0, len(steps)

    assert [demo("interrupt"), demo("interrupt"), demo("refuse"), demo()] == [
        *[(False, 1), (False, 2), (False, 3)],
        (True, 4),
    ]
    assert [demo("interrupt"), demo()] == [(False, 1), (True, 2)]


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        (["3.11", "3.12", "3.13"], ["3.11", "3.13"]),
        (["3.11", "3.12"], ["3.11", "3.12"]),
        (["3.11"], ["3.11"]),
        (["3.13"], ["3.13"]),
        ([], []),
    ],
)
def test_ci_checks_the_oldest_and_the_newest_python(tmp_path, there, expected):
    tools = tmp_path / "bin"
    tools.mkdir()
    for version in there:
        python = tools / f"python{version}"
        python.write_text(FAKE.replace("VERSION", version))
        python.chmod(0o755)
    make = tools / "make"
    make.write_text('#!/bin/sh\necho "$@"\n')
    make.chmod(0o755)
    for name in ("bash", "dirname", "sh"):
        (tools / name).symlink_to(
            Path("/bin") / name if (Path("/bin") / name).exists() else Path("/usr/bin") / name
        )
    env = {"PATH": str(tools), "HOME": str(tmp_path), "PYENV_ROOT": str(tmp_path)}
    run = subprocess.run(
        [str(ROOT / ".ci" / "run")], capture_output=True, text=True, env=env, timeout=60
    )
    checked = [f"lint test VENV=.venv-{v} PYTHON={tools / f'python{v}'}" for v in expected]
    assert run.stdout.splitlines() == checked
    assert run.returncode == (0 if there else 2)
    assert ("error: no Python" in run.stderr) == (not there)


def test_a_flag_that_a_jaxlib_does_not_know_is_not_given_to_it():
    assert faster_compilation("0.10.2") == " --xla_cpu_use_fusion_emitters=false"
    assert faster_compilation("0.12.0.1") == ""
