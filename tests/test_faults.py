"""Every row of faults.md has a test that says it holds it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent


def find_rows(source: str) -> Iterator[int]:
    """Yield the rows that quick tests of a file hold, by `pytest.mark.fault(N, ...)`."""
    if re.search(r"^pytestmark = pytest\.mark\.slow$", source, re.MULTILINE):
        return
    for node in ast.walk(ast.parse(source)):
        marks = [ast.unparse(mark) for mark in getattr(node, "decorator_list", [])]
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            marks = [ast.unparse(node.value)]
        if "pytest.mark.slow" not in marks:
            found = re.findall(r"^pytest\.mark\.fault\((.*)\)$", "\n".join(marks), re.MULTILINE)
            yield from (int(number) for numbers in found for number in numbers.split(","))


def test_every_row_has_a_quick_test():
    table = (HERE / "faults.md").read_text()
    listed = [int(row) for row in re.findall(r"^\|(\d+)\|", table, re.MULTILINE)]
    assert listed == sorted(set(listed))
    files = [file.read_text() for file in HERE.rglob("test_*.py")]
    held = {row for text in files if "mark.fault" in text for row in find_rows(text)}
    assert held == set(listed), "rows without a test, and marks of rows that are not there"
