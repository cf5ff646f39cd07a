"""Text, data or vocabulary that changed since training: every command that says something of a
checkpoint compares first. The transcripts of evaluate and train_changes have more.
"""

import json
import shutil
from pathlib import Path

import pytest

from bert_jax import cli
from bert_jax.config import to_dict
from bert_jax.data import corpus, docstrings, prepare
from bert_jax.errors import ConfigError
from bert_jax.studies import actions, results, sameness
from bert_jax.studies.definition import Comparison, Suite
from tests import saved, study_workdir, texts

pytestmark = pytest.mark.usefixtures("one_device")


def evaluate(run: Path, *words: str) -> int:
    return cli.execute(["evaluate", f"--checkpoint={run}", *words])


@pytest.mark.fault(7)
def test_evaluate_goes_on_after_libraries_changed(saved_run, tmp_path, monkeypatch, capsys):
    """The text is the same; only the libraries that cut it into tokens are others."""
    run = shutil.copytree(saved_run, tmp_path / "run")
    assert evaluate(run) == 0
    before = json.loads(capsys.readouterr().out)
    version = corpus.importlib.metadata.version
    monkeypatch.setattr(corpus.importlib.metadata, "version", lambda name: f"{version(name)}.post1")
    assert evaluate(run) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == before
    assert "what is installed changed since" in err


@pytest.mark.slow
def test_evaluate_finds_docstrings_after_an_upgrade(tmp_path, monkeypatch, capsys):
    """They change with what is installed; once they are gone, the hint names what there is."""
    changes = {"corpus__source": "docstrings", "corpus__path": "", "batch_size": 8}
    changes |= {"corpus__cache": tmp_path / "cache", "model__hidden": 16}
    config = texts.configure(texts.config_file(tmp_path), **changes)
    run = saved.run(tmp_path / "run", config, {10: 1.0})
    monkeypatch.setattr(docstrings.platform, "python_version", lambda: "3.99.0")
    with monkeypatch.context() as patch:
        patch.setattr(prepare, "_prepare", lambda *_: pytest.fail("prepared anew"))
        assert evaluate(run) == 0
    assert "what is installed changed since" in capsys.readouterr().err
    shutil.rmtree(tmp_path / "cache")
    assert evaluate(run) == 2
    error, hint = capsys.readouterr().err.splitlines()[-2:]
    assert "was trained on the docstrings of other versions of Python or packages" in error
    assert evaluate(run, hint.split()[1]) == 0


@pytest.mark.fault(7)
@pytest.mark.slow
def test_study_report_refuses_text_that_was_replaced(tmp_path):
    """The cells are copies of the run on the text."""
    config = texts.configure(texts.config_file(tmp_path), batch_size=8, model__hidden=16)
    run = saved.run(tmp_path / "run", config, {10: 1.0})
    base = study_workdir.base()
    base.corpus.update(to_dict(config)["corpus"])
    base.tokenizer.update(to_dict(config)["tokenizer"])
    study = study_workdir.masking_rate(
        (0.15, 0.4),
        seeds=(0,),
        base=base,
        evaluations={"validation": Suite("pretrain")},
        comparisons=(Comparison("masking.rate", "15 %", ("validation/mlm_loss",)),),
    )
    place = study_workdir.build(tmp_path / "w", study)
    for cell in place.read_cells():
        for name in ("environment.json", "config.json"):
            shutil.copy(run / name, place.cell(cell.id) / name)
    actions.report_study(place.workdir)
    sameness.check_data(place, results.gather_cells(place), coming=place.read_cells())
    texts.write(tmp_path / "corpus", seed=7)
    with pytest.raises(ConfigError, match=r"was trained on other data than files .* holds"):
        actions.report_study(place.workdir)
