"""Wrong input through the real command line: one line of what and where, one hint, the exit code of
the contract.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bert_jax import cli
from tests import texts


def split_error(err: str) -> tuple[str, str, list[str]]:
    """Return the error, its hint, and what was said before."""
    *before, error, hint = err.splitlines()
    assert error.startswith("error: "), err
    assert hint.startswith("hint: "), err
    assert not [line for line in before if line.startswith(("error: ", "hint: ", "Traceback"))], err
    return error, hint, before


def fail(capsys, code: int, *words: object) -> tuple[str, str, list[str]]:
    assert cli.execute([str(word) for word in words]) == code
    out, err = capsys.readouterr()
    assert out == ""
    return split_error(err)


def list_files(folder: Path) -> dict[str, bytes]:
    """Read all files but the lock."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "run.lock"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(files)}


# --- before anything starts -----------------------------------------------------------------------


def test_train_refuses_weights_of_0(base, tmp_path, capsys):
    """With every objective at weight 0 nothing is trained; with one of them a head is kept."""
    command = ["train", f"--config={base}", f"--workdir={tmp_path / 'w'}", "--dry-run"]
    command.append("--config.objectives.nsp.weight=0")
    error, _, _ = fail(capsys, 2, *command, "--config.objectives.mlm.weight=0")
    assert "the weight of every objective is 0 (mlm, nsp)" in error
    assert not list(tmp_path.iterdir())
    assert cli.execute(command) == 0


@pytest.mark.fault(10)
@pytest.mark.parametrize("kind", ["missing", "empty", "blank"])
def test_corpus_without_text_is_code_3(kind, base, tmp_path, capsys):
    corpus = tmp_path / "text"
    if kind != "missing":
        corpus.mkdir()
    if kind == "blank":
        (corpus / "a.txt").write_text("\n \n\n")
    cache = f"--config.corpus.cache={tmp_path / 'c'}"
    words = ["prepare", f"--config={base}", f"--config.corpus.path={corpus}", cache]
    error, _, _ = fail(capsys, 3, *words)
    assert str(corpus) in error
    finished = [path for path in tmp_path.rglob("manifest.json") if path.parent.suffix != ".work"]
    assert not finished


def test_train_names_blank_lines_for_one_document(base, tmp_path, capsys):
    """One document cannot be divided, however large corpus.validation_fraction is."""
    text = tmp_path / "one.txt"
    text.write_text("".join(f"the cat number {i} sees a dog.\n" for i in range(60)))
    knobs = [f"--config.corpus.path={text}", "--config.corpus.validation_fraction=0.5"]
    command = ["train", f"--config={base}", f"--workdir={tmp_path / 'w'}", *knobs]
    error, hint, _ = fail(capsys, 3, *command)
    assert "holds no documents for validation, of 1" in error
    assert "blank lines" in hint


# --- evaluating and asking ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["missing", "empty", "bare", "file", "bare/checkpoints/7", "hf"])
def test_folder_that_is_no_run_is_code_4(name, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    (tmp_path / "bare" / "checkpoints").mkdir(parents=True)
    (tmp_path / "file").write_text("")
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "hf" / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    before = list_files(tmp_path)
    error, _, said = fail(capsys, 4, "predict", "nsp", f"--model={tmp_path / name}")
    assert str(tmp_path / name) in error
    assert not said
    assert list_files(tmp_path) == before


def test_process_ends_with_the_code_and_two_lines(tmp_path):
    code, out, err = texts.run("evaluate", f"--checkpoint={tmp_path}")
    assert (code, out) == (4, "")
    assert not split_error(err)[2]
