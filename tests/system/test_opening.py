"""Files that users name: what is no file of this machine is refused at once, by its name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bert_jax import cli
from bert_jax.errors import CheckpointError, ConfigError, DataError
from bert_jax.system import opening

MESSAGES = {  # what a path may be that is no file -> what is said of it
    "folder": "is a folder, not a file",
    "pipe": "is not a file",
    "dangling": "does not exist",
    "absent": "does not exist",
}


@pytest.mark.parametrize("kind", MESSAGES)
def test_path_of_no_file_is_refused_by_name(tmp_path, kind):
    path = tmp_path / "given"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "dangling":
        path.symlink_to("nowhere")
    for call in (
        lambda: opening.check(path, CheckpointError),
        lambda: opening.regular(path, CheckpointError),
        lambda: opening.read(path, CheckpointError, 10),
    ):
        with pytest.raises(CheckpointError) as caught:
            call()
        assert str(caught.value) == f"{path} {MESSAGES[kind]}"
        assert caught.value.hint


def test_a_file_is_read_through_links_up_to_a_limit(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("file")
    assert opening.read(tmp_path / "link", DataError, 5) == b"12345"
    with opening.regular(str(tmp_path / "file"), DataError) as file:
        assert file.readline() == b"12345"
    with pytest.raises(DataError, match="has 5 bytes, and at most 4 are read"):
        opening.read(tmp_path / "file", DataError, 4)


@pytest.mark.fault(18)
def test_link_out_of_its_folder_is_refused(tmp_path):
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


@pytest.mark.fault(22)
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


@pytest.mark.fault(22)
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
def test_every_command_refuses_such_a_path_at_once(words, path, tmp_path, monkeypatch, capsys):
    root = Path(__file__).resolve().parents[2]
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
