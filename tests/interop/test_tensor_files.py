"""Files of tensors from elsewhere: read exactly or refused in one line, and never unpickled."""

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
from tests.parity import check_same

SMALL = {
    "b.bias": np.arange(3, dtype=np.float32),
    "a.weight": np.arange(6, dtype=np.int16).reshape(2, 3),
}
SECOND = "model-00002-of-00002.safetensors"


def read(path: Path) -> dict[str, np.ndarray]:
    files = tensor_files.SafetensorsFiles(path)
    found = {name: files.read(name) for name in files.shapes}
    assert {name: value.shape for name, value in found.items()} == files.shapes
    return found


def refuse(path: Path, match: str) -> str:
    """Return the hint of a refusal in one line that says which file and what."""
    with pytest.raises(CheckpointError) as caught:
        read(path)
    message, hint = str(caught.value), caught.value.hint
    assert re.search(match, message), message
    assert path.name in message
    assert "\n" not in message + hint
    assert len(message) < 400
    return hint


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("parts", [0, 3])
def test_read_gives_the_bits_that_were_stored(tmp_path, dtype, parts):
    whole = {name: x.astype(dtype) for name, x in variants.golden("pretraining").items()}
    folder = variants.save_sharded(tmp_path, whole, parts) if parts else None
    check_same(read(folder or variants.save(tmp_path, whole)), whole)


def test_write_gives_the_same_bytes_in_any_order(tmp_path):
    one, two = tmp_path / "one.safetensors", tmp_path / "two.safetensors"
    tensor_files.write_tensors(one, SMALL)
    tensor_files.write_tensors(two, dict(reversed(SMALL.items())))
    assert one.read_bytes() == two.read_bytes() == save(SMALL, metadata={"format": "pt"})


@pytest.mark.parametrize("array", [np.arange(6.0).reshape(2, 3).T, np.arange(8.0)[::2]])
def test_write_takes_arrays_as_they_look(tmp_path, array):
    tensor_files.write_tensors(tmp_path / "x.safetensors", {"x": array})
    np.testing.assert_array_equal(load_file(tmp_path / "x.safetensors")["x"], array)


# --- damaged and hostile --------------------------------------------------------------------------


def pack(header: bytes) -> bytes:
    """Make a file from a header that may be anything, and 8 bytes of data."""
    return len(header).to_bytes(8, "little") + header + bytes(8)


ENTRY = '{"a": {"dtype": "%s", "shape": %s, "data_offsets": [0, 8]}}'
HOSTILE = {  # the transcript of `import` has headers that are too large, and files that are cut
    "empty": b"",
    "not JSON": pack(b"{'a': 1}"),
    "deep JSON": pack(b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    "shape too large for any memory": pack((ENTRY % ("F32", [2**40, 2**40])).encode()),
    "type without an equal in numpy": pack((ENTRY % ("F8_E4M3", [8])).encode()),
}


@pytest.mark.fault(17)
@pytest.mark.parametrize("kind", HOSTILE)
def test_read_refuses_a_hostile_file_in_one_line(tmp_path, kind):
    (tmp_path / "model.safetensors").write_bytes(HOSTILE[kind])
    refuse(tmp_path / "model.safetensors", "cannot be read: ")


@pytest.mark.fault(18)
@pytest.mark.parametrize("name", ["../secret.safetensors", "..", "", 1, "pytorch_model.bin"])
def test_index_names_files_of_its_folder_only(tmp_path, name):
    variants.save_sharded(tmp_path / "model", SMALL, parts=2)
    tensor_files.write_tensors(tmp_path / "secret.safetensors", SMALL)
    file = tmp_path / "model" / tensor_files.INDEX
    index = json.loads(file.read_text())
    index["weight_map"]["b.bias"] = name
    file.write_text(json.dumps(index))
    refuse(file.parent, "no plain file name|Expected `str`, got `int`|is a pickle by its name")


def test_files_that_are_missing_are_named(tmp_path):
    tensor_files.write_tensors(tmp_path / "adapter.safetensors", SMALL)
    assert "adapter.safetensors" in refuse(tmp_path, "neither")
    (variants.save_sharded(tmp_path, SMALL, parts=2) / SECOND).unlink()
    with pytest.raises(CheckpointError, match=f"{SECOND} cannot be read: No such file"):
        read(tmp_path)


@pytest.mark.fault(16)
def test_pickles_are_never_opened(tmp_path):
    marker = tmp_path / "marker"
    payload = pickle.dumps(saved.Payload(marker))
    for name in ("pytorch_model.bin", "model.pth", "MODEL.PT", "objects.npz"):
        (tmp_path / name).write_bytes(payload)
        assert "save_file" in refuse(tmp_path / name, "is a pickle by its name: not opened")
    (tmp_path / "model.safetensors").write_bytes(payload)
    with zipfile.ZipFile(tmp_path / "zip.safetensors", "w") as file:
        file.writestr("archive/data.pkl", payload)
    for name in ("model.safetensors", "zip.safetensors"):
        assert "a pickle under this name" in refuse(tmp_path / name, "cannot be read")
    assert not marker.exists()
    pickle.loads(payload)  # it does what it says
    assert marker.exists()
