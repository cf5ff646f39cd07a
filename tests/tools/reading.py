"""Draw docstrings and sentences for a reading test: python tests/tools/reading.py [--seed=103]

A reader who knows JAX and BERT, but not this project, reads each docstring and each sentence once.
`clear` marks text that is understood at once, `second reading` text that needs to be read again,
and `needs the code` text that cannot be understood without the code. `reading.csv` holds the
verdicts of 2026-11-27 for seed 103, given before the texts that were not clear were mended.
"""

import argparse
import ast
import random
import re
import textwrap
from pathlib import Path

FOLDERS = (".", "docs", "bert_jax", "configs", "experiments/**", "tests/**")
GENERATED = {"summary.md", "KNOBS.md"}
FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
SET_APART = re.compile(r" *(\||#|<|!\[|$)")  # lines of tables, titles, HTML and figures
ITEM = re.compile(r"^ *([-*]|\d+\.) ")
SENTENCE_END = re.compile(r"(?:(?<=[.!?])|(?<=[.!?][)*\"])) +(?=[A-Z`\"*\[(])")


def list_docstrings() -> list[tuple[str, str]]:
    """List (path:name, docstring) of everything in the package, sorted."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    return sorted(
        (f"{file}:{getattr(node, 'name', '')}", docstring)
        for file in Path("bert_jax").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, documented) and (docstring := ast.get_docstring(node))
    )


def split_sentences(page: str) -> list[str]:
    """Split the paragraphs and list items of a Markdown page into sentences."""
    texts = [""]
    for line in FENCED.sub("", page).splitlines():
        if SET_APART.match(line) or ITEM.match(line):
            texts.append("")
        if not SET_APART.match(line):
            texts[-1] += " " + ITEM.sub("", line).strip()
    return [sentence for text in texts if text for sentence in SENTENCE_END.split(text.strip())]


def list_sentences() -> list[tuple[str, str]]:
    """List (path:number, sentence) of the pages that are written by hand, sorted by path."""
    return [
        (f"{file}:{number}", sentence)
        for file in sorted({file for folder in FOLDERS for file in Path().glob(f"{folder}/*.md")})
        if file.name not in GENERATED
        for number, sentence in enumerate(split_sentences(file.read_text()), 1)
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for flag, default in (("--seed", 103), ("--docstrings", 100), ("--sentences", 60)):
        parser.add_argument(flag, type=int, default=default)
    chosen = parser.parse_args()
    drawn = random.Random(chosen.seed).sample(list_docstrings(), chosen.docstrings)
    drawn += random.Random(chosen.seed).sample(list_sentences(), chosen.sentences)
    for place, text in drawn:
        print(f"{place}\n{textwrap.indent(text, '    ')}\n")
