"""Every later version reads what the first one has written: `run_v1`."""

import csv
import json
import shutil
import unicodedata
from pathlib import Path

import pytest

from bert_jax import cli
from bert_jax.data import prepare
from tests import outcomes, texts

FOLDER = Path(__file__).parent / "run_v1"
WRITTEN = outcomes.by_step(FOLDER / "run")
LAST = WRITTEN[8]
# Relative: by now another compiler may make the programs, which rounds otherwise.
TOLERANCE = 1e-3
UNICODE = "14.0.0"  # of Python 3.11, which wrote it: another one may split words otherwise


@pytest.fixture
def old(tmp_path, monkeypatch) -> Path:
    folder = Path(shutil.copytree(FOLDER, tmp_path / "run_v1"))
    monkeypatch.chdir(folder)
    with texts.one_device():
        yield folder


def test_old_run_and_its_export_have_its_scores(old, capfd):
    assert cli.execute(["export", "--model=run", "--output=exported"]) == 0
    for words in (["--model=run"], ["--model=exported", "--config=config.py"]):
        assert cli.execute(["evaluate", *words, "--output=new.json"]) == 0
        scores = json.loads(Path("new.json").read_text())["pretrain"]
        for name in ("mlm_loss", "nsp_loss", "mlm_accuracy"):
            assert scores[name] == pytest.approx(LAST[f"eval/validation/{name}"], rel=TOLERANCE)


def test_old_run_goes_on_and_trains_as_it_did(old, capfd, monkeypatch):
    """From its first checkpoint to its end.

    With other tables of Unicode the corpus is prepared anew, and the run is refused by name.
    """
    shutil.rmtree("run/checkpoints/8")
    if unicodedata.unidata_version == UNICODE:
        monkeypatch.setattr(prepare, "_prepare", lambda *_: pytest.fail("prepared anew"))
    code = cli.execute(["train", "--config=config.py", "--workdir=run"])
    said = capfd.readouterr().err
    if unicodedata.unidata_version != UNICODE:
        assert code == 2
        assert "error: run was trained on another corpus" in said
        assert "or Python, tokenizers or sentencex was upgraded: undo that" in said
        return
    assert code == 0
    assert "resuming run at step 4" in said
    new = outcomes.by_step(old / "run")
    assert new.keys() == WRITTEN.keys()
    for step in (5, 8):
        for name in ("train/loss", "train/grad_norm", "train/masked_fraction"):
            assert new[step][name] == pytest.approx(WRITTEN[step][name], rel=TOLERANCE), name


def test_old_study_is_reported_with_its_numbers(old, capfd):
    """The first loss of each cell is in the summary, and no cell would be trained again."""
    with (FOLDER / "study" / "results.csv").open(newline="") as file:
        losses = [f"{float(row['validation/mlm_loss']):.3f}" for row in csv.DictReader(file)]
    assert cli.execute(["study", "report", "--workdir=study"]) == 0
    summary = Path("study/summary.md").read_text()
    assert len(losses) == 2
    assert [loss for loss in losses if loss not in summary] == []
    words = ["study", "sweep", "--config=config.py", "--axis=masking.rate=0.15,0.4", "--seeds=1"]
    assert cli.execute([*words, "--workdir=again", "--reuse=study", "--dry-run"]) == 0
    assert "\n2 finished cells are taken from study\n" in capfd.readouterr().out
