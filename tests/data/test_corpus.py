"""What is prepared is opened whole, under a name that everything which shaped it decides."""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path

import numpy as np
import pytest

from bert_jax.config import knobs
from bert_jax.data import corpus, engines
from bert_jax.data import tokenizer as tokenizers
from bert_jax.errors import DataError
from tests import saved
from tests.data import small


@pytest.fixture
def folder(tmp_path) -> Path:
    small.write_text(tmp_path / "in", small.make_documents(30))
    return small.run(tmp_path).folder


OTHER = {"manifest": "manifest.json", "count": "unigrams.npy"}


@pytest.mark.fault(16)
@pytest.mark.parametrize("damage", ["cut", "gone", "short", "objects", "pickle", *OTHER])
def test_open_corpus_names_what_is_not_whole(folder, tmp_path, damage):
    """A pickle is not opened."""
    file = folder / OTHER.get(damage, "train/tokens.npy")
    values, payload = np.load(folder / "train/tokens.npy"), saved.Payload(tmp_path / "marker")
    objects = np.array([payload] * len(values), object)
    changes = {
        "cut": lambda: file.write_bytes(file.read_bytes()[:-2]),
        "gone": file.unlink,
        "short": lambda: np.save(file, values[:-1]),
        "objects": lambda: np.save(file, objects, allow_pickle=True),
        "pickle": lambda: file.write_bytes(pickle.dumps(payload)),
        "manifest": lambda: file.write_text('{"format": 1}'),
        "count": lambda: np.save(file, np.load(file) ^ (np.arange(len(np.load(file))) == 7)),
    }
    changes[damage]()
    with pytest.raises(DataError, match=str(file)) as caught:
        corpus.open_corpus(folder)
    assert caught.value.code == 3
    assert "prepare again" in caught.value.hint
    assert not (tmp_path / "marker").exists()


@pytest.mark.fault(7)
def test_another_vocabulary_is_refused(folder):
    vocab = corpus.open_corpus(folder).tokenizer.vocab
    other = engines.build_wordpiece([*vocab[:-2], vocab[-1], vocab[-2]])
    tokenizers.Tokenizer(other).save(folder)
    with pytest.raises(DataError, match="not the one that the text was cut by"):
        corpus.open_corpus(folder)


def test_a_corpus_is_found_by_its_whole_fingerprint(folder):
    settings = knobs.Corpus(cache=str(folder.parent))
    mark = corpus.read_manifest(folder).fingerprint
    found = corpus.find_prepared(settings, mark)
    assert found is not None
    assert found.folder == folder
    assert corpus.find_prepared(settings, mark[:16] + "0" * 48) is None
    assert corpus.find_prepared(settings, "0" * 64) is None


# --- the fingerprint ------------------------------------------------------------------------------


SHAPING = {  # knobs that shape a corpus, each with another value
    "corpus": {
        "text_field": "body",
        "split": "test",
        "sentences": "split",
        "language": "de",
        "deduplicate": False,
        "validation_fraction": 0.2,
    },
    "tokenizer": {"vocab_size": 20, "lowercase": False, "max_word_length": 9},
}
FREE = {
    "corpus": {"cache": "elsewhere", "workers": 7, "tfds_dir": "x", "revision": "x"},
    "tokenizer": {"max_word_length": 200, "kind": "wordpiece"},  # what a trained one has
}


def test_fingerprint_changes_with_what_shapes_it(tmp_path):
    small.write_text(tmp_path / "in", small.make_documents(3))
    base = small.configure(tmp_path)

    def fingerprint(part: str, knob: str, value: object) -> str:
        values = dataclasses.replace(getattr(base, part), **{knob: value})
        return corpus.fingerprint_corpus(dataclasses.replace(base, **{part: values}), tmp_path)

    names = [corpus.fingerprint_corpus(base, tmp_path)]
    names += [fingerprint(part, *change) for part in SHAPING for change in SHAPING[part].items()]
    assert len(set(names)) == len(names) == 10
    for part, changes in FREE.items():
        assert {fingerprint(part, *change) for change in changes.items()} == {names[0]}, part


def test_fingerprint_goes_by_the_text_not_its_place(tmp_path):
    small.write_text(tmp_path / "in", small.make_documents(3))
    name = corpus.fingerprint_corpus(small.configure(tmp_path), tmp_path)
    (tmp_path / "in").rename(tmp_path / "moved")
    moved = small.configure(tmp_path, path=str(tmp_path / "moved"))
    assert corpus.fingerprint_corpus(moved, tmp_path) == name
    small.write_text(tmp_path / "moved", small.make_documents(4))
    assert corpus.fingerprint_corpus(moved, tmp_path) != name


def test_names_in_records_stay_valid(tmp_path):
    """The formula is part of what committed records name."""
    (tmp_path / "vocab.txt").write_text("\n".join([*tokenizers.SPECIALS, "a", "b"]))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("a b\n")
    chosen = small.configure(tmp_path, vocabulary=str(tmp_path / "vocab.txt"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("importlib.metadata.version", lambda name: "1.0")
        patch.setattr("unicodedata.unidata_version", "15.0.0")
        found = corpus.fingerprint_corpus(chosen, tmp_path)
    assert found == "61e87f2f5630b5ee8d6f754e68837d2b8795327aa1a99f3041e5c001d405c275"
