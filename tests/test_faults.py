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


def marked(source: str) -> Iterator[int]:
    """Yield the rows that `pytest.mark.fault(N, ...)` names in a test file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.fault":
            for row in node.args:
                assert isinstance(row, ast.Constant), (
                    f"line {node.lineno}: rows are written as numbers"
                )
                assert isinstance(row.value, int), (
                    f"line {node.lineno}: rows are written as numbers"
                )
                yield row.value


def test_rows_are_numbered_in_order():
    listed = rows((HERE / "faults.md").read_text("utf-8"))
    assert listed == sorted(set(listed))


def test_every_row_has_a_test():
    listed = set(rows((HERE / "faults.md").read_text("utf-8")))
    held = {
        row: file.name
        for file in HERE.rglob("test_*.py")
        for row in marked(file.read_text("utf-8"))
    }
    assert set(held) <= listed, "a mark names a row that the table does not have"
    assert not listed - set(held), f"rows without a test: {sorted(listed - set(held))}"


def test_marks_are_found():
    source = (
        "@pytest.mark.fault(3, 7)\ndef test_a(): ...\n"
        "x = pytest.param(1, marks=pytest.mark.fault(9))\n"
    )
    assert sorted(marked(source)) == [3, 7, 9]
    with pytest.raises(AssertionError, match="written as numbers"):
        list(marked("pytest.mark.fault(N)"))
