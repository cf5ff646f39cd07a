"""Safetensors files from anywhere: a file, a folder with model.safetensors, or an index and shards.

The safetensors library checks a header against its file, and gives shapes before data is read.
Pickles are never opened: to unpickle is to run the file's code.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from bert_jax.errors import CheckpointError, first_line
from bert_jax.interop.json_files import read_json, shorten

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".npy", ".npz")
CONVERT = (
    "convert it on a machine where you trust its source: load it in transformers by "
    "from_pretrained(FOLDER) of the model's class, then "
    "save_pretrained(NEW_FOLDER, safe_serialization=True); "
    "or torch.load(FILE, weights_only=True), then safetensors.torch.save_file"
)
NO_WEIGHTS = (
    "give the folder of a model; one that has only pytorch_model.bin, here or on the hub, has to "
    "be converted first: from_pretrained and save_pretrained in transformers write "
    "model.safetensors"
)
DAMAGED = (
    "it is damaged, or not a safetensors file: fetch it again and compare its size and sha256 "
    "with the source's; a pickle under this name is not opened"
)


class Tensors(Protocol):
    """Tensors in files: their shapes are known before any data is read."""

    shapes: dict[str, tuple[int, ...]]

    def read(self, name: str) -> np.ndarray:
        """Read one tensor by its name."""


class SafetensorsFiles:
    """The tensors of a safetensors file, or of all shards of a folder."""

    def __init__(self, path: Path):
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._files: dict[str, tuple[Path, Any]] = {}  # tensor -> its file, and the file opened
        for file in _list_files(path):
            self._open(file)

    def read(self, name: str) -> np.ndarray:
        """Read one tensor by its name."""
        file, opened = self._files[name]
        try:
            return opened.get_tensor(name)
        # The last two: numpy has no such type, as none of 8 bits.
        except (SafetensorError, OSError, ValueError, AttributeError, TypeError) as error:
            raise _refuse(file, error) from error

    def _open(self, file: Path) -> None:
        if file.suffix.lower() in PICKLES:
            raise CheckpointError(f"{file} is a pickle by its name: not opened", CONVERT)
        try:
            # pread, because a memory map would hold the file in memory besides its copy.
            opened = safe_open(file, framework="numpy", backend="pread")
            for name in opened.keys():  # noqa: SIM118 - the library's object is no mapping
                self.shapes[name] = tuple(opened.get_slice(name).get_shape())
                self._files[name] = file, opened
        except (SafetensorError, OSError, ValueError) as error:
            raise _refuse(file, error) from error


def write_tensors(file: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Write a file; the same tensors give the same bytes.

    The folder around it is a draft that is renamed when it is complete.
    """
    # The library writes memory as it lies, whatever the strides of an array are.
    contiguous = {name: np.ascontiguousarray(value) for name, value in tensors.items()}
    try:
        save_file(contiguous, file, metadata={"format": "pt"})
    except SafetensorError as error:
        code = errno.ENOSPC if "No space left" in str(error) else errno.EIO
        raise OSError(code, first_line(error), str(file)) from error


def check_finite(arrays: Mapping[str, np.ndarray], source: Path | str) -> None:
    """Refuse weights with a NaN or an infinity."""
    bad = {}
    for name, array in arrays.items():
        count = array.size - int(np.isfinite(array).sum())
        if count:
            bad[name] = count
    if bad:
        first = next(iter(bad))
        raise CheckpointError(
            f"{source}: {len(bad)} of {len(arrays)} tensors hold NaN or infinite values, "
            f"first {shorten(first)}, {bad[first]} of its {arrays[first].size}",
            "the training that wrote it had diverged, or the file is damaged: "
            "take an earlier checkpoint",
        )


def _list_files(path: Path) -> list[Path]:
    """List the files that belong to a path."""
    if not path.is_dir():
        return [path]
    names = {file.name for file in path.iterdir()}
    if SINGLE in names:
        return [path / SINGLE]
    if INDEX in names:
        return _list_shards(path)
    pickles = sorted(name for name in names if Path(name).suffix.lower() in PICKLES)
    if pickles:
        raise CheckpointError(
            f"{path} holds its weights as a pickle, {shorten(pickles[0])}: not opened", CONVERT
        )
    others = sorted(name for name in names if name.endswith(".safetensors"))
    raise CheckpointError(
        f"{path} holds neither {SINGLE} nor {INDEX}",
        f"give one of its files: {', '.join(map(shorten, others[:5]))}" if others else NO_WEIGHTS,
    )


def _list_shards(folder: Path) -> list[Path]:
    """List the shards that an index names, which must lie in its folder."""
    places = read_json(folder / INDEX).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise CheckpointError(f"{folder / INDEX}: its weight_map names no tensor", DAMAGED)
    for name in places.values():
        # A name without a suffix is a folder, such as "..".
        is_plain = isinstance(name, str) and Path(name).name == name and Path(name).suffix
        if not is_plain:
            raise CheckpointError(
                f"{folder / INDEX} names the file {shorten(name)}, which is no plain file name",
                DAMAGED,
            )
    return [folder / name for name in sorted(set(places.values()))]


def _refuse(file: Path, error: Exception) -> CheckpointError:
    text = error.strerror or "" if isinstance(error, OSError) else ""
    return CheckpointError(f"{file} cannot be read: {(text or first_line(error))[:200]}", DAMAGED)
