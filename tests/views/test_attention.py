"""The attention page: its numbers against attention written out in float64, and its command."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from bert_jax.errors import DataError
from bert_jax.interop import runs
from bert_jax.views import attention
from bert_jax.views.document import make_visible
from tests import reference
from tests.views.making import (
    CAT,
    DOG,
    FOLDER,
    GOLDEN,
    make_page,
    read_data,
    read_weights,
    run_inspect,
)


@pytest.fixture(scope="module")
def golden() -> runs.TrainedModel:
    return runs.open_run(str(FOLDER))


@pytest.fixture(scope="module")
def causal() -> runs.TrainedModel:
    return runs.open_run(str(GOLDEN / "causal_lm"), tokenizer=str(FOLDER / "vocab.txt"))


def check_weights(found: np.ndarray, wanted: np.ndarray) -> None:
    """Their roots are rounded to bytes."""
    np.testing.assert_allclose(np.sqrt(found), np.sqrt(wanted), atol=0.5 / 255 + 1e-6)


def read_table(page: str, name: str) -> np.ndarray:
    """The numbers of a table of heads [layers, heads]."""
    table = re.search(rf'data-name="{name}">(.*?)</table>', page)[1]
    lines = re.findall(r"<tr><th scope=row>.*?</tr>", table)
    return np.array([[float(x) for x in re.findall(r">([\d.]+)</td>", line)] for line in lines])


def write_out(run: runs.TrainedModel, row: dict[str, str], mask=None) -> np.ndarray:
    """Attention of one row [layers, heads, n, n] in float64, head by head; `mask` says who sees
    whom, by layer.
    """
    special = run.tokenizer.special
    parts = run.tokenizer.encode_batch(list(row.values()), escape=False)
    tokens = [special.cls, *(i for part in parts for i in (*part, special.sep))]
    types = [0] * (len(parts[0]) + 2) + [1] * (len(tokens) - len(parts[0]) - 2)
    params = reference.widen(run.params["encoder"])
    e, n, heads = params["embeddings"], len(tokens), run.config.model.heads
    x = reference.norm(e["token"][tokens] + e["type"][types] + e["position"][:n], e["norm"])
    found = []
    for i in range(run.config.model.layers):
        layer, outs, ours = params[f"layer_{i}"], [], []
        for h in range(heads):
            q, k, v = (
                x @ layer["attention"][name]["kernel"][:, h] + layer["attention"][name]["bias"][h]
                for name in ("query", "key", "value")
            )
            scores = q @ k.T / math.sqrt(q.shape[-1])
            if mask is not None:
                scores[~mask(i, n)] = -np.inf
            ours.append(reference.softmax(scores))
            outs.append(ours[-1] @ v @ layer["attention"]["out"]["kernel"][h])
        x = reference.norm(
            x + sum(outs) + layer["attention"]["out"]["bias"], layer["attention_norm"]
        )
        mlp = reference.dense(
            reference.gelu(reference.dense(x, layer["mlp"]["up"])), layer["mlp"]["down"]
        )
        x = reference.norm(x + mlp, layer["mlp_norm"])
        found.append(ours)
    return np.array(found)


def lower(_layer: int, n: int) -> np.ndarray:
    return np.tri(n, dtype=bool)


# --- numbers --------------------------------------------------------------------------------------


def test_weights_of_padded_texts_and_pairs_are_right(golden):
    data = read_data(make_page("attention", golden, CAT, DOG))  # DOG is padded to the length of CAT
    assert len(data["texts"][0]["tokens"]) > len(data["texts"][1]["tokens"]) == 6
    for i, row in enumerate((CAT, DOG)):
        wanted = write_out(golden, row)
        check_weights(read_weights(data, i)[:, :-1], wanted)
        assert wanted.std() > 0.05  # attention alike everywhere would hide an error
    alone = read_data(make_page("attention", golden, DOG))
    check_weights(read_weights(alone), read_weights(data, 1))
    assert data["texts"][0]["tokens"][:3] == ["[CLS]", "the", "cat"]
    assert data["texts"][0]["segments"] == [0] * 8 + [1] * 4
    assert data["texts"][0]["special"] == [i in (0, 7, 11) for i in range(12)]


def test_weights_of_a_causal_model_are_right(causal):
    data = read_data(make_page("attention", causal, CAT, DOG))
    assert data["causal"]
    for i, row in enumerate((CAT, DOG)):
        ours = read_weights(data, i)
        check_weights(ours[:, :-1], write_out(causal, row, lower))
        assert not ours[..., ~lower(0, ours.shape[-1])].any()


def test_rollout_entropy_and_distance_are_right(golden, causal):
    for run, mask in ((golden, None), (causal, lower)):
        found = make_page("attention", run, CAT)
        weights = write_out(run, CAT, mask)
        n, rolled = weights.shape[-1], np.eye(weights.shape[-1])
        for layer, ours in zip(weights, read_weights(read_data(found))[:, -1], strict=True):
            rolled = (0.5 * layer.mean(0) + 0.5 * np.eye(n)) @ rolled
            check_weights(ours, rolled)
        entropy, distance = (read_table(found, name) for name in ("entropy", "distance"))
        for layer, head in np.ndindex(2, 2):
            p = weights[layer, head]
            each = [-sum(x * math.log(x) for x in row if x) for row in p]
            assert entropy[layer, head] == pytest.approx(sum(each) / n, abs=6e-4)
            each = [sum(p[i, j] * abs(i - j) for j in range(n)) for i in range(n)]
            assert distance[layer, head] == pytest.approx(sum(each) / n, abs=6e-4)


def test_attention_equals_that_of_transformers():
    """The same formula as `write_out`, by another hand: rows of 12, 9 and 4 tokens, padded."""
    theirs = np.load(GOLDEN / "model" / "outputs.npz")
    run = runs.open_run(str(GOLDEN / "model"), tokenizer=str(FOLDER / "vocab.txt"))
    ids, types, mask = (
        theirs[name].astype(np.int32) for name in ("input_ids", "token_type_ids", "attention_mask")
    )
    batch = {
        "tokens": ids,
        "type_ids": types,
        "segment_ids": mask,
        "cls_positions": np.zeros((3, 1), np.int32),
    }
    batch["positions"] = np.arange(12, dtype=np.int32)[None] * mask
    for i, ours in enumerate(attention.compute_attention(run, batch)):
        n = mask[i].sum()
        assert np.abs(ours - theirs["attentions"][:, i, :, :n, :n]).max() <= 1e-5


# --- text is text ---------------------------------------------------------------------------------

HOSTILE = {
    "text": "</script><script>document.title='taken'</script><img src=x "
    "onerror=\"document.title='taken'\"> & 😀👩‍👧",
    "text_pair": "مرحبا שלום\u202e evil \x00\x07\x1b[31m ]]> <!-- {{x}} \udc80",
}


@pytest.mark.fault(18)
def test_markup_in_a_text_stays_text(golden):
    found = make_page("attention", golden, HOSTILE, long="cut")
    assert found.count("<script") == 2  # our data and our script
    assert "<img" not in found
    stated = read_data(found)["texts"][0]["text"]
    assert stated[0] == HOSTILE["text"]
    assert stated[1].startswith("مرحبا שלום⟨U+202E⟩ evil ⟨U+0000⟩⟨U+0007⟩⟨U+001B⟩[31m ]]> <!--")


def test_controls_are_shown_and_joiners_kept():
    assert (
        make_visible("a\tb\n\x00\x7f\u200f👩\u200d👧é") == "a⇥b↵⟨U+0000⟩⟨U+007F⟩⟨U+200F⟩👩\u200d👧é"
    )


# --- the command ----------------------------------------------------------------------------------


def test_command_writes_the_page_and_says_where(tmp_path, capsys, monkeypatch):
    output = tmp_path / "a" / "p.html"
    words = ["--text=the cat", "--text=a dog", "--text-pair=it sat", f"--output={output}"]
    assert run_inspect("attention", *words) == 0
    assert capsys.readouterr() == (f"{output}\n", "")
    assert [file.name for file in output.parent.iterdir()] == ["p.html"]
    found = [text["text"] for text in read_data(output.read_text())["texts"]]
    assert found == [["the cat", "it sat"], ["a dog"]]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert run_inspect("attention", *words) == 0
    said = rf"The page is {re.escape(str(output))} \(\d+ kB\): open it in a browser\.\n"
    assert re.fullmatch(said, capsys.readouterr().out)


@pytest.mark.fault(15)
def test_long_text_is_refused_or_cut(golden):
    with pytest.raises(DataError, match="line 1: 92 tokens"):
        make_page("attention", golden, {"text": "cat " * 90})
    page = make_page("attention", golden, {"text": "cat " * 90}, long="cut")
    assert read_data(page)["texts"][0]["tokens"] == ["[CLS]", *["cat"] * 22, "[SEP]"]
    assert "text 1 is cut" in page


def test_more_weights_than_a_page_takes_are_refused(golden, monkeypatch):
    monkeypatch.setattr(attention, "MOST", 100)
    with pytest.raises(DataError, match="576 weights in 2 layers of 2 heads; a page takes 100"):
        make_page("attention", golden, CAT)


def test_no_text_is_an_error(tmp_path):
    (tmp_path / "in.txt").write_text("\n \n")
    output = f"--output={tmp_path / 'p.html'}"
    assert run_inspect("attention", f"--input={tmp_path / 'in.txt'}", output) == 3
    assert run_inspect("attention", output) == 2
