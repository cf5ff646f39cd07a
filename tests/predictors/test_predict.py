"""The command `predict` for people; its transcript has the rest."""

import io
import sys
from unittest import mock

from bert_jax import cli, predict
from bert_jax.predictors import labelled, texts
from bert_jax.predictors import stream as predictions
from tests.predictors.drawing import GOLDEN


def test_many_labels_and_numbers_are_cut():
    labels = {"text": "a", "probabilities": {str(n): n / 100 for n in range(23)}}
    shown = predict.write_readable(object.__new__(labelled.Classify), labels, True)
    _, first, *_, last = shown.splitlines()
    assert (first, last) == ("  22   22.0 %", "  and 3 more labels")
    vector = {"text": "a", "embedding": [3.0, 4.0]}
    shown = predict.write_readable(object.__new__(texts.Embed), vector, False)
    assert shown == "  2 numbers of length 5.000: 3.000 4.000 … (all with --format=json)"


def test_predict_asks_and_answers_on_a_terminal(monkeypatch):
    """An answer is shown before the next prompt: it is not left in a buffer."""
    lines = [b"the [MASK] sat", b"the <mask>", b'{"text": 7}', b""]
    screen = io.BytesIO()
    for name in ("stdout", "stderr"):
        stream = io.TextIOWrapper(screen, write_through=name == "stderr")
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
        monkeypatch.setattr(sys, name, stream)
    monkeypatch.setattr("os.isatty", lambda descriptor: True)
    monkeypatch.setattr(predictions, "read_lines", lambda *_: ([line] for line in lines))
    model = GOLDEN / "pretraining"
    assert cli.execute(["predict", "fill-mask", f"--model={model}", "--top-k=2"]) == 0
    begun, *answers, end = screen.getvalue().decode().split("fill-mask> ")
    assert begun.endswith("Ctrl-D ends\n")
    assert (answers[0].count(" %\n"), end) == (2, "\n")
    no_mask = "  no [MASK] in this text: write [MASK] where a token is missing\n"
    assert answers[1] == answers[3] == no_mask
    said = "warning: line 3: Expected `str | null`, got `int` - at `$.text`; left out\n"
    assert answers[2] == said


def test_bar_is_beside_results_in_a_file(monkeypatch, tmp_path):
    monkeypatch.setattr("tqdm.tqdm", made := mock.MagicMock())
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    (tmp_path / "a").write_text("the [MASK]")
    words = [f"--model={GOLDEN / 'pretraining'}", f"--input={tmp_path / 'a'}"]
    assert cli.execute(["predict", "fill-mask", *words]) == 0
    assert made.call_args.kwargs["disable"] is False
