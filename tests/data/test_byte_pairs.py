"""From text to batches and answers with byte-level BPE: blanks between sentences, words, and pairs
that two separators part.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from pathlib import Path

import numpy as np
import pytest

from bert_jax.config import knobs
from bert_jax.data import features, prepare, tokenizer
from bert_jax.data.examples import Answer, Example
from tests.data import small

GOLDEN = Path(__file__).parents[1] / "golden" / "bpe"
CHINESE = "今天天气很好。我们去公园吧\uff01好的。 好"
DOCUMENTS = [
    ['The old man walked. He said "no".  It\'s 3.5 km!', "A new line (of 2).", "'Tis one."],
    [CHINESE, "第二行。It ends."],
    ["One."],
]


@functools.cache
def golden(kind: str) -> tokenizer.Tokenizer:
    return tokenizer.load(GOLDEN / kind)


@pytest.mark.parametrize("path", ["roberta", "modernbert", ""])
def test_prepared_document_has_the_ids_of_its_text(tmp_path, path):
    small.write_text(tmp_path / "in", DOCUMENTS * 2)
    settings = {"sentences": "split", "language": "zh", "deduplicate": False}
    settings |= {"vocabulary": str(GOLDEN / path) if path else "", "vocab_size": 280}
    chosen = small.configure(tmp_path, validation_fraction=0, **settings)
    if not path:
        kind = dataclasses.replace(chosen.tokenizer, kind="bpe")
        chosen = dataclasses.replace(chosen, tokenizer=kind)
    found = prepare.prepare_corpus(chosen, lambda line: None)
    assert found.tokenizer.kind == "bpe"
    wanted = found.tokenizer.encode_batch([" ".join(" ".join(d).split()) for d in DOCUMENTS * 2])
    shard = found.splits["train"]
    bounds = [0, *shard.sentence_ends[np.array(shard.document_ends) - 1].tolist()]
    assert [shard.tokens[a:b].tolist() for a, b in itertools.pairwise(bounds)] == wanted
    assert len(shard.sentence_ends) > 2 * sum(map(len, DOCUMENTS))  # lines hold several


def test_continuation_divides_text_at_blanks():
    found = golden("roberta")
    text = 'The model\'s masking-rate, "which" is 2,048. café!'
    ids = np.array(found.encode_batch([text])[0])
    starts = np.flatnonzero(~found.continuation[ids])
    words = np.split(ids, starts[starts > 0])
    assert [found.decode(word.tolist()).strip() for word in words] == text.split()


# --- tasks ----------------------------------------------------------------------------------------


def task_rows(examples, kind, found, length=64, **settings):
    return features.encode_examples(
        examples, kind, found, knobs.Task(**settings), length, train=False
    )


def test_tags_stand_at_first_pieces_with_a_blank():
    found = golden("roberta")
    words = ("The", "dog's", "masking", "rate", "<mask>", "")
    example = Example("line 1", "", words=words, label=(1, 2, 3, 4, 5, 6))
    rows = task_rows([example], "tag", found)
    ids = rows.tokens.tolist()[1:-1]
    assert ids == found.encode_batch([" The dog's masking rate <mask> "])[0]
    tags = rows.targets["tags"].tolist()[1:-1]
    assert [tag for tag in tags if tag >= 0] == [1, 2, 3, 4, 5, 6]
    assert all((tag >= 0) == (not found.continuation[i]) for tag, i in zip(tags, ids, strict=True))


@pytest.mark.parametrize("kind", ["roberta", "modernbert"])
def test_answers_are_the_text_between_their_tokens(kind):
    found = golden(kind)
    context = "In 1999 the old man's dog, caf\u00e9 and all, walked along the river."
    for text in ("1999", "the old man", "caf\u00e9", "river"):
        answer = Answer(text, context.index(text))
        example = Example("line 1", "", text="When?", pair=context, label=(answer,))
        rows = task_rows([example], "span", found)
        ((start, end),) = rows.targets["spans"].tolist()
        first, last = rows.characters[start, 0], rows.characters[end, 1]
        assert context[first:last] == text
        column = len(found.encode_batch(["When?"])[0]) + 1 + found.special.separators
        assert (rows.characters[:column] == -1).all()
        assert rows.characters[column].tolist() == [0, 1]
        assert rows.tokens[column - 1] == found.special.sep
