"""Detection of a labelled file's format from its first lines, where its name does not say it."""

from __future__ import annotations

import itertools
from pathlib import Path

from bert_jax.config.knobs import Task
from bert_jax.data.labelled import conll
from bert_jax.data.labelled.formats import delimiter, lines, needed, pick


def kind(path: Path, task: Task) -> str:
    """Return one of the names of `rows.READERS`, or an empty string where no format fits."""
    texts = [text for _, text, _ in itertools.islice(lines(path), conll.SAMPLE)]
    full = [text for text in texts if text.strip()]
    if not full:
        return ""
    first = full[0].strip()
    if first.startswith("{") or (first.startswith("[") and first[1:].strip()[:1] in ("", "{")):
        return "json"
    mark = delimiter(first, task)
    if all(pick(knob, first.split(mark)) is not None for knob in needed(task)):
        return "tsv" if mark == "\t" else "csv"
    words = [text for text in full if not text.startswith("#")]
    if conll.most(
        [len(text.split("\t")) == len(conll.CONLLU) and text[0].isdigit() for text in words]
    ):
        return "conllu"
    form = conll.layout(texts)  # words in columns, and blank lines between sentences?
    width = form.label + 1
    votes = [form.numbered or len(row) == width for block in form.sentences for row in block]
    if len(form.sentences) > 1 and width > 1 and conll.most(votes):
        return "conll"
    columns = first.count("\t") + 1
    if columns > 1 and conll.most([text.count("\t") + 1 == columns for text in full]):
        return "tsv"
    return "csv" if len(first.split(mark)) == len(task.columns) > 1 else ""
