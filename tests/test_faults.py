"""Every row of faults.md has a test that says it holds it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent


def list_rows(text: str) -> list[int]:
    """Return the row numbers of the table."""
    firsts = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("|")]
    return [int(first) for first in firsts if first.isdigit()]


def is_slow(node: ast.AST) -> bool:
    """Tell whether a test, a parameter or `pytestmark` has the mark `slow`."""
    found = getattr(node, "decorator_list", [])
    if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
        found = [node.value]
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.param":
        found = [keyword.value for keyword in node.keywords if keyword.arg == "marks"]
    marks = [mark for one in found for mark in getattr(one, "elts", [one])]
    return "pytest.mark.slow" in map(ast.unparse, marks)


def find_rows(source: str) -> Iterator[int]:
    """Yield the rows that quick tests of a file hold, by `pytest.mark.fault(N, ...)`."""
    nodes = list(ast.walk(ast.parse(source)))
    slow = list(filter(is_slow, nodes))
    if any(isinstance(node, ast.Assign) for node in slow):
        return  # the whole file
    skipped = {id(inner) for node in slow for inner in ast.walk(node)}
    for node in nodes:
        marks = isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.fault"
        if marks and id(node) not in skipped:
            yield from map(ast.literal_eval, node.args)


def test_every_row_has_a_quick_test():
    listed = list_rows((HERE / "faults.md").read_text())
    assert listed == sorted(set(listed))
    files = [file.read_text() for file in HERE.rglob("test_*.py")]
    held = {row for text in files if "mark.fault" in text for row in find_rows(text)}
    assert held <= set(listed), "a mark names a row that the table does not have"
    assert sorted(set(listed) - held) == []


def test_marks_of_quick_tests_are_found():
    source = (
        "@pytest.mark.fault(3, 7)\ndef test_a(): ...\n"
        "@pytest.mark.slow\n@pytest.mark.fault(8)\ndef test_b(): ...\n"
        "x = pytest.param(1, marks=pytest.mark.fault(9))\n"
        "y = pytest.param(1, marks=(pytest.mark.fault(10), pytest.mark.slow))\n"
    )
    assert sorted(find_rows(source)) == [3, 7, 9]
    for marks in ("pytest.mark.slow", "[pytest.mark.usefixtures('x'), pytest.mark.slow]"):
        assert list(find_rows(f"pytestmark = {marks}\n{source}")) == []
