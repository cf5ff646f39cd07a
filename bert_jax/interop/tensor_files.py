"""Safetensors files: a file, a folder with model.safetensors, or an index and its shards.

The safetensors library checks a header against its file, and knows shapes before data is read.
Pickles are never opened, because loading a pickle runs code of the file.
"""

import errno
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from bert_jax.errors import CheckpointError, first_line
from bert_jax.system import jsons

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".npy", ".npz")
CONVERT = (
    "convert it on a machine where you trust its source: load it in transformers by "
    "from_pretrained(FOLDER) of the model's class, then "
    "save_pretrained(NEW_FOLDER, safe_serialization=True); "
    "or torch.load(FILE, weights_only=True), then safetensors.torch.save_file"
)
DAMAGED = (
    "it is damaged, or not a safetensors file: fetch it again and compare its size and sha256 "
    "with the source's; a pickle under this name is not opened"
)


class Index(msgspec.Struct):
    """The index of a model whose tensors are in several files."""

    weight_map: dict[str, str]  # name of a tensor -> its file


class Tensors(Protocol):
    """Tensors in files, with their shapes, which are known before any data is read."""

    shapes: dict[str, tuple[int, ...]]

    def read(self, name: str) -> np.ndarray:
        """Read one tensor by its name."""


class SafetensorsFiles:
    """The tensors of a safetensors file, or of all shards of a folder."""

    def __init__(self, path: Path):
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._files: dict[str, tuple[Path, Any]] = {}  # tensor -> its file, and the file opened
        for file in _list_files(path):
            if file.suffix.lower() in PICKLES:
                raise CheckpointError(f"{file} is a pickle by its name: not opened", CONVERT)
            try:
                # pread, because a memory map would hold the file in memory besides its copy.
                opened = safe_open(file, framework="numpy", backend="pread")
                for name in opened.keys():  # noqa: SIM118 - the library's object is no mapping
                    self.shapes[name] = tuple(opened.get_slice(name).get_shape())
                    self._files[name] = (file, opened)
            except (SafetensorError, OSError, ValueError) as error:
                raise _refuse(file, error) from error

    def read(self, name: str) -> np.ndarray:
        """Read one tensor by its name."""
        file, opened = self._files[name]
        try:
            return opened.get_tensor(name)
        # The last two: numpy has no such type, as none of 8 bits.
        except (SafetensorError, OSError, ValueError, AttributeError, TypeError) as error:
            raise _refuse(file, error) from error


def write_tensors(file: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Write tensors into a safetensors file; equal tensors give equal bytes."""
    # The library writes memory as it lies, whatever the strides of an array are.
    contiguous = {name: np.ascontiguousarray(value) for name, value in tensors.items()}
    try:
        save_file(contiguous, file, metadata={"format": "pt"})
    except SafetensorError as error:
        code = errno.ENOSPC if "No space left" in str(error) else errno.EIO
        raise OSError(code, first_line(error), str(file)) from error


def check_finite(arrays: Mapping[str, np.ndarray], source: Path | str) -> None:
    """Refuse arrays with a NaN or an infinity."""
    bad = [name for name, array in arrays.items() if not np.isfinite(array).all()]
    if bad:
        raise CheckpointError(
            f"{source}: {len(bad)} of {len(arrays)} tensors hold NaN or infinite values, "
            f"first {jsons.show(bad[0])}",
            "the training that wrote it had diverged, or the file is damaged: "
            "take an earlier checkpoint",
        )


def _list_files(path: Path) -> list[Path]:
    """List the tensor files at a path; the shards of an index must lie in the same folder."""
    if not path.is_dir():
        return [path]
    if (path / SINGLE).exists():
        return [path / SINGLE]
    if not (path / INDEX).exists():
        raise _refuse_folder(path)
    index = jsons.read(path / INDEX, CheckpointError, Index, hint=DAMAGED)
    shards = sorted(set(index.weight_map.values()))
    for name in shards:
        if Path(name).name != name or not Path(name).suffix:  # such as ".."
            problem = f"{path / INDEX} names {jsons.show(name)}, which is no plain file name"
            raise CheckpointError(problem, DAMAGED)
    return [path / name for name in shards]


def _refuse_folder(path: Path) -> CheckpointError:
    names = sorted(file.name for file in path.iterdir())
    pickles = [name for name in names if Path(name).suffix.lower() in PICKLES]
    if pickles:
        shown = jsons.show(pickles[0])
        return CheckpointError(
            f"{path} holds its weights as a pickle, {shown}: not opened", CONVERT
        )
    others = [jsons.show(name) for name in names if name.endswith(".safetensors")]
    hint = "a model that has only pytorch_model.bin has to be converted first"
    if others:
        hint = f"give one of its files: {', '.join(others[:5])}"
    return CheckpointError(f"{path} holds neither {SINGLE} nor {INDEX}", hint)


def _refuse(file: Path, error: Exception) -> CheckpointError:
    reason = getattr(error, "strerror", None) or first_line(error)
    return CheckpointError(f"{file} cannot be read: {reason[:200]}", DAMAGED)
