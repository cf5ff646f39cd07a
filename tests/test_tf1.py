"""TensorFlow's checkpoints, against TensorFlow's own reading and a writer of the format that lives
here only.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file
from tensorboardX.crc32c import crc32c

from bert_jax.errors import CheckpointError
from bert_jax.interop import tf1
from tests.variants import GOLDEN

FOLDER = GOLDEN / "tf1"
PREFIX = FOLDER / "model.ckpt-1234"
NUMBERS = {  # of DataType in types.proto
    np.dtype(kind): number
    for number, kind in (
        *enumerate(("f4", "f8", "i4", "u1", "i2", "i1"), 1),
        *(
            (9, "i8"),
            (10, "?"),
            (14, ml_dtypes.bfloat16),
            (17, "u2"),
            (19, "f2"),
            (22, "u4"),
            (23, "u8"),
        ),
    )
}


# --- a writer -------------------------------------------------------------------------------------


def varint(number: int) -> bytes:
    found = b""
    while number > 127:
        found, number = found + bytes([number & 127 | 128]), number >> 7
    return found + bytes([number])


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    return varint(number << 3) + varint(value)


def stored(data: bytes) -> bytes:
    """The masked checksum."""
    crc = crc32c(data)
    return ((((crc >> 15) | (crc << 17)) + 0xA282EAD8) % 2**32).to_bytes(4, "little")


def bundle_entry(
    dtype: int, shape: tuple[int, ...], shard: int, offset: int, size: int, crc: bytes
) -> bytes:
    dims = b"".join(field(2, field(1, size) if size else b"") for size in shape)
    numbers = b"".join(
        field(key, value) for key, value in ((3, shard), (4, offset), (5, size)) if value
    )
    return field(1, dtype) + field(2, dims) + numbers + varint(6 << 3 | 5) + crc


def block(pairs: list[tuple[bytes, bytes]], restarts: int = 16) -> bytes:
    """Entries that share the start of the last key, but for every sixteenth."""
    found, starts, last = b"", [], b""
    for place, (key, value) in enumerate(pairs):
        shared = next(
            (i for i, (a, b) in enumerate(zip(last, key, strict=False)) if a != b),
            min(len(last), len(key)),
        )
        shared = shared if place % restarts else 0
        if not shared:
            starts.append(len(found))
        found += (
            varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        )
        last = key
    return (
        found
        + b"".join(start.to_bytes(4, "little") for start in starts)
        + len(starts).to_bytes(4, "little")
    )


def sealed(content: bytes, kind: int = 0) -> bytes:
    return content + bytes([kind]) + stored(content + bytes([kind]))


def table(pairs: list[tuple[bytes, bytes]], each: int = 5, kind: int = 0) -> bytes:
    """Pairs in blocks of `each`."""
    return assembled(
        [block(pairs[start : start + each]) for start in range(0, len(pairs), each)], kind
    )


def assembled(blocks: list[bytes], kind: int = 0) -> bytes:
    """Blocks, the empty block of meta data, the block of blocks, the footer."""
    found, handles = b"", []
    for place, content in enumerate(blocks):
        handles.append((b"%04d" % place, varint(len(found)) + varint(len(content))))
        found += sealed(content, kind)
    meta = varint(len(found)) + varint(len(block([])))
    found += sealed(block([]))
    index = varint(len(found)) + varint(len(block(handles)))
    found += sealed(block(handles))
    return found + (meta + index).ljust(40, b"\0") + (0xDB4775248B80FB57).to_bytes(8, "little")


def header(shards: int = 1, *more: bytes) -> tuple[bytes, bytes]:
    return b"", field(1, shards) + b"".join(more) + field(3, field(1, 1))


def write(folder: Path, arrays: dict[str, np.ndarray], shards: int = 1, each: int = 5) -> Path:
    data = [b""] * shards
    pairs = [header(shards)]
    for place, (name, array) in enumerate(
        sorted(arrays.items(), key=lambda item: item[0].encode())
    ):
        shard, raw = place % shards, array.tobytes()
        number = NUMBERS[array.dtype]
        pairs.append(
            (
                name.encode(),
                bundle_entry(number, array.shape, shard, len(data[shard]), len(raw), stored(raw)),
            )
        )
        data[shard] += raw
    (folder / "m.ckpt.index").write_bytes(table(pairs, each))
    for shard, raw in enumerate(data):
        (folder / f"m.ckpt.data-{shard:05d}-of-{shards:05d}").write_bytes(raw)
    return folder / "m.ckpt"


def hostile(
    folder: Path, pairs: list[tuple[bytes, bytes]], data: bytes = bytes(8), **options: int
) -> Path:
    (folder / "m.ckpt.index").write_bytes(table(pairs, **options))
    (folder / "m.ckpt.data-00000-of-00001").write_bytes(data)
    return folder / "m.ckpt"


def refused(path: Path, match: str) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        tf1.read(path)
    message, hint = str(caught.value), caught.value.hint
    assert caught.value.code == 4
    assert re.search(match, message), message
    assert path.name.removesuffix(".index") in message
    assert "\n" not in message + hint
    assert hint
    assert len(message) < 1000
    return caught.value


def read_or_refused(path: Path) -> None:
    """Tensors, or one line; any other exception is a failure."""
    try:
        tf1.read(path)
    except CheckpointError as error:
        if "\n" in f"{error}{error.hint}":
            raise


# --- what is right --------------------------------------------------------------------------------


def is_weight(name: str) -> bool:
    return "/adam_" not in name


@pytest.mark.parametrize(
    "path", [PREFIX, PREFIX.with_name(f"{PREFIX.name}.index"), FOLDER, str(PREFIX)]
)
def test_values_are_those_tensorflow_reads(path):
    with np.load(FOLDER / "values.npz") as values:
        read = tf1.read(path, is_weight)
        assert list(read) == sorted(values.files)
        for name, array in read.items():
            assert (array.dtype, array.shape) == (values[name].dtype, values[name].shape)
            np.testing.assert_array_equal(array, values[name])
    assert read["global_step"] == 1234


def test_optimizer_slots_are_there_for_whoever_wants_them():
    read = tf1.read(PREFIX)
    weights = [name for name in read if is_weight(name) and name != "global_step"]
    assert len(read) == 3 * len(weights) + 1
    assert all(
        read[f"{name}/{slot}"].shape == read[name].shape
        for name in weights
        for slot in ("adam_m", "adam_v")
    )


def test_the_weights_are_those_of_the_golden_classifier():
    read, golden = (
        tf1.read(PREFIX),
        load_file(GOLDEN / "huggingface" / "classifier_one_layer" / "model.safetensors"),
    )
    np.testing.assert_array_equal(read["output_weights"], golden["classifier.weight"])
    np.testing.assert_array_equal(
        read["bert/encoder/layer_0/intermediate/dense/kernel"],
        golden["bert.encoder.layer.0.intermediate.dense.weight"].T,
    )


def test_a_real_checkpoint(shared):
    """It has two layers of a model that is also there as safetensors."""
    read = tf1.read(shared / "ckpt_tf1_rxnfp_2layer" / "bert_model.ckpt", is_weight)
    whole = load_file(shared / "ckpt_rxnfp_bert_pretrained" / "model.safetensors")
    theirs = {
        re.sub(r"gamma$", "weight", re.sub(r"beta$", "bias", name)): array
        for name, array in whole.items()
    }
    for layer in (0, 1):
        ours = read[f"bert/encoder/layer_{layer}/output/dense/kernel"]
        np.testing.assert_array_equal(
            ours.T, theirs[f"bert.encoder.layer.{layer}.output.dense.weight"]
        )
    np.testing.assert_array_equal(
        read["bert/embeddings/word_embeddings"], theirs["bert.embeddings.word_embeddings.weight"]
    )


@st.composite
def arrays(draw) -> np.ndarray:
    dtype = draw(st.sampled_from(list(NUMBERS)))
    shape = tuple(draw(st.lists(st.integers(0, 3), max_size=3)))
    data = np.frombuffer(
        np.random.default_rng(draw(st.integers(0, 99))).bytes(int(np.prod(shape)) * dtype.itemsize),
        np.uint8,
    )
    return (data & 1 if dtype.kind == "b" else data).view(dtype).reshape(shape)


@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{1,3}(/[a-zé]{1,3}){0,3}", fullmatch=True), arrays(), max_size=12
    ),
    st.integers(1, 3),
    st.integers(1, 20),
)
def test_every_dtype_shape_shard_and_block_size(tmp_path_factory, given_arrays, shards, each):
    read = tf1.read(write(tmp_path_factory.mktemp("bundle"), given_arrays, shards, each))
    assert read.keys() == given_arrays.keys()
    for name, array in given_arrays.items():
        assert (read[name].dtype, read[name].shape) == (array.dtype, array.shape)
        assert read[name].tobytes() == array.tobytes()
        read[name][...] = 0  # it is the caller's


def test_what_is_not_wanted_is_not_read(tmp_path):
    prefix = write(tmp_path, {"a": np.arange(3.0), "a/adam_m": np.arange(3.0)}, shards=2)
    (tmp_path / "m.ckpt.data-00001-of-00002").unlink()
    assert list(tf1.read(prefix, is_weight)) == ["a"]
    refused(prefix, "00001-of-00002 does not exist")


# --- what is wrong --------------------------------------------------------------------------------

CRC = stored(bytes(8))
SOUND = bundle_entry(1, (2,), 0, 0, 8, CRC)


def damaged(**changes: object) -> bytes:
    return bundle_entry(
        **{"dtype": 1, "shape": (2,), "shard": 0, "offset": 0, "size": 8, "crc": CRC} | changes  # type: ignore[arg-type]
    )


HOSTILE = {
    "no header": ([(b"a", SOUND)], "begins with 'a'"),
    "nothing": ([], "announces"),
    "no data files": ([header(0)], "announces 0"),
    "a billion data files": ([header(10**9), (b"a", SOUND)], "announces 1000000000"),
    "big-endian": ([header(1, field(2, 1)), (b"a", SOUND)], "big-endian"),
    "strings": ([header(), (b"a", damaged(dtype=7))], "'a' has dtype 7"),
    "unknown dtype": ([header(), (b"a", damaged(dtype=99))], "'a' has dtype 99"),
    "no dtype": ([header(), (b"a", field(5, 8))], "'a' has dtype 0"),
    "slices": ([header(), (b"a", SOUND + field(7, b""))], "'a' is a partitioned variable"),
    "wrong shape": ([header(), (b"a", damaged(shape=(3,)))], r"\(3,\) has 8 bytes"),
    "negative shape": ([header(), (b"a", damaged(shape=(2**64 - 2,)))], "18446744073709551614"),
    "absurd shape": ([header(), (b"a", damaged(shape=(2**40, 2**40)))], "has 8 bytes"),
    "empty but absurd shape": (
        [header(), (b"a", damaged(shape=(2**40, 2**40, 0), size=0))],
        "has 0 bytes",
    ),
    "100 dimensions": ([header(), (b"a", damaged(shape=(1,) * 100 + (2,)))], "has 8 bytes"),
    "shard out of range": ([header(), (b"a", damaged(shard=1))], "data file 1 of 1"),
    "offset outside": ([header(), (b"a", damaged(offset=1))], "bytes 1 to 9, but the file has 8"),
    "absurd offset": ([header(), (b"a", damaged(offset=2**62))], "4611686018427387904"),
    "size outside": (
        [header(), (b"a", damaged(shape=(3,), size=12))],
        "bytes 0 to 12, but the file has 8",
    ),
    "overlap": (
        [header(), (b"a", SOUND), (b"b", damaged(shape=(1,), offset=4, size=4))],
        "'b' takes bytes 4 to 8, but 'a' ends at 8",
    ),
    "same place": ([header(), (b"a", SOUND), (b"b", SOUND)], "but 'a' ends at 8"),
    "checksum": ([header(), (b"a", damaged(crc=bytes(4)))], "checksum of tensor 'a'"),
    "double name": ([header(), (b"a", SOUND), (b"a", SOUND)], "keys ascend"),
    "names out of order": ([header(), (b"b", SOUND), (b"a", SOUND)], "keys ascend"),
    "name not UTF-8": ([header(), (b"\xff", SOUND)], "not UTF-8"),
    "name of 5000 letters": ([header(), (b"a" * 5000, SOUND)], "leaves its block"),
    "long name": ([header(), (b"a\n" * 2000, damaged(dtype=7))], r"'a\\na\\n.*\.\.\. has dtype 7"),
    "message cut": ([header(), (b"a", SOUND[:-1])], "leaves its message"),
    "number that never ends": ([header(), (b"a", b"\xff" * 30)], "does not end"),
    "number of 70 bits": ([header(), (b"a", b"\xff" * 9 + b"\x7f")], "64 bits"),
    "group": ([header(), (b"a", b"\x0b")], "wire type 3"),
    "text for a number": ([header(), (b"a", field(1, b"x"))], "field 1 of a message is b'x'"),
    "number for a message": (
        [header(), (b"a", field(1, 1) + field(2, 5))],
        "field 2 of a message is a number",
    ),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_index_is_one_line(tmp_path, kind):
    pairs, match = HOSTILE[kind]
    refused(hostile(tmp_path, pairs), match)


def test_the_sound_parts_of_the_hostile_ones_are_sound(tmp_path):
    assert tf1.read(hostile(tmp_path, [header(), (b"a", SOUND)]))["a"].tolist() == [0, 0]


def test_slices_of_partitioned_variables_are_passed_over(tmp_path):
    """Their keys begin with a NUL and are no text."""
    assert list(tf1.read(hostile(tmp_path, [header(), (b"\0\xff", b"x"), (b"a", SOUND)]))) == ["a"]


KEY = varint(0) + varint(1) + varint(len(SOUND)) + b"a" + SOUND
RESTARTS = bytes(4) + (1).to_bytes(4, "little")


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (KEY + RESTARTS, ""),
        (KEY + bytes(4) + (10**6).to_bytes(4, "little"), "4000004 of them for its restarts"),
        (KEY + b"\1", "for its restarts"),
        (b"", "for its restarts"),
        (varint(1) + KEY[1:] + RESTARTS, "key of 1 . 1 bytes"),  # shares a byte of no key
        (KEY[:-1] + RESTARTS, "leaves its block"),
        (varint(0) + varint(2**40) + KEY[2:] + RESTARTS, "leaves its block"),
    ],
)
def test_a_block_is_what_it_says(tmp_path, content, match):
    prefix = hostile(tmp_path, [])
    (tmp_path / "m.ckpt.index").write_bytes(assembled([block([header()]), content]))
    if match:
        refused(prefix, match)
    else:
        assert list(tf1.read(prefix)) == ["a"]


def test_a_flipped_bit_of_an_index_is_found(tmp_path):
    prefix = hostile(tmp_path, [header(), (b"a", SOUND)])
    flipped = bytearray((tmp_path / "m.ckpt.index").read_bytes())
    flipped[flipped.index(SOUND) + len(SOUND) - 1] ^= 1  # in the checksum of the tensor
    (tmp_path / "m.ckpt.index").write_bytes(flipped)
    refused(prefix, "checksum of the block at byte 0")


def test_compressed_blocks_are_refused(tmp_path):
    assert "save" in refused(hostile(tmp_path, [header(), (b"a", SOUND)], kind=1), "snappy").hint
    refused(hostile(tmp_path, [header(), (b"a", SOUND)], kind=9), "in way 9")


def test_a_truncated_index_is_refused_wherever_it_ends(tmp_path):
    prefix = hostile(tmp_path, [header(), (b"a", SOUND)])
    index = tmp_path / "m.ckpt.index"
    whole = index.read_bytes()
    for length in range(len(whole)):
        index.write_bytes(whole[:length])
        with pytest.raises(CheckpointError):
            tf1.read(prefix)
        index.write_bytes(whole[:length] + whole[-48:])  # the footer is there, what it means is not
        read_or_refused(prefix)


def test_truncated_data_is_refused(tmp_path):
    for file in FOLDER.iterdir():
        shutil.copy(file, tmp_path)
    data = tmp_path / f"{PREFIX.name}.data-00001-of-00002"
    whole = data.read_bytes()
    for length in (0, 1, len(whole) // 2, len(whole) - 1):
        data.write_bytes(whole[:length])
        refused(tmp_path / PREFIX.name, rf"the file has {length}$")


@given(st.integers(0, 10**9), st.integers(0, 7))
def test_a_flipped_bit_of_a_weight_is_found(tmp_path_factory, place, bit):
    folder = tmp_path_factory.mktemp("flipped")
    prefix = write(folder, {"a": np.arange(3000, dtype=np.float32)})
    data = folder / "m.ckpt.data-00000-of-00001"
    flipped = bytearray(data.read_bytes())
    flipped[place % len(flipped)] ^= 1 << bit
    data.write_bytes(flipped)
    refused(prefix, "checksum of tensor 'a' differs")


@given(st.integers(0, 10**9), st.integers(1, 255))
def test_flipped_bytes_of_an_index_are_read_or_refused(tmp_path_factory, place, change):
    folder = tmp_path_factory.mktemp("flipped")
    prefix = hostile(folder, [header(), (b"a", SOUND)])
    flipped = bytearray((folder / "m.ckpt.index").read_bytes())
    flipped[place % len(flipped)] ^= change
    (folder / "m.ckpt.index").write_bytes(flipped)
    read_or_refused(prefix)


@given(st.binary(max_size=40), st.integers(0, 10**9), st.integers(0, 255), st.binary(max_size=40))
def test_a_block_of_anything_is_read_or_refused(tmp_path_factory, entry, place, value, content):
    """Its checksum is right, so that what is behind the checksum is reached."""
    folder = tmp_path_factory.mktemp("anything")
    changed = bytearray(block([header(), (b"a", SOUND), (b"ab", SOUND)]))
    changed[place % len(changed)] = value
    for data in (bytes(changed), content, block([header(), (b"a", entry)])):
        handle = block([(b"z", varint(0) + varint(len(data)))])
        for pointing in (handle, content):
            footer = (varint(0) * 2 + varint(len(data) + 5) + varint(len(pointing))).ljust(
                40, b"\0"
            )
            magic = (0xDB4775248B80FB57).to_bytes(8, "little")
            (folder / "m.ckpt.index").write_bytes(sealed(data) + sealed(pointing) + footer + magic)
            (folder / "m.ckpt.data-00000-of-00001").write_bytes(bytes(8))
            read_or_refused(folder / "m.ckpt")


def test_a_block_is_not_read_twice(tmp_path):
    """Or a small file could name one block a million times."""
    data = sealed(block([header(), (b"a", SOUND)]))
    handle = varint(0) + varint(len(data) - 5)
    handles = sealed(block([(b"%04d" % i, handle) for i in range(1000)]))
    footer = (varint(0) * 2 + varint(len(data)) + varint(len(handles) - 5)).ljust(40, b"\0")
    (tmp_path / "m.ckpt.index").write_bytes(
        data + handles + footer + (0xDB4775248B80FB57).to_bytes(8, "little")
    )
    refused(tmp_path / "m.ckpt", "keys ascend")


def test_what_is_no_checkpoint_is_refused(tmp_path):
    refused(tmp_path, r"holds 0 \*\.index files")
    assert "PREFIX" in refused(tmp_path / "m.ckpt", "m.ckpt.index does not exist").hint
    (tmp_path / "a.index").write_bytes(b"")
    refused(tmp_path, "has 0 bytes")
    (tmp_path / "b.index").mkdir()
    refused(tmp_path / "b", "is a folder, not a file")
    refused(tmp_path, r"holds 2 \*\.index files \('a.index', 'b.index'\)")
    os.mkfifo(tmp_path / "p.index")
    refused(tmp_path / "p.index", "is a named pipe, not a file")
    with (tmp_path / "big.index").open("wb") as file:
        file.truncate(tf1.INDEX_LIMIT + 1)
    refused(tmp_path / "big", "at most 67,108,864 are read")
    refused(tmp_path / ("x" * 400), "name too long")
    prefix = hostile(tmp_path, [header(), (b"a", SOUND)])
    (tmp_path / "m.ckpt.data-00000-of-00001").unlink()
    (tmp_path / "m.ckpt.data-00000-of-00001").mkdir()
    refused(prefix, "00000-of-00001 is a folder, not a file")
