"""What is prepared is opened whole, under a name that everything which shaped it decides."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from bert_jax.config import knobs
from bert_jax.data import corpus, engines
from bert_jax.data import tokenizer as tokenizers
from bert_jax.errors import DataError
from tests.data import small


@pytest.fixture
def folder(tmp_path) -> Path:
    small.write_text(tmp_path / "in", small.make_documents(30))
    return small.run(tmp_path).folder


@pytest.mark.parametrize("damage", ["cut", "gone", "short", "objects", "manifest"])
def test_open_corpus_names_what_is_not_whole(folder, damage):
    file = folder / ("manifest.json" if damage == "manifest" else "train/tokens.npy")
    values = np.load(folder / "train/tokens.npy")
    changes = {
        "cut": lambda: file.write_bytes(file.read_bytes()[:-2]),
        "gone": file.unlink,
        "short": lambda: np.save(file, values[:-1]),
        "objects": lambda: np.save(file, np.array([{}] * len(values), object), allow_pickle=True),
        "manifest": lambda: file.write_text('{"format": 1}'),
    }
    changes[damage]()
    with pytest.raises(DataError, match=str(file)) as caught:
        corpus.open_corpus(folder)
    assert caught.value.code == 3
    assert "prepare again" in caught.value.hint


@pytest.mark.fault(7)
def test_another_vocabulary_is_refused(folder):
    vocab = corpus.open_corpus(folder).tokenizer.vocab
    other = engines.build_wordpiece([*vocab[:-2], vocab[-1], vocab[-2]])
    tokenizers.Tokenizer(other).save(folder)
    with pytest.raises(DataError, match="not the one that the text was cut by"):
        corpus.open_corpus(folder)


def test_a_corpus_is_found_by_its_whole_fingerprint(folder):
    settings = knobs.Corpus(cache=str(folder.parent))
    mark = corpus.read_manifest(folder)["fingerprint"]
    found = corpus.find_prepared(settings, mark)
    assert found is not None
    assert found.folder == folder
    assert corpus.find_prepared(settings, mark[:16] + "0" * 48) is None
    assert corpus.find_prepared(settings, "0" * 64) is None


# --- the fingerprint ------------------------------------------------------------------------------


CORPUS = {  # another value of each knob of the corpus -> whether it shapes the corpus
    ("text_field", "body"): True,
    ("split", "test"): True,
    ("sentences", "split"): True,
    ("language", "de"): True,
    ("deduplicate", False): True,
    ("validation_fraction", 0.2): True,
    ("cache", "elsewhere"): False,
    ("workers", 7): False,
    ("tfds_dir", "x"): False,
    ("revision", "x"): False,
}
TOKENIZER = {
    ("vocab_size", 20): True,
    ("lowercase", False): True,
    ("max_word_length", 9): True,
    ("max_word_length", 200): False,  # what a trained one has
    ("kind", "wordpiece"): False,
}
CHANGES = [("corpus", *change) for change in CORPUS.items()]
CHANGES += [("tokenizer", *change) for change in TOKENIZER.items()]


@pytest.mark.parametrize(("part", "change", "shapes"), CHANGES)
def test_fingerprint_changes_with_what_shapes_it(tmp_path, part, change, shapes):
    assert {name for name, _ in CORPUS} | {"source", "path"} == {
        field.name for field in dataclasses.fields(knobs.Corpus)
    }
    small.write_text(tmp_path / "in", small.make_documents(3))
    base = small.configure(tmp_path)
    values = dataclasses.replace(getattr(base, part), **dict([change]))
    changed = dataclasses.replace(base, **{part: values})
    names = {corpus.fingerprint_corpus(one, tmp_path) for one in (base, changed)}
    assert len(names) == 1 + shapes


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
