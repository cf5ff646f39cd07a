"""Safetensors files from anywhere: a file, a folder with model.safetensors, or an index and shards.

Nothing in them is trusted: the header is checked first, then the library checks it again and reads
the data. The library alone takes the last of two equal keys, parses headers of 100 MB, and names no
tensor whose size is wrong. Pickles are never opened: to unpickle is to run the file's code.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
DIMENSIONS = 32
ENTRY = {"dtype": str, "shape": [range(BYTES_LIMIT)], "data_offsets": (range(BYTES_LIMIT),) * 2}
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


def read(path: Path | str) -> dict[str, np.ndarray]:
    """Read every tensor by name; all headers are checked before any data is read."""
    tensors: dict[str, np.ndarray] = {}
    for file, names in _files(Path(path)).items():
        try:
            # pread, because a memory map would hold the file in memory beside its copy, and kill
            # the process if the file were truncated meanwhile.
            with safe_open(file, framework="numpy", backend="pread") as opened:
                tensors |= {name: opened.get_tensor(name) for name in names}
        except (SafetensorError, OSError, ValueError) as error:
            raise CheckpointError(f"{file} cannot be read: {_line(error)}", DAMAGED) from error
    return tensors


def write(path: Path | str, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> None:
    """Write a file whole or not at all; the same tensors give the same bytes.

    The library's writer orders several metadata keys at random, ignores an array's strides, and
    does not say when a disk is full.
    """
    path, codes = Path(path), {dtype: code for code, dtype in DTYPES.items()}
    # Wide types first, as in the library: then every tensor begins at a multiple of its item size.
    names = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    entries: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))} if metadata else {}
    end = 0
    for name in names:
        dtype, shape = tensors[name].dtype.newbyteorder("="), list(tensors[name].shape)
        if dtype not in codes or not _is_plain(name):
            problem = f"{path}: tensor {show(name)} of dtype {dtype} cannot be stored"
            raise CheckpointError(problem, f"plain names, and {', '.join(map(str, codes))}")
        begin, end = end, end + tensors[name].nbytes
        entries[name] = {"dtype": codes[dtype], "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    hint = "is there space, and may you write?"
    with (
        disk.output(path, CheckpointError, hint),
        disk.replacing(path, len(text) + 8 + end) as file,
    ):
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            tensors[name].astype(tensors[name].dtype.newbyteorder("<"), copy=False).tofile(file)


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


def _files(path: Path) -> dict[Path, list[str]]:
    """Return every file that belongs to a path, and the names of its tensors."""
    if not os.path.isdir(path):  # Path.is_dir raises where it may not look
        return {path: _names(path)}
    try:
        names = {file.name for file in path.iterdir()}
    except OSError as error:
        raise _unreadable(path, error) from error
    if SINGLE in names:
        return {file: _names(file) for file in [inside(path, SINGLE)]}
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


def _shards(folder: Path) -> dict[Path, list[str]]:
    """Check the headers of an index's shards, which must hold the tensors it names and no other."""
    schema = {"weight_map": {str: str}}  # tensor -> file
    files: dict[str, str] = jsons.read(
        inside(folder, INDEX),
        *(CheckpointError, schema),
        hint=DAMAGED,
        limit=HEADER_LIMIT,
        strict=True,
    )["weight_map"]
    if not files:
        raise CheckpointError(f"{folder / INDEX}: its weight_map names no tensor", DAMAGED)
    shards = {}
    for shard in sorted(set(files.values())):
        names = shards[folder / shard] = _names(inside(folder, shard))
        stated = {name for name, file in files.items() if file == shard}
        for name in sorted(stated.symmetric_difference(names)):
            problem = "lacks" if name in stated else "also holds"
            raise CheckpointError(
                f"{folder / shard} {problem} tensor {show(name)}, "
                f"against {INDEX} ({len(stated)} tensors there)",
                "files of different downloads may be mixed: fetch the folder again",
            )
    return shards


# --- a header ------------------------------------------------------------------------------------


def _names(file: Path) -> list[str]:
    """Check a file's header; return the names of its tensors."""
    if file.suffix.lower() in PICKLES:
        raise CheckpointError(f"{file} is a pickle by its name: not opened", CONVERT)
    try:
        with opening.regular(
            file, CheckpointError, "give a .safetensors file or the folder of a model"
        ) as opened:
            size, start = os.fstat(opened.fileno()).st_size, opened.read(8)
            length = int.from_bytes(start, "little")
            fits = len(start) == 8 and length <= min(HEADER_LIMIT, size - 8)
            text = opened.read(length) if fits else b""
            # The length of a header may itself begin as a pickle does: 0x80 0x02 is 640.
            if start.startswith(MAGIC) and not text.startswith(b"{"):
                raise CheckpointError(
                    f"{file} is a pickle or a zip by its first bytes: not opened", CONVERT
                )
            if not fits:
                limit = f"{size} bytes, a header of {length} announced, at most {HEADER_LIMIT} read"
                raise CheckpointError(f"{file}: its header does not fit: {limit}", DAMAGED)
    except OSError as error:
        raise _unreadable(file, error) from error
    if not text.startswith(b"{"):
        raise CheckpointError(f"{file}: its header does not begin with an object", DAMAGED)
    try:
        stated = jsons.parse(text, dict, strict=True)
    except jsons.Malformed as error:
        raise CheckpointError(f"{file}: {error}", DAMAGED) from error
    if problem := jsons.wrong(stated.pop("__metadata__", {}), {str: str}, "__metadata__"):
        raise CheckpointError(f"{file}: {problem}", DAMAGED)
    for name, entry in stated.items():
        _check(f"{file}: tensor {show(name)}", name, entry)
    end, last = 0, "the header"
    ordered = sorted((*entry["data_offsets"], show(name)) for name, entry in stated.items())
    for begin, stop, name in ordered:
        if begin != end:
            problem = f"tensor {name} begins at byte {begin}, {last} ends at {end}"
            raise CheckpointError(f"{file}: {problem}", DAMAGED)
        end, last = stop, name
    if end != size - 8 - length:
        raise CheckpointError(
            f"{file}: its tensors take {end} bytes, it holds {size - 8 - length} of data", DAMAGED
        )
    return list(stated)


def _check(where: str, name: str, entry: Any) -> None:
    """Refuse a tensor whose name, dtype, shape or place in the file cannot be right."""
    if not _is_plain(name):
        raise CheckpointError(f"{where} has a name no library gives", DAMAGED)
    if not isinstance(entry, dict) or entry.keys() != ENTRY.keys():
        raise CheckpointError(f"{where} is not described by {', '.join(ENTRY)}", DAMAGED)
    if problem := jsons.wrong(entry, ENTRY):
        raise CheckpointError(f"{where}: {problem}", DAMAGED)
    code, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
    if code not in DTYPES or len(shape) > DIMENSIONS:
        raise CheckpointError(
            f"{where} has dtype {show(code)} and a shape of {len(shape)} dimensions",
            f"read are {', '.join(DTYPES)}, of at most {DIMENSIONS} dimensions",
        )
    needed = math.prod(shape) * DTYPES[code].itemsize
    if end - begin != needed or math.prod(max(n, 1) for n in shape) > BYTES_LIMIT:
        raise CheckpointError(
            f"{where} of dtype {code} and shape {shape} takes {needed} bytes, "
            f"its data_offsets {[begin, end]} hold {end - begin}",
            DAMAGED,
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
