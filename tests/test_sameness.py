"""Text, data or vocabulary that changed since training: whoever says something about a checkpoint
compares first.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from bert_jax import cli
from bert_jax.data import corpus, docstrings, prepare
from bert_jax.errors import ConfigError
from bert_jax.studies import actions
from bert_jax.studies.definition import Comparison, Suite
from tests import saved, study_workdir, tasks, texts

pytestmark = pytest.mark.usefixtures("one_device")


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A run on a text, with a vocabulary that it was given; to be copied, not changed."""
    folder = tmp_path_factory.mktemp("text")
    base = texts.config_file(folder)
    prepare.prepare_corpus(texts.configure(base), log=lambda _: None).tokenizer.save(
        folder / "vocabulary"
    )
    config = texts.configure(
        base, batch_size=8, model__hidden=16, tokenizer__path=folder / "vocabulary/vocab.txt"
    )
    with texts.one_device():
        saved.run(folder / "run", config, {10: 1.0})
    return folder


@pytest.fixture
def folder(made):
    """The folder of the run, its text and its vocabulary, which are put back."""
    kept = made.with_name(f"{made.name}-kept")
    shutil.copytree(made, kept, symlinks=True)
    yield made
    shutil.rmtree(made)
    kept.rename(made)


def evaluate(folder: Path, *words: str) -> int:
    return cli.execute(["evaluate", f"--checkpoint={folder / 'run'}", *words])


def replaced(folder: Path) -> None:
    texts.write(folder / "corpus", seed=7)


@pytest.mark.fault(7)
@pytest.mark.parametrize("suite", ["pretrain", "nsp", "cross_rate"])
def test_evaluate_refuses_text_that_was_replaced(suite, folder, tmp_path, capsys):
    replaced(folder)
    assert evaluate(folder, f"--suite={suite}") == 2
    out, err = capsys.readouterr()
    assert out == ""
    error, hint = err.splitlines()[-2:]
    assert (
        f"error: {folder / 'run'} was trained on other text than {folder / 'corpus'} holds now"
        in error
    )
    assert f"--config.corpus.path={folder / 'corpus'}" in hint
    if suite == "pretrain":  # what changes the masks alone names no other text
        assert evaluate(folder, "--config.evals.validation.rate=0.3") == 2


@pytest.mark.fault(7)
def test_evaluate_takes_another_text_that_is_named(folder, tmp_path, capsys):
    replaced(folder)
    assert evaluate(folder, f"--config.corpus.path={folder / 'corpus'}") == 0
    named = json.loads(capsys.readouterr().out)
    other = texts.config_file(tmp_path)
    texts.write(tmp_path / "corpus", seed=7)
    assert evaluate(folder, f"--config={other}") == 0
    assert json.loads(capsys.readouterr().out) == named


@pytest.mark.fault(7)
def test_evaluate_refuses_a_vocabulary_that_was_changed(folder, capsys):
    file = folder / "vocabulary/vocab.txt"
    lines = file.read_text().splitlines()
    lines[-1], lines[-2] = lines[-2], lines[-1]
    file.write_text("\n".join(lines) + "\n")
    (folder / "vocabulary/tokenizer.json").unlink()
    assert evaluate(folder) == 2
    assert f"another vocabulary than {file} has now" in capsys.readouterr().err


@pytest.mark.fault(7)
@pytest.mark.parametrize(
    "words", ["predict embed --model={}", "export --checkpoint={} --output=out", "init"]
)
def test_whatever_opens_a_run_refuses_another_vocabulary_in_its_folder(
    words, folder, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    for name in ("vocab.txt", "tokenizer.json"):
        file = folder / "run/tokenizer" / name
        file.write_text(
            file.read_text().replace('"garden"', '"nedrag"').replace("garden\n", "nedrag\n")
        )
    if words == "init":
        words = (
            f"train --config={folder / 'config.py'} --workdir=w --config.init_from={{}} "
            f"--config.model.hidden=16"
        )
    assert cli.execute(words.format(folder / "run").split()) == 2
    assert (
        f"{folder / 'run/tokenizer'} is not the tokenizer step 10 was trained with"
        in capsys.readouterr().err
    )


@pytest.mark.fault(7)
def test_evaluate_goes_on_with_the_text_while_only_the_libraries_that_cut_it_changed(
    folder, monkeypatch, capsys
):
    assert evaluate(folder) == 0
    before = json.loads(capsys.readouterr().out)
    version = corpus.importlib.metadata.version
    with monkeypatch.context() as patch:
        patch.setattr(corpus.importlib.metadata, "version", lambda name: f"{version(name)}.post1")
        assert evaluate(folder) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == before
    assert "what is installed changed since" in err


# --- docstrings, which change with what is installed ----------------------------------------------


@pytest.fixture
def documented(tmp_path, monkeypatch) -> Path:
    """A run on the docstrings of a few modules."""
    list_items = docstrings.list_items

    def few(settings, cache):
        found, notes = list_items(settings, cache)
        return found[:1], notes

    monkeypatch.setattr(docstrings, "list_items", few)
    base = texts.config_file(tmp_path)
    config = texts.configure(
        base,
        batch_size=8,
        model__hidden=16,
        corpus__source="docstrings",
        corpus__path="",
        corpus__cache=tmp_path / "cache",
    )
    return saved.run(tmp_path / "run", config, {10: 1.0}).parent


def upgrade(monkeypatch) -> None:
    """Let another Python run."""
    monkeypatch.setattr(docstrings.platform, "python_version", lambda: "3.99.0")


@pytest.mark.slow
def test_evaluate_finds_the_docstrings_of_a_run_after_an_upgrade(documented, monkeypatch, capsys):
    assert evaluate(documented) == 0
    before = json.loads(capsys.readouterr().out)
    upgrade(monkeypatch)
    assert evaluate(documented) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == before
    assert "what is installed changed since" in err
    assert "preparing" not in err


@pytest.mark.slow
def test_evaluate_says_what_to_do_where_the_docstrings_of_a_run_are_gone(
    documented, monkeypatch, capsys
):
    upgrade(monkeypatch)
    shutil.rmtree(documented / "cache")
    assert evaluate(documented) == 2
    error, hint = capsys.readouterr().err.splitlines()[-2:]
    assert "was trained on the docstrings of other versions of Python or packages" in error
    assert "are not prepared in" in error
    word = hint.split()[1]
    assert word == "--config.corpus.source=docstrings"
    assert evaluate(documented, word) == 0


# --- labelled data --------------------------------------------------------------------------------


@pytest.mark.fault(7)
@pytest.mark.parametrize("split", [pytest.param("train", marks=pytest.mark.slow), "validation"])
def test_evaluate_refuses_data_of_a_task_that_changed(split, tmp_path, capsys):
    rows = tasks.complaints(40)
    for name, some in (("train", rows[:30]), ("validation", rows[30:])):
        body = "".join(f"{text}\t{label}\n" for text, label in some)
        (tmp_path / f"{name}.tsv").write_text("text\tlabel\n" + body)
    config = tasks.config("classify", f"files:{tmp_path}", tmp_path)
    saved.run(tmp_path / "run", config, {10: 1.0})
    assert evaluate(tmp_path) == 0
    with (tmp_path / f"{split}.tsv").open("a") as file:
        file.write("the screen is broken\thardware\n")
    assert evaluate(tmp_path) == 2
    error, hint = capsys.readouterr().err.splitlines()[-2:]
    assert f"was trained on other data than files:{tmp_path} holds now" in error
    assert f"--source=files:{tmp_path}" in hint
    assert evaluate(tmp_path, f"--source=files:{tmp_path}") == 0
    (tmp_path / "train.tsv").unlink()
    assert evaluate(tmp_path) == 0
    assert "cannot be compared" in capsys.readouterr().err


# --- a study --------------------------------------------------------------------------------------


@pytest.fixture
def place(folder, tmp_path):
    """A study whose cells are copies of the run on the text."""
    asked = {"evaluations": {"validation": Suite("pretrain")}}
    asked |= {"comparisons": (Comparison("masking.rate", "15 %", ("validation/mlm_loss",)),)}
    base = study_workdir.base()
    run = json.loads((folder / "run" / "config.json").read_text())
    base.corpus.update(run["corpus"])
    base.tokenizer.update(run["tokenizer"])
    study = study_workdir.masking_rate((0.15, 0.4), seeds=(0,), base=base, **asked)
    made = study_workdir.build(tmp_path / "w", study)
    for cell in made.cells():
        for name in ("environment.json", "config.json"):
            shutil.copy(folder / "run" / name, made.cell(cell.id) / name)
    return made


@pytest.mark.fault(7)
@pytest.mark.slow
def test_study_report_refuses_text_that_was_replaced(place, folder, capsys):
    actions.report(place.workdir)
    replaced(folder)
    with pytest.raises(
        ConfigError, match=rf"was trained on other data than {folder / 'corpus'} holds now"
    ):
        actions.report(place.workdir)
