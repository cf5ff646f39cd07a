"""Text, data or vocabulary that changed since training: every command that says something of a
checkpoint compares first.
"""

import contextlib
import json
import shutil
from pathlib import Path

import pytest

from bert_jax import cli
from bert_jax.data import corpus, docstrings, prepare
from bert_jax.errors import ConfigError
from bert_jax.studies import actions, results, sameness
from bert_jax.studies.definition import Comparison, Suite
from tests import saved, study_workdir, tasks, texts

pytestmark = pytest.mark.usefixtures("one_device")


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A run on a text, with a vocabulary that it was given, by their paths in this folder."""
    folder = tmp_path_factory.mktemp("text")
    base = texts.config_file(folder)
    with contextlib.chdir(folder), texts.one_device():
        changes = {"corpus__path": "corpus", "batch_size": 8, "model__hidden": 16}
        prepared = prepare.prepare_corpus(texts.configure(base, **changes), log=lambda _: None)
        prepared.tokenizer.save(Path("vocabulary"))
        config = texts.configure(base, **changes, tokenizer__path="vocabulary/vocab.txt")
        saved.run(Path("run"), config, {10: 1.0})
    return folder


@pytest.fixture
def folder(made, tmp_path, monkeypatch) -> Path:
    """A copy of that folder, which is the current one."""
    monkeypatch.chdir(shutil.copytree(made, tmp_path / "copy"))
    return Path()


def evaluate(folder: Path, *words: str) -> int:
    return cli.execute(["evaluate", f"--checkpoint={folder / 'run'}", *words])


@pytest.mark.fault(7)
def test_evaluate_refuses_text_that_was_replaced(folder, capsys):
    """Unless it is named; what changes the masks only names no other text."""
    texts.write(folder / "corpus", seed=7)
    for words in (["--suite=nsp"], ["--suite=cross_rate"], ["--config.evals.validation.rate=0.3"]):
        assert evaluate(folder, *words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    error, hint = err.splitlines()[-2:]
    assert "run was trained on other text than corpus holds" in error
    assert "--config.corpus.path=corpus" in hint
    assert evaluate(folder, "--config.corpus.path=corpus") == 0
    assert json.loads(capsys.readouterr().out)


@pytest.mark.fault(7)
def test_evaluate_refuses_a_changed_vocabulary(folder, capsys):
    file = folder / "vocabulary/vocab.txt"
    lines = file.read_text().splitlines()
    lines[-1], lines[-2] = lines[-2], lines[-1]
    file.write_text("\n".join(lines) + "\n")
    (folder / "vocabulary/tokenizer.json").unlink()
    assert evaluate(folder) == 2
    assert f"another vocabulary than {file} has now" in capsys.readouterr().err


@pytest.mark.fault(7)
def test_evaluate_goes_on_after_libraries_changed(folder, monkeypatch, capsys):
    """The text is the same; only the libraries that cut it into tokens are others."""
    assert evaluate(folder) == 0
    before = json.loads(capsys.readouterr().out)
    version = corpus.importlib.metadata.version
    monkeypatch.setattr(corpus.importlib.metadata, "version", lambda name: f"{version(name)}.post1")
    assert evaluate(folder) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == before
    assert "what is installed changed since" in err


@pytest.mark.slow
def test_evaluate_finds_docstrings_after_an_upgrade(tmp_path, monkeypatch, capsys):
    """They change with what is installed; once they are gone, the hint names what there is."""
    list_items = docstrings.list_items

    def list_few(settings, cache):
        found, notes = list_items(settings, cache)
        return found[:1], notes

    monkeypatch.setattr(docstrings, "list_items", list_few)
    changes = {"corpus__source": "docstrings", "corpus__path": "", "batch_size": 8}
    changes |= {"corpus__cache": tmp_path / "cache", "model__hidden": 16}
    config = texts.configure(texts.config_file(tmp_path), **changes)
    saved.run(tmp_path / "run", config, {10: 1.0})
    monkeypatch.setattr(docstrings.platform, "python_version", lambda: "3.99.0")
    with monkeypatch.context() as patch:
        patch.setattr(prepare, "_prepare", lambda *_: pytest.fail("prepared anew"))
        assert evaluate(tmp_path) == 0
    assert "what is installed changed since" in capsys.readouterr().err
    shutil.rmtree(tmp_path / "cache")
    assert evaluate(tmp_path) == 2
    error, hint = capsys.readouterr().err.splitlines()[-2:]
    assert "was trained on the docstrings of other versions of Python or packages" in error
    assert evaluate(tmp_path, hint.split()[1]) == 0


@pytest.mark.fault(7)
def test_evaluate_refuses_data_of_a_task_that_changed(tmp_path, capsys):
    rows = tasks.complaints(40)
    for name, some in (("train", rows[:30]), ("validation", rows[30:])):
        body = "".join(f"{text}\t{label}\n" for text, label in some)
        (tmp_path / f"{name}.tsv").write_text("text\tlabel\n" + body)
    config = tasks.config("classify", f"files:{tmp_path}", tmp_path)
    saved.run(tmp_path / "run", config, {10: 1.0})
    with (tmp_path / "validation.tsv").open("a") as file:
        file.write("the screen is broken\thardware\n")
    assert evaluate(tmp_path) == 2
    error, hint = capsys.readouterr().err.splitlines()[-2:]
    assert f"was trained on other data than files:{tmp_path} holds now" in error
    assert f"--source=files:{tmp_path}" in hint
    assert evaluate(tmp_path, f"--source=files:{tmp_path}") == 0
    (tmp_path / "train.tsv").unlink()
    assert evaluate(tmp_path) == 0
    assert "cannot be compared" in capsys.readouterr().err


@pytest.mark.fault(7)
@pytest.mark.slow
def test_study_report_refuses_text_that_was_replaced(folder, tmp_path):
    """The cells are copies of the run on the text."""
    base = study_workdir.base()
    run = json.loads((folder / "run" / "config.json").read_text())
    base.corpus.update(run["corpus"])
    base.tokenizer.update(run["tokenizer"])
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
            shutil.copy(folder / "run" / name, place.cell(cell.id) / name)
    actions.report_study(place.workdir)
    sameness.check_data(place, results.gather_cells(place), coming=place.read_cells())
    texts.write(folder / "corpus", seed=7)
    with pytest.raises(ConfigError, match="was trained on other data than files corpus holds now"):
        actions.report_study(place.workdir)
