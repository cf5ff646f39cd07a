"""TensorFlow 1 checkpoints, read by numpy alone: TensorFlow is 500 MB for a job of one file.

The format (tensorflow/core/util/tensor_bundle, tensorflow/core/lib/io/table_format.txt):
PREFIX.index is a sorted table of keys and values, as in LevelDB; PREFIX.data-0000i-of-0000n hold
the bytes. The key "" has the BundleHeaderProto, any other key is a tensor's name and has its
BundleEntryProto: dtype, shape, data file, offset, size, checksum.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import ml_dtypes
import numpy as np

from bert_jax.errors import CheckpointError
from bert_jax.interop.crc32c import crc32c, masked
from bert_jax.interop.safetensors import BYTES_LIMIT
from bert_jax.system import opening
from bert_jax.system.jsons import show

MAGIC = 0xDB4775248B80FB57  # last 8 bytes of a table
FOOTER = 48
INDEX_LIMIT = 64 << 20  # bytes; BERT-large with its optimizer has 0.1 MB
KEY_LIMIT = 4096
DTYPES: dict[int, np.dtype] = {  # tensorflow/core/framework/types.proto
    1: np.dtype("<f4"),
    2: np.dtype("<f8"),
    3: np.dtype("<i4"),
    4: np.dtype("u1"),
    5: np.dtype("<i2"),
    6: np.dtype("i1"),
    9: np.dtype("<i8"),
    10: np.dtype(bool),
    14: np.dtype(ml_dtypes.bfloat16),
    17: np.dtype("<u2"),
    19: np.dtype("<f2"),
    22: np.dtype("<u4"),
    23: np.dtype("<u8"),
}
DAMAGED = "it is damaged, or its files are of different checkpoints: fetch all of them again"
FOREIGN = (
    "read it in TensorFlow, and save the weights again by tf.compat.v1.train.Saver "
    "as plain unpartitioned variables"
)


class Entry(NamedTuple):
    """A tensor's place in the data files."""

    dtype: np.dtype
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    crc: int


class _Malformed(ValueError):
    """An error inside an index, with a hint; `read` adds which file."""

    def __init__(self, message: str, hint: str = DAMAGED):
        super().__init__(message)
        self.hint = hint


def read(
    path: Path | str, wanted: Callable[[str], bool] = lambda name: True
) -> dict[str, np.ndarray]:
    """Read the wanted tensors of PREFIX, PREFIX.index, or a folder with one index."""
    index = _index(Path(path))
    try:
        entries, shards = _entries(opening.read(index, CheckpointError, INDEX_LIMIT), wanted)
    except _Malformed as error:
        raise CheckpointError(f"{index}: {error}", error.hint) from error
    tensors: dict[str, np.ndarray] = {}
    prefix = index.name.removesuffix(".index")
    for shard in sorted({entry.shard for entry in entries.values()}):
        file = index.with_name(f"{prefix}.data-{shard:05d}-of-{shards:05d}")
        part = {name: entry for name, entry in entries.items() if entry.shard == shard}
        tensors |= _read(file, part)
    return {name: tensors[name] for name in entries}


def _index(path: Path) -> Path:
    """Return the index that a path means."""
    hint = (
        "give PREFIX of PREFIX.index and PREFIX.data-00000-of-00001, such as FOLDER/bert_model.ckpt"
    )
    if os.path.isdir(path):
        try:
            names = sorted(file.name for file in path.iterdir() if file.name.endswith(".index"))
        except OSError as error:
            raise CheckpointError(
                f"{path} cannot be read: {error.strerror}", "may you read this folder?"
            ) from error
        if len(names) != 1:
            listed = f" ({', '.join(map(show, names[:5]))})" if names else ""
            raise CheckpointError(f"{path} holds {len(names)} *.index files{listed}, not one", hint)
        path = path / names[0]
    elif path.suffix != ".index":
        path = path.with_name(f"{path.name}.index")
    opening.check(path, CheckpointError, hint)
    return path


def _read(file: Path, entries: dict[str, Entry]) -> dict[str, np.ndarray]:
    """Read the tensors of one data file, in its order."""
    tensors = {}
    try:
        with opening.regular(
            file, CheckpointError, "all data files of a checkpoint lie beside its index"
        ) as opened:
            length = os.fstat(opened.fileno()).st_size
            last_end, last = 0, ""
            ordered = sorted(entries.items(), key=lambda item: (item[1].offset, item[1].size))
            for name, entry in ordered:
                end = entry.offset + entry.size
                problem = f"{file}: tensor {show(name)} takes bytes {entry.offset} to {end}, but"
                if end > length:
                    raise CheckpointError(f"{problem} the file has {length}", DAMAGED)
                if entry.offset < last_end:
                    raise CheckpointError(f"{problem} {show(last)} ends at {last_end}", DAMAGED)
                last_end, last = end, name
                opened.seek(entry.offset)
                data = np.fromfile(opened, np.uint8, entry.size)
                if masked(crc32c(data)) != entry.crc:
                    raise CheckpointError(
                        f"{file}: the checksum of tensor {show(name)} differs", DAMAGED
                    )
                tensors[name] = data.view(entry.dtype).reshape(entry.shape)
    except OSError as error:
        raise CheckpointError(
            f"{file} cannot be read: {error.strerror}", "may you read this file?"
        ) from error
    return tensors


# --- the index -----------------------------------------------------------------------------------


def _entries(table: bytes, wanted: Callable[[str], bool]) -> tuple[dict[str, Entry], int]:
    """Return the wanted entries in name order, and the number of data files."""
    pairs = _pairs(table)
    key, value = next(pairs, (b"", b""))
    if key:
        raise _Malformed(
            f"it begins with {show(key.decode(errors='replace'))}, not with the header"
        )
    fields = _message(value)
    shards, order = _number(fields, 1), _number(fields, 2)
    if not 0 < shards <= 99999:
        raise _Malformed(f"it announces {shards} data files")
    if order:
        raise _Malformed("its numbers are big-endian, which is not read", FOREIGN)
    entries = {}
    for key, value in pairs:
        if key.startswith(b"\0"):  # a slice of a partitioned variable
            continue
        try:
            name = key.decode()
        except UnicodeDecodeError as error:
            raise _Malformed(f"the name {show(key)} is not UTF-8") from error
        if wanted(name):
            entries[name] = _entry(name, value, shards)
    return entries, shards


def _entry(name: str, value: bytes, shards: int) -> Entry:
    where, fields = f"tensor {show(name)}", _message(value)
    code = _number(fields, 1)
    if code not in DTYPES:
        raise _Malformed(
            f"{where} has dtype {code} of TensorFlow's types.proto, which is not read", FOREIGN
        )
    if 7 in fields:
        raise _Malformed(f"{where} is a partitioned variable, which is not read", FOREIGN)
    shape = tuple(
        _number(_message(dim), 1) for part in _parts(fields, 2) for dim in _parts(_message(part), 2)
    )
    shard, offset, size, crc = (_number(fields, field) for field in (3, 4, 5, 6))
    if shard >= shards:
        raise _Malformed(f"{where} is in data file {shard} of {shards}")
    needed = math.prod(shape) * DTYPES[code].itemsize
    if needed != size or len(shape) > 32 or math.prod(max(n, 1) for n in shape) > BYTES_LIMIT:
        raise _Malformed(f"{where} of {DTYPES[code]} and shape {shape[:32]} has {size} bytes")
    return Entry(DTYPES[code], shape, shard, offset, size, crc)


def _pairs(table: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of all data blocks.

    Keys must ascend strictly, so that no block is read twice and no key occurs twice.
    """
    if len(table) < FOOTER or int.from_bytes(table[-8:], "little") != MAGIC:
        raise _Malformed(
            f"it has {len(table)} bytes "
            "and does not end as the index of a TensorFlow checkpoint does"
        )
    footer, place = table[-FOOTER:-8], 0
    handles = []
    for _ in range(4):
        number, place = _varint(footer, place)
        handles.append(number)
    last = None
    # The first two handles are of the meta index, which is empty.
    for _, handle in _block(table, *handles[2:]):
        offset, place = _varint(handle, 0)
        size, _ = _varint(handle, place)
        for key, value in _block(table, offset, size):
            if last is not None and key <= last:
                raise _Malformed(f"key {show(key)} follows {show(last)}: keys ascend")
            yield key, value
            last = key


def _block(table: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a block.

    After the entries it has the places where some of them start, which are not needed here, its
    kind and its checksum.
    """
    end = offset + size
    if end + 5 > len(table) - FOOTER:
        raise _Malformed(f"a block takes bytes {offset} to {end + 5} of {len(table)}")
    kind, crc = table[end], int.from_bytes(table[end + 1 : end + 5], "little")
    if masked(crc32c(np.frombuffer(table, np.uint8, size + 1, offset))) != crc:
        raise _Malformed(f"the checksum of the block at byte {offset} differs")
    if kind != 0:
        packed = "by snappy" if kind == 1 else f"in way {kind}"
        raise _Malformed(
            f"the block at byte {offset} is compressed {packed}, which is not read", FOREIGN
        )
    block = table[offset:end]
    starts = 4 * int.from_bytes(block[-4:], "little") + 4
    if starts > size:
        raise _Malformed(
            f"the block at byte {offset} has {size} bytes, {starts} of them for its restarts"
        )
    place, stop, key = 0, size - starts, b""
    while place < stop:
        shared, place = _varint(block, place)
        rest, place = _varint(block, place)
        length, place = _varint(block, place)
        if shared > len(key) or shared + rest > KEY_LIMIT or place + rest + length > stop:
            raise _Malformed(
                f"a key of {shared} + {rest} bytes or its value of {length} leaves its block"
            )
        key = key[:shared] + block[place : place + rest]
        place += rest + length
        yield key, block[place - length : place]


# --- protocol buffers ----------------------------------------------------------------------------


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """Read a number of at most 64 bits, seven a byte; return it and the place after it."""
    number = 0
    for shift in range(0, 70, 7):
        if place >= len(data):
            break
        byte, place = data[place], place + 1
        number |= (byte & 127) << shift
        if byte < 128:
            if number >= 1 << 64:
                break
            return number, place
    raise _Malformed("a number in it does not end, or has more than 64 bits")


def _message(data: bytes) -> dict[int, list[int | bytes]]:
    """Return the values of a message by field number, in the order written."""
    fields: dict[int, list[int | bytes]] = {}
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        value: int | bytes
        if tag & 7 == 0:
            value, place = _varint(data, place)
        elif tag & 7 in (1, 2, 5):
            length, place = _varint(data, place) if tag & 7 == 2 else ({1: 8, 5: 4}[tag & 7], place)
            value, place = data[place : place + length], place + length
            if place > len(data):
                raise _Malformed(f"field {tag >> 3} of {length} bytes leaves its message")
            if tag & 7 == 5:
                value = struct.unpack("<I", value)[0]
        else:
            raise _Malformed(f"a field has wire type {tag & 7}")
        fields.setdefault(tag >> 3, []).append(value)
    return fields


def _number(fields: dict[int, list[int | bytes]], field: int) -> int:
    """Return a number by the rules of protocol buffers: the last value wins, and absent is 0.

    None of the fields read here is negative.
    """
    value = fields[field][-1] if field in fields else 0
    if not isinstance(value, int):
        raise _Malformed(f"field {field} of a message is {show(value)}")
    return value


def _parts(fields: dict[int, list[int | bytes]], field: int) -> list[bytes]:
    parts = fields.get(field, [])
    if not all(isinstance(part, bytes) for part in parts):
        raise _Malformed(f"field {field} of a message is a number, not a message")
    return [part for part in parts if isinstance(part, bytes)]
