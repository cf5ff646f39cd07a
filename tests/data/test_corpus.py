"""What is prepared is opened whole, under a name that everything which shaped it decides."""

from __future__ import annotations

import dataclasses
import json
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


def edit_manifest(folder: Path, **values: object) -> None:
    file = folder / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


@pytest.mark.parametrize("name", ["train/tokens", "validation/sentence_ends", "unigrams"])
def test_arrays_that_are_not_whole_are_named(folder, name):
    file = folder / f"{name}.npy"
    values = np.load(file)
    data = file.read_bytes()
    objects = np.array([{}] * len(values), object)
    for damage in (data[:-2], data[:40], None, values[:-1], objects):
        if isinstance(damage, bytes):
            file.write_bytes(damage)
        elif damage is None:
            file.unlink()
        else:
            np.save(file, damage, allow_pickle=True)
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


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not JSON"),
        ("[]", "is a list, not an object"),
        ("{}", "has no 'format'"),
        ('{"format": 1}', "has format 1, not 2"),
        (None, r"no manifest\.json"),
    ],
)
def test_bad_manifests_are_refused(folder, text, says):
    (folder / "manifest.json").unlink()
    if text is not None:
        (folder / "manifest.json").write_text(text)
    with pytest.raises(DataError, match=says):
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

OTHER = {  # another value of each knob of the corpus that shapes it
    "text_field": "body",
    "split": "test",
    "sentences": "split",
    "language": "de",
    "deduplicate": False,
    "validation_fraction": 0.2,
}
SAME = {"cache": "elsewhere", "workers": 7, "tfds_dir": "x", "revision": "x"}


def test_every_knob_of_the_corpus_is_told_apart():
    names = {field.name for field in dataclasses.fields(knobs.Corpus)}
    assert names == {*OTHER, *SAME, "source", "path"}


@pytest.mark.parametrize("name", [*OTHER, *SAME])
def test_what_shapes_a_corpus_is_in_its_name(tmp_path, name):
    small.write_text(tmp_path / "in", small.make_documents(3))
    base = small.configure(tmp_path)
    changes = {name: (OTHER | SAME)[name]}
    changed = dataclasses.replace(base, corpus=dataclasses.replace(base.corpus, **changes))
    names = {corpus.fingerprint_corpus(one, tmp_path) for one in (base, changed)}
    assert len(names) == (2 if name in OTHER else 1)


@pytest.mark.parametrize(
    ("changes", "equal"),
    [
        ({"vocab_size": 20}, False),
        ({"lowercase": False}, False),
        ({"max_word_length": 9}, False),
        ({"max_word_length": 200}, True),  # what a trained one has
        ({"kind": "wordpiece"}, True),
    ],
)
def test_what_shapes_a_vocabulary_is_in_the_name(tmp_path, changes, equal):
    small.write_text(tmp_path / "in", small.make_documents(3))
    base = small.configure(tmp_path)
    changed = dataclasses.replace(base, tokenizer=dataclasses.replace(base.tokenizer, **changes))
    names = {corpus.fingerprint_corpus(one, tmp_path) for one in (base, changed)}
    assert (len(names) == 1) == equal


def test_a_name_goes_by_the_text_and_not_by_its_place(tmp_path):
    small.write_text(tmp_path / "in", small.make_documents(3))
    base = small.configure(tmp_path)
    name = corpus.fingerprint_corpus(base, tmp_path)
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
