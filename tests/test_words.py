"""Checkpoints by the words that are read: how words are counted, and which steps they stand for."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

from bert_jax.data import pipeline, prepare
from bert_jax.errors import ConfigError
from bert_jax.training.data import Facts, finalize, gather, steps_of_words
from tests import texts

TEXT = "the cat's well-known 3rd hat , and the 2 dogs !\n\nmany other people saw them -- twice\n"
WORDS = 17  # the cat s well known 3rd hat and the 2 dogs many other people saw them twice


def source(config):
    prepared = prepare.prepare_corpus(config, log=lambda line: None)
    return prepared, pipeline.Source(prepared, "train", config)


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    """All documents are trained on."""
    file = texts.config_file(tmp_path_factory.mktemp("text"))
    text = file.read_text().replace("validation_fraction = 0.2", "validation_fraction = 0")
    text = text.replace("config.evals.validation.every = 10", "config.evals = {}")
    file.write_text(text)
    return file


def configure(base: Path, **knobs):
    common = {"pairs": "none", "checkpoints__best": "", "corpus__deduplicate": False}
    return texts.configure(base, **common | {"batch_size": 4, "steps": 400} | knobs)


@pytest.fixture(scope="module")
def read(base) -> int:
    """Words of the corpus, by its lines."""
    text = (base.parent / "corpus" / "text.txt").read_text()
    return len(re.findall(r"[a-z]+", text))


def test_words_lie_between_spaces_and_hyphens(base, tmp_path):
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "text.txt").write_text(TEXT * 40)
    config = configure(base, corpus__path=str(tmp_path / "corpus"), batch_size=1)
    prepared, stream = source(config)
    total = 40 * WORDS
    epoch = stream.rows_per_epoch
    assert steps_of_words(with_words(config, total), prepared, stream) == (epoch,)
    assert steps_of_words(with_words(config, total + 1), prepared, stream) == (epoch + 1,)


def with_words(config, *words: int):
    saves = dataclasses.replace(config.checkpoints, at_words=words)
    return dataclasses.replace(config, checkpoints=saves)


def test_text_of_one_corpus_has_the_words_of_its_lines(base, read):
    prepared, stream = source(configure(base))
    whole = with_words(configure(base), read, 2 * read, 2 * read + 1)
    rows = stream.rows_per_epoch
    assert steps_of_words(whole, prepared, stream) == (
        -(-rows // 4),
        -(-2 * rows // 4),
        -(-(2 * rows + 1) // 4),
    )


def test_finalize_adds_steps_to_those_named(base):
    config = configure(base, checkpoints__at="(9,3)")
    assert finalize(config, Facts(at=(7, 3))).checkpoints.at == (3, 7, 9)
    assert finalize(config, Facts()).checkpoints.at == (9, 3)


@pytest.mark.parametrize(
    "kind",
    [{}, {"packing": 3}, {"masking__prediction_rate": 0.3}, {"masking__dupe_factor": 2}],
    ids=str,
)
def test_steps_of_words_equal_a_count_of_batches(base, read, kind):
    """To a hundredth of the text within an epoch, and at its end to the word."""
    config = configure(base, **kind)
    prepared, stream = source(config)
    tokenizer = prepared.tokenizer
    begins = np.array([any(map(str.isalnum, piece)) for piece in tokenizer.vocab])
    begins &= ~tokenizer.continuation
    wanted = [read // 3, read, 3 * read // 2, 2 * read]
    steps = steps_of_words(with_words(config, *wanted), prepared, stream)
    assert list(steps) == sorted(steps)
    counts = []
    for step in range(max(steps)):
        batch = stream.batch(step)
        first = batch["views"][:, 0] == 0 if "views" in batch else slice(None)
        text = (batch["unit_ids"] >= 0) & begins[batch["tokens"]]
        counts.append(int(text[first].sum()))
    before = np.concatenate([[0], np.cumsum(counts)])
    for words, step in zip(wanted, steps, strict=True):
        assert before[step] >= words - (0 if words % read == 0 else read / 50)
        assert before[step - 1] < words + (0 if words % read == 0 else read / 50)


@pytest.mark.parametrize("kind", [{}, {"packing": 3}, {"masking__prediction_rate": 0.3}], ids=str)
def test_epochs_of_text_are_at_most_those_asked_for(base, read, kind):
    config = configure(base, **kind | {"steps": 999, "batch_size": 8})
    asked = dataclasses.replace(config, epochs=2.5)
    asked = with_words(asked, read, 2 * read)
    found = gather(asked)
    rows = found.source.rows_per_epoch * found.source.views
    assert found.config.steps == int(2.5 * rows / 8)
    assert found.config.checkpoints.at == tuple(-(-n * rows // 8) for n in (1, 2))
    with pytest.raises(ConfigError, match="the run has not read so many"):
        gather(with_words(asked, 3 * read))
    assert gather(config).config == config


def test_words_that_are_never_read_are_refused(base, read):
    config = with_words(configure(base, steps=2), 100, read)
    with pytest.raises(ConfigError, match=rf"{read:,}, and at its last step, 2, .*{read:,}"):
        steps_of_words(config, *source(config))


def test_a_vocabulary_without_words_is_refused(base):
    config = with_words(configure(base), 100)
    prepared, stream = source(config)
    none = dataclasses.replace(prepared, unigrams=np.zeros_like(prepared.unigrams))
    with pytest.raises(ConfigError, match=r"has no words"):
        steps_of_words(config, none, stream)
