"""Files of tensors from elsewhere: read exactly, or refused in one line, and no code of theirs is
run.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import resource
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load, load_file, save, save_file

from bert_jax.errors import CheckpointError
from bert_jax.interop import safetensors
from tests import variants

NAMES = st.text(
    st.characters(exclude_categories=["C", "Z"], exclude_characters="\\"), min_size=1, max_size=20
).filter(lambda name: ".." not in name and not name.startswith("/") and name != "__metadata__")
SMALL = {
    "b.bias": np.arange(3, dtype=np.float32),
    "a.weight": np.arange(6, dtype=np.int16).reshape(2, 3),
}


@st.composite
def arrays(draw) -> np.ndarray:
    dtype = draw(st.sampled_from(list(safetensors.DTYPES.values())))
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=4)))
    data = np.frombuffer(
        np.random.default_rng(draw(st.integers(0, 99))).bytes(int(np.prod(shape)) * dtype.itemsize),
        np.uint8,
    )
    return (data & 1 if dtype.kind == "b" else data).view(dtype).reshape(shape)


def same(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> bool:
    """Names, dtypes, shapes and bits, of NaNs too."""
    return ours.keys() == theirs.keys() and all(
        (a.dtype, a.shape, a.tobytes()) == (theirs[n].dtype, theirs[n].shape, theirs[n].tobytes())
        for n, a in ours.items()
    )


def packed(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    """A file, from a header that may be anything."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def refused(path: Path, match: str) -> CheckpointError:
    """With one line that says which file and what, and one line of hint."""
    with pytest.raises(CheckpointError) as caught:
        safetensors.read(path)
    message, hint = str(caught.value), caught.value.hint
    assert caught.value.code == 4
    assert re.search(match, message), message
    assert path.name in message
    assert "\n" not in message + hint
    assert hint
    assert len(message) < 1000
    return caught.value


def read_or_refused(path: Path) -> dict[str, np.ndarray] | None:
    """The tensors, or None after one line; any other exception is a failure."""
    try:
        return safetensors.read(path)
    except CheckpointError as error:
        if "\n" in f"{error}{error.hint}":
            raise
        return None


# --- what is right --------------------------------------------------------------------------------


@given(
    st.dictionaries(NAMES, arrays(), max_size=5),
    st.dictionaries(NAMES, st.text(max_size=5), max_size=3),
)
def test_every_name_shape_and_dtype_travels_both_ways(tmp_path_factory, given_tensors, metadata):
    path = tmp_path_factory.mktemp("tensors") / "model.safetensors"
    safetensors.write(path, given_tensors, metadata)
    assert same(safetensors.read(path), given_tensors)
    assert same(load_file(path), given_tensors)
    if given_tensors:  # of none and no metadata the library writes broken JSON
        save_file(given_tensors, path, metadata=metadata)
        assert same(safetensors.read(path), given_tensors)


def test_the_same_tensors_give_the_same_bytes_as_the_library(tmp_path):
    one, two = tmp_path / "one.safetensors", tmp_path / "two.safetensors"
    safetensors.write(one, SMALL, {"format": "pt", "by": "us", "a": "b"})
    safetensors.write(two, dict(reversed(SMALL.items())), {"a": "b", "format": "pt", "by": "us"})
    assert one.read_bytes() == two.read_bytes()
    safetensors.write(one, SMALL, {"format": "pt"})
    assert one.read_bytes() == save(SMALL, metadata={"format": "pt"})


@pytest.mark.parametrize(
    "array", [np.arange(6.0).reshape(2, 3).T, np.arange(8, dtype=">f4")[::2], np.asarray(3.0)]
)
def test_strides_byte_order_and_scalars_are_written_as_they_look(tmp_path, array):
    safetensors.write(tmp_path / "x.safetensors", {"x": array}, {})
    read = safetensors.read(tmp_path / "x.safetensors")["x"]
    assert read.shape == array.shape
    np.testing.assert_array_equal(read, array)


@pytest.mark.parametrize(
    "name", sorted(folder.name for folder in (variants.GOLDEN / "huggingface").iterdir())
)
def test_golden_folders_are_read_as_the_library_reads_them(name):
    folder = variants.GOLDEN / "huggingface" / name
    assert same(safetensors.read(folder), variants.golden(name))
    assert same(safetensors.read(folder / "model.safetensors"), variants.golden(name))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precisions_keep_their_bits(tmp_path, dtype):
    stored = variants.cast(variants.golden("pretraining"), dtype)
    read = safetensors.read(variants.save(tmp_path, stored))
    assert {array.dtype for array in read.values()} == {np.dtype(dtype)}
    assert same(read, stored)


def test_shards_are_one_model(tmp_path):
    whole = variants.with_extras(variants.golden("pretraining"))
    folder = variants.save_sharded(tmp_path, whole, parts=3)
    assert same(safetensors.read(folder), whole)


def test_real_weights(shared):
    folder = shared / "ckpt_rxnfp_bert_pretrained"
    read = safetensors.read(folder)
    assert same(read, load_file(folder / "model.safetensors"))
    safetensors.check_finite(read, folder)


def test_arrays_that_were_read_may_be_changed():
    safetensors.read(variants.GOLDEN / "huggingface" / "model")["pooler.dense.bias"][0] = 1.0


# --- links ----------------------------------------------------------------------------------------


def test_the_links_of_a_hub_snapshot_are_followed(tmp_path):
    """models--x/snapshots/REVISION/model.safetensors -> ../../blobs/HASH, and through a link to the
    snapshot too.
    """
    blobs, snapshot = tmp_path / "models--x" / "blobs", tmp_path / "models--x" / "snapshots" / "abc"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    safetensors.write(blobs / "0123", SMALL, {})
    (snapshot / "model.safetensors").symlink_to(Path("../../blobs/0123"))
    (tmp_path / "current").symlink_to(snapshot)
    assert same(safetensors.read(snapshot), SMALL)
    assert same(safetensors.read(tmp_path / "current"), SMALL)
    below = snapshot / "0_Transformer"
    below.mkdir()
    (below / "model.safetensors").symlink_to(Path("../../../blobs/0123"))
    assert same(safetensors.read(below), SMALL)


@pytest.mark.fault(30)
def test_a_link_out_of_a_folder_is_refused_and_a_file_given_by_the_user_is_not(tmp_path):
    safetensors.write(tmp_path / "secret.safetensors", SMALL, {})
    folder = tmp_path / "model"
    folder.mkdir()
    for target in (Path("../secret.safetensors"), tmp_path / "secret.safetensors"):
        link = folder / "model.safetensors"
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        assert "secret" in str(refused(folder, "outside its folder"))
        assert same(safetensors.read(link), SMALL)  # whoever gives the link has chosen it


def test_blobs_that_are_themselves_a_link_are_outside(tmp_path):
    snapshot, home = tmp_path / "x" / "snapshots" / "abc", tmp_path / "home"
    snapshot.mkdir(parents=True)
    home.mkdir()
    safetensors.write(home / "secret", SMALL, {})
    (tmp_path / "x" / "blobs").symlink_to(home)
    (snapshot / "model.safetensors").symlink_to(Path("../../blobs/secret"))
    refused(snapshot, "outside its folder")


def test_links_that_lead_nowhere_are_refused(tmp_path):
    (tmp_path / "model.safetensors").symlink_to("model.safetensors")
    refused(tmp_path, "leads back to itself")
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "model.safetensors").symlink_to("nowhere")
    refused(tmp_path, "which does not exist")


# --- what is wrong --------------------------------------------------------------------------------


def entry(
    dtype: object = "F32", shape: object = (2,), offsets: object = (0, 8), **more: object
) -> dict:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets, **more}


DEEP = 300_000
F32 = b'{"dtype":"F32","shape":[2],"data_offsets":[0,8]}'
HOSTILE = {
    "empty": (b"", "header"),
    "seven bytes": (b"\x02" + bytes(6), "header"),
    "no header": (packed(b""), "begin"),
    "header longer than the file": (packed({"a": entry()}, bytes(8), length=1000), "announced"),
    "header of 2**64 - 1 bytes": (packed({"a": entry()}, bytes(8), length=2**64 - 1), "announced"),
    "spaces before the header": (packed(b' {"a":' + F32 + b"}", bytes(8)), "begin"),
    "not JSON": (packed(b"{'a': 1}"), "JSON"),
    "not UTF-8": (packed(b'{"\xff":' + F32 + b"}", bytes(8)), "not UTF-8"),
    "two objects": (packed(b"{}{}"), "Extra data"),
    "deep JSON": (packed(b'{"a":' * DEEP + b"1" + b"}" * DEEP), "deeply"),
    "deep lists": (packed(b'{"a":' + b"[" * DEEP + b"]" * DEEP + b"}"), "deeply"),
    "duplicate tensor": (
        packed(b'{"a":' + F32 + b',"a":' + F32 + b"}", bytes(8)),
        "'a' stands twice",
    ),
    "duplicate field": (
        packed(b'{"a":' + F32[:-1] + b',"shape":[2]}}', bytes(8)),
        "'shape' stands twice",
    ),
    "duplicate metadata": (packed(b'{"__metadata__":{"a":"b","a":"b"}}'), "'a' stands twice"),
    "metadata of numbers": (packed({"__metadata__": {"a": 1}}), "__metadata__"),
    "metadata is a list": (packed({"__metadata__": []}), "__metadata__"),
    "tensor is a list": (packed({"a": [1]}), "'a' is not described"),
    "field missing": (packed({"a": {"dtype": "F32", "shape": [2]}}, bytes(8)), "not described"),
    "field too many": (packed({"a": entry(more=1)}, bytes(8)), "not described"),
    "unknown dtype": (packed({"a": entry("F33")}, bytes(8)), "dtype 'F33'"),
    "dtype of no numpy": (packed({"a": entry("F8_E4M3", (8,))}, bytes(8)), "dtype 'F8_E4M3'"),
    "dtype is a list": (packed({"a": entry(["F32"])}, bytes(8)), "dtype"),
    "wrong dtype": (packed({"a": entry("F64")}, bytes(8)), "takes 16 bytes.*hold 8"),
    "wrong shape": (packed({"a": entry(shape=(3,))}, bytes(8)), "takes 12 bytes.*hold 8"),
    "negative shape": (packed({"a": entry(shape=(-1, -2))}, bytes(8)), "shape"),
    "shape of fractions": (packed({"a": entry(shape=(2.0,))}, bytes(8)), "shape"),
    "shape of booleans": (packed({"a": entry(shape=(2, True))}, bytes(8)), "shape"),
    "shape of NaN": (
        packed(b'{"a":{"dtype":"F32","shape":[NaN],"data_offsets":[0,8]}}', bytes(8)),
        "NaN",
    ),
    "shape of 10**5000": (
        packed({"a": entry(shape=("N",))}).replace(b'"N"', b"1" + b"0" * 5000),
        "JSON|header",
    ),
    "shape of 10**4000": (
        packed(
            b'{"a":{"dtype":"F32","shape":[1' + b"0" * 4000 + b'],"data_offsets":[0,8]}}', bytes(8)
        ),
        "a number of 4,001 digits",
    ),
    "shape too large for any memory": (
        packed({"a": entry(shape=(2**40, 2**40))}, bytes(8)),
        "takes",
    ),
    "empty but absurd shape": (
        packed({"a": entry(shape=(2**40, 2**40, 0), offsets=(0, 0))}),
        "shape",
    ),
    "100 dimensions": (packed({"a": entry(shape=(1,) * 99 + (2,))}, bytes(8)), "shape"),
    "shape is a text": (packed({"a": entry(shape="2")}, bytes(8)), "shape"),
    "three offsets": (packed({"a": entry(offsets=(0, 8, 8))}, bytes(8)), "data_offsets"),
    "offsets reversed": (packed({"a": entry(offsets=(8, 0))}, bytes(8)), "hold -8"),
    "negative offsets": (packed({"a": entry(offsets=(-8, 0))}, bytes(8)), "data_offsets"),
    "absurd offsets": (packed({"a": entry(offsets=(2**70, 2**70 + 8))}, bytes(8)), "data_offsets"),
    "offsets past the end": (
        packed({"a": entry(offsets=(0, 8))}, bytes(7)),
        "take 8 bytes, it holds 7",
    ),
    "data left over": (packed({"a": entry()}, bytes(9)), "take 8 bytes, it holds 9"),
    "data of no tensor": (packed({}, bytes(8)), "take 0 bytes, it holds 8"),
    "overlap": (
        packed({"a": entry(), "b": entry(offsets=(4, 12))}, bytes(12)),
        "'b' begins at byte 4, 'a' ends at 8",
    ),
    "same place": (
        packed({"a": entry(), "b": entry()}, bytes(8)),
        "begins at byte 0, 'a' ends at 8",
    ),
    "hole": (
        packed({"a": entry(), "b": entry(offsets=(12, 20))}, bytes(20)),
        "begins at byte 12, 'a' ends at 8",
    ),
    "hole at the start": (
        packed({"a": entry(offsets=(4, 12))}, bytes(12)),
        "begins at byte 4, the header",
    ),
    **{
        f"tensor {name!r}": (packed({name: entry()}, bytes(8)), "no library gives")
        for name in ("", "../a", "a/../b", "/a", "a\\b", "a\0b", "a\nb", "a\x1bb", "a\u2028b", "..")
    },
    "half a character": (packed({"\ud800": entry()}, bytes(8)), "half a character"),
    "tensor of a million letters": (packed({"a" * 10**6: entry("X")}, bytes(8)), "dtype 'X'"),
}


@pytest.mark.fault(28)
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_file_is_one_line(tmp_path, kind):
    content, match = HOSTILE[kind]
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    refused(path, match)


def test_why_the_library_alone_is_not_enough():
    """It takes the last of two keys: a checker and a loader could see different tensors in one
    file.
    """
    header = b'{"a":' + F32 + b',"a":' + F32.replace(b"[2]", b"[1,2]") + b"}"
    assert load(packed(header, bytes(8)))["a"].shape == (1, 2)


def test_a_truncated_file_is_refused_wherever_it_ends(tmp_path):
    path = tmp_path / "model.safetensors"
    whole = save(SMALL, metadata={"format": "pt"})
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError):
            safetensors.read(path)


def test_a_header_above_the_limit_is_not_read(tmp_path):
    path = tmp_path / "model.safetensors"
    with path.open("wb") as file:
        file.write((safetensors.HEADER_LIMIT + 1).to_bytes(8, "little") + b"{")
        file.truncate(2 * safetensors.HEADER_LIMIT)  # sparse: nothing on disk
    refused(path, f"header of {safetensors.HEADER_LIMIT + 1}")


@given(st.integers(0, 10**9), st.integers(1, 255), st.integers(0, 10**9), st.integers(0, 255))
def test_flipped_bytes_are_read_or_refused(tmp_path_factory, place, change, second, other):
    whole = bytearray(save(SMALL, metadata={"format": "pt"}))
    whole[place % len(whole)] ^= change
    whole[second % len(whole)] ^= other
    path = tmp_path_factory.mktemp("flipped") / "model.safetensors"
    path.write_bytes(whole)
    read = read_or_refused(path)
    assert read is None or sum(a.nbytes for a in read.values()) == sum(
        a.nbytes for a in SMALL.values()
    )


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=9)
    | st.sampled_from([*safetensors.DTYPES]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(JSON, JSON, JSON, JSON)
def test_a_header_of_any_json_is_read_or_refused(tmp_path_factory, dtype, shape, offsets, whole):
    path = tmp_path_factory.mktemp("any") / "model.safetensors"
    for header in (
        whole,
        {"a": whole},
        {"a": entry(dtype)},
        {"a": entry(shape=shape)},
        {"a": entry(offsets=offsets)},
    ):
        path.write_bytes(packed(header, bytes(8)))
        read_or_refused(path)


def test_what_is_no_file_is_refused(tmp_path):
    refused(tmp_path / "absent.safetensors", "does not exist")
    refused(tmp_path, "neither")
    (tmp_path / "model.safetensors").mkdir()
    refused(tmp_path, "not a file")
    refused(tmp_path / "model.safetensors", "neither")
    os.mkfifo(tmp_path / "pipe.safetensors")
    refused(tmp_path / "pipe.safetensors", "not a file")
    refused(tmp_path / ("x" * 400), "cannot be read")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "folder" / safetensors.INDEX)
    refused(tmp_path / "folder", "not a file")


def test_a_folder_without_the_usual_names_says_what_it_has(tmp_path):
    safetensors.write(tmp_path / "adapter.safetensors", SMALL, {})
    assert "adapter.safetensors" in refused(tmp_path, "neither").hint


# --- shards ---------------------------------------------------------------------------------------


def sharded(folder: Path, change) -> Path:
    """A folder of two shards, its index changed."""
    variants.save_sharded(folder, SMALL, parts=2)
    path = folder / safetensors.INDEX
    index = json.loads(path.read_text())
    changed = change(index)
    path.write_text(json.dumps(index if changed is None else changed))
    return folder


FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


@pytest.mark.parametrize(
    "name",
    [
        "../model.safetensors",
        "/etc/passwd",
        "..",
        ".",
        "",
        "a/b.safetensors",
        "a\\b",
        "a\0b",
        "a\nb",
    ],
)
def test_a_shard_is_a_plain_file_name(tmp_path, name):
    folder = tmp_path / "model"
    safetensors.write(tmp_path / "model.safetensors", {"b.bias": SMALL["b.bias"]}, {})
    refused(
        sharded(folder, lambda index: index["weight_map"].update({"b.bias": name})),
        "plain file name",
    )


@pytest.mark.fault(30)
def test_a_shard_that_is_a_link_out_of_its_folder_is_refused(tmp_path):
    folder = sharded(tmp_path / "model", lambda index: None)
    (folder / SECOND).rename(tmp_path / SECOND)
    (folder / SECOND).symlink_to(Path("..") / SECOND)
    refused(folder, "outside its folder")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda index: index["weight_map"].update({"c": FIRST}), "lacks tensor 'c'"),
        (
            lambda index: (
                index["weight_map"].pop("a.weight") and index["weight_map"].update({"c": FIRST})
            ),
            "also holds",
        ),
        (lambda index: index["weight_map"].update({"a.weight": SECOND}), "'a.weight'"),
        (lambda index: index["weight_map"].update({"c": "absent.safetensors"}), "does not exist"),
        (
            lambda index: index["weight_map"].update({"c": "pytorch_model-00001-of-00002.bin"}),
            "does not exist",
        ),
        (lambda index: index["weight_map"].update({"c": 1}), "weight_map"),
        (lambda index: {"weight_map": {}}, "weight_map"),
        (lambda index: {"weight_map": [FIRST]}, "weight_map"),
        (lambda index: {}, "weight_map"),
        (lambda index: [index], "not an object"),
    ],
)
def test_an_index_that_does_not_fit_its_shards_is_refused(tmp_path, change, match):
    refused(sharded(tmp_path / "model", change), match)


def test_an_index_names_a_tensor_once(tmp_path):
    folder = sharded(tmp_path / "model", lambda index: None)
    path = folder / safetensors.INDEX
    path.write_text(path.read_text().replace('"a.weight":', f'"a.weight": "{SECOND}", "a.weight":'))
    refused(folder, "'a.weight' stands twice")
    path.write_text("{")
    refused(folder, "JSON")


def test_the_total_size_of_an_index_is_nobodys_business(tmp_path):
    folder = sharded(tmp_path / "model", lambda index: index["metadata"].update({"total_size": -1}))
    assert same(safetensors.read(folder), SMALL)


# --- pickles --------------------------------------------------------------------------------------


class Payload:
    """Writes a file when it is unpickled."""

    def __init__(self, marker: Path):
        self.marker = marker

    def __reduce__(self):
        return Path.touch, (self.marker,)


def pickles(folder: Path) -> dict[str, Path]:
    """Every way a pickle comes, each with a payload."""
    marker = folder / "marker"
    folder.mkdir()
    found = {}
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        found[f"protocol {protocol}"] = folder / f"{protocol}.safetensors"
        found[f"protocol {protocol}"].write_bytes(pickle.dumps(Payload(marker), protocol))
    (folder / "old.bin").write_bytes(pickle.dumps(Payload(marker), 0))
    found["old.bin"] = folder / "old.bin"
    for name in (
        "pytorch_model.bin",
        "model.pt",
        "model.pth",
        "model.ckpt",
        "weights.pkl",
        "MODEL.PT",
    ):
        found[name] = folder / name
        found[name].write_bytes(pickle.dumps(Payload(marker)))
    for name in ("zip.safetensors", "zip.bin"):
        found[name] = folder / name
        with zipfile.ZipFile(folder / name, "w") as file:
            file.writestr("archive/data.pkl", pickle.dumps(Payload(marker)))
    objects = np.array([Payload(marker)], object)
    np.save(folder / "objects.npy", objects)
    np.savez(folder / "objects.npz", x=objects)
    for name in ("objects.npy", "objects.npz"):
        found[name] = folder / name
        copy = folder / f"{name}.safetensors"
        copy.write_bytes(found[name].read_bytes())
        found[copy.name] = copy
    return found


@pytest.mark.fault(29)
def test_pickles_are_never_opened(tmp_path):
    found = pickles(tmp_path / "pickles")
    for kind, path in found.items():
        by_name = path.suffix != ".safetensors"
        error = refused(
            path, "pickle by its name" if by_name else "pickle or a zip by its first bytes|header"
        )
        assert "save_file" in error.hint or kind in (
            "protocol 0",
            "protocol 1",
        )  # whose first bytes are plain letters
    assert not (tmp_path / "pickles" / "marker").exists()
    pickle.loads(found["protocol 2"].read_bytes())  # the payload does what it says
    assert (tmp_path / "pickles" / "marker").exists()


@pytest.mark.fault(29)
@pytest.mark.parametrize(
    "name", ["pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "model.pt"]
)
def test_a_folder_of_pickles_says_how_to_convert_it(tmp_path, name):
    marker = tmp_path / "marker"
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / name).write_bytes(pickle.dumps(Payload(marker)))
    hint = refused(folder, f"pickle.*{re.escape(name)}").hint
    for word in (
        "from_pretrained",
        "save_pretrained",
        "safe_serialization=True",
        "weights_only=True",
        "save_file",
    ):
        assert word in hint
    variants.save(folder, SMALL)  # beside safetensors it is not looked at
    assert same(safetensors.read(folder), SMALL)
    assert not marker.exists()


@pytest.mark.fault(29)
def test_shards_may_not_be_pickles(tmp_path):
    marker = tmp_path / "marker"
    folder = sharded(
        tmp_path / "model",
        lambda index: index["weight_map"].update({"b.bias": "pytorch_model.bin"}),
    )
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Payload(marker)))
    with pytest.raises(CheckpointError, match="pickle"):
        safetensors.read(folder)
    assert not marker.exists()


# --- writing and numbers --------------------------------------------------------------------------


def test_a_failed_write_leaves_what_was_there(tmp_path):
    path = tmp_path / "model.safetensors"
    safetensors.write(path, SMALL, {})
    with pytest.raises(CheckpointError, match="'o' of dtype object"):
        safetensors.write(path, {"o": np.array([{}], object)}, {})
    with pytest.raises(CheckpointError, match="cannot be stored"):
        safetensors.write(path, {"../o": np.zeros(1)}, {})
    assert [file.name for file in tmp_path.iterdir()] == ["model.safetensors"]
    assert same(safetensors.read(path), SMALL)
    with pytest.raises(CheckpointError, match="cannot write"):
        safetensors.write(tmp_path / "absent" / "model.safetensors", SMALL, {})


def test_a_disk_that_fills_up_leaves_what_was_there(tmp_path):
    path = tmp_path / "model.safetensors"
    safetensors.write(path, SMALL, {})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        with pytest.raises(CheckpointError, match=r"disk full: .*model\.safetensors"):
            safetensors.write(path, {"large": np.zeros(1 << 20)}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [file.name for file in tmp_path.iterdir()] == ["model.safetensors"]
    assert same(safetensors.read(path), SMALL)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64, ml_dtypes.bfloat16])
def test_weights_that_are_no_numbers_are_refused(dtype):
    sound = {"a": np.ones((2, 3), dtype), "n": np.arange(3), "e": np.zeros((0, 2), dtype)}
    safetensors.check_finite(sound, "model")
    bad = {**sound, "b": np.array([1, np.nan, np.inf], dtype), "c": np.array([-np.inf], dtype)}
    with pytest.raises(
        CheckpointError, match=r"(?m)^model: 2 of 5 tensors .*first 'b', 2 of its 3$"
    ) as caught:
        safetensors.check_finite(bad, "model")
    assert caught.value.hint


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_header_whose_length_begins_as_a_pickle_does_is_read(protocol, tmp_path):
    """Of 640, 896, 1,152 or 1,408 bytes: 0x80 and a protocol, as the first two of a pickle."""
    path, tensor = tmp_path / "model.safetensors", np.arange(3, dtype=np.float32)
    wanted = 0x80 + 256 * protocol
    for spare in range(wanted):  # the library pads headers to a multiple of eight
        content = save({"a": tensor}, {"spare": "x" * spare})
        if int.from_bytes(content[:8], "little") == wanted:
            break
    assert content[:2] == bytes([0x80, protocol])
    path.write_bytes(content)
    np.testing.assert_array_equal(safetensors.read(path)["a"], tensor)
    path.write_bytes(pickle.dumps({"a": tensor}, protocol))
    with pytest.raises(CheckpointError, match="is a pickle or a zip by its first bytes"):
        safetensors.read(path)
