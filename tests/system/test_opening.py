"""Users' paths: one that cannot be read is refused at once, by its name."""

from __future__ import annotations

import os

import pytest

from bert_jax import cli
from bert_jax.errors import CheckpointError, DataError
from bert_jax.system import opening
from tests import texts


@pytest.mark.parametrize(
    ("kind", "said"),
    [("folder", "is a folder"), ("pipe", "is not a file"), ("absent", "does not exist")],
)
def test_path_of_no_file_is_refused_by_name(tmp_path, kind, said):
    path = tmp_path / "given"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    for call in (opening.check, opening.regular):
        with pytest.raises(CheckpointError, match=f"{path} {said}") as caught:
            call(path, CheckpointError)
        assert caught.value.hint


def test_read_follows_links_up_to_a_limit(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("file")
    assert opening.read(tmp_path / "link", DataError, 5) == b"12345"
    with pytest.raises(DataError, match="has 5 bytes, and at most 4 are read"):
        opening.read(tmp_path / "file", DataError, 4)


@pytest.mark.fault(18)
def test_link_out_of_its_folder_is_refused(tmp_path):
    (tmp_path / "secret").write_text("x")
    folder = tmp_path / "models--a--b" / "snapshots" / "0123"
    folder.mkdir(parents=True)
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
    assert opening.inside(folder, folder / "config.json", DataError).read_text() == "x"


@pytest.mark.parametrize("path", ["", "runs/a", "/tmp/x", "a:b", "google-bert/bert", "ümlaut"])
def test_local_takes_paths_of_this_machine(path):
    opening.local(path, "--workdir")


@pytest.mark.fault(22)
@pytest.mark.parametrize("path", ["gs://bucket/x", os.fsdecode(b"bad-\xff")])
@pytest.mark.parametrize(
    "words",
    [
        "train --config={root}/configs/tiny.py --workdir={path}",
        "train --config={root}/configs/tiny.py --dry-run --workdir={path}",
        "evaluate --checkpoint={path}",
        "evaluate --checkpoint=runs/x --output={path}",
        "predict embed --model={path}",
        "predict embed --model=runs/x --input={path}",
        "inspect attention --model=runs/x --output={path}",
        "study run {root}/experiments/masking_rate --workdir={path}",
        "export --checkpoint=runs/x --output={path}",
        "import --model={path} --output=x",
        "prepare --config={root}/configs/tiny.py --config.corpus.cache={path}",
        "train --config={root}/configs/tiny.py --workdir=x --config.init_from={path}",
    ],
)
def test_commands_refuse_an_object_store_at_once(words, path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    argv = [word.format(root=texts.ROOT, path=path) for word in words.split()]
    assert cli.execute(argv) == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert "is in an object store" in error or "is not UTF-8" in error
    assert hint.startswith("hint: ")
    assert not list(tmp_path.iterdir())
