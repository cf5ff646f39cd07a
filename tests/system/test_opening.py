"""Users' paths: one that cannot be read is refused at once, by its name."""

import os

import pytest

from bert_jax.errors import CheckpointError, DataError
from bert_jax.system import opening


@pytest.mark.parametrize(
    ("kind", "said"),
    [("folder", "is a folder"), ("pipe", "is not a file"), ("absent", "does not exist")],
)
def test_check_refuses_what_is_no_file(tmp_path, kind, said):
    path = tmp_path / "given"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    for call in (opening.check_file, opening.open_regular):
        with pytest.raises(CheckpointError, match=f"{path} {said}") as caught:
            call(path, CheckpointError)
        assert caught.value.hint


def test_read_follows_links_up_to_a_limit(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("file")
    assert opening.read_file(tmp_path / "link", DataError, 5) == b"12345"
    with pytest.raises(DataError, match="has 5 bytes, and at most 4 are read"):
        opening.read_file(tmp_path / "file", DataError, 4)


@pytest.mark.fault(18)
def test_inside_refuses_a_link_out_of_its_folder(tmp_path):
    (tmp_path / "secret").write_text("x")
    folder, blobs = (tmp_path / "models--a--b" / name for name in ("snapshots/0123", "blobs"))
    folder.mkdir(parents=True)
    blobs.mkdir()
    (blobs / "f00").write_text("x")
    (folder / "plain").write_text("x")
    (folder / "near").symlink_to("plain")
    (folder / "config.json").symlink_to("../../blobs/f00")
    (folder / "out").symlink_to(tmp_path / "secret")
    for name in ("plain", "near", "config.json"):
        assert opening.check_inside(folder, folder / name, DataError) == folder / name
    for name in ("out", "../../../secret"):
        with pytest.raises(DataError, match="outside its folder"):
            opening.check_inside(folder, folder / name, DataError)
