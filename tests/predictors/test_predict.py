"""The command `predict`: results for people and programs, prompts, and the shapes in its help."""

import contextlib
import os
import pty
import sys
import threading
import time

import pytest

from bert_jax import cli, predict
from bert_jax.predictors import stream as predictions
from bert_jax.predictors.labelled import Classify, Tag
from bert_jax.predictors.texts import Embed
from tests.predictors.drawing import GOLDEN

MODEL = GOLDEN / "pretraining"

# --- results as text; the transcript has most of them ---------------------------------------------


@pytest.mark.parametrize(
    ("kind", "result", "expected"),
    [
        (
            Classify,
            {"text": "a", "label": "0", "probabilities": {str(n): n / 100 for n in range(23)}},
            "a\n"
            + "".join(f"  {n:<2}  {n:5.1f} %\n" for n in range(22, 2, -1))
            + "  and 3 more labels",
        ),
        (
            Embed,
            {"text": "a", "embedding": [3.0, 4.0]},
            "a\n  2 numbers of length 5.000: 3.000 4.000 … (all with --format=json)",
        ),
        (
            Tag,
            {"words": ["Ann", "ran"], "labels": ["B-PER", None]}
            | {"entities": [{"text": "Ann", "label": "PER", "start": 0, "end": 3}]},
            "Ann ran\n  Ann  B-PER\n  ran  (cut off)\n  entities:\n  Ann  PER",
        ),
    ],
)
def test_write_readable_is_for_people(kind, result, expected):
    assert predict.write_readable(object.__new__(kind), result, True) == expected


# --- on a terminal --------------------------------------------------------------------------------


@contextlib.contextmanager
def terminal(lines: list[str]):
    """Run the body on a terminal; someone types a line after each prompt, and Ctrl-D at the end.

    Yields a list that holds what was shown when the terminal is closed.
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
    kept = os.dup(0)
    os.dup2(theirs, 0)
    try:
        with (
            pytest.MonkeyPatch.context() as patch,
            os.fdopen(os.dup(theirs), "w", buffering=1) as screen,
            os.fdopen(os.dup(theirs), "w") as out,
        ):
            patch.setattr(sys, "stderr", screen)
            patch.setattr(sys, "stdout", out)
            yield shown
    finally:
        os.dup2(kept, 0)
        os.close(kept)
        os.close(theirs)
        thread.join()
        os.close(ours)


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


def test_predict_interrupt_ends_the_prompts_line(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(predictions, "read_lines", interrupted)
    with terminal([]) as shown:
        assert cli.execute(["predict", "embed", f"--model={MODEL}"]) == cli.INTERRUPTED
    assert "embed> \nerror: interrupted\n" in shown[0].replace("^D\b\b", "")
