"""The tool plants the faults that it names, in text that stays valid, where they do no harm."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.tools import mutants, planting

ROOT = Path(__file__).resolve().parents[1]
TOY = b'''
from __future__ import annotations
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


def found() -> list[planting.Mutant]:
    return planting.find_mutants("bert_jax/room/toy.py", TOY)


def test_mutants_are_what_they_say():
    lines = [(mutant.before, mutant.after) for mutant in found()]
    assert len(lines) == len(PLANTED)
    for old, new in PLANTED:
        assert [line for line in lines if old in line[0] and line[0].replace(old, new) == line[1]]
    assert {mutant.room for mutant in found()} == {"room"}


@pytest.mark.parametrize("mutant", found(), ids=lambda mutant: mutant.after)
def test_mutant_is_another_valid_text(mutant):
    planted = mutant.plant(TOY)
    assert planting.is_valid(planted)
    assert ast.dump(ast.parse(planted)) != ast.dump(ast.parse(TOY))
    line = planted.decode().splitlines()[mutant.line - 1]
    assert mutant.after.startswith(" ".join(line.split()))


def test_choice_is_spread_and_repeats(tmp_path):
    sizes = {"large": 3, "small": 1}
    for room, number in sizes.items():
        for part in range(number):
            path = tmp_path / planting.PACKAGE / room / f"{part}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(TOY)
    chosen = planting.choose(tmp_path, 8, seed=1)
    assert [mutant.room for mutant in chosen] == ["large"] * 6 + ["small"] * 2
    assert len({(mutant.file, mutant.line) for mutant in chosen}) == 8
    assert chosen == planting.choose(tmp_path, 8, seed=1) != planting.choose(tmp_path, 8, seed=2)


@pytest.mark.parametrize("bug", planting.read_bugs(ROOT), ids=lambda bug: bug.id)
def test_bug_by_hand_is_valid_and_has_its_test(bug):
    assert planting.is_valid(bug.plant((ROOT / bug.file).read_bytes()))
    file, name = re.fullmatch(r"(.*)::(\w+)(?:\[.*)?", bug.test).groups()
    assert f"\ndef {name}(" in (ROOT / file).read_text()


def test_lines_of_imports_are_found_by_name():
    assert planting.executed_lines(TOY, 4) == (range(4, 5), {"MOST"})
    assert planting.executed_lines(TOY, 12) == (range(11, 14), set())
    assert planting.executed_lines(TOY, 6)[1] == {"stop"}


def test_costs_leave_out_tests_that_fail():
    end = {"event": "end", "seconds": 2.0}
    shared = {"event": "fixture", "fixtures": ["fixture f"], "seconds": 5.0}
    events = [
        {"event": "begin", "test": "a", "fixtures": ["fixture f"]},
        shared | {"test": "a"},
        end | {"test": "a", "outcome": "passed"},
        end | {"test": "b", "outcome": "failed"},
    ]
    costs = {"tests": {"a": [2.0, ["fixture f"]]}, "fixtures": {"fixture f": 5.0}}
    assert mutants.read_costs(events) == costs


def test_cases_of_one_function_take_turns():
    order = {"a[1]": 1.0, "a[2]": 2.0, "b": 3.0}
    assert mutants.alternate(order, order.get) == ["a[1]", "b", "a[2]"]
