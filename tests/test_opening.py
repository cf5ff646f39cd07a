"""Only regular files are opened: whatever else a path leads to is refused at once, by its name."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from pathlib import Path

import pytest

from bert_jax import cli
from bert_jax.errors import CheckpointError, ConfigError, DataError
from bert_jax.system import opening

SPECIAL = {  # what a path may be that is no file -> what is said of it
    "folder": "is a folder, not a file",
    "pipe": "is a named pipe, not a file",
    "socket": "is a socket, not a file",
    "device": "is a device, not a file",
    "loop": "is a link that leads back to itself",
    "dangling": "is a link to nowhere, which does not exist",
    "absent": "does not exist",
}


def make(kind: str, path: Path) -> Path:
    """Put something that is no file at a path."""
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)  # an address has at most 107 bytes
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind == "dangling":
        path.symlink_to("nowhere")
    return path


@pytest.mark.fault(44)
@pytest.mark.timeout(20, func_only=True)
@pytest.mark.parametrize("kind", SPECIAL)
def test_what_is_no_file_is_refused_at_once_by_name(tmp_path, kind):
    path = make(kind, tmp_path / "given")
    for call in (
        lambda: opening.check(path, CheckpointError),
        lambda: opening.regular(path, CheckpointError),
        lambda: opening.read(path, CheckpointError, 10),
    ):
        with pytest.raises(CheckpointError) as caught:
            call()
        assert str(caught.value) == f"{path} {SPECIAL[kind]}"
        assert caught.value.hint


@pytest.mark.fault(44)
@pytest.mark.timeout(20, func_only=True)
def test_a_file_that_turns_into_a_pipe_meanwhile_does_not_block(tmp_path, monkeypatch):
    path = make("pipe", tmp_path / "given")
    monkeypatch.setattr(opening, "check", lambda *_: None)  # it was a file when it was looked at
    with pytest.raises(DataError, match="is a named pipe, not a file"):
        opening.regular(path, DataError)


def test_a_file_is_read_through_links_up_to_a_limit(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("file")
    assert opening.read(tmp_path / "link", DataError, 5) == b"12345"
    with opening.regular(str(tmp_path / "file"), DataError) as file:
        assert not stat.S_ISFIFO(os.fstat(file.fileno()).st_mode)
        assert file.readline() == b"12345"
    with pytest.raises(DataError, match="has 5 bytes, and at most 4 are read"):
        opening.read(tmp_path / "file", DataError, 4)
    with pytest.raises(DataError, match="bytes, and at most 1 are read"):
        opening.read("/proc/self/maps", DataError, 1)  # whose size is said to be 0


@pytest.mark.fault(30, 44)
def test_a_link_out_of_its_folder_is_refused_but_for_a_hub_cache(tmp_path):
    (tmp_path / "secret").write_text("x")
    folder = tmp_path / "models--a--b" / "snapshots" / "0123"
    (folder / "1_Pooling").mkdir(parents=True)
    (folder / "plain").write_text("x")
    (folder / "near").symlink_to("plain")
    (folder / "out").symlink_to(tmp_path / "secret")
    for name in ("plain", "near"):
        assert opening.inside(folder, folder / name, DataError) == folder / name
    for name in ("out", "../../../secret"):
        with pytest.raises(DataError, match="outside its folder"):
            opening.inside(folder, folder / name, DataError)
    blobs = tmp_path / "models--a--b" / "blobs"
    blobs.mkdir()
    (blobs / "f00").write_text("x")
    (folder / "config.json").symlink_to("../../blobs/f00")
    (folder / "1_Pooling" / "config.json").symlink_to("../../../blobs/f00")
    for name in ("config.json", "1_Pooling/config.json"):
        assert opening.inside(folder, folder / name, DataError).read_text() == "x"


@pytest.mark.fault(47)
@pytest.mark.parametrize(
    "store", ["gs://bucket/run", "s3://bucket/run", "hdfs://host/run", Path("gs://bucket/run")]
)
def test_local_refuses_a_path_in_an_object_store(store):
    with pytest.raises(ConfigError, match=r"^--workdir = .* is in an object store") as error:
        opening.local(store, "--workdir")
    assert "mount" in error.value.hint
    assert error.value.code == 2


@pytest.mark.parametrize(
    "path", ["", "runs/a", "/tmp/x", "a:b", "google-bert/bert-base-uncased", "ümlaut"]
)
def test_local_takes_paths_of_this_machine(path):
    opening.local(path, "--workdir")


def test_local_refuses_bytes_that_are_no_text(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=r"--workdir = .*bad-\\xff is not UTF-8"):
        opening.local(os.fsdecode(b"bad-\xff"), "--workdir")
    folder = tmp_path / os.fsdecode(b"\xff")
    folder.mkdir()
    monkeypatch.chdir(folder)
    with pytest.raises(ConfigError, match="is not UTF-8"):
        opening.local("run", "--workdir")


@pytest.mark.fault(47)
@pytest.mark.parametrize("path", ["gs://bucket/x", "s3://bucket/x", os.fsdecode(b"bad-\xff")])
@pytest.mark.parametrize(
    "words",
    [
        "train --config=configs/tiny.py --workdir={}",
        "train --config=configs/tiny.py --dry-run --workdir={}",
        "evaluate --checkpoint={}",
        "evaluate --checkpoint=runs/x --output={}",
        "predict embed --model={}",
        "predict embed --model=runs/x --input={}",
        "inspect attention --model=runs/x --output={}",
        "study run experiments/masking_rate --workdir={}",
        "study report --workdir={}",
        "export --checkpoint=runs/x --output={}",
        "import --model={} --output=x",
        "prepare --config=configs/tiny.py --config.corpus.cache={}",
        "prepare --config=configs/tiny.py --config.corpus.source=files --config.corpus.path={}",
        "train --config=configs/tiny.py --workdir=x --config.init_from={}",
    ],
)
def test_every_command_refuses_such_a_path_at_once_and_makes_nothing(
    words, path, tmp_path, monkeypatch, capsys
):
    root = Path(__file__).resolve().parents[1]
    monkeypatch.chdir(tmp_path)
    line = words.replace("configs/", f"{root}/configs/").replace(
        "experiments/", f"{root}/experiments/"
    )
    assert cli.execute([word.format(path) for word in line.split()]) == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert error.startswith("error: ")
    assert "is in an object store" in error or "is not UTF-8" in error
    assert hint.startswith("hint: ")
    assert not list(tmp_path.iterdir())
