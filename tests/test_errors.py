"""Wrong input through the real command line: one line of what and where, one hint, the exit code of
the contract.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from bert_jax import cli
from bert_jax.checkpoints import manifest
from bert_jax.config import load_file, resolve
from bert_jax.data import prepare
from tests import texts


@pytest.fixture(scope="module")
def vocabulary(base) -> Path:
    """A vocabulary that runs are given."""
    prepared = prepare.prepare_corpus(resolve(load_file(str(base))), log=lambda _: None)
    prepared.tokenizer.save(base.parent / "given")
    return base.parent / "given" / "vocab.txt"


def again(base: Path, workdir: Path, *more: str) -> list[str]:
    """The command line of the run that all tests share."""
    knobs = [
        "steps=10",
        "checkpoints.every=5",
        f"tokenizer.path={base.parent / 'given' / 'vocab.txt'}",
    ]
    return [
        "train",
        f"--config={base}",
        f"--workdir={workdir}",
        *(f"--config.{knob}" for knob in knobs),
        *more,
    ]


@pytest.fixture(scope="module")
def trained(base, vocabulary, tmp_path_factory) -> Path:
    """A run of ten steps, saved at 5 and 10; to be copied, not changed."""
    workdir = tmp_path_factory.mktemp("trained") / "run"
    with texts.one_device():
        assert cli.execute(again(base, workdir)) == 0
    return workdir


@pytest.fixture
def run(trained, tmp_path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


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


def flip(file: Path) -> Path:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    return file


def a_file_of(step: Path) -> Path:
    return max(
        (p for p in step.rglob("*") if p.is_file() and p.name != manifest.NAME),
        key=lambda p: p.stat().st_size,
    )


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


@pytest.mark.parametrize("place", ["/proc/self/run", "FILE", "FILE/below"])
@pytest.mark.fault(22)
def test_a_workdir_that_cannot_be_written(place, base, tmp_path, capsys):
    """From root too, which may write in any folder of a disk."""
    (tmp_path / "file").write_text("mine")
    workdir = place.replace("FILE", str(tmp_path / "file"))
    error, hint, before = fails(capsys, 2, "train", f"--config={base}", f"--workdir={workdir}")
    assert f"cannot write in workdir {workdir}" in error
    assert "give a folder you may write in" in hint
    assert not before
    assert files(tmp_path) == {"file": b"mine"}


# --- resuming -------------------------------------------------------------------------------------


@pytest.mark.fault(7)
def test_another_config_is_refused_and_nothing_touched(base, run, capsys):
    before = files(run)
    error, hint, _ = fails(capsys, 2, *again(base, run, "--config.masking.rate=0.4"))
    assert "masking.rate: 0.15 -> 0.4" in error
    assert "--allow-change=masking.rate" in hint
    assert {**files(run), "run.lock": b""} == {**before, "run.lock": b""}


@pytest.mark.fault(7)
@pytest.mark.parametrize("allowed", [[], ["--allow-change=steps"]])
def test_resume_refuses_fewer_steps_than_made(base, run, capsys, one_device, allowed):
    """Else config.json would say 6 steps beside a model that has learned for 10."""
    before = files(run)
    command = again(base, run, "--config.steps=6", *allowed)
    error, hint, _ = fails(capsys, 2, *command)
    assert f"{run} is at step 10, past the last step of this config, 6" in error
    assert {**files(run), "run.lock": b""} == {**before, "run.lock": b""}
    advice = hint.removeprefix("hint: ").split(" ends there")[0]
    assert cli.execute([*command, *advice.split()]) == 0
    assert json.loads((run / "config.json").read_text())["steps"] == 10


@pytest.mark.fault(7)
def test_another_vocabulary_is_refused(base, vocabulary, run, capsys):
    """Two lines of the vocabulary that the run was given change places."""
    before = vocabulary.read_bytes()
    swap_two_lines(vocabulary)
    try:
        error, hint, _ = fails(capsys, 2, *again(base, run))
    finally:
        vocabulary.write_bytes(before)
    assert f"{run} was trained on another" in error
    assert "tokenizer.path changed" in hint


def swap_two_lines(vocabulary: Path) -> None:
    lines = vocabulary.read_text().splitlines()
    lines[40], lines[41] = lines[41], lines[40]
    vocabulary.write_text("\n".join(lines) + "\n")


@pytest.mark.fault(5)
def test_a_corrupt_step_gives_way_to_an_older_one(base, run, capsys, one_device):
    damaged = flip(a_file_of(run / "checkpoints" / "10" / "params"))
    assert cli.execute(["evaluate", f"--checkpoint={run}"]) == 0
    out, err = capsys.readouterr()
    assert (
        f"warning: checkpoint corrupt: {damaged} (its sha256 differs); falling back to step 5"
        in err
    )
    assert json.loads(out)["pretrain"]["mlm_loss"] > 0
    assert cli.execute(again(base, run)) == 0
    err = capsys.readouterr().err
    assert (
        f"warning: checkpoint corrupt: {damaged} (its sha256 differs); falling back to step 5"
        in err
    )
    assert f"resuming {run} at step 5" in err
    assert json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["step"] == 10


def test_without_an_older_one_it_ends_with_4(base, run, capsys):
    shutil.rmtree(run / "checkpoints" / "5")
    damaged = flip(a_file_of(run / "checkpoints" / "10" / "params"))
    before = files(run)
    for words in (
        again(base, run),
        ["evaluate", f"--checkpoint={run}"],
        ["predict", "nsp", f"--model={run}"],
    ):
        error, hint, _ = fails(capsys, 4, *words)
        assert f"checkpoint corrupt: {damaged}" in error
        assert "another workdir" in hint
    assert {**files(run), "run.lock": b""} == {**before, "run.lock": b""}


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


@pytest.mark.fault(7)
def test_a_swapped_vocabulary_is_noticed(run, capsys):
    """Which file of the folder is read must not matter: both say the same, or it is an error."""
    swap_two_lines(run / "tokenizer" / "vocab.txt")
    (run / "tokenizer" / "tokenizer.json").unlink()
    for words in (["evaluate"], ["predict", "nsp"]):
        error, hint, _ = fails(capsys, 2, *words, f"--model={run}")
        assert "is not the tokenizer step 10 was trained with" in error
        assert "restore" in hint


# --- in processes of their own --------------------------------------------------------------------


def test_the_process_ends_with_the_code_and_the_two_lines(base, tmp_path):
    code, out, err = texts.run("evaluate", f"--checkpoint={hugging_face(tmp_path / 'hf')}")
    assert (code, out) == (4, "")
    assert not two_lines(err)[2]


def test_a_dry_run_in_its_own_process(base, tmp_path):
    code, out, err = texts.run(
        "train", f"--config={base}", f"--workdir={tmp_path / 'w'}", "--dry-run"
    )
    assert (code, err) == (0, "")
    assert "parameters" in out
    assert not (tmp_path / "w").exists()
