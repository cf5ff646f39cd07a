"""Wrong input through the real command line: one line of what and where, one hint, the exit code of
the contract.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bert_jax import cli
from bert_jax.data import prepare
from tests import texts


def two_lines(err: str) -> tuple[str, str, list[str]]:
    """The error, its hint, and what was said before."""
    *before, error, hint = err.splitlines()
    assert error.startswith("error: "), err
    assert hint.startswith("hint: "), err
    assert not [line for line in before if line.startswith(("error: ", "hint: ", "Traceback"))], err
    return error, hint, before


def fails(capsys, code: int, *words: object) -> tuple[str, str, list[str]]:
    assert cli.execute([str(word) for word in words]) == code
    out, err = capsys.readouterr()
    assert out == ""
    return two_lines(err)


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()
    }


# --- before anything starts -----------------------------------------------------------------------


def test_train_refuses_weights_of_0(base, tmp_path, capsys):
    """With every objective at weight 0 nothing is trained; with one of them a head is kept."""
    command = ["train", f"--config={base}", f"--workdir={tmp_path / 'w'}", "--dry-run"]
    command.append("--config.objectives.nsp.weight=0")
    error, hint, _ = fails(capsys, 2, *command, "--config.objectives.mlm.weight=0")
    assert "the weight of every objective is 0 (mlm, nsp)" in error
    assert not list(tmp_path.iterdir())
    advice = hint.removeprefix("hint: ").split(";")[0]
    for allowed in ([], ["--config.objectives.mlm.weight=0", advice]):
        assert cli.execute([*command, *allowed]) == 0
        assert '"mlm"' in capsys.readouterr().out


def test_train_names_blank_lines_for_one_document(base, tmp_path, capsys):
    """One document cannot be divided, however large corpus.validation_fraction is."""
    text = tmp_path / "text" / "one.txt"
    text.parent.mkdir()
    sentences = [f"the cat number {i} sees a dog in the garden." for i in range(60)]
    text.write_text("\n".join(sentences) + "\n")
    knobs = [f"--config.corpus.path={text}", "--config.corpus.validation_fraction=0.5"]
    command = ["train", f"--config={base}", f"--workdir={tmp_path / 'w'}", *knobs]
    error, hint, _ = fails(capsys, 3, *command)
    assert "holds no documents for validation: the text is a single document" in error
    assert "blank lines" in hint
    text.write_text("\n\n".join(sentences) + "\n")  # the hint, followed
    settings = {"corpus__path": str(text), "corpus__validation_fraction": 0.5}
    prepared = prepare.prepare_corpus(texts.configure(base, **settings), log=lambda _: None)
    assert len(prepared.splits["validation"].document_ends)


@pytest.mark.parametrize("command", ["train", "prepare"])
@pytest.mark.parametrize("kind", ["missing", "empty", "blank"])
def test_no_corpus(kind, command, base, tmp_path, capsys):
    corpus = tmp_path / "text"
    if kind != "missing":
        corpus.mkdir()
    if kind == "blank":
        (corpus / "a.txt").write_text("\n \n\n")
    words = [
        command,
        f"--config={base}",
        f"--config.corpus.path={corpus}",
        f"--config.corpus.cache={tmp_path / 'c'}",
    ]
    error, _, _ = fails(
        capsys, 3, *words, *([f"--workdir={tmp_path / 'w'}"] if command == "train" else [])
    )
    assert str(corpus) in error
    assert set(files(tmp_path)) - {"text/a.txt", "w/run.lock"} <= {
        n for n in files(tmp_path) if n.startswith("c/")
    }
    assert not [p for p in tmp_path.rglob("manifest.json") if p.parent.suffix != ".work"], (
        "nothing looks prepared"
    )


# --- resuming -------------------------------------------------------------------------------------


# --- evaluating and asking ------------------------------------------------------------------------


def hugging_face(folder: Path) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "bert"}')
    (folder / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    (folder / "vocab.txt").write_text("[PAD]\n")
    return folder


@pytest.mark.parametrize("words", [["evaluate"], ["predict", "fill-mask"], ["predict", "nsp"]])
def test_a_folder_that_is_no_run(words, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    (tmp_path / "bare" / "checkpoints").mkdir(parents=True)
    (tmp_path / "file").write_text("")
    hugging_face(tmp_path / "hf")
    for name in (
        "missing",
        "empty",
        "bare",
        "file",
        "hf",
        "bare/checkpoints",
        "bare/checkpoints/7",
    ):
        before = files(tmp_path)
        error, hint, said = fails(capsys, 4, *words, f"--model={tmp_path / name}")
        assert str(tmp_path / name) in error, name
        assert hint, name
        assert not said
        assert files(tmp_path) == before


# --- in processes of their own --------------------------------------------------------------------


def test_the_process_ends_with_the_code_and_the_two_lines(base, tmp_path):
    code, out, err = texts.run("evaluate", f"--checkpoint={hugging_face(tmp_path / 'hf')}")
    assert (code, out) == (4, "")
    assert not two_lines(err)[2]
