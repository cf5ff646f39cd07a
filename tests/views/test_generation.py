"""The generation page: what it holds against `predict generate`."""

from typing import Any

from bert_jax.api import Model
from tests.pages import read_lines
from tests.views.making import read_data, run_inspect

TEXTS = ["the [MASK] sat on [MASK] mat", "", "a dog"]
DRAWN: dict[str, Any] = {"max_tokens": 5, "temperature": 1.5, "top_k": 9, "top_p": 0.9, "seed": 3}
DRAWN |= {"steps": 3, "order": "random"}


def test_page_and_its_tables_have_what_predict_writes(golden, tmp_path):
    """Both take the same flags."""
    output = tmp_path / "p.html"
    words = [f"--text={text}" for text in TEXTS]
    words += [f"--{name.replace('_', '-')}={value}" for name, value in DRAWN.items()]
    assert run_inspect("generation", *words, f"--output={output}") == 0
    drawn = output.read_text()
    texts = read_data(drawn)["texts"]
    rows = Model(golden).generate(TEXTS, **DRAWN, show_steps=True)
    for row, text in zip(rows, texts, strict=True):
        assert (text["final"], text["tokens"]) == (row["text"], row["tokens"])
        for ours, theirs in zip(text["steps"], row["steps"], strict=True):
            wanted = [{**one, "probability": round(one["probability"], 6)} for one in theirs]
            assert ours == wanted
    facts = "2, 5 and 5 masks · 2, 3 and 3 rounds · random places · "
    assert f"{facts}temperature 1.5 · top-k 9 · top-p 0.9 · seed 3" in drawn
    shown = [line for line in read_lines(drawn) if " | level" in line]
    assert shown == [
        f"| {step} | {one['place'] + 1} | token {one['token']} | {one['probability']:.4f} | level"
        for text in texts
        for step, revealed in enumerate(text["steps"], 1)
        for one in sorted(revealed, key=lambda one: one["place"])
    ]
