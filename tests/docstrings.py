"""Refuse docstrings of functions that do not begin with a verb: python tests/docstrings.py FOLDER…

ruff's D401 knows the imperative of verbs; a sentence that opens with one of these words passes it.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

OPENERS = {"What", "How", "Whether", "Of", "Those", "That", "Which"}


def faults(file: Path) -> list[str]:
    """List the functions of a file whose docstring opens with one of OPENERS."""
    found = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            words = (ast.get_docstring(node) or "").split()
            if words and words[0].strip(",.:;") in OPENERS:
                found.append(
                    f"{file}:{node.lineno}: the docstring of {node.name} opens with {words[0]}"
                )
    return found


if __name__ == "__main__":
    listed = [
        line
        for root in sys.argv[1:]
        for file in sorted(Path(root).rglob("*.py"))
        for line in faults(file)
    ]
    for line in listed:
        print(line)
    sys.exit(bool(listed))
