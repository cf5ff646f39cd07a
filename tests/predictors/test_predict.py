"""The command `predict`: results for people and programs, prompts, and the shapes in its help."""

from __future__ import annotations

import json
import shutil
import types

import pytest

from bert_jax import cli, predict
from bert_jax.errors import DataError
from bert_jax.interop import runs
from bert_jax.predictors import TASKS
from bert_jax.predictors import stream as predictions
from bert_jax.predictors.base import Model
from bert_jax.predictors.generate import Generate
from bert_jax.predictors.labelled import Answer, Classify, Tag
from bert_jax.predictors.masked import FillMask, Unmask
from bert_jax.predictors.options import Options
from bert_jax.predictors.texts import Embed, Nsp
from tests import variants
from tests.terminals import terminal

GOLDEN = variants.GOLDEN / "huggingface"
MODEL = GOLDEN / "pretraining"

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


@pytest.mark.parametrize("task", [*TASKS])
def test_lines_in_the_help_are_read(task, opened):
    shapes = TASKS[task].takes
    for name, (lines, _) in SHAPES[task].items():
        predictor = TASKS[task].make(Model(opened(name), Options()))
        for number in lines:
            predictor.read(1, shapes[number].replace("<tab>", "\t"))


@pytest.mark.parametrize(
    ("task", "name", "line", "problem"),
    [
        ("nsp", "pretraining", "a", "no text_pair"),
        ("nsp", "pretraining", "a\tb\tc", "3 texts, not 2"),
        ("classify", "multiple_choice", "a\tb", "not JSON"),
    ],
)
def test_lines_of_another_form_are_refused(task, name, line, problem, opened):
    predictor = TASKS[task].make(Model(opened(name), Options()))
    with pytest.raises(DataError, match=f"(?m)^line 7: {problem}$"):
        predictor.read(7, line)


@pytest.mark.slow
@pytest.mark.parametrize("task", SHAPES)
def test_results_have_the_keys_in_the_help(task, opened):
    row = TASKS[task]
    for name, (lines, result) in SHAPES[task].items():
        stream = predictions.Stream(Model(opened(name), Options(max_tokens=2)), task)
        given = [row.takes[number].replace("<tab>", "\t") for number in lines]
        shape = json.loads(row.gives[result].replace(", …", "").replace("…", "0"))
        for found in stream.answer(given):
            given_back = {"text_pair", "options"}  # where the line has them
            assert found.keys() - given_back == shape.keys() - given_back
            assert predict.write_readable(stream.predictor, found, True)


# --- results as text ------------------------------------------------------------------------------


BRACKETS = types.SimpleNamespace(mask="[MASK]")


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
def test_write_readable_is_for_people(kind, result, expected):
    predictor = object.__new__(kind)
    predictor.model = types.SimpleNamespace(run=types.SimpleNamespace(tokenizer=BRACKETS))
    assert predict.write_readable(predictor, result, True) == expected
    alone = predict.write_readable(predictor, result, False)
    assert expected.endswith(alone)
    assert (alone == expected) == (kind in (Generate, Unmask))


@pytest.mark.fault(18)
def test_write_readable_moves_no_cursor():
    result = {"text": "a\x1b[2J\x07\u009bb\tc", "continuation": "", "stopped": "end"}
    shown = predict.write_readable(object.__new__(Generate), result, True)
    assert shown == "a\\x1b[2J\\x07\\x9bb\tc"


# --- on a terminal --------------------------------------------------------------------------------


def test_predict_asks_and_answers_on_a_terminal(tmp_path, capfd):
    lines = ["the [MASK] sat on the [MASK]\n", "the <mask>\n", '{"text": 7}\n', "\n"]
    words = ["predict", "fill-mask", f"--model={MODEL}", "--top-k=2"]
    with terminal(lines) as shown:
        assert cli.execute(words) == 0
    answers = shown[0].split("fill-mask> ")
    assert answers[0].endswith("Ctrl-D ends\n")
    assert [answer.partition("\n")[0] + "\n" for answer in answers[1:-1]] == lines
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


def test_predict_prompts_beside_a_file_of_rows(tmp_path):
    with terminal(["the cat\n", "\n"], tmp_path / "out.jsonl") as shown:
        assert cli.execute(["predict", "embed", f"--model={MODEL}"]) == 0
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["text"] for row in rows] == ["the cat", ""]
    assert shown[0].endswith("Ctrl-D ends\nembed> the cat\nembed> \nembed> \n")


def test_predict_format_follows_the_output(tmp_path, capsys):
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


def test_predict_interrupt_ends_the_prompts_line(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(predictions, "read_lines", interrupted)
    with terminal([]) as shown:
        assert cli.execute(["predict", "embed", f"--model={MODEL}"]) == cli.INTERRUPTED
    assert "embed> \nerror: interrupted\n" in shown[0].replace("^D\b\b", "")
