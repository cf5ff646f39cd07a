"""Files of tensors from elsewhere: read exactly or refused in one line, and never unpickled."""

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


@pytest.mark.fault(17)
def test_read_refuses_a_type_that_numpy_lacks(tmp_path):
    """The transcript of `import` has files that are damaged otherwise, and indices."""
    header = b'{"a": {"dtype": "F8_E4M3", "shape": [8], "data_offsets": [0, 8]}}'
    file = tmp_path / "model.safetensors"
    file.write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    refuse(file, "cannot be read: ")


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
