"""The tool plants the faults that it names, in text that stays valid, where they do no harm."""

import re

from tests.texts import ROOT
from tests.tools import planting

TOY = b'''
import os
MOST: int = 3

def stop(number: int, names: list[str] = [], deep=True) -> float:
    """Take 1 of 2."""
    if number in names and not deep:
        return 0.5
    if number is None:
        raise ValueError(
            f"{number + 7} is none"
        )
    assert number > 11
    return names[1:][number - 2]

def tell(number):
    print(number)
    os.kill(number, 15)
    "\xc3\xa9", number <= MOST
'''
PLANTED = [
    ("MOST: int = 3", "MOST: int = 4"),
    ("deep=True", "deep=False"),
    ("if number in names", "if number not in names"),
    ("and not deep", "and deep"),
    ("if number in names and not deep:", "if True:"),
    ("return 0.5", "return 1.0"),
    ("if number is None", "if number is not None"),
    ('raise ValueError( f"{number + 7} is none" )', "pass"),
    ("names[1:]", "names[0:]"),
    ("names[1:]", "names[2:]"),
    ("number - 2", "number - 1"),
    ("number - 2", "number - 3"),
    ("os.kill(number, 15)", "return; os.kill(number, 15)"),
    ('"é", number', 'return; "é", number'),
    ("number <= MOST", "number < MOST"),
]


MUTANTS = planting.find_mutants("bert_jax/room/toy.py", TOY)


def test_mutants_are_what_they_say():
    """Each is a valid text, too."""
    lines = [(mutant.before, mutant.after) for mutant in MUTANTS]
    assert len(lines) == len(PLANTED)
    for old, new in PLANTED:
        assert [line for line in lines if old in line[0] and line[0].replace(old, new) == line[1]]
    assert {mutant.room for mutant in MUTANTS} == {"room"}
    assert all(planting.is_valid(mutant.plant(TOY)) for mutant in MUTANTS)


def test_choice_is_spread_and_repeats(tmp_path):
    for path in ("large/0.py", "large/1.py", "large/2.py", "small/0.py"):
        file = tmp_path / planting.PACKAGE / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(TOY)
    chosen = planting.choose(tmp_path, 8, seed=1)
    assert [mutant.room for mutant in chosen] == ["large"] * 6 + ["small"] * 2
    assert len({(mutant.file, mutant.line) for mutant in chosen}) == 8
    assert chosen == planting.choose(tmp_path, 8, seed=1) != planting.choose(tmp_path, 8, seed=2)


def test_bugs_by_hand_are_valid_and_have_their_tests():
    for bug in planting.read_bugs(ROOT):
        assert planting.is_valid(bug.plant((ROOT / bug.file).read_bytes())), bug.id
        file, name = re.fullmatch(r"(.*)::(\w+)(?:\[.*)?", bug.test).groups()
        assert f"\ndef {name}(" in (ROOT / file).read_text(), bug.id
