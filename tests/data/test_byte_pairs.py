"""From text to batches and answers with byte-level BPE: blanks between sentences, words, and pairs
that two separators part.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import types
from pathlib import Path

import numpy as np
import pytest

from bert_jax import config as configs
from bert_jax.batch import TwoSeparators
from bert_jax.config import knobs
from bert_jax.data import features, pairs, prepare, tokenizer
from bert_jax.data.corpus import Prepared
from bert_jax.data.examples import Answer, Example
from bert_jax.data.pipeline import Source
from bert_jax.errors import DataError
from bert_jax.masking import units
from tests import corpora

GOLDEN = Path(__file__).parents[1] / "golden" / "bpe"
TWO = TwoSeparators(*corpora.SPECIAL)
CHINESE = "今天天气很好。我们去公园吧\uff01好的。 好"
DOCUMENTS = [
    ['The old man walked. He said "no".  It\'s 3.5 km!', "A new line (of 2).", "'Tis one."],
    [CHINESE, "第二行。It ends."],
    ["One."],
]


@functools.cache
def golden(kind: str) -> tokenizer.Tokenizer:
    return tokenizer.load(GOLDEN / kind)


def prepared(folder: Path, documents: list[list[str]], **overrides: object) -> Prepared:
    """A corpus of documents, all of them for training."""
    (folder / "in").mkdir(parents=True)
    text = "\n\n".join("\n".join(lines) for lines in documents)
    (folder / "in" / "a.txt").write_text(f"{text}\n", encoding="utf-8")
    base = {
        "corpus__source": "files",
        "corpus__path": folder / "in",
        "corpus__cache": folder / "cache",
        "corpus__workers": 1,
        "corpus__validation_fraction": 0,
        "corpus__deduplicate": False,
        "tokenizer__kind": "bpe",
        "evals": None,
    }
    return prepare.prepare_corpus(configure(**base | overrides), log=lambda line: None)


def configure(**overrides: object) -> knobs.Config:
    tree = configs.default()
    if overrides.pop("evals", 0) is None:
        tree.evals = {}
        tree.checkpoints.best = ""
    for key, value in overrides.items():
        configs.override(tree, key.replace("__", "."), str(value))
    return configs.settle(tree)[0]


# --- prepared text --------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["roberta", "modernbert", ""])
def test_a_document_has_the_ids_of_its_text(tmp_path, path):
    given = {"tokenizer__path": GOLDEN / path} if path else {"tokenizer__vocab_size": 280}
    split = {"corpus__sentences": "split", "corpus__language": "zh"}
    found = prepared(tmp_path, DOCUMENTS * 2, **given, **split)
    assert found.tokenizer.kind == "bpe"
    wanted = found.tokenizer.encode_batch([" ".join(" ".join(d).split()) for d in DOCUMENTS * 2])
    shard = found.splits["train"]
    bounds = [0, *shard.sentence_ends[np.array(shard.document_ends) - 1].tolist()]
    assert [shard.tokens[a:b].tolist() for a, b in itertools.pairwise(bounds)] == wanted
    assert len(shard.sentence_ends) > 2 * sum(map(len, DOCUMENTS))  # lines hold several
    assert {"vocab.json", "merges.txt", "tokenizer.json"} < set(os.listdir(found.folder))


# --- words ----------------------------------------------------------------------------------------


def test_a_unit_is_a_word_between_blanks():
    found = tokenizer.load(GOLDEN / "roberta")
    text = 'The model\'s masking-rate, "which" is 2,048. café!'
    ids = np.array([[0, *found.encode_batch([text])[0], 2, 1]])
    eligible = ~np.isin(ids, found.special)
    rows = units.Rows(
        ids,
        eligible,
        found.continuation,
        knobs.Masking(unit="word", max_unit=64),
        np.zeros((1, 1), np.int64),
        np.zeros((1, 1), np.int64),
        0,
    )
    of_tokens = units.mark_words(rows)[0]
    assert (of_tokens[~eligible[0]] == -1).all()
    groups = [ids[0][of_tokens == unit].tolist() for unit in np.unique(of_tokens)[1:]]
    assert [found.decode(group).strip() for group in groups] == text.split()
    spans = units.mark_spans(rows._replace(settings=knobs.Masking(unit="span", max_unit=64)))[0]
    starts = {int(np.flatnonzero(of_tokens == unit)[0]) for unit in np.unique(of_tokens)[1:]}
    assert {*np.unique(spans)[1:].tolist()} <= starts


# --- pairs ----------------------------------------------------------------------------------------


def source(folder: Path, mode: str, most: int = 1) -> Source:
    found = corpora.prepared(folder, corpora.shards())
    tokenizer: object = types.SimpleNamespace(
        special=TWO, continuation=found.tokenizer.continuation
    )
    config = corpora.config(batch_size=8, sequence_length=32, pairs=mode, packing=most)
    return Source(dataclasses.replace(found, tokenizer=tokenizer), "train", config)


@pytest.mark.parametrize("mode", ["nsp", "sop"])
def test_two_separators_stand_between_the_texts_of_a_pair(tmp_path, mode):
    built, examples = source(tmp_path, mode), corpora.config().examples
    plans = [
        (shard.tokens.tolist(), example)
        for shard in [corpora.joined(corpora.shards())]
        for example in pairs.plan_split(shard, mode, examples, 31, 0, 0)
    ]
    longest = 0
    for number, (text, example) in enumerate(plans):
        batch = built.evaluation_batch(number, 1)
        a, b = (
            text[int(example[f"{name}_start"]) :][: int(example[f"{name}_length"])]
            for name in ("a", "b")
        )
        wanted = [TWO.cls, *a, *([TWO.sep, TWO.sep, *b] if b else []), TWO.sep]
        longest = max(longest, len(wanted))
        assert batch["tokens"][0].tolist() == wanted + [TWO.pad] * (32 - len(wanted))
        assert batch["segment_ids"].sum() == len(wanted)
        assert (batch["unit_ids"][0] >= 0).sum() == len(a) + len(b)
        assert not batch["type_ids"].any()
    assert longest == 32


# --- tasks ----------------------------------------------------------------------------------------


def task_rows(examples, kind, found, length=64, **settings):
    return features.encode_examples(
        examples, kind, found, knobs.Task(**settings), length, train=False
    )


def test_tags_stand_at_the_first_piece_of_words_with_a_blank():
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


def test_pairs_are_cut_to_fit_with_both_separators():
    found = golden("roberta")
    example = Example("line 1", "", text="the model " * 20, pair="the text " * 20, label=0)
    rows = task_rows([example], "classify", found, length=17)
    tokens = rows.tokens.tolist()
    assert len(tokens) == 17
    assert rows.cut == 1
    sep = found.special.sep
    at = tokens.index(sep)
    assert tokens[at : at + 2] == [sep, sep]
    assert tokens[-1] == sep
    assert tokens.count(sep) == 3
    assert not rows.type_ids.any()
    with pytest.raises(DataError, match="cannot hold"):
        task_rows(
            [Example("line 1", "", text="the", pair="text", label=())], "span", found, length=5
        )


# --- predictions ----------------------------------------------------------------------------------


# --- end to end -----------------------------------------------------------------------------------
