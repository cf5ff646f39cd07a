"""Files of tensors from elsewhere: read exactly or refused in one line, and never unpickled."""

from __future__ import annotations

import json
import pickle
import re
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save

from bert_jax.errors import CheckpointError
from bert_jax.interop import tensor_files
from tests import saved, variants

SMALL = {
    "b.bias": np.arange(3, dtype=np.float32),
    "a.weight": np.arange(6, dtype=np.int16).reshape(2, 3),
}
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def read(path: Path) -> dict[str, np.ndarray]:
    files = tensor_files.SafetensorsFiles(path)
    found = {name: files.read(name) for name in files.shapes}
    assert {name: value.shape for name, value in found.items()} == files.shapes
    return found


def same(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> bool:
    """Names, dtypes, shapes and bits, of NaNs too."""
    return ours.keys() == theirs.keys() and all(
        (a.dtype, a.shape, a.tobytes()) == (theirs[n].dtype, theirs[n].shape, theirs[n].tobytes())
        for n, a in ours.items()
    )


def refused(path: Path, match: str) -> str:
    """The hint of a refusal in one line that says which file and what."""
    with pytest.raises(CheckpointError) as caught:
        read(path)
    message, hint = str(caught.value), caught.value.hint
    assert re.search(match, message), message
    assert path.name in message
    assert "\n" not in message + hint
    assert hint
    assert len(message) < 400
    return hint


# --- read and written -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pretraining", "multiple_choice"])
def test_read_gives_what_the_library_gives(name):
    folder = variants.GOLDEN / "huggingface" / name
    assert same(read(folder), variants.golden(name))
    assert same(read(folder / "model.safetensors"), variants.golden(name))


def test_read_takes_shards_as_one_model(tmp_path):
    whole = variants.with_extras(variants.golden("pretraining"))
    assert same(read(variants.save_sharded(tmp_path, whole, parts=3)), whole)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_read_keeps_the_bits_of_half_precision(tmp_path, dtype):
    stored = variants.cast(variants.golden("pretraining"), dtype)
    assert same(read(variants.save(tmp_path, stored)), stored)


def test_read_follows_the_links_of_a_hub_snapshot(tmp_path):
    """models--x/snapshots/REVISION/model.safetensors -> ../../blobs/HASH."""
    blobs, snapshot = tmp_path / "models--x" / "blobs", tmp_path / "models--x" / "snapshots" / "abc"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    tensor_files.write_tensors(blobs / "0123", SMALL)
    (snapshot / "model.safetensors").symlink_to(Path("../../blobs/0123"))
    assert same(read(snapshot), SMALL)


def test_write_gives_the_same_bytes_in_any_order(tmp_path):
    one, two = tmp_path / "one.safetensors", tmp_path / "two.safetensors"
    tensor_files.write_tensors(one, SMALL)
    tensor_files.write_tensors(two, dict(reversed(SMALL.items())))
    assert one.read_bytes() == two.read_bytes() == save(SMALL, metadata={"format": "pt"})


@pytest.mark.parametrize("array", [np.arange(6.0).reshape(2, 3).T, np.arange(8.0)[::2]])
def test_write_takes_arrays_as_they_look(tmp_path, array):
    tensor_files.write_tensors(tmp_path / "x.safetensors", {"x": array})
    np.testing.assert_array_equal(load_file(tmp_path / "x.safetensors")["x"], array)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_check_finite_names_the_first_bad_tensor(dtype):
    sound = {"a": np.ones((2, 3), dtype), "n": np.arange(3), "e": np.zeros((0, 2), dtype)}
    tensor_files.check_finite(sound, "model")
    bad = {**sound, "b": np.array([1, np.nan, np.inf], dtype), "c": np.array([-np.inf], dtype)}
    with pytest.raises(CheckpointError, match=r"2 of 5 tensors .*first 'b', 2 of its 3"):
        tensor_files.check_finite(bad, "model")


# --- damaged --------------------------------------------------------------------------------------


def packed(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    """A file, from a header that may be anything."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(dtype: object = "F32", shape: object = (2,), offsets: object = (0, 8)) -> dict:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


HOSTILE = {
    "empty": b"",
    "header longer than the file": packed({"a": entry()}, bytes(8), length=1000),
    "header of 2**64 - 1 bytes": packed({"a": entry()}, bytes(8), length=2**64 - 1),
    "not JSON": packed(b"{'a': 1}"),
    "deep JSON": packed(b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    "negative shape": packed({"a": entry(shape=(-1, -2))}, bytes(8)),
    "shape too large for any memory": packed({"a": entry(shape=(2**40, 2**40))}, bytes(8)),
    "type without an equal in numpy": packed({"a": entry("F8_E4M3", (8,))}, bytes(8)),
    "offsets past the end": packed({"a": entry()}, bytes(7)),
    "overlap": packed({"a": entry(), "b": entry(offsets=(4, 12))}, bytes(12)),
}


@pytest.mark.fault(17)
@pytest.mark.parametrize("kind", HOSTILE)
def test_read_refuses_a_hostile_file_in_one_line(tmp_path, kind):
    (tmp_path / "model.safetensors").write_bytes(HOSTILE[kind])
    refused(tmp_path / "model.safetensors", "cannot be read: ")


def test_read_refuses_a_truncated_file(tmp_path):
    path = tmp_path / "model.safetensors"
    whole = save(SMALL, metadata={"format": "pt"})
    for length in range(0, len(whole), 3):
        path.write_bytes(whole[:length])
        refused(path, "cannot be read: ")


def test_read_says_what_a_folder_has_instead(tmp_path):
    refused(tmp_path, "neither")
    refused(tmp_path / "absent.safetensors", "cannot be read: No such file")
    tensor_files.write_tensors(tmp_path / "adapter.safetensors", SMALL)
    assert "adapter.safetensors" in refused(tmp_path, "neither")


@pytest.mark.fault(18)
@pytest.mark.parametrize("name", ["../secret.safetensors", "/etc/passwd", "..", "", "a/b", 1])
def test_index_names_files_of_its_folder_only(tmp_path, name):
    variants.save_sharded(tmp_path / "model", SMALL, parts=2)
    tensor_files.write_tensors(tmp_path / "secret.safetensors", SMALL)
    file = tmp_path / "model" / tensor_files.INDEX
    index = json.loads(file.read_text())
    index["weight_map"]["b.bias"] = name
    file.write_text(json.dumps(index))
    refused(file.parent, "which is no plain file name")


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"weight_map": {}}', '{"weight_map": []}'])
def test_index_without_a_map_is_refused(tmp_path, text):
    variants.save_sharded(tmp_path, SMALL, parts=2)
    (tmp_path / tensor_files.INDEX).write_text(text)
    with pytest.raises(CheckpointError, match=tensor_files.INDEX):
        read(tmp_path)


def test_index_whose_shard_is_missing_is_refused(tmp_path):
    (variants.save_sharded(tmp_path, SMALL, parts=2) / SECOND).unlink()
    with pytest.raises(CheckpointError, match=f"{SECOND} cannot be read"):
        read(tmp_path)


# --- pickles --------------------------------------------------------------------------------------


@pytest.mark.fault(16)
def test_pickles_are_never_opened(tmp_path):
    marker, folder = tmp_path / "marker", tmp_path / "pickles"
    folder.mkdir()
    by_name = ("pytorch_model.bin", "model.pt", "model.pth", "weights.pkl", "MODEL.PT")
    for name in (*by_name, "model.safetensors"):
        (folder / name).write_bytes(pickle.dumps(saved.Payload(marker)))
    np.save(folder / "objects.npy", np.array([saved.Payload(marker)], object))
    np.savez(folder / "objects.npz", x=np.array([saved.Payload(marker)], object))
    with zipfile.ZipFile(folder / "zip.safetensors", "w") as file:
        file.writestr("archive/data.pkl", pickle.dumps(saved.Payload(marker)))
    for name in (*by_name, "objects.npy", "objects.npz"):
        assert "save_file" in refused(folder / name, "is a pickle by its name: not opened")
    for name in ("model.safetensors", "zip.safetensors"):
        assert "a pickle under this name" in refused(folder / name, "cannot be read")
    assert not marker.exists()
    pickle.loads((folder / "model.pt").read_bytes())  # the payload does what it says
    assert marker.exists()


@pytest.mark.fault(16)
@pytest.mark.parametrize("name", ["pytorch_model.bin", "pytorch_model-00001-of-00002.bin"])
def test_folder_of_pickles_says_how_to_convert_it(tmp_path, name):
    (tmp_path / name).write_bytes(pickle.dumps(saved.Payload(tmp_path / "marker")))
    hint = refused(tmp_path, f"pickle.*{re.escape(name)}")
    for word in ("from_pretrained", "save_pretrained", "weights_only=True", "save_file"):
        assert word in hint
    variants.save(tmp_path, SMALL)  # next to safetensors it is not looked at
    assert same(read(tmp_path), SMALL)
    assert not (tmp_path / "marker").exists()


@pytest.mark.fault(16)
def test_shards_may_not_be_pickles(tmp_path):
    variants.save_sharded(tmp_path, SMALL, parts=2)
    file = tmp_path / tensor_files.INDEX
    file.write_text(file.read_text().replace(SECOND, "pytorch_model.bin"))
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps(saved.Payload(tmp_path / "marker")))
    with pytest.raises(CheckpointError, match="pickle"):
        read(tmp_path)
    assert not (tmp_path / "marker").exists()
