"""The glossary's answers name files that are there, and say what is in them."""

from __future__ import annotations

import re

from tests import texts

PACKAGE = texts.ROOT / "bert_jax"
LIMIT = 30  # terms


def test_answers_name_files_and_what_is_in_them():
    text = (PACKAGE / "GLOSSARY.md").read_text()
    answers = re.findall(r"^\| Where|^\| What", text, re.M)
    named = re.findall(r"\? \| `([\w/.]+)`(?:, `(\w+)`)? \|$", text, re.M)
    assert len(answers) == len(named) == 10
    for file, name in named:
        assert name in (PACKAGE / file).read_text(), file


def test_terms_have_a_sentence_and_an_example():
    text = (PACKAGE / "GLOSSARY.md").read_text().split("## Where")[0]
    rows = re.findall(r"^\| \*\*(.+)", text, re.M)
    assert 20 <= len(rows) <= LIMIT
    assert all(len(row.split(" | ")) == 3 and row.split(" | ")[2].strip(" |") for row in rows)
