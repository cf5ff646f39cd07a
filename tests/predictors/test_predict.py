"""The command `predict`: results for people and programs, prompts, and the shapes in its help."""

from __future__ import annotations

import functools
import json
import types

import pytest

from bert_jax import cli, predict
from bert_jax.errors import DataError
from bert_jax.predictors import TASKS
from bert_jax.predictors import stream as predictions
from bert_jax.predictors.base import AskedModel, Predictor
from bert_jax.predictors.generate import Generate
from bert_jax.predictors.labelled import Answer, Classify, Tag
from bert_jax.predictors.masked import FillMask, Unmask
from bert_jax.predictors.options import Options
from bert_jax.predictors.texts import Embed, Nsp
from tests.predictors.drawing import GOLDEN, open_golden
from tests.terminals import terminal

MODEL = GOLDEN / "pretraining"

# --- lines ----------------------------------------------------------------------------------------


@functools.cache
def make_predictor(task: str, name: str) -> Predictor:
    """The predictor of a task for a golden model."""
    return TASKS[task].make(AskedModel(open_golden(name), Options()))


@pytest.mark.parametrize(
    ("task", "name", "line", "problem"),
    [
        ("nsp", "pretraining", "a\tb\tc", "3 texts, not 2"),
        ("classify", "multiple_choice", "a\tb", "not JSON"),
        ("nsp", "pretraining", '{"text": "a"}', "no text_pair"),
    ],
)
def test_lines_of_another_form_are_refused(task, name, line, problem):
    with pytest.raises(DataError, match=f"(?m)^line 7: {problem}$"):
        make_predictor(task, name).read(7, line)


# --- results as text ------------------------------------------------------------------------------


BRACKETS = types.SimpleNamespace(mask="[MASK]")


def masks(*tokens: str) -> list[dict]:
    return [{"token": token, "probability": 0.5 / n} for n, token in enumerate(tokens, 1)]


ENTITY = {"text": "Ann", "label": "PER", "start": 0, "end": 3}
NOTHING = {"answer": "", "start": 0, "end": 0, "score": 0.625}
REVEALED = [[{"place": n, "token": x, "probability": 0.25}] for n, x in ((1, "b"), (0, "a"))]
SHOWN = [
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
        "a  |  b\n  the second follows the first   75.0 %\n  it does not                    25.0 %",
    ),
    (
        Classify,
        {"text": "a", "label": "0", "probabilities": {str(n): n / 100 for n in range(23)}},
        "a\n"
        + "".join(f"  {n:<2}  {n:5.1f} %\n" for n in range(22, 2, -1))
        + "  and 3 more labels",
    ),
    (Classify, {"text": "a", "text_pair": "b", "value": 2.5}, "a  |  b\n  2.500"),
    (
        Tag,
        {"words": ["Ann", "ran"], "labels": ["B-PER", None], "entities": [ENTITY]},
        "Ann ran\n  Ann  B-PER\n  ran  (cut off)\n  entities:\n  Ann  PER",
    ),
    (
        Answer,
        {"question": "where?", "answer": "here", "start": 3, "end": 7, "score": 0.5}
        | {"n_best": [NOTHING]},
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
        {"text": "a b", "tokens": ["a", "b"], "steps": REVEALED},
        "a b\n  round 1  b   25.0 %\n  round 2  a   25.0 %",
    ),
]


@pytest.mark.parametrize(("kind", "result", "expected"), SHOWN)
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


def test_predict_asks_and_answers_on_a_terminal():
    lines = ["the [MASK] sat\n", "the <mask>\n", '{"text": 7}\n', "\n"]
    with terminal(lines) as shown:
        assert cli.execute(["predict", "fill-mask", f"--model={MODEL}", "--top-k=2"]) == 0
    answers = shown[0].split("fill-mask> ")
    assert answers[0].endswith("Ctrl-D ends\n")
    assert [answer.partition("\n")[0] + "\n" for answer in answers[1:-1]] == lines
    assert answers[1].count(" %\n") == 2
    assert answers[3].endswith(
        "\nwarning: line 3: Expected `str | null`, got `int` - at `$.text`; left out\n"
    )
    assert answers[4] == "\n  no [MASK] in this text: write [MASK] where a token is missing\n"
    assert answers[5] == "\n"


def test_predict_prompts_beside_a_file_of_rows(tmp_path):
    with terminal(["the cat\n", "\n"], tmp_path / "out.jsonl") as shown:
        assert cli.execute(["predict", "embed", f"--model={MODEL}"]) == 0
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["text"] for row in rows] == ["the cat", ""]
    assert shown[0].endswith("Ctrl-D ends\nembed> the cat\nembed> \nembed> \n")


@pytest.mark.parametrize(
    ("flag", "first"), [("", "the cat"), ("--format=json", '{"text": "the cat", ')]
)
def test_predict_format_is_text_on_a_terminal(tmp_path, flag, first):
    """In a pipe it is JSON, as in the transcript."""
    (tmp_path / "in.txt").write_text("the cat\n\n")
    words = ["predict", "embed", f"--model={MODEL}", f"--input={tmp_path / 'in.txt'}"]
    with terminal([]) as shown:
        assert cli.execute([*words, *flag.split()]) == 0
    assert shown[0].startswith(first)


def test_predict_interrupt_ends_the_prompts_line(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(predictions, "read_lines", interrupted)
    with terminal([]) as shown:
        assert cli.execute(["predict", "embed", f"--model={MODEL}"]) == cli.INTERRUPTED
    assert "embed> \nerror: interrupted\n" in shown[0].replace("^D\b\b", "")
