"""The generation page: what it holds against `predict generate`."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest

from bert_jax.errors import DataError
from bert_jax.interop import runs
from bert_jax.predictors import stream
from bert_jax.predictors.base import Model
from bert_jax.predictors.options import Options
from tests.views.making import FOLDER, GOLDEN, make_page, read_data, run_inspect

TEXTS = ["the [MASK] sat on [MASK] mat", "", "a dog"]
DRAWN: dict[str, Any] = {"max_tokens": 5, "temperature": 1.0, "steps": 3, "order": "random"}


@pytest.fixture(scope="module")
def golden() -> runs.TrainedModel:
    return runs.open_run(str(FOLDER))


def page(run: runs.TrainedModel, texts: list[str], **settings: Any) -> str:
    return make_page("generation", run, *({"text": text} for text in texts), **settings)


@pytest.fixture(scope="module")
def drawn(golden) -> str:
    return page(golden, TEXTS, **DRAWN)


# --- what it holds --------------------------------------------------------------------------------


def test_it_shows_what_predict_writes(golden, drawn):
    model = Model(golden, Options(**DRAWN, show_steps=True))
    for row, text in zip(
        stream.predict(model, "generate", TEXTS), read_data(drawn)["texts"], strict=True
    ):
        assert text["final"] == row["text"]
        assert text["tokens"] == row["tokens"]
        for ours, theirs in zip(text["steps"], row["steps"], strict=True):
            wanted = [{**one, "probability": round(one["probability"], 6)} for one in theirs]
            assert ours == wanted
    facts = "2, 5 and 5 masks · 2, 3 and 3 rounds · random places · temperature 1 · seed 0"
    assert facts in drawn


def test_without_a_script_tables_have_every_choice(drawn):
    tables = re.findall(r'<table class="choices">(.*?)</table>', drawn)
    for table, text in zip(tables, read_data(drawn)["texts"], strict=True):
        cells = re.findall(
            r'<tr><td class="n">(\d+)</td><td class="n">(\d+)</td><td><bdi>(.*?)</bdi></td>'
            r'<td class="n">([\d.]+)</td>',
            table,
        )
        expected = [
            (str(k), str(one["place"] + 1), one["token"], f"{one['probability']:.4f}")
            for k, revealed in enumerate(text["steps"], 1)
            for one in sorted(revealed, key=lambda one: one["place"])
        ]
        assert [(a, b, html.unescape(c), d) for a, b, c, d in cells] == expected


@pytest.mark.fault(18)
def test_markup_in_a_text_stays_text(golden):
    found = page(golden, ["</script><img src=x> & [MASK]", "\u202e \x00 a"], steps=1, max_tokens=3)
    assert found.count("<script") == 2  # the data and the script
    assert not re.search(r"<img|src=[\"']?http|href=|@import|url\(", found.split("<main>")[0])
    assert "<img src=x" not in found
    assert read_data(found)["texts"][1]["text"] == "⟨U+202E⟩ ⟨U+0000⟩ a"


# --- the command ----------------------------------------------------------------------------------


def test_command_takes_the_flags_of_predict(tmp_path, capsys):
    output = tmp_path / "p.html"
    words = ["--text=", "--text=the [MASK]", "--max-tokens=4", "--steps=2", "--order=confident"]
    words += ["--temperature=1.5", "--top-k=9", "--top-p=0.9", "--seed=3", f"--output={output}"]
    assert run_inspect("generation", *words) == 0
    assert capsys.readouterr().out == f"{output}\n"
    found = output.read_text()
    assert [len(text["steps"]) for text in read_data(found)["texts"]] == [2, 1]
    drawn = "the surest places first · temperature 1.5 · top-k 9 · top-p 0.9 · seed 3"
    assert drawn in found


def test_left_to_right_model_has_no_rounds(tmp_path):
    words = ["--text=a", f"--tokenizer={FOLDER / 'vocab.txt'}", f"--output={tmp_path / 'p.html'}"]
    assert run_inspect("generation", *words, model=GOLDEN / "causal_lm") == 2


def test_single_round_has_no_curve(golden):
    once = page(golden, ["the [MASK] sat"], steps=1)
    assert "How sure the model was" not in once
    assert "Every choice" in once
    with pytest.raises(DataError, match="0 texts"):
        page(golden, [])
