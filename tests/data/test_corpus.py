"""What is prepared is opened whole, under a name that everything which shaped it decides."""

import dataclasses
import pickle

import numpy as np
import pytest

from bert_jax.config import knobs
from bert_jax.data import corpus, engines
from bert_jax.errors import DataError
from tests import saved
from tests.data import small

OTHER = {"manifest": "manifest.json", "count": "unigrams.npy"}


@pytest.mark.fault(16)
@pytest.mark.parametrize("damage", ["cut", "gone", "short", "objects", "pickle", *OTHER])
def test_open_corpus_names_what_is_not_whole(tmp_path, damage):
    """A pickle is not opened. Another vocabulary is in tests/net/transcripts/prepare.txt."""
    small.write_text(tmp_path / "in", small.make_documents(30))
    folder = small.run(tmp_path).folder
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


NAMES = {  # by the vocabulary: one that is given, or trained
    "given": "61e87f2f5630b5ee8d6f754e68837d2b8795327aa1a99f3041e5c001d405c275",
    "wordpiece": "9b75f506125d4be444f8072f8ce2b059acb4d4cbd51d1f79a937505e6e45799a",
    "bpe": "328035f5d8be3cb1107f7a052d812e590c3443d2806f0993461d6d60fe232ac3",
}


@pytest.mark.parametrize("kind", NAMES)
def test_names_in_records_stay_valid(tmp_path, kind):
    """The formula is part of what committed records name: each knob that shapes a corpus."""
    (tmp_path / "vocab.txt").write_text("\n".join([*engines.SPECIALS, "a", "b"]))
    small.write(tmp_path / "in" / "a.txt", "a b\n")
    chosen = small.configure(tmp_path, vocabulary=str(tmp_path / "vocab.txt"))
    if kind != "given":
        chosen = dataclasses.replace(chosen, tokenizer=knobs.Tokenizer(kind=kind))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("importlib.metadata.version", lambda name: "1.0")
        patch.setattr("unicodedata.unidata_version", "15.0.0")
        assert corpus.fingerprint_corpus(chosen, tmp_path) == NAMES[kind]
