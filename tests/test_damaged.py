"""Files of ours that were spoiled: each place that reads one says so."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert_jax import cli
from bert_jax.config import knobs
from bert_jax.data import corpus as prepared
from bert_jax.data import files
from bert_jax.data.rows import Row, read_rows
from bert_jax.errors import DataError
from bert_jax.reporting import records
from bert_jax.training import writer
from tests import saved, texts

Opens = Callable[[Path], Any]


def corpus(path: Path) -> knobs.Corpus:
    return knobs.Corpus(source="files", path=str(path))


def task(path: Path) -> list[Row]:
    return read_rows(knobs.Task(source=f"files:{path}", text="text"), "train")


def read(path: Path) -> Any:
    return list(files.read_file(str(path), "text"))


# --- JSON of other types --------------------------------------------------------------------------

OTHER = [
    "[]",
    "3",
    '"x"',
    "null",
    '{"x": 3}',
    '{"x": [1]}',
    '{"x": {"y": null}}',
    "[" * 200,
    "9" * 5000,
    "{",
    "\udcff",
]


def put(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode(errors="surrogateescape"))


@pytest.mark.parametrize("content", OTHER)
def test_what_is_remembered_of_files_is_found_anew_where_it_is_damaged(content, tmp_path):
    (tmp_path / "a.txt").write_text("One sentence.\n")
    wanted = files.identify(corpus(tmp_path / "a.txt"), tmp_path / "cache")
    put(tmp_path / "cache" / "file-hashes.json", content)
    assert files.identify(corpus(tmp_path / "a.txt"), tmp_path / "cache") == wanted
    assert str(tmp_path / "a.txt") in json.loads(
        (tmp_path / "cache" / "file-hashes.json").read_text()
    )


def test_metrics_are_cut_behind_the_restored_step(tmp_path):
    good = {"step": 1, "time": 2.5, "train/loss": 3.0}
    later = [{"step": 9}, {"step": "x"}, []]
    lines = [json.dumps(line) for line in (good, *later)]
    (tmp_path / records.METRICS).write_text("\n".join([*lines, '{"step": 1, "ti']))
    writer.truncate(tmp_path / records.METRICS, 5)
    assert (tmp_path / records.METRICS).read_text() == json.dumps(good) + "\n"


# --- a run ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A run of one step; to be copied, not changed."""
    base = texts.config_file(tmp_path_factory.mktemp("text"))
    settings = texts.configure(base, batch_size=8, model__hidden=16)
    return saved.run(tmp_path_factory.mktemp("saved") / "run", settings, {10: 1.0})


@pytest.fixture
def run(made, tmp_path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


# --- pickles and code -----------------------------------------------------------------------------


@pytest.mark.fault(16)
def test_arrays_of_objects_are_never_unpickled(tmp_path):
    marker = tmp_path / "marker"
    objects = np.array([saved.Payload(marker)], object)
    np.save(tmp_path / "a.npy", objects, allow_pickle=True)
    (tmp_path / "b.npy").write_bytes(pickle.dumps(saved.Payload(marker)))
    for name in ("a.npy", "b.npy"):
        with pytest.raises(DataError, match=f"{name} cannot be read"):
            prepared._open_array(tmp_path / name, 1)
    assert not marker.exists()
    np.load(tmp_path / "a.npy", allow_pickle=True)  # the payload does what it says
    assert marker.exists()


@pytest.mark.fault(19)
def test_no_code_that_lies_in_a_run_is_ever_run(run, tmp_path, capsys):
    marker = tmp_path / "marker"
    places = [run, run / "tokenizer", *(run / "checkpoints" / "10").glob("**/")]
    for folder in places:
        for name in (
            "config",
            "tokenizer",
            "modeling_bert",
            "sitecustomize",
            "__init__",
            "json",
            "jax",
        ):
            (folder / f"{name}.py").write_text(f"open({str(marker)!r}, 'w')\n")
        for name in ("params.pkl", "pytorch_model.bin", "rest.npy", "training_args.bin"):
            (folder / name).write_bytes(pickle.dumps(saved.Payload(marker)))
    (tmp_path / "in.txt").write_text("the cat [MASK] a small dog.\n")
    with texts.one_device(), pytest.MonkeyPatch.context() as patch:
        patch.chdir(run)
        for words in (
            ["predict", "fill-mask", f"--model={run}", f"--input={tmp_path / 'in.txt'}"],
            ["export", f"--checkpoint={run}", f"--output={tmp_path / 'out'}"],
            [
                "predict",
                "fill-mask",
                f"--model={tmp_path / 'out'}",
                f"--input={tmp_path / 'in.txt'}",
            ],
        ):
            assert cli.execute(words) == 0, capsys.readouterr().err
    assert not marker.exists()
    assert not [
        path
        for path in (tmp_path / "out").rglob("*")
        if path.suffix in (".py", ".pkl", ".bin", ".npy")
    ]


@pytest.mark.fault(19)
def test_a_checkpoint_holds_plain_json_and_arrays(made):
    assert json.loads((made / "checkpoints" / "10" / "meta" / "metadata").read_text())["config"]
    for path in made.rglob("*"):
        assert path.suffix not in (".py", ".pkl", ".pickle", ".bin", ".pt"), path
        assert path.is_dir() or not path.read_bytes().startswith(b"\x80"), path
