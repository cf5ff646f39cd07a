"""What knobs of the text change in a prepared corpus."""

from __future__ import annotations

import numpy as np

from bert_jax.config import knobs
from bert_jax.data import corpus, files, prepare, sentences, tfds
from bert_jax.data.vocabulary import train_vocabulary
from tests import texts


def test_the_field_that_holds_the_text(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "one", "body": "two"}\n')
    for field, expected in (("text", "one"), ("body", "two")):
        settings = knobs.Corpus(source="files", path=str(tmp_path), text_field=field)
        (item,) = files.list_items(settings, tmp_path)[0]
        (text,) = files.read_texts(item, settings)
        assert text.text == expected


def test_a_dataset_is_read_from_its_folder_split_and_field(monkeypatch):
    """A stand-in for the library; the library itself is asked in test_prepare."""

    def rows(name: str, folder: str, split: str) -> list[dict]:
        return [{"text": f"{name} of {folder}, {split}", "body": "another field"}]

    monkeypatch.setattr(tfds, "examples_of", rows)
    item = sentences.Item("", 1, (0, 1))
    for changes, expected in (
        ({}, "set of , train"),
        ({"tfds_dir": "here"}, "set of here, train"),
        ({"split": "test"}, "set of , test"),
        ({"text_field": "body"}, "another field"),
    ):
        settings = knobs.Corpus(source="tfds", path="set", **changes)  # type: ignore[arg-type]  # names of strings
        (text,) = tfds.read_texts(item, settings)
        assert text.text == expected


def test_the_language_decides_where_sentences_end():
    line = "Am 3. Oktober kam Herr Meier bzw. sein Sohn. Dann gingen sie."
    german = sentences.split_sentences(line, "de")
    assert german == [" Am 3. Oktober kam Herr Meier bzw. sein Sohn.", " Dann gingen sie."]
    assert sentences.split_sentences(line, "en")[0] == " Am 3."  # an English ordinal has no point


def test_as_many_workers_prepare_as_are_asked_for(tmp_path, monkeypatch):
    texts.write(tmp_path / "in", documents=5)
    monkeypatch.setattr(prepare.machine, "cores", lambda: 7)
    asked = []
    monkeypatch.setattr(
        prepare,
        "Workers",
        lambda count, real=prepare.Workers: asked.append(count) or real(min(count, 1)),
    )
    for workers in (2, 0):
        settings = knobs.Corpus(
            source="files",
            path=str(tmp_path / "in"),
            cache=f"{tmp_path}/{workers}",
            workers=workers,
        )
        config = knobs.Config(corpus=settings, tokenizer=knobs.Tokenizer(vocab_size=60))
        prepare.prepare_corpus(config, lambda _: None)
    assert asked == [2, 7]


def test_a_vocabulary_has_the_size_and_word_length_asked_for(tmp_path):
    lines = [" ".join(texts.document(np.random.default_rng(i), 4)) for i in range(30)]
    for size, longest in ((70, 200), (90, 3)):
        settings = knobs.Tokenizer(vocab_size=size, max_word_length=longest)
        found = train_vocabulary(lines, settings)
        assert found.size == size
        ids = found.encode_batch(["cat dog garden"])[0]
        assert ids.count(found.special.unk) == (longest == 3)  # garden alone is longer
        found.save(tmp_path / "t")
        for again in (3, 200):
            given = corpus.load_vocabulary(
                knobs.Tokenizer(path=str(tmp_path / "t"), max_word_length=again)
            )
            assert given.encode_batch(["cat dog garden"])[0].count(found.special.unk) == (
                again == 3
            )
