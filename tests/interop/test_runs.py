"""No code that lies in a run is run, and a run holds none."""

import json
import pickle
import shutil

import pytest

from bert_jax import cli
from tests import saved

NAMES = ("config", "tokenizer", "modeling_bert", "sitecustomize", "__init__", "json", "jax")
PICKLES = ("params.pkl", "pytorch_model.bin", "rest.npy", "training_args.bin")


@pytest.mark.fault(19)
def test_code_that_lies_in_a_run_is_never_run(saved_run, tmp_path, capsys, one_device, monkeypatch):
    run, marker = shutil.copytree(saved_run, tmp_path / "run"), tmp_path / "marker"
    for folder in (run, run / "tokenizer", *(run / "checkpoints" / "10").glob("**/")):
        for name in NAMES:
            (folder / f"{name}.py").write_text(f"open({str(marker)!r}, 'w')\n")
        for name in PICKLES:
            (folder / name).write_bytes(pickle.dumps(saved.Payload(marker)))
    (tmp_path / "in.txt").write_text("the cat [MASK] a small dog.\n")
    monkeypatch.chdir(run)
    out = tmp_path / "out"
    for words in (
        ["predict", "fill-mask", f"--model={run}", f"--input={tmp_path / 'in.txt'}"],
        ["export", f"--checkpoint={run}", f"--output={out}"],
    ):
        assert cli.execute(words) == 0, capsys.readouterr().err
    assert not marker.exists()
    assert not {path.suffix for path in out.rglob("*")} & {".py", ".pkl", ".bin", ".npy"}


@pytest.mark.fault(19)
def test_checkpoint_holds_plain_json_and_arrays(saved_run):
    assert json.loads((saved_run / "checkpoints/10/meta/metadata").read_text())["config"]
    for path in saved_run.rglob("*"):
        assert path.suffix not in (".py", ".pkl", ".pickle", ".bin", ".pt"), path
        assert path.is_dir() or not path.read_bytes().startswith(b"\x80"), path
