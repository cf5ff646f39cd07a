"""Refuse docstrings that need a second reading: python tests/tools/docstrings.py FOLDER…

ruff's D401 knows the imperative of verbs; a sentence that opens with one of OPENERS passes it. A
first line "Return what …" names no thing, and one of fewer than four words mostly repeats the name.
"""

import ast
import re
import sys
from pathlib import Path

OPENERS = {"What", "How", "Whether", "Of", "Those", "That", "Which"}
NAMELESS = re.compile(r"Returns? (what|that|those|which)\b")
FEWEST = 4  # words of a first line


def find_fault(docstring: str) -> str:
    """Describe a fault of a docstring's first line; return "" if there is none."""
    first = docstring.splitlines()[0]
    words = first.split()
    if words[0].strip(",.:;") in OPENERS:
        return f"opens with {words[0]}"
    if NAMELESS.match(first):
        return f"opens with {' '.join(words[:2])}"
    if len(words) < FEWEST:
        return f"has {len(words)} words"
    return ""


def find_faults(file: Path) -> list[str]:
    """List the functions of a file whose docstring has a fault."""
    found = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            docstring = ast.get_docstring(node)
            fault = find_fault(docstring) if docstring else ""
            if fault:
                found.append(f"{file}:{node.lineno}: the docstring of {node.name} {fault}")
    return found


if __name__ == "__main__":
    listed = [
        line
        for root in sys.argv[1:]
        for file in sorted(Path(root).rglob("*.py"))
        for line in find_faults(file)
    ]
    for line in listed:
        print(line)
    sys.exit(bool(listed))
