"""Safetensors files from anywhere: a file, a folder with model.safetensors, or an index and shards.

Nothing in them is trusted: we check the header first, more strictly than the library (which accepts
duplicate keys silently), then the library reads the data. Pickles are never opened: to unpickle is
to run the file's code.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open

from bert_jax.errors import CheckpointError
from bert_jax.system import disk, jsons, opening
from bert_jax.system.jsons import show

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
HEADER_LIMIT = 16 << 20  # bytes; BERT-large's has 50 kB, and parsing takes 25 times the memory
BYTES_LIMIT = 1 << 48  # of one tensor, and of each number in a header: what numpy can count with
DTYPES: dict[str, np.dtype] = {
    **{f"F{bits}": np.dtype(f"float{bits}") for bits in (64, 32, 16)},
    **{f"I{bits}": np.dtype(f"int{bits}") for bits in (64, 32, 16, 8)},
    **{f"U{bits}": np.dtype(f"uint{bits}") for bits in (64, 32, 16, 8)},
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "BOOL": np.dtype(bool),
}
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".npy", ".npz")
MAGIC = (  # first bytes, for a pickle under another name
    *(bytes([0x80, protocol]) for protocol in range(2, 6)),
    b"PK\x03\x04",  # a zip: torch.save since 1.6, .npz
    b"\x93NUMPY",
)
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
    "it is damaged, or not a safetensors file: "
    "fetch it again and compare its size and sha256 with the source's"
)


class Entry(NamedTuple):
    """A header's entry of a tensor."""

    dtype: np.dtype
    shape: tuple[int, ...]
    begin: int  # bytes, from the end of the header
    end: int


def read(path: Path | str) -> dict[str, np.ndarray]:
    """Read every tensor by name; all headers are checked before any data is read."""
    tensors: dict[str, np.ndarray] = {}
    for file, entries in _headers(Path(path)).items():
        try:
            # pread, because a memory map would hold the file in memory beside its copy, and kill
            # the process if the file were truncated meanwhile.
            with safe_open(file, framework="numpy", backend="pread") as opened:
                tensors |= {name: opened.get_tensor(name) for name in entries}
        except (SafetensorError, OSError, ValueError) as error:
            raise CheckpointError(f"{file} cannot be read: {_line(error)}", DAMAGED) from error
    return tensors


def header(path: Path | str) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return (numpy's name of the dtype, shape) by tensor name, without reading data."""
    files = _headers(Path(path)).values()
    return {
        name: (entry.dtype.name, entry.shape)
        for entries in files
        for name, entry in entries.items()
    }


def write(path: Path | str, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> None:
    """Write a file whole or not at all; the same tensors give the same bytes.

    The library's writer is not used: it orders several metadata keys at random and ignores an
    array's strides.
    """
    path, codes = Path(path), {dtype: code for code, dtype in DTYPES.items()}
    # Wide types first, as in the library: then every tensor begins at a multiple of its item size.
    names = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    entries: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))} if metadata else {}
    end = 0
    for name in names:
        array = tensors[name]
        dtype = array.dtype.newbyteorder("=")
        if dtype not in codes or not _is_plain(name):
            problem = f"{path}: tensor {show(name)} of dtype {dtype} cannot be stored"
            raise CheckpointError(problem, f"plain names, and {', '.join(map(str, codes))}")
        begin, end = end, end + array.nbytes
        entries[name] = {
            "dtype": codes[dtype],
            "shape": list(array.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    try:
        with disk.replacing(path, len(text) + 8 + end) as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for name in names:
                tensors[name].astype(tensors[name].dtype.newbyteorder("<"), copy=False).tofile(file)
    except OSError as error:
        raise CheckpointError(
            f"cannot write {path}: {_line(error)}", "is there space, and may you write?"
        ) from error


def check_finite(arrays: Mapping[str, np.ndarray], source: Path | str) -> None:
    """Refuse weights with a NaN or an infinity."""
    counts = {name: array.size - int(np.isfinite(array).sum()) for name, array in arrays.items()}
    bad = [name for name, count in counts.items() if count]
    if bad:
        first = bad[0]
        raise CheckpointError(
            f"{source}: {len(bad)} of {len(arrays)} tensors hold NaN or infinite values, "
            f"first {show(first)}, {counts[first]} of its {arrays[first].size}",
            "the training that wrote it had diverged, or the file is damaged: "
            "take an earlier checkpoint",
        )


def inside(folder: Path, name: str) -> Path:
    """Return the path of a file that a foreign folder names; it must lie in that folder."""
    if not _is_plain(name) or name != Path(name).name:
        raise CheckpointError(
            f"{folder} names the file {show(name)}, which is not a plain file name", DAMAGED
        )
    return opening.inside(folder, folder / name, CheckpointError)


# --- files ---------------------------------------------------------------------------------------


def _headers(path: Path) -> dict[Path, dict[str, Entry]]:
    """Return every file that belongs to a path, and its header's entries."""
    if not os.path.isdir(path):  # Path.is_dir raises where it may not look
        return {path: _header(path)}
    try:
        names = {file.name for file in path.iterdir()}
    except OSError as error:
        raise _unreadable(path, error) from error
    if SINGLE in names:
        return {file: _header(file) for file in [inside(path, SINGLE)]}
    if INDEX in names:
        return _shards(path)
    pickles = sorted(name for name in names if Path(name).suffix.lower() in PICKLES)
    if pickles:
        raise CheckpointError(
            f"{path} holds its weights as a pickle, {show(pickles[0])}: not opened", CONVERT
        )
    others = sorted(name for name in names if name.endswith(".safetensors"))
    raise CheckpointError(
        f"{path} holds neither {SINGLE} nor {INDEX}",
        f"give one of its files: {', '.join(map(show, others[:5]))}" if others else NO_WEIGHTS,
    )


def _shards(folder: Path) -> dict[Path, dict[str, Entry]]:
    """Read the headers of an index's shards, which must hold the tensors it names and no other."""
    index = inside(folder, INDEX)
    stated = jsons.read(index, CheckpointError, hint=DAMAGED, limit=HEADER_LIMIT, strict=True)
    files = stated.get("weight_map")  # tensor -> file
    is_table = isinstance(files, dict) and all(isinstance(file, str) for file in files.values())
    if not files or not is_table:
        raise CheckpointError(
            f"{index}: its weight_map is not a table of tensors and their files", DAMAGED
        )
    headers = {}
    for shard in sorted(set(files.values())):
        entries = _header(inside(folder, shard))
        named = {name for name, file in files.items() if file == shard}
        for name in sorted(named ^ entries.keys()):
            problem = "lacks" if name in named else "also holds"
            raise CheckpointError(
                f"{folder / shard} {problem} tensor {show(name)}, "
                f"against {INDEX} ({len(named)} tensors there)",
                "files of different downloads may be mixed: fetch the folder again",
            )
        headers[folder / shard] = entries
    return headers


# --- a header ------------------------------------------------------------------------------------


def _header(file: Path) -> dict[str, Entry]:
    if file.suffix.lower() in PICKLES:
        raise CheckpointError(f"{file} is a pickle by its name: not opened", CONVERT)
    try:
        with opening.regular(
            file, CheckpointError, "give a .safetensors file or the folder of a model"
        ) as opened:
            size, start = os.fstat(opened.fileno()).st_size, opened.read(8)
            if start.startswith(MAGIC):
                raise CheckpointError(
                    f"{file} is a pickle or a zip by its first bytes: not opened", CONVERT
                )
            length = int.from_bytes(start, "little")
            if len(start) < 8 or length > min(HEADER_LIMIT, size - 8):
                limit = f"{size} bytes, a header of {length} announced, at most {HEADER_LIMIT} read"
                raise CheckpointError(f"{file}: its header does not fit: {limit}", DAMAGED)
            text = opened.read(length)
    except OSError as error:
        raise _unreadable(file, error) from error
    if not text.startswith(b"{"):
        raise CheckpointError(f"{file}: its header does not begin with an object", DAMAGED)
    try:
        stated = jsons.parse(text, dict, strict=True)
    except jsons.Malformed as error:
        raise CheckpointError(f"{file}: {error}", DAMAGED) from error
    metadata = stated.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise CheckpointError(f"{file}: its __metadata__ is not a table of strings", DAMAGED)
    entries = {name: _entry(file, name, fields) for name, fields in stated.items()}
    end, last = 0, "the header"
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.begin != end:
            problem = f"tensor {show(name)} begins at byte {entry.begin}, {last} ends at {end}"
            raise CheckpointError(f"{file}: {problem}", DAMAGED)
        end, last = entry.end, show(name)
    if end != size - 8 - length:
        raise CheckpointError(
            f"{file}: its tensors take {end} bytes, it holds {size - 8 - length} of data", DAMAGED
        )
    return entries


def _entry(file: Path, name: str, fields: Any) -> Entry:
    where = f"{file}: tensor {show(name)}"
    if not _is_plain(name):
        raise CheckpointError(f"{where} has a name no library gives", DAMAGED)
    if not isinstance(fields, dict) or fields.keys() != {"dtype", "shape", "data_offsets"}:
        raise CheckpointError(f"{where} is not described by dtype, shape and data_offsets", DAMAGED)
    code, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    if not isinstance(code, str) or code not in DTYPES:
        raise CheckpointError(f"{where} has dtype {show(code)}", f"read are {', '.join(DTYPES)}")
    if not _are_counts(shape) or len(shape) > 32:
        raise CheckpointError(f"{where} has shape {show(shape)}", DAMAGED)
    if not _are_counts(offsets) or len(offsets) != 2:
        raise CheckpointError(f"{where} has data_offsets {show(offsets)}", DAMAGED)
    begin, end = offsets
    needed = math.prod(shape) * DTYPES[code].itemsize
    if end - begin != needed or math.prod(max(n, 1) for n in shape) > BYTES_LIMIT:
        problem = f"of dtype {code} and shape {show(shape)} takes {needed} bytes"
        raise CheckpointError(
            f"{where} {problem}, its data_offsets {offsets} hold {end - begin}", DAMAGED
        )
    return Entry(DTYPES[code], tuple(shape), begin, end)


def _are_counts(values: Any) -> bool:
    """Return whether values are a list of counts; isinstance would take a bool for an int."""
    return isinstance(values, list) and all(
        type(n) is int and 0 <= n <= BYTES_LIMIT for n in values
    )


def _is_plain(name: str) -> bool:
    return bool(re.fullmatch(r"(?!/|__metadata__$)((?!\.\.)[^\\])+", name)) and name.isprintable()


def _unreadable(path: Path, error: OSError) -> CheckpointError:
    return CheckpointError(
        f"{path} cannot be read: {_line(error)}", "is it there in full, and may you read it?"
    )


def _line(error: Exception) -> str:
    """Return the message of a library's error in one line."""
    text = (error.strerror or "") if isinstance(error, OSError) else ""
    return " ".join((text or str(error) or type(error).__name__).split())[:200]
