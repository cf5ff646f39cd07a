"""What a person sees: the help of each task, page and action, and results and prompts on a
terminal.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from bert_jax import cli, inspect, predict, study
from bert_jax.interop import runs
from bert_jax.predictors import TASKS
from bert_jax.predictors import stream as predictions
from bert_jax.predictors.answer import Answer
from bert_jax.predictors.base import Model, OfText
from bert_jax.predictors.classify import Classify
from bert_jax.predictors.embed import Embed
from bert_jax.predictors.fill_mask import FillMask
from bert_jax.predictors.generate import Generate
from bert_jax.predictors.nsp import Nsp
from bert_jax.predictors.options import Options
from bert_jax.predictors.tag import Tag
from bert_jax.predictors.unmask import Unmask
from bert_jax.studies import actions
from bert_jax.views import PAGES
from tests import texts, variants

GOLDEN = variants.GOLDEN / "huggingface"
MODEL = GOLDEN / "pretraining"

# --- flags of each part ---------------------------------------------------------------------------

# Flags that a part has beside those of the whole command, with a value that is one.
WINDOWS = "--long=windows --stride=8 --stride-as=step"
DRAWN = "--max-tokens=3 --temperature=1 --top-p=0.9 --seed=3 --steps=2 --order=random --top-k=4"
CELLS = (
    "--engine=ray --engine-option=a=1 --jobs=2 --fuse=never --reuse=x --dry-run "
    "--flops-per-second=3e14"
)
OWN = {
    "predict": {
        "fill-mask": f"--top-k=3 {WINDOWS}",
        "nsp": "--long=cut",
        "classify": "--long=cut",
        "tag": f"--entities {WINDOWS}",
        "answer": f"--top-k=3 --no-answer-threshold=0.1 {WINDOWS}",
        "embed": "--pooling=cls --normalize --long=cut",
        "generate": f"{DRAWN} --show-steps --long=refuse",
    },
    "inspect": {
        "attention": "--text-pair=b",
        "embeddings": "--layer=0 --pooling=cls --points=words --method=tsne --neighbours=2",
        "generation": DRAWN,
    },
    "study": {
        "run": f"{CELLS} --only=seed=1",
        "sweep": f"{CELLS} --config=configs/tiny.py --axis=masking.rate=0.1,0.2 --seeds=2 "
        "--tokens=1e6 --flops=1e12",
        "status": "--verbose --format=text --json",
        "report": "",
    },
}
SHARED = {
    "predict": "--model=m --checkpoint=m --tokenizer= --input=in.txt --format=json --batch-size=2 "
    "--on-bad-row=skip",
    "inspect": "--model=m --checkpoint=m --tokenizer= --text=a --input= --output=p.html --long=cut",
    "study": "--workdir=w",
}
PARTS = [(command, part) for command in OWN for part in OWN[command]]


def names(flags: str) -> set[str]:
    return {word.partition("=")[0] for word in flags.split()}


def helped(capsys, *words: str) -> str:
    assert cli.execute([*words]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


@pytest.fixture
def calls(monkeypatch):
    """What the commands would do is listed instead."""
    seen: list = []
    for module in (predict, inspect):
        monkeypatch.setattr(module, "run", lambda **settings: seen.append(settings))
    for name in ("run", "status", "report"):
        monkeypatch.setattr(actions, name, lambda *_, **settings: seen.append(settings))
    monkeypatch.setattr("bert_jax.studies.sweep.run", lambda *_: seen.append({}))
    return seen


@pytest.mark.parametrize(("command", "part"), PARTS)
def test_the_help_of_a_part_shows_its_own_flags_and_an_example(command, part, capsys, calls):
    out = helped(capsys, command, part, "--help")
    assert out.startswith(f"usage: bert-jax {command} {part} ")
    expected = names(OWN[command][part]) | names(SHARED[command]) | {"--help", "--debug"}
    shown = set(re.findall(r"^  (?:-h, )?(--[a-z-]+)", out, re.MULTILINE))
    assert shown | set(re.findall(r"--model.*, (--checkpoint)", out)) == expected
    usage = out.partition("\n\n")[0]
    assert set(re.findall(r"(--[a-z-]+)", usage)) == expected - {"--help", "--checkpoint"}
    assert out == helped(capsys, command, part, "-h")
    title, rest = out.split("\n\n", 2)[1:]
    assert rest.startswith(("input", "output"))
    assert "output" in rest
    assert all(
        len(line) <= 79 for line in f"{title}\n{rest}".partition("\nexample:")[0].split("\n")
    )
    example = out.partition("example:\n")[2].split()
    assert example[:3] == ["bert-jax", command, part]
    assert cli.execute(example[1:]) == 0
    assert len(calls) == 1


@pytest.mark.parametrize("command", OWN)
def test_help_of_a_command_lists_its_parts(command, capsys):
    parts = re.split(r"^\w+s:$", helped(capsys, command, "--help"), flags=re.MULTILINE)[-1]
    assert re.findall(r"^    (\S+)", parts.partition("\nexample:")[0], re.MULTILINE) == [
        *OWN[command]
    ]


def test_a_word_that_is_no_part_is_refused_with_those_that_are_shown(capsys):
    assert cli.execute(["study", "sweeps", "--workdir=w"]) == 2
    hint = capsys.readouterr().err.splitlines()[1]
    assert hint == "hint: did you mean 'sweep'? one of: run, sweep, status, report"


@pytest.mark.parametrize(("command", "part"), PARTS)
def test_part_takes_its_flags_and_refuses_those_of_others(command, part, calls, capsys):
    needed = {"predict": ["--model=m"], "inspect": ["--model=m"], "study": ["--workdir=w"]}[command]
    own = [word for word in OWN[command][part].split() if word != "--flops=1e12"]  # or --tokens
    if part == "sweep":
        needed += ["--config=configs/tiny.py"]
    for words in ([*needed, *own], [*own, *needed]):
        assert cli.execute([command, part, *words]) == 0
    assert calls[0] == calls[1] or command == "study"  # which records its command
    every = {
        word.partition("=")[0]: word for flags in OWN[command].values() for word in flags.split()
    }
    for flag in every.keys() - names(OWN[command][part]):
        assert cli.execute([command, part, *needed, every[flag]]) == 2
        error, hint = capsys.readouterr().err.splitlines()
        assert error == f"error: {command} {part} has no flag {flag}"
        owners = [one for one, flags in OWN[command].items() if flag in names(flags)]
        have = "have" if owners[1:] else "has"
        assert hint == f"hint: {command} {', '.join(owners)} {have} it"
    assert len(calls) == 2


@pytest.mark.parametrize("action", ["status", "report"])
def test_knobs_are_of_what_runs_alone(action, calls, capsys):
    assert cli.execute(["study", action, "--workdir=w", "--config.steps=7"]) == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert error == f"error: study {action} has no flag --config.steps"
    assert hint == "hint: study run, sweep have it"
    assert calls == []


def test_help_of_launchers_loads_no_jax():
    source = (
        "import sys\nfrom bert_jax import cli\n"
        "for words in ([], ['study', 'run']):\n"
        "    assert cli.execute([*words, '--help']) == 0\n"
        "sys.exit(any(name in sys.modules for name in ('jax', 'numpy', 'ml_collections')))"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, check=False)
    assert done.returncode == 0


# --- the shapes that the help shows ---------------------------------------------------------------


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """A golden model by name, with a vocabulary."""
    root = tmp_path_factory.mktemp("models")

    def of(name: str) -> runs.TrainedModel:
        if not (root / name).exists():
            shutil.copytree(GOLDEN / name, root / name)
            shutil.copy(MODEL / "vocab.txt", root / name)
        return runs.open_run(str(root / name))

    return of


# Task -> golden models and, for each, the numbers of the lines of TASKS that it reads and writes.
SHAPES = {
    "fill-mask": {"pretraining": ((0, 1), 0)},
    "nsp": {"pretraining": ((0, 1), 0)},
    "classify": {
        "sequence_classification": ((0, 1, 2), 0),
        "regression": ((0, 1, 2), 1),
        "multiple_choice": ((3,), 0),
    },
    "tag": {"token_classification": ((0, 1, 2), 0)},
    "answer": {"question_answering": ((0, 1), 0)},
    "embed": {"pretraining": ((0, 1), 0)},
    "generate": {"pretraining": ((0, 1, 2), 0), "causal_lm": ((0, 1, 2), 1)},
}


def test_every_task_and_page_has_a_help():
    assert list(TASKS) == list(SHAPES)
    assert list(inspect.PAGES) == list(PAGES)
    shown = {number for models in SHAPES["classify"].values() for number in models[0]}
    assert shown == set(range(len(predict.TASKS["classify"].takes)))
    assert list(study.ACTIONS) == [*OWN["study"], study.WORK]


@pytest.mark.parametrize("task", SHAPES)
def test_the_lines_that_the_help_shows_are_read(task, opened):
    shapes = predict.TASKS[task].takes
    for name, (lines, _) in SHAPES[task].items():
        predictor = TASKS[task].make(Model(opened(name), Options()))
        for number in lines:
            predictor.read(1, shapes[number].replace("<tab>", "\t"))
        predictor.read(1, predict.write_sample(predictor).replace("<tab>", "\t"))


@pytest.mark.slow
@pytest.mark.parametrize("task", SHAPES)
def test_the_results_have_the_keys_that_the_help_shows(task, opened):
    row = predict.TASKS[task]
    for name, (lines, result) in SHAPES[task].items():
        stream = predictions.Stream(Model(opened(name), Options(max_tokens=2)), task)
        given = [row.takes[number].replace("<tab>", "\t") for number in lines]
        shape = json.loads(row.gives[result].replace(", …", "").replace("…", "0"))
        for found in stream.answer(given):
            given_back = {"text_pair", "options"}  # where the line has them
            assert found.keys() - given_back == shape.keys() - given_back
            assert predict.write_readable(stream.predictor, found, True)


@pytest.mark.parametrize("page", inspect.PAGES)
def test_the_lines_that_a_page_shows_are_read(page, opened):
    reader = PAGES[page][0](Model(opened("pretraining"), Options()))
    assert isinstance(reader, OfText)
    for line in inspect.PAGES[page].takes:
        assert all(reader.read(1, line.replace("<tab>", "\t")).fields.values())


# --- results as text ------------------------------------------------------------------------------


def masks(*tokens: str) -> list[dict]:
    return [{"token": token, "probability": 0.5 / n} for n, token in enumerate(tokens, 1)]


@pytest.mark.parametrize(
    ("kind", "result", "expected"),
    [
        (
            FillMask,
            {"text": "the [MASK]", "masks": [masks("cat", "##s")]},
            "the [MASK]\n  cat   50.0 %\n  ##s   25.0 %",
        ),
        (
            FillMask,
            {"text": "[MASK] [MASK]", "masks": [masks("a", "the"), masks("cat")]},
            "[MASK] [MASK]\n  mask 1  a     50.0 %\n          the   25.0 %\n  mask 2  cat   50.0 %",
        ),
        (
            FillMask,
            {"text": "the <mask>", "masks": []},
            "the <mask>\n  no [MASK] in this text: write [MASK] in place of <mask>",
        ),
        (
            FillMask,
            {"text": "", "masks": []},
            "(no text)\n  no [MASK] in this text: write [MASK] where a token is missing",
        ),
        (
            Nsp,
            {"text": "a", "text_pair": "b", "is_next": 0.75},
            "a  |  b\n  the second follows the first   75.0 %\n"
            "  it does not                    25.0 %",
        ),
        (
            Classify,
            {"text": "a", "label": "no", "probabilities": {"yes": 0.25, "no": 0.75}},
            "a\n  no    75.0 %\n  yes   25.0 %",
        ),
        (
            Classify,
            {"text": "a", "label": "0", "probabilities": {str(n): 0.01 for n in range(23)}},
            "a\n" + "".join(f"  {n:<2}    1.0 %\n" for n in range(20)) + "  and 3 more labels",
        ),
        (Classify, {"text": "a", "text_pair": "b", "value": 2.5}, "a  |  b\n  2.500"),
        (
            Tag,
            {
                "words": ["Ann", "ran"],
                "labels": ["B-PER", None],
                "entities": [{"text": "Ann", "label": "PER", "start": 0, "end": 3}],
            },
            "Ann ran\n  Ann  B-PER\n  ran  (cut off)\n  entities:\n  Ann  PER",
        ),
        (
            Answer,
            {"question": "where?", "answer": "here", "start": 3, "end": 7, "score": 0.5}
            | {"n_best": [{"answer": "", "start": 0, "end": 0, "score": 0.625}]},
            "where?\n  here   50.0 %  characters 3 to 7\n  best by score:\n  (no answer)   62.5 %",
        ),
        (
            Embed,
            {"text": "a", "embedding": [3.0, 4.0]},
            "a\n  2 numbers of length 5.000: 3.000 4.000 … (all with --format=json)",
        ),
        (Generate, {"text": "a b", "continuation": " b", "stopped": "end"}, "a b"),
        (
            Unmask,
            {
                "text": "a b c",
                "tokens": ["a", "b", "c"],
                "steps": [
                    [{"place": 1, "token": "b", "probability": 0.5}],
                    [
                        {"place": n, "token": x, "probability": 0.25}
                        for n, x in ((0, "a"), (2, "c"))
                    ],
                ],
            },
            "a b c\n  round 1  b   50.0 %\n  round 2  a   25.0 %\n           c   25.0 %",
        ),
    ],
)
def test_a_result_as_text(kind, result, expected):
    predictor = object.__new__(kind)  # no model
    predictor.mask = "[MASK]"
    assert predict.write_readable(predictor, result, True) == expected
    alone = predict.write_readable(predictor, result, False)
    assert expected.endswith(alone)
    assert (alone == expected) == (kind in (Generate, Unmask))


def test_text_moves_no_cursor():
    result = {"text": "a\x1b[2J\x07\u009bb\tc", "continuation": "", "stopped": "end"}
    shown = predict.write_readable(object.__new__(Generate), result, True)
    assert shown == "a\\x1b[2J\\x07\\x9bb\tc"


# --- on a terminal --------------------------------------------------------------------------------


@contextlib.contextmanager
def typing(lines: list[str]):
    """Type a line into a terminal after each prompt, and Ctrl-D at the end.

    Yields the terminal's descriptor, and a list that holds what was shown when it is closed.
    """
    ours, theirs = pty.openpty()
    shown: list[str] = []
    waiting = [line.encode() for line in lines]

    def person() -> None:
        seen, end = b"", time.monotonic() + 120
        with contextlib.suppress(OSError):  # the last descriptor of the terminal is closed
            while data := os.read(ours, 4096):
                seen += data
                if data.endswith(b"> ") or time.monotonic() > end:
                    os.write(ours, waiting.pop(0) if waiting else b"\x04")
        shown.append(seen.decode().replace("\r\n", "\n"))

    thread = threading.Thread(target=person)
    thread.start()
    try:
        yield theirs, shown
    finally:
        os.close(theirs)
        thread.join()
        os.close(ours)


@contextlib.contextmanager
def terminal(lines: list[str], output: Path | None = None):
    """Run the body on a terminal, where someone types; standard output may go to a file.

    Yields the list of `typing`.
    """
    with typing(lines) as (theirs, shown), pytest.MonkeyPatch.context() as patch:
        kept = os.dup(0)
        os.dup2(theirs, 0)
        with (
            os.fdopen(os.dup(theirs), "w", buffering=1) as screen,
            output.open("w") if output else os.fdopen(os.dup(theirs), "w") as out,
        ):
            patch.setattr(sys, "stderr", screen)
            patch.setattr(sys, "stdout", out)
            try:
                yield shown
            finally:
                os.dup2(kept, 0)
                os.close(kept)


def test_lines_are_asked_for_and_answered_for_people(tmp_path, capfd):
    lines = ["the [MASK] sat on the [MASK]\n", "the <mask>\n", '{"text": 7}\n', "\n"]
    words = ["predict", "fill-mask", f"--model={MODEL}", "--top-k=2"]
    with terminal(lines) as shown:
        assert cli.execute(words) == 0
    answers = shown[0].split("fill-mask> ")
    assert answers[0] == "one a line, such as: Paris is the [MASK] of France.\nCtrl-D ends\n"
    assert [answer.partition("\n")[0] + "\n" for answer in answers[1:-1]] == lines
    assert answers[2].endswith("\n  no [MASK] in this text: write [MASK] in place of <mask>\n")
    assert answers[3].endswith("\nwarning: line 3: text is 7, not a text; left out\n")
    assert answers[4] == "\n  no [MASK] in this text: write [MASK] where a token is missing\n"
    assert answers[5] == "\n"
    (tmp_path / "in.txt").write_text(lines[0])
    assert cli.execute([*words, f"--input={tmp_path / 'in.txt'}"]) == 0
    (row,) = map(json.loads, capfd.readouterr().out.splitlines())
    table = [line.split() for line in answers[1].splitlines()[1:]]
    first = [one for best in row["masks"] for one in best]
    assert [line[-3] for line in table] == [one["token"] for one in first]
    assert [line[-2] for line in table] == [f"{100 * one['probability']:.1f}" for one in first]


def test_the_prompt_is_for_the_terminal_and_the_rows_for_the_file(tmp_path):
    with terminal(["the cat\n", "\n"], tmp_path / "out.jsonl") as shown:
        assert cli.execute(["predict", "embed", f"--model={MODEL}"]) == 0
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["text"] for row in rows] == ["the cat", ""]
    assert shown[0].endswith("Ctrl-D ends\nembed> the cat\nembed> \nembed> \n")


@pytest.mark.slow
def test_a_process_on_a_terminal_asks_and_one_in_a_pipe_does_not():
    words = [sys.executable, "-m", "bert_jax.predict", "nsp", f"--model={MODEL}"]
    with typing(["the cat\ta dog\n", "the cat\n"]) as (theirs, shown):
        process = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs)
    assert process.wait(timeout=300) == 0
    answers = shown[0].split("nsp> ")
    assert answers[0] == "one a line, such as: He went out.<tab>It rained.\nCtrl-D ends\n"
    assert re.search(r"\n  the second follows the first +\d+\.\d %\n  it does not ", answers[1])
    assert answers[2:] == ["the cat\nwarning: line 2: no text_pair; left out\n", "\n"]
    done = subprocess.run(words, input="the cat\ta dog\n", capture_output=True, text=True)
    assert json.loads(done.stdout).keys() == {"text", "text_pair", "is_next"}
    assert "nsp>" not in done.stderr


def test_the_format_is_that_of_the_output_unless_it_is_stated(tmp_path, capsys):
    (tmp_path / "in.txt").write_text("the cat\n\n")
    words = ["predict", "embed", f"--model={MODEL}", f"--input={tmp_path / 'in.txt'}"]
    on_terminal, in_a_pipe = {}, {}
    for form in ("", "--format=json"):
        with terminal([]) as shown:
            assert cli.execute([*words, *form.split()]) == 0
        on_terminal[form] = shown[0].splitlines()[:-1]  # behind them the rate
    for form in ("", "--format=text"):
        assert cli.execute([*words, *form.split()]) == 0
        in_a_pipe[form] = capsys.readouterr().out.splitlines()
    assert [json.loads(row)["text"] for row in in_a_pipe[""]] == ["the cat", ""]
    assert on_terminal["--format=json"] == in_a_pipe[""]
    assert on_terminal[""] == in_a_pipe["--format=text"]
    assert on_terminal[""][::2] == ["the cat", "(no text)"]


def test_an_interrupt_at_the_prompt_ends_on_a_line_of_its_own(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(predict, "read_lines", interrupted)
    with terminal([]) as shown:
        assert cli.execute(["predict", "embed", f"--model={MODEL}"]) == cli.INTERRUPTED
    assert "embed> \nerror: interrupted\n" in shown[0].replace("^D\b\b", "")


@pytest.mark.parametrize(
    ("flags", "on_terminal", "in_a_pipe"),
    [
        ("", False, True),
        ("--json", True, True),
        ("--format=json", True, True),
        ("--format=text", False, False),
        ("--verbose", False, False),
        ("--verbose --json", True, True),
    ],
)
def test_the_status_of_a_study_is_for_people_or_programs(flags, on_terminal, in_a_pipe, calls):
    words = ["study", "status", "--workdir=w", *flags.split()]
    with terminal([]):
        assert cli.execute(words) == 0
    assert cli.execute(words) == 0
    assert [call["as_json"] for call in calls] == [on_terminal, in_a_pipe]


def test_a_dry_run_on_a_terminal_shows_four_lines(tmp_path, capsys, monkeypatch):
    """In a pipe the config follows them: see test_train.py."""
    words = [
        "train",
        f"--config={texts.ROOT / 'configs' / 'tiny.py'}",
        f"--workdir={tmp_path / 'w'}",
        "--dry-run",
    ]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    lines = helped(capsys, *words).splitlines()
    shown = ["parameters", "memory/device", "devices", "steps", "config"]
    assert [line.split()[0] for line in lines] == shown
