"""Faults at random over a whole pipeline: the harness sees what is wrong, and finds nothing in five
draws.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "experiments" / "reliability"


@pytest.fixture
def chaos(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    import chaos

    return chaos


@pytest.mark.parametrize(
    ("code", "err", "wrong"),
    [
        (0, "", ""),
        (0, "warning: checkpoint corrupt: x; falling back to step 6\n", ""),
        (4, "error: disk full: 10 bytes needed, 5 free\nhint: make room\n", ""),
        (4, "error: disk full\n", "exit code 4 with 0 lines of hint:"),
        (4, "error: a\nerror: b\nhint: c\n", "exit code 4 with 2 lines of error:"),
        (0, "Traceback (most recent call last):\n", "Traceback in its output"),
        (139, "", "exit code 139, not one of [0, 4]"),
    ],
)
def test_chaos_sees_what_is_wrong_with_an_end(chaos, code, err, wrong):
    assert chaos.Outcome(code, "", err, 1.0).wrong({0, 4}) == wrong


def test_chaos_sees_a_command_that_hangs(chaos):
    assert "hung" in chaos.Outcome(-9, "", "", 1.0, hung=True).wrong({0, -9})


def test_chaos_finds_another_answer(chaos, tmp_path, monkeypatch):
    """A pipeline whose evaluation is not what it was without faults is a violation, with what
    repeats it.
    """

    class Told(chaos.World):
        def run(self, stage):
            return chaos.Outcome(0, '{"pretrain": {"mlm_loss": 3.0}}', "", 0.1)

    monkeypatch.setattr(chaos, "World", Told)
    monkeypatch.setattr(
        chaos, "STAGES", tuple(one for one in chaos.STAGES if one.name == "evaluate")
    )
    monkeypatch.setattr(
        chaos, "KINDS", (chaos.Kind("nothing", 52, 1, lambda draw: ("", "", draw.world.run(None))),)
    )
    for loss, bad in ((3.0, []), (3.5, ["another answer than without faults"])):
        found = []
        normal = chaos.Reference({"evaluate": 0.1}, {"evaluate": {"pretrain": {"mlm_loss": loss}}})
        chaos.episode(
            1,
            tmp_path / str(loss),
            tmp_path,
            normal,
            lambda one, found=found: bool(found.append(one)),
        )
        assert [one.wrong for one in found if one.wrong] == bad
    assert "--seed=1 --faults=" in found[-1].log


@pytest.mark.slow
@pytest.mark.fault(28)
def test_five_faults_at_random_break_no_promise():
    command = [sys.executable, str(FOLDER / "chaos.py"), "--seed=7", "--faults=5"]
    environment = os.environ | {"XLA_FLAGS": ""}  # as a user runs it
    run = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=1800)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.splitlines()[-1].split("|")[3:6] == [" 5 ", " 5 ", " 0 "]
