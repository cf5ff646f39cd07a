"""Faults at random over a whole pipeline: the harness sees what is wrong, and finds nothing in five
draws.
"""

import dataclasses
import json
import os
import random
import shutil
import subprocess
import sys

import pytest

from bert_jax import cli
from tests.texts import ROOT

FOLDER = ROOT / "experiments" / "reliability"


@pytest.fixture
def chaos(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import chaos

    return chaos


@pytest.mark.parametrize(
    ("code", "err", "wrong"),
    [
        (0, "warning: checkpoint corrupt: x; falling back to step 6\n", ""),
        (4, "error: disk full: 10 bytes needed, 5 free\nhint: make room\n", ""),
        (4, "error: disk full\n", "exit code 4 with 0 lines of hint:"),
        (4, "error: a\nerror: b\nhint: c\n", "exit code 4 with 2 lines of error:"),
        (0, "Traceback (most recent call last):\n", "Traceback in its output"),
        (139, "", "exit code 139, not one of [0, 4]"),
    ],
)
def test_chaos_sees_a_wrong_end(chaos, code, err, wrong):
    assert chaos.Outcome(code, "", err, 1.0).wrong({0, 4}) == wrong
    assert chaos.Outcome(130, "", "error: interrupted\n", 1.0).wrong({130}) == ""
    assert "hung" in chaos.Outcome(code, "", err, 1.0, hung=True).wrong({0, 4, 139})


@pytest.mark.parametrize(
    ("loss", "wrong"), [(3.0, []), (3.5, ["another answer than without faults"])]
)
def test_chaos_finds_another_answer(chaos, tmp_path, monkeypatch, loss, wrong):
    """A violation is shown with what repeats it."""
    answer = chaos.Outcome(0, '{"pretrain": {"mlm_loss": 3.0}}', "", 0.1)
    monkeypatch.setattr(chaos.World, "run", lambda world, stage: answer)
    stages = tuple(one for one in chaos.STAGES if one.name == "evaluate")
    monkeypatch.setattr(chaos, "STAGES", stages)
    nothing = chaos.Kind("nothing", 28, 1, lambda draw: ("", "", draw.world.run(None)))
    monkeypatch.setattr(chaos, "KINDS", (nothing,))
    normal = chaos.Reference({"evaluate": 0.1}, {"evaluate": {"pretrain": {"mlm_loss": loss}}})
    found = []
    chaos.episode(1, tmp_path / "a", tmp_path, normal, lambda one: bool(found.append(one)))
    assert [one.wrong for one in found if one.wrong] == wrong
    assert ("--seed=1 --faults=" in found[-1].log) == bool(wrong)


@pytest.mark.fault(28)
def test_damage_at_random_is_told_or_changes_nothing(chaos, tmp_path, monkeypatch, capfd):
    """The run of golden/run_v1 is evaluated after bits are flipped, files cut and removed.

    With this seed weights and vocabulary are damaged.
    """

    class World(chaos.World):
        """A copy of the run, evaluated in this process."""

        def __init__(self):
            golden = ROOT / "tests" / "golden" / "run_v1"
            self.path, self.scratch = shutil.copytree(golden, tmp_path / "world"), tmp_path
            (audit,) = self.path.glob("cache/*/audit.json")
            facts = json.loads(audit.read_text()) | {"warnings": []}  # of its text, at every start
            audit.write_text(json.dumps(facts))

        def run(self, stage):
            monkeypatch.chdir(self.path)
            code = cli.execute(stage.words.split())
            return chaos.Outcome(code, *capfd.readouterr(), 0.0)

    read = ("run/checkpoints/8/params", "run/tokenizer")
    monkeypatch.setitem(chaos.READS, "evaluate", read)
    usual = next(stage for stage in chaos.STAGES if stage.name == "evaluate")
    stage = dataclasses.replace(usual, words="evaluate --checkpoint=run")
    world, chance, told = World(), random.Random(311), set()
    answer = stage.answer(world.path, world.run(stage).out)
    for kind in 2 * [kind for kind in chaos.KINDS if kind.row == 5]:
        draw = chaos.Draw(chance, world, stage, 0.0, answer, finished=True)
        what, wrong, outcome = kind.run(draw)
        assert not wrong, what
        told.add(outcome.told())
    assert told == {True, False}


@pytest.mark.slow
@pytest.mark.fault(28)
def test_five_faults_at_random_break_no_promise():
    command = [sys.executable, str(FOLDER / "chaos.py"), "--seed=7", "--faults=5"]
    environment = os.environ | {"XLA_FLAGS": ""}  # as a user runs it
    run = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=1800)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.splitlines()[-1].split("|")[3:6] == [" 5 ", " 5 ", " 0 "]
