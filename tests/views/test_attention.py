"""The attention page: its numbers against those of the model, and its command."""

import math
import re

import numpy as np
import pytest

from bert_jax.api import Model
from bert_jax.errors import DataError
from bert_jax.views import attention
from tests.predictors.drawing import open_golden
from tests.views.making import CAT, DOG, make_page, read_data, read_weights, run_inspect


def check_weights(found: np.ndarray, wanted: np.ndarray) -> None:
    """Their roots are rounded to bytes."""
    np.testing.assert_allclose(np.sqrt(found), np.sqrt(wanted), atol=0.5 / 255 + 1e-6)


def read_table(page: str, name: str) -> np.ndarray:
    """Read the numbers of the first table of heads [layers, heads]."""
    table = re.search(rf"<h2>{name} of each head.*?(<table>.*?)</table>", page, re.DOTALL)[1]
    lines = re.findall(r'<tr><th scope="row">.*?</tr>', table)
    found = np.array([[float(x) for x in re.findall(r">([\d.]+)</td>", line)] for line in lines])
    assert table.partition("</tr>")[0].count("</th>") == 1 + found.shape[1]
    return found


@pytest.mark.parametrize("name", ["pretraining", "causal_lm"])
def test_numbers_follow_from_the_attention(name):
    """Weights, rollout, entropy and distance; the second text is padded like the first one.

    Tokens have their segments.
    """
    run, causal = open_golden(name), name == "causal_lm"
    page = make_page("attention", run, CAT, DOG)
    data = read_data(page)
    assert data["causal"] == causal
    pair = data["texts"][0]
    assert pair["tokens"][:3] == ["[CLS]", "the", "cat"]
    assert pair["segments"] == [0] * 8 + [1] * 4
    assert pair["special"] == [i in (0, 7, 11) for i in range(12)]
    attention = Model(run).attention([tuple(CAT.values()), DOG["text"]])
    for text, wanted in enumerate(attention):
        ours = read_weights(data, text)
        n = wanted.shape[-1]
        assert n == (6 if text else 12)
        assert wanted.std() > 0.05  # attention alike everywhere would hide an error
        check_weights(ours[:, :-1], wanted)
        assert not (causal and ours[..., ~np.tri(n, dtype=bool)].any())
        rolled = np.eye(n)
        for layer, rollout in zip(wanted, ours[:, -1], strict=True):
            rolled = (0.5 * layer.mean(0) + 0.5 * np.eye(n)) @ rolled
            check_weights(rollout, rolled)
    entropy, distance = (read_table(page, name) for name in ("Entropy", "Mean distance"))
    for layer, head in np.ndindex(2, 2):
        p = attention[0][layer, head].astype(float)
        nats = [-sum(x * math.log(x) for x in row if x) for row in p]
        away = [sum(x * abs(i - j) for j, x in enumerate(row)) for i, row in enumerate(p)]
        assert entropy[layer, head] == pytest.approx(np.mean(nats), abs=6e-4)
        assert distance[layer, head] == pytest.approx(np.mean(away), abs=6e-4)


def test_command_shows_several_texts_and_pairs(tmp_path, capsys, monkeypatch):
    output = tmp_path / "a" / "p.html"
    words = ["--text=the cat", "--text=a dog", "--text-pair=it sat", f"--output={output}"]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert run_inspect("attention", *words) == 0
    assert f"The page is {output} (" in capsys.readouterr().out
    found = [text["text"] for text in read_data(output.read_text())["texts"]]
    assert found == [["the cat", "it sat"], ["a dog"]]


@pytest.mark.fault(15)
def test_long_text_is_cut_where_asked(golden):
    pair = {"text": "cat " * 90, "text_pair": "dog " * 90}
    page = make_page("attention", golden, {"text": "cat " * 90}, pair, long="cut")
    one, two = (text["tokens"] for text in read_data(page)["texts"])
    assert one == ["[CLS]", *["cat"] * 22, "[SEP]"]
    assert (two.count("cat"), two.count("dog")) == (10, 11)
    assert "text 1 is cut" in page


def test_more_weights_than_a_page_takes_are_refused(golden, monkeypatch):
    monkeypatch.setattr(attention, "MOST", 2 * 2 * 12 * 12)
    make_page("attention", golden, CAT)
    monkeypatch.setattr(attention, "MOST", 2 * 2 * 12 * 12 - 1)
    with pytest.raises(DataError, match="576 weights"):
        make_page("attention", golden, CAT)
