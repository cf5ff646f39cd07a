"""What is written is what is opened, whole, and nothing else is."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from bert_jax.data import engines, tokenizer
from bert_jax.data.text import shards
from bert_jax.errors import ConfigError, DataError
from tests import corpora

VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##a", "the"]


def build(folder, dtype=np.uint16):
    """A prepared folder of two train shards, made by hand."""
    folder.mkdir()
    found = tokenizer.Tokenizer(engines.build_wordpiece(VOCAB))
    found.save(folder)
    np.save(folder / "unigrams.npy", np.arange(8))
    entries = [
        shards.write(
            folder,
            f"train-{i:05d}",
            np.array([5, 6, 7, 5 + i], dtype),
            np.array([1, 3, 4], np.uint32),
            np.array([2, 3], np.uint32),
        )
        for i in range(2)
    ]
    files = {
        name: {"bytes": (folder / name).stat().st_size, "sha256": shards.sha256(folder / name)}
        for name in ("unigrams.npy", "vocab.txt", "tokenizer.json")
    }
    manifest = {
        "format": shards.FORMAT,
        "fingerprint": "f" * 64,
        "splits": {"train": entries, "validation": []},
        "tokenizer": {"hash": found.hash},
        "files": files,
    }
    shards.write_json(folder / "manifest.json", manifest)
    return folder


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
def test_open_returns_what_was_written(tmp_path, dtype):
    found = shards.open(build(tmp_path / "x", dtype))
    assert [len(found.splits[s]) for s in shards.SPLITS] == [2, 0]
    second = found.splits["train"][1]
    assert second.tokens.dtype == dtype
    assert isinstance(second.tokens, np.memmap)
    assert second.tokens.tolist() == [5, 6, 7, 6]
    assert second.sentence_ends.tolist() == [1, 3, 4]
    assert second.document_ends.tolist() == [2, 3]
    assert found.unigrams.tolist() == list(range(8))
    assert found.tokenizer.vocab == VOCAB
    assert found.fingerprint == "f" * 64
    entry = found.manifest["splits"]["train"][1]
    assert {k: entry[k] for k in ("name", "documents", "sentences", "tokens")} == {
        "name": "train-00001",
        "documents": 2,
        "sentences": 3,
        "tokens": 4,
    }


def test_written_shard_leaves_nothing_else(tmp_path):
    folder = build(tmp_path / "x")
    names = sorted(p.name for p in folder.iterdir())
    saved = tokenizer.load(folder).save(tmp_path / "again")
    assert names == sorted([*saved, "manifest.json", "train-00000", "train-00001", "unigrams.npy"])


ARRAY_FILES = [f"train-00000/{a}.npy" for a in shards.ARRAYS]


@pytest.mark.parametrize("name", [*ARRAY_FILES, "unigrams.npy", "vocab.txt", "tokenizer.json"])
def test_a_flipped_bit_a_cut_and_a_missing_file_are_named(tmp_path, name):
    file = build(tmp_path / "x") / name
    data = file.read_bytes()
    for damage, says in (
        (data[:-1] + bytes([data[-1] ^ 1]), "corrupt"),
        (data[:-2], "bytes, not"),
        (None, "missing"),
    ):
        if damage is None:
            file.unlink()
        else:
            file.write_bytes(damage)
        with pytest.raises(DataError, match=f"{file.name} .*{says}") as caught:
            shards.open(tmp_path / "x")
        assert caught.value.code == 3
        assert caught.value.hint


def test_shards_are_mapped_only_when_asked_for(tmp_path, monkeypatch):
    mapped = []
    monkeypatch.setattr(
        shards.np,
        "load",
        lambda file, real=np.load, **k: mapped.append(file.name) or real(file, **k),
    )
    shards.open(build(tmp_path / "x"))  # the first time each is looked through, one after the other
    mapped.clear()
    found = shards.open(tmp_path / "x")
    assert mapped == ["unigrams.npy"]
    assert [s.tokens[3] for s in found.splits["train"]] == [5, 6]
    assert found.splits["train"][-1].tokens[3] == found.splits["train"][1:][0].tokens[3] == 6
    assert not found.splits["validation"]


def test_digests_are_computed_once(tmp_path, monkeypatch):
    folder = build(tmp_path / "x")
    shards.open(folder)
    digest, read = shards.sha256, []
    monkeypatch.setattr(shards, "sha256", lambda file: read.append(file.name) or digest(file))
    shards.open(folder)
    assert read == []
    file = folder / "train-00001" / "tokens.npy"
    os.utime(file, ns=(1, 1))
    shards.open(folder)
    assert read == ["tokens.npy"]


def resigned(folder, name, values):
    """Replace an array of the second shard, and sign what is there now."""
    manifest = json.loads((folder / "manifest.json").read_text())
    entry = manifest["splits"]["train"][1]
    file = folder / entry["name"] / f"{name}.npy"
    np.save(file, values)
    entry["files"][name] = {"bytes": file.stat().st_size, "sha256": shards.sha256(file)}
    shards.write_json(folder / "manifest.json", manifest)


@pytest.mark.fault(25)
@pytest.mark.parametrize("token", [8, 60_000])
def test_a_token_beyond_the_vocabulary_is_named_with_its_place(tmp_path, monkeypatch, token):
    """However well it is signed; and it is not taken for verified by the next attempt."""
    folder = build(tmp_path / "x")
    shards.open(folder)
    monkeypatch.setattr(shards, "BLOCK", 2)
    resigned(folder, "tokens", np.array([5, 6, 7, token], np.uint16))
    for _ in range(2):
        said = (
            rf"train-00001/tokens\.npy has token {token} at position 3, "
            rf"and the vocabulary ends at 7"
        )
        with pytest.raises(DataError, match=said) as caught:
            shards.open(folder)
        assert caught.value.code == 3
    resigned(folder, "tokens", np.array([5, 6, 7, 7], np.uint16))
    assert shards.open(folder).splits["train"][1].tokens[3] == 7


@pytest.mark.fault(25)
@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("tokens", np.array([5, 6, -7, 5], np.int16), "holds int16"),
        ("tokens", np.array([5, 6, 7, 5], np.float32), "holds float32"),
        ("sentence_ends", np.array([3, 1, 4], np.uint32), "does not ascend"),
        ("document_ends", np.array([2.0, 3.0]), "does not ascend in uint32"),
    ],
)
def test_arrays_that_point_elsewhere_are_refused(tmp_path, name, values, said):
    folder = build(tmp_path / "x")
    resigned(folder, name, values)
    with pytest.raises(DataError, match=rf"train-00001/{name}\.npy {said}"):
        shards.open(folder)


@pytest.mark.fault(25)
@pytest.mark.parametrize("pairs", ["none", "nsp"])
def test_no_position_or_type_is_beyond_its_table(tmp_path, pairs):
    """Rows are at most as long as the table of positions, and full ones reach its last."""
    with pytest.raises(
        ConfigError, match=r"sequence_length = 513 exceeds model\.max_positions = 512"
    ):
        corpora.config(sequence_length=513)
    source = corpora.source(tmp_path, pairs=pairs, sequence_length=32, model__max_positions=32)
    batches = [source.batch(step) for step in range(4)]
    assert max(int(batch["positions"].max()) for batch in batches) == 31
    assert max(int(batch["type_ids"].max()) for batch in batches) == (pairs == "nsp")
    assert all(batch["positions"].min() == batch["type_ids"].min() == 0 for batch in batches)


def test_a_changed_tokenizer_is_refused(tmp_path):
    folder = build(tmp_path / "x")
    manifest = json.loads((folder / "manifest.json").read_text())
    tokenizer.Tokenizer(engines.build_wordpiece([*VOCAB[:-2], VOCAB[-1], VOCAB[-2]])).save(folder)
    for name in ("vocab.txt", "tokenizer.json"):
        manifest["files"][name] = {
            "bytes": (folder / name).stat().st_size,
            "sha256": shards.sha256(folder / name),
        }
    shards.write_json(folder / "manifest.json", manifest)
    with pytest.raises(DataError, match="not the one the shards were made with"):
        shards.open(folder)


@pytest.mark.parametrize(
    "name", ["../secret.npy", "/etc/passwd", "a/../../b.npy", ".hidden", "a/b/c.npy"]
)
def test_paths_stay_inside(tmp_path, name):
    folder = build(tmp_path / "x")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][name] = {"bytes": 0, "sha256": ""}
    shards.write_json(folder / "manifest.json", manifest)
    with pytest.raises(DataError, match="outside its folder"):
        shards.open(folder)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not JSON"),
        ("[]", "is a list, not an object"),
        ("{}", "has no 'format'"),
        (None, "no manifest.json"),
    ],
)
def test_bad_manifests_are_refused(tmp_path, text, says):
    folder = build(tmp_path / "x")
    if text is None:
        (folder / "manifest.json").unlink()
    else:
        (folder / "manifest.json").write_text(text)
    with pytest.raises(DataError, match=says):
        shards.open(folder)


def test_pickled_arrays_are_never_loaded(tmp_path):
    folder = build(tmp_path / "x")
    np.save(folder / "unigrams.npy", np.array([{}] * 8, object), allow_pickle=True)
    manifest = json.loads((folder / "manifest.json").read_text())
    file = folder / "unigrams.npy"
    manifest["files"]["unigrams.npy"] = {
        "bytes": file.stat().st_size,
        "sha256": shards.sha256(file),
    }
    shards.write_json(folder / "manifest.json", manifest)
    with pytest.raises(DataError, match=r"unigrams.npy is not an array"):
        shards.open(folder)
