"""The bugs that tests plant, and the faults of mutants.py: valid text, where they do no harm."""

import ast
import re

import pytest

from tests.texts import ROOT
from tests.tools import mutants, planting

TOY = b"""
import os
def stop(number, names, deep=True):
    if number in names and not deep:
        return 0.5
    if number is None:
        raise ValueError(f"{number + 7} is none")
    assert number > 11
    os.kill(number, 15)
    return "\xc3\xa9", names[number - 2]
"""
FAULTS = [  # kind, line, and what becomes what
    ("constant", 3, "deep=True", "deep=False"),
    ("comparison", 4, "number in names", "number not in names"),
    ("constant", 5, "0.5", "1.5"),
    ("constant", 10, "- 2", "- 3"),
    ("comparison", 6, "number is None", "number is not None"),
    ("not", 4, "not deep", "deep"),
    ("raise", 7, 'raise ValueError(f"{number + 7} is none")', "pass"),
    ("return early", 4, "number in names and not deep", "True"),
]


@pytest.mark.parametrize(("kind", "line", "before", "after"), FAULTS)
def test_fault_changes_one_place(kind, line, before, after):
    changes = [*mutants.list_changes(ast.parse(TOY))]
    assert len(changes) == len(FAULTS)
    planted = [mutants.plant("toy.py", TOY, *change) for change in changes]
    (found,) = [one for one in planted if (one.kind, one.line) == (kind, line)]
    assert found.planted == TOY.replace(before.encode(), after.encode())
    compile(found.planted, "toy.py", "exec")


def test_choice_is_one_a_line_and_repeats(tmp_path):
    for path in ("large/0.py", "large/1.py", "small/0.py"):
        file = tmp_path / "bert_jax" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(TOY)
    chosen = mutants.choose(tmp_path, 8, seed=1)
    assert len({(mutant.file, mutant.line) for mutant in chosen}) == len(chosen) == 8
    assert chosen == mutants.choose(tmp_path, 8, seed=1) != mutants.choose(tmp_path, 8, seed=2)
    assert {one.file for one in mutants.choose(tmp_path, 3, 0, "small")} == {"bert_jax/small/0.py"}


def test_bugs_by_hand_are_valid_and_have_their_tests():
    for bug in planting.read_bugs().values():
        compile(bug.plant((ROOT / bug.file).read_bytes()), bug.name, "exec")
        file, name = re.fullmatch(r"(.*)::(\w+)(?:\[.*)?", bug.test).groups()
        assert f"\ndef {name}(" in (ROOT / file).read_text(), bug.name
