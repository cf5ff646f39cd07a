"""Checkpoints by the words that are read: how words are counted, and which steps they stand for."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

from bert_jax.config import knobs
from bert_jax.data import pipeline, prepare
from bert_jax.errors import ConfigError
from bert_jax.training.data import load_training_data, steps_of_words
from tests import texts

TEXT = "the cat's well-known 3rd hat , and the 2 dogs !\n\nmany other people saw them -- twice\n"
WORDS = 17  # the cat s well known 3rd hat and the 2 dogs many other people saw them twice


@pytest.fixture(scope="module")
def read(base) -> int:
    """Words of the corpus, by its lines."""
    text = (base.parent / "corpus" / "text.txt").read_text()
    return len(re.findall(r"[a-z]+", text))


def configure(base: Path, *words: int, **overrides: object) -> knobs.Config:
    """A config that trains on all documents, with checkpoints by words."""
    common = {"pairs": "none", "checkpoints__best": "", "corpus__deduplicate": False}
    found = texts.configure(base, **common | {"batch_size": 4, "steps": 400} | overrides)
    saves = dataclasses.replace(found.checkpoints, at_words=words)
    corpus = dataclasses.replace(found.corpus, validation_fraction=0.0)
    return dataclasses.replace(found, checkpoints=saves, corpus=corpus, evals={})


def open_source(config: knobs.Config):
    prepared = prepare.prepare_corpus(config, log=lambda line: None)
    return prepared, pipeline.TextStream(prepared, "train", config)


def test_words_lie_between_spaces_and_hyphens(base, tmp_path):
    (tmp_path / "text.txt").write_text(TEXT * 40)
    total = 40 * WORDS
    found = configure(base, total, total + 1, corpus__path=str(tmp_path), batch_size=1)
    prepared, stream = open_source(found)
    rows = stream.rows_per_epoch
    assert steps_of_words(found, prepared, stream) == (rows, rows + 1)


@pytest.mark.parametrize(
    "kind",
    [{}, {"packing": 3}, {"masking__prediction_rate": 0.3}, {"masking__dupe_factor": 2}],
    ids=str,
)
def test_steps_of_words_equal_a_count_of_batches(base, read, kind):
    """To a fiftieth of the text within an epoch, and at its end to the word."""
    wanted = [read // 3, read, 3 * read // 2, 2 * read]
    found = configure(base, *wanted, **kind)
    prepared, stream = open_source(found)
    begins = np.array([any(map(str.isalnum, piece)) for piece in prepared.tokenizer.vocab])
    begins &= ~prepared.tokenizer.continuation
    steps = steps_of_words(found, prepared, stream)
    assert list(steps) == sorted(steps)
    counts = [0]
    for step in range(max(steps)):
        batch = stream.batch(step)
        first = batch["views"][:, 0] == 0 if "views" in batch else slice(None)
        text = (batch["unit_ids"] >= 0) & begins[batch["tokens"]]
        counts.append(int(text[first].sum()))
    before = np.cumsum(counts)
    for words, step in zip(wanted, steps, strict=True):
        error = 0 if words % read == 0 else read / 50
        assert before[step] >= words - error
        assert before[step - 1] < words + error


def test_gather_converts_epochs_and_words_to_steps(base, read):
    """No text is read more often than asked, and saves by words join those by steps."""
    more = {"masking__prediction_rate": 0.3, "batch_size": 8, "checkpoints__at": "(5,)"}
    asked = dataclasses.replace(configure(base, read, 2 * read, **more), epochs=2.5)
    found = load_training_data(asked)
    rows = found.source.rows_per_epoch * 2  # views
    assert found.config.steps == int(2.5 * rows / 8)
    assert found.config.checkpoints.at == (5, *(-(-n * rows // 8) for n in (1, 2)))
    saves = dataclasses.replace(asked.checkpoints, at_words=(3 * read,))
    with pytest.raises(ConfigError, match="the run has not read so many"):
        load_training_data(dataclasses.replace(asked, checkpoints=saves))


def test_steps_of_words_refuses_a_text_without_words(base):
    found = configure(base, 100)
    prepared, stream = open_source(found)
    none = dataclasses.replace(prepared, unigrams=np.zeros_like(prepared.unigrams))
    with pytest.raises(ConfigError, match="has no words"):
        steps_of_words(found, none, stream)
