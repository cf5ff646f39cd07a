"""Every row of faults.md has a test that says it holds it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
AT_RANDOM = 28  # the row whose test takes minutes


def list_rows(text: str) -> list[int]:
    """Return the row numbers of the table."""
    firsts = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("|")]
    return [int(first) for first in firsts if first.isdigit()]


def find_rows(source: str) -> Iterator[int]:
    """Yield the rows that quick tests of a file hold, by `pytest.mark.fault(N, ...)`."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    if any("pytestmark" in text and "mark.slow" in text for text in map(ast.unparse, tree.body)):
        return
    tests = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    slow = [test for test in tests if "pytest.mark.slow" in map(ast.unparse, test.decorator_list)]
    skipped = {id(node) for test in slow for node in ast.walk(test)}
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
    missing = set(listed) - held - {AT_RANDOM}
    assert not missing, f"rows without a quick test: {sorted(missing)}"


def test_marks_of_quick_tests_are_found():
    source = (
        "@pytest.mark.fault(3, 7)\ndef test_a(): ...\n"
        "@pytest.mark.slow\n@pytest.mark.fault(8)\ndef test_b(): ...\n"
        "x = pytest.param(1, marks=pytest.mark.fault(9))\n"
    )
    assert sorted(find_rows(source)) == [3, 7, 9]
    assert [*find_rows(f"pytestmark = pytest.mark.slow\n{source}")] == []
