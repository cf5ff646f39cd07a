"""No pickle is opened, and no code that lies in a run is run."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest

from bert_jax import cli
from bert_jax.data import corpus as prepared
from bert_jax.errors import DataError
from tests import saved, texts


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
            prepared.open_array(tmp_path / name, 1)
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
def test_checkpoint_holds_plain_json_and_arrays(made):
    assert json.loads((made / "checkpoints" / "10" / "meta" / "metadata").read_text())["config"]
    for path in made.rglob("*"):
        assert path.suffix not in (".py", ".pkl", ".pickle", ".bin", ".pt"), path
        assert path.is_dir() or not path.read_bytes().startswith(b"\x80"), path
