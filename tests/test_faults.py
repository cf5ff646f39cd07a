"""Every row of faults.md has a test that says it holds it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def rows(text: str) -> list[int]:
    """Return the row numbers of the table."""
    firsts = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("|")]
    return [int(first) for first in firsts if first.isdigit()]


def find_rows(source: str) -> Iterator[int]:
    """Yield the rows that quick tests of a file hold, by `pytest.mark.fault(N, ...)`."""
    tree = ast.parse(source)
    slow = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and "pytest.mark.slow" in map(ast.unparse, node.decorator_list)
    ]
    skipped = {id(node) for test in slow for node in ast.walk(test)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.fault":
            numbers = [row.value for row in node.args if isinstance(row, ast.Constant)]
            known = len(numbers) == len(node.args) and all(type(n) is int for n in numbers)
            assert known, f"line {node.lineno}: rows are written as numbers"
            if id(node) not in skipped:
                yield from numbers


def test_rows_are_numbered_in_order():
    listed = rows((HERE / "faults.md").read_text("utf-8"))
    assert listed == sorted(set(listed))


AT_RANDOM = 28  # its test takes minutes


def test_every_row_has_a_quick_test():
    listed = set(rows((HERE / "faults.md").read_text("utf-8")))
    held = {
        row: file.name
        for file in HERE.rglob("test_*.py")
        for row in find_rows(file.read_text("utf-8"))
    }
    assert set(held) <= listed, "a mark names a row that the table does not have"
    missing = listed - set(held) - {AT_RANDOM}
    assert not missing, f"rows without a quick test: {sorted(missing)}"


def test_marks_of_quick_tests_are_found():
    source = (
        "@pytest.mark.fault(3, 7)\ndef test_a(): ...\n"
        "@pytest.mark.slow\n@pytest.mark.fault(8)\ndef test_b(): ...\n"
        "x = pytest.param(1, marks=pytest.mark.fault(9))\n"
    )
    assert sorted(find_rows(source)) == [3, 7, 9]
    with pytest.raises(AssertionError, match="written as numbers"):
        list(find_rows("pytest.mark.fault(N)"))
