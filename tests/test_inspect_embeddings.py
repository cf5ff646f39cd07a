"""`bert-jax inspect embeddings`: its numbers against other ways to them, its page in a parser and
in a browser.
"""

from __future__ import annotations

import base64
import html.parser
import importlib
import json
import re
import struct
import subprocess
import sys
import types
import zipfile
import zlib
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from bert_jax import cli, inspect
from bert_jax.errors import ConfigError, DataError
from bert_jax.interop import runs
from bert_jax.models.encoder import read_layers
from bert_jax.models.positions import make_sinusoids
from bert_jax.predictors import stream
from bert_jax.predictors.base import Model, OfText, Options, Row
from bert_jax.views import embeddings, pictures, vectors
from bert_jax.views.tables import spread, tables
from bert_jax.views.texts import Labelled
from tests import chromium, families, toy, variants

GOLDEN = variants.GOLDEN / "huggingface" / "pretraining"  # 2 layers of 16, 47 pieces, 24 positions
TEXTS = ["the cat sat", "a big dog", "the dog walked", "a mat", "jumping"]


@pytest.fixture(scope="module")
def run() -> runs.TrainedModel:
    return runs.open_run(str(GOLDEN))


def asked(run: runs.TrainedModel, long: str = "refuse") -> OfText:
    return OfText(Model(run, Options(long=long)))


def rows(texts: list[str]) -> list[Row]:
    return [Row(i, {"text": text}) for i, text in enumerate(texts, 1)]


def made(run: runs.TrainedModel, texts: list[str], **options: Any) -> str:
    return embeddings.page(asked(run), rows(texts), **options)


@pytest.fixture(scope="module")
def page(run) -> str:
    return made(run, TEXTS)


def data_of(page: str) -> dict[str, Any]:
    return json.loads(
        re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1]
    )


def unpacked(text: str, dtype: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype)


class Seen(html.parser.HTMLParser):
    """Tags with their attributes, and the text of each table cell and of each script."""

    def __init__(self, page: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.cells: list[str] = []
        self.scripts: list[str] = []
        self.inside = False  # a cell
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag in ("td", "th"):
            self.cells.append("")
            self.inside = True
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self.tags and self.tags[-1][0] == "script":
            self.scripts[-1] += data
        elif self.inside:
            self.cells[-1] += data

    def handle_endtag(self, tag):
        self.inside = self.inside and tag not in ("td", "th")


# --- vectors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_the_last_layer_is_what_predict_embed_writes(run, pooling):
    theirs = list(stream.predict(Model(run, Options(pooling=pooling)), "embed", TEXTS))
    points = vectors.points(asked(run), rows(TEXTS))
    mine = points.vectors[-1, points.poolings.index(pooling)]
    np.testing.assert_allclose(mine, [row["embedding"] for row in theirs], atol=2e-6)


@pytest.mark.slow
def test_tokens_of_narrower_tables_are_shown_in_the_width_of_the_layers(tmp_path):
    folder = families.folder(tmp_path, "electra", "masked_lm")
    opened = runs.open_run(str(families.vocabulary(folder, "electra")))
    encoder = opened.params["encoder"]
    found = vectors.points(asked(opened), rows(["w5 w6", "w7", "w8 w9"])).vectors[0]
    ids = [families.CLS, 7, families.SEP]
    expected = encoder["embeddings"]["token"][np.array(ids)] @ encoder["projection"]["kernel"]
    np.testing.assert_allclose(found[1, 1], expected.mean(0), atol=1e-5)
    assert "layers of 8" in made(opened, ["w5 w6", "w7", "w8 w9"])


def test_every_layer_is_the_mean_one_takes_by_hand(run):
    """A text at a time, without padding; the first two stages from the tables alone."""
    parts = jax.tree.map(np.asarray, run.params["encoder"]["embeddings"])
    size = run.tokenizer.size
    layers_of = jax.jit(lambda params, b: read_layers(run.config.model, size, params, b).hidden)
    points = vectors.points(asked(run), rows(TEXTS))
    assert points.vectors.shape == (4, 3, len(TEXTS), 16)
    for i, text in enumerate(TEXTS):
        ids = [
            run.tokenizer.special.cls,
            *run.tokenizer.encode_batch([text])[0],
            run.tokenizer.special.sep,
        ]
        given = parts["token"][ids]
        summed = given + parts["type"][0] + parts["position"][: len(ids)]
        centred = summed - summed.mean(1, keepdims=True)
        scaled = centred / np.sqrt(
            (centred**2).mean(1, keepdims=True) + run.config.model.norm_epsilon
        )
        first = scaled * parts["norm"]["scale"] + parts["norm"]["bias"]
        batch = asked(run).batch([[ids[1:-1]]], len(ids), 1)
        for layer, every in enumerate(
            [given, first, *np.asarray(layers_of(run.params["encoder"], batch))[1:, 0]]
        ):
            expected = [every[1:-1].mean(0), every.mean(0), every[0]]
            np.testing.assert_allclose(points.vectors[layer, :, i], expected, atol=2e-6)


def test_a_word_is_the_mean_of_its_pieces(run):
    texts = ["The  walked zzz", "a bigger dog"]
    points = vectors.points(asked(run), rows(texts), words=True)
    assert [
        texts[row].split()[k] for row, k in zip(points.rows, [0, 1, 2, 0, 1, 2], strict=True)
    ] == points.names
    assert max(map(len, points.pieces)) > 1, "no word of several pieces: nothing is tested"
    table = np.asarray(run.params["encoder"]["embeddings"]["token"])
    for at, ids in enumerate(points.pieces):
        np.testing.assert_allclose(points.vectors[0, 0, at], table[ids].mean(0), atol=1e-6)
    whole = vectors.points(asked(run), rows([*texts, "a"]))
    mean = np.average(
        points.vectors[-1, 0, :3], axis=0, weights=[len(ids) for ids in points.pieces[:3]]
    )
    np.testing.assert_allclose(mean, whole.vectors[-1, 0, 0], atol=2e-6)


def test_batches_change_nothing(run, monkeypatch):
    expected = vectors.points(asked(run), rows(TEXTS)).vectors
    monkeypatch.setattr(vectors, "ROWS", 1)
    np.testing.assert_allclose(vectors.points(asked(run), rows(TEXTS)).vectors, expected, atol=2e-6)


@pytest.mark.parametrize("shape", [(6, 20), (40, 5)])
def test_pca_is_numpys_svd(shape):
    data = np.random.default_rng(0).normal(size=shape) * np.arange(1, shape[1] + 1)
    places, shares = vectors.pca(data.astype(np.float32))
    left, sizes, _ = np.linalg.svd(data - data.mean(0), full_matrices=False)
    expected = left[:, :2] * sizes[:2]
    for axis in (0, 1):
        assert abs(places[:, axis]).max() == places[:, axis].max()
        sign = np.sign(expected[abs(expected[:, axis]).argmax(), axis])
        np.testing.assert_allclose(places[:, axis], sign * expected[:, axis], atol=1e-4)
    np.testing.assert_allclose(shares, sizes[:2] ** 2 / (sizes**2).sum(), rtol=1e-5)
    np.testing.assert_allclose(vectors.pca(-data.astype(np.float32))[1], shares, rtol=1e-6)


def test_points_that_are_one_vector_lie_in_one_place(run):
    points = vectors.points(asked(run), rows(TEXTS))
    for layer, same in ((0, True), (1, True), (2, False)):  # [CLS] sees the text in the first layer
        assert vectors.alike(points.vectors[layer, 2]) == same
        places, shares = vectors.project(points.vectors[layer, 2], "pca")
        assert (shares is None) == same == (not places.any())


def test_the_nearest_are_those_of_sorting_all():
    random = np.random.default_rng(1)
    some, table = (
        random.normal(size=(300, 8)).astype(np.float32),
        random.normal(size=(90, 8)).astype(np.float32),
    )
    some[3] = table[5] = 0
    barred = [[int(i)] if i < 80 else [1, 2] for i in range(300)]
    ids, cosines = vectors.nearest(vectors.unit(some), vectors.unit(table), 4, barred)
    for i in range(300):
        norms = np.linalg.norm(some[i]) * np.linalg.norm(table, axis=1)
        every = np.where(norms > 0, table @ some[i] / np.where(norms > 0, norms, 1), 0)
        every[barred[i]] = -2
        np.testing.assert_allclose(cosines[i], np.sort(every)[::-1][:4], atol=1e-6)
        np.testing.assert_allclose(every[ids[i]], cosines[i], atol=1e-6)
    assert vectors.nearest(vectors.unit(some), vectors.unit(table), 100, barred)[0].shape == (
        300,
        88,
    )


# --- the page -------------------------------------------------------------------------------------


def test_the_numbers_of_every_view_are_on_the_page(run, page):
    data, points = data_of(page), vectors.points(asked(run), rows(TEXTS))
    assert data["names"] == TEXTS
    assert data["start"] == [3, 0]
    assert len(data["views"]) == 4 * 3
    table = np.asarray(run.params["encoder"]["embeddings"]["token"])[: run.tokenizer.size].astype(
        np.float64
    )
    for key, view in data["views"].items():
        layer, pool = map(int, key.split())
        mine = points.vectors[layer, pool].astype(np.float64)
        lengths = np.linalg.norm(mine, axis=1)
        cosines = mine @ mine.T / lengths[:, None] / lengths
        np.testing.assert_allclose(
            unpacked(view["cosines"], "<f4"), cosines[np.triu_indices(5, 1)], atol=1e-5
        )
        count, ids, near = view["near"]
        ids, near = (
            unpacked(ids, "<u2").reshape(5, count),
            unpacked(near, "<i2").reshape(5, count) / 1e4,
        )
        assert count == 4
        np.testing.assert_allclose(np.take_along_axis(cosines, ids.astype(int), 1), near, atol=1e-4)
        np.testing.assert_allclose(near, -np.sort(-(cosines - 9 * np.eye(5)), 1)[:, :4], atol=1e-4)
        count, ids, near = view["words"]
        ids, near = (
            unpacked(ids, "<u2").reshape(5, count),
            unpacked(near, "<i2").reshape(5, count) / 1e4,
        )
        for i in range(5):
            pieces = [run.tokenizer.vocab.index(data["vocabulary"][k]) for k in ids[i]]
            every = table @ mine[i] / lengths[i] / np.linalg.norm(table, axis=1)
            assert not {*pieces} & {*run.tokenizer.special, *points.pieces[i]}
            every[[*run.tokenizer.special, *points.pieces[i]]] = -2
            np.testing.assert_allclose(near[i], np.sort(every)[::-1][:count], atol=1e-4)
            np.testing.assert_allclose(every[pieces], near[i], atol=1e-4)
        places = unpacked(view["xy"], "<f4").reshape(5, 2)
        np.testing.assert_allclose(
            places, vectors.project(mine.astype(np.float32), "pca")[0], atol=1e-4
        )


def test_neighbours_and_cosines_need_no_script(run, page):
    cells, data = Seen(page).cells, data_of(page)
    points = vectors.points(asked(run), rows(TEXTS))
    one = vectors.unit(points.vectors[3, 0])
    cosines = one @ one.T
    for i, text in enumerate(TEXTS):
        at = cells.index(text)
        assert cells[at - 1] == str(i + 1)
        assert cells[at + 1] == str(len(points.pieces[i]))
        best = [k for k in np.argsort(-cosines[i]) if k != i]
        assert cells[at + 2] == "".join(f"{TEXTS[k]} {k + 1} {cosines[i, k]:z.3f}" for k in best)
        known, _, near = data["views"]["3 0"]["words"]
        near = unpacked(near, "<i2").reshape(5, known) / 1e4
        shown = re.findall(r"-?\d\.\d{3}", cells[at + 3])
        assert [float(cosine) for cosine in shown] == pytest.approx(
            [cosine for cosine in near[i] if cosine >= data["least"]], abs=1e-3
        )
        row = cells.index(f"{i + 1} {text}")
        assert cells[row + 1 : row + 6] == [f"{c:z.2f}" for c in cosines[i]]


def test_neighbours_in_the_vocabulary_no_nearer_than_chance_are_left_out(run, page, monkeypatch):
    least = vectors.chance(run.tokenizer.size, run.config.model.hidden)
    assert data_of(page)["least"] == least
    assert f"cosines below {least:.3f} are left out" in page
    rng = np.random.default_rng(0)
    table, drawn = (vectors.unit(rng.normal(size=(n, 128))) for n in (8000, 2000))
    reached = (drawn @ table.T).max(1) >= vectors.chance(8000, 128)
    assert reached.mean() == pytest.approx(vectors.RARE, abs=0.02)
    monkeypatch.setattr(vectors, "chance", lambda count, width: -1.0)
    everything = Seen(made(run, TEXTS)).cells
    at = everything.index(TEXTS[0])
    assert len(re.findall(r"-?\d\.\d{3}", everything[at + 3])) == 5


def test_the_first_view_is_what_was_asked_for(run):
    for layer, pooling, start in (
        ("input", "cls", [0, 2]),
        ("0", "", [1, 0]),
        ("2", "mean", [3, 1]),
    ):
        page = made(run, TEXTS, layer=layer, pooling=pooling, neighbours=2)
        data = data_of(page)
        assert data["start"] == start
        assert {view["near"][0] for view in data["views"].values()} == {2}
        chosen = [
            tag["value"] for name, tag in Seen(page).tags if name == "option" and "selected" in tag
        ]
        assert chosen == [str(number) for number in start]
    own = run.meta | {"sentence": {"pooling": "mean"}}
    assert data_of(made(toy.replace(run, meta=own), TEXTS))["start"] == [3, 1]


def test_words_are_told_apart_by_their_texts(run):
    data = data_of(made(run, ["the cat", "the dog"], points="words"))
    assert data["names"] == ["the₁", "cat₁", "the₂", "dog₂"]
    assert data["texts"] == ["the cat", "the dog"]
    assert data["rows"] == [0, 0, 1, 1]
    assert data["places"] == ["1:1", "1:2", "2:1", "2:2"]
    assert data_of(made(run, TEXTS))["places"] == ["1", "2", "3", "4", "5"]


def test_punctuation_is_known_and_neighbours_without_it_are_those_of_the_words(run):
    texts = ["the cat , the dog .", "a mat ?"]
    data = data_of(made(run, texts, points="words", neighbours=3))
    assert data["names"][2] == ",₁"
    assert data["punctuation"] == [2, 5, 8]
    one = vectors.unit(vectors.points(asked(run), rows(texts), words=True).vectors[3, 0])
    cosines = one @ one.T - 9 * np.eye(9)
    for key, barred in (("near", []), ("plain", [2, 5, 8])):
        cosines[:, barred] = -9
        count, ids, near = data["views"]["3 0"][key]
        assert count == 3
        ids = unpacked(ids, "<u2").reshape(9, 3).astype(int)
        np.testing.assert_allclose(
            unpacked(near, "<i2").reshape(9, 3) / 1e4, -np.sort(-cosines, 1)[:, :3], atol=1e-4
        )
        np.testing.assert_allclose(
            np.take_along_axis(cosines, ids, 1), -np.sort(-cosines, 1)[:, :3], atol=1e-4
        )
    for bare in (["the cat", "a dog"], ["the cat . . .", "."]):  # none, and nothing besides
        data = data_of(made(run, bare, points="words"))
        assert data["punctuation"] == []
        assert "plain" not in data["views"]["3 0"]


def test_labels_of_json_lines_are_on_the_page_and_others_are_refused(run):
    reader = Labelled(Model(run, Options()))
    lines = ['{"text": "the cat", "label": "x"}', '{"text": "a dog", "label": 3}', "mat"]
    read = [reader.read(n, line) for n, line in enumerate(lines, 1)]
    assert data_of(embeddings.page(reader, read))["labels"] == ["x", "3", None]
    with pytest.raises(DataError, match="line 7: label is a list"):
        reader.read(7, '{"text": "the cat", "label": []}')


def test_a_page_states_the_settings_of_its_projection(run, monkeypatch, capsys):
    monkeypatch.setattr(embeddings, "PAUSE", 0.0)
    monkeypatch.setattr(embeddings, "SLOW", 0)  # one view
    page = made(run, TEXTS, method="tsne", layer="1")
    assert data_of(page)["how"] == "t-SNE, perplexity 1.333, seed 0"
    assert '<figcaption id="map-name">t-SNE, perplexity 1.333, seed 0</figcaption>' in page
    assert vectors.settings("tsne", 2000) == {"perplexity": 30.0, "seed": 0}
    assert vectors.settings("umap", 2000) == {"neighbours": 15, "seed": 0}
    out, err = capsys.readouterr()
    assert out == ""  # scikit-learn prints there how far it is
    assert "t-SNE of 5 points, view 1 of 1: iteration 250 of 1,000\n" in err
    assert "view 1 of 1: iteration 300 of 1,000\n" in err


NASTY = [
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(2)>&<!--",
    "&amp; \"quoted\" 'too'",
    "مرحبا بالعالم",
    "שלום (עולם) 12",
    "\u202ereversed\u2066 the\x00 rest",
    "👩‍👩‍👧‍👦 cat 🎉",
    "lone \ud800 surrogate",
    "a b\u2028c",
]


def test_whatever_a_text_holds_is_text(run):
    page = made(run, NASTY)
    page.encode()
    data, seen = data_of(page), Seen(page)
    assert data["names"][:5] == NASTY[:5]
    assert data["names"][5:] == ["reversed  the  rest", NASTY[6], "lone   surrogate", NASTY[8]]
    assert [tag for tag, _ in seen.tags].count("script") == 3
    assert not any("onerror" in attributes for _, attributes in seen.tags)
    assert all(name in seen.cells for name in data["names"])
    assert not any(mark in page for mark in ("\u202e", "\u2066r", "\x00"))
    assert "<" not in seen.scripts[0]
    assert "\u2028" not in seen.scripts[0]
    bdi = [attributes for tag, attributes in seen.tags if tag == "bdi"]
    assert len(bdi) > len(NASTY)


def test_the_page_needs_nothing_beside_itself(page):
    seen = Seen(page)
    for tag, attributes in seen.tags:
        assert tag not in ("link", "iframe", "object")
        for name in ("src", "href"):
            assert (attributes.get(name) or "data:").startswith(("data:", "#"))
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page)
    assert "url(" not in page


def test_a_text_as_long_as_the_model_takes(run):
    embedded = run.params["encoder"]["embeddings"]
    embedded = embedded | {"position": np.resize(embedded["position"], (512, 16))}
    config = toy.replace(
        run.config, sequence_length=512, model=toy.replace(run.config.model, max_positions=512)
    )
    run = toy.replace(
        run, config=config, params={"encoder": run.params["encoder"] | {"embeddings": embedded}}
    )
    long = " ".join(["the cat sat"] * 170)  # 510 tokens, and two
    data = data_of(made(run, [long, "the cat", "a dog"]))
    assert data["tokens"] == [510, 2, 2]
    assert data["names"][0] == long
    assert len(data["texts"][0]) <= embeddings.SHOWN + 1
    with pytest.raises(DataError, match="line 1: 513 tokens"):
        made(run, [f"{long} a", "the cat", "a dog"])
    page = embeddings.page(asked(run, "cut"), rows([f"{long} a", "the cat", "a dog"]))
    assert "1 cut to 512 tokens" in page
    assert data_of(page)["tokens"] == [510, 2, 2]
    assert data_of(page)["views"] == data["views"]


def test_many_points_have_no_table_and_too_many_no_page(run, monkeypatch):
    monkeypatch.setattr(embeddings, "TABLE", 4)
    page = made(run, TEXTS)
    views = data_of(page)["views"]
    assert not any("cosines" in view for view in views.values())
    assert sorted(key for key, view in views.items() if "words" in view) == ["0 0", "0 1", "0 2"]
    assert "at most 4 points; these are 5" in page
    monkeypatch.setattr(vectors, "MOST", 4)
    with pytest.raises(DataError, match="5 points, and a page holds 4"):
        made(run, TEXTS)


# --- other ways onto a plane ----------------------------------------------------------------------


def test_tsne_places_like_beside_like():
    random = np.random.default_rng(0)
    groups = np.repeat(np.eye(2, 10) * 5, 8, axis=0) + random.normal(size=(16, 10)) * 0.1
    places, shares = vectors.project(groups.astype(np.float32), "tsne")
    assert shares is None
    np.testing.assert_array_equal(places, vectors.project(groups.astype(np.float32), "tsne")[0])
    distances = np.linalg.norm(places[:, None] - places[None], axis=-1) + np.eye(16) * 1e9
    assert (distances.argmin(1) // 8 == np.arange(16) // 8).all()


def test_umap_is_asked_for_a_plane_that_repeats(run, monkeypatch):
    calls = []

    class Umap:
        def __init__(self, **settings):
            calls.append(settings)

        def fit_transform(self, given):
            np.testing.assert_allclose(np.linalg.norm(given, axis=1), 1, atol=1e-6)
            return given[:, :2]

    monkeypatch.setitem(
        sys.modules, "umap", types.SimpleNamespace(UMAP=Umap, __spec__=types.SimpleNamespace())
    )
    data = data_of(made(run, TEXTS, method="umap"))
    assert data["method"] == "UMAP"
    assert all(call["n_neighbors"] == 4 and call["random_state"] == 0 for call in calls)
    assert len(calls) == 12 - 2  # [CLS] is one vector at the input and in layer 0
    one = vectors.unit(vectors.points(asked(run), rows(TEXTS)).vectors[3, 0])
    np.testing.assert_allclose(
        unpacked(data["views"]["3 0"]["xy"], "<f4").reshape(5, 2), one[:, :2], atol=1e-5
    )


def test_what_is_slow_is_made_of_one_view(run, monkeypatch, capsys):
    monkeypatch.setattr(embeddings, "SLOW", 59)
    data = data_of(made(run, TEXTS, method="tsne", layer="1"))
    assert list(data["views"]) == ["2 0"]
    said = capsys.readouterr().err
    assert "this layer alone" in said
    assert "t-SNE of 5 points, view 1 of 1" in said
    monkeypatch.setattr(embeddings, "SLOW", 0)
    assert len(data_of(made(run, TEXTS))["views"]) == 12


# --- tables as pictures ---------------------------------------------------------------------------


def pixels(png: bytes) -> np.ndarray:
    """Red, green, blue and alpha of an 8-bit palette PNG without filters [H, W, 4]."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(png):
        size, kind = struct.unpack(">I4s", png[at : at + 8])
        chunks[kind] = png[at + 8 : at + 8 + size]
        assert struct.unpack(">I", png[at + 8 + size : at + 12 + size])[0] == zlib.crc32(
            kind + chunks[kind]
        )
        at += 12 + size
    width, height, *rest = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert rest == [8, 3, 0, 0, 0]
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, width + 1)
    assert not lines[:, 0].any()
    palette = np.frombuffer(chunks[b"PLTE"], np.uint8).reshape(-1, 3)
    alpha = np.frombuffer(chunks[b"tRNS"], np.uint8)
    return np.concatenate([palette, alpha[:, None]], 1)[lines[:, 1:]]


def numbers_of(figure: str) -> np.ndarray:
    """What can be read off a picture [H, W]."""
    data, end = (
        re.search(r"base64,([^\"]+)", figure)[1],
        float(re.search(r'data-end="([^"]+)"', figure)[1]),
    )
    rgba = pixels(base64.b64decode(data)).astype(float)
    return np.where(rgba[..., 2] > rgba[..., 0], -1, 1) * rgba[..., 3] / 255 * end


def test_a_picture_holds_its_numbers():
    values = np.random.default_rng(0).normal(size=(7, 11))
    found = numbers_of(pictures.picture("t", values, ("r", "c"), "u", end=3.0))
    np.testing.assert_allclose(found, values.clip(-3, 3), atol=3 / 127)
    assert np.isfinite(numbers_of(pictures.picture("t", np.zeros((2, 2)), ("r", "c"), "u"))).all()


def figures(text: str) -> dict[str, str]:
    return {
        re.search(r"<figcaption>(.*?)</figcaption>", f)[1]: f
        for f in re.findall(r"<figure.*?</figure>", text)
    }


def test_the_tables_are_those_of_the_model(run):
    found = figures(tables(run))
    parts = jax.tree.map(np.asarray, run.params["encoder"]["embeddings"])
    assert list(found) == [
        *(
            "Token vectors: every piece",
            "Lengths of token vectors",
            "Token vectors on a plane (PCA), 47 of 47",
        ),
        *("Position vectors (learned)", "Cosines of position vectors", "Segment vectors"),
    ]
    for name, table in (
        ("Token vectors: every piece", parts["token"][:47]),
        ("Position vectors (learned)", parts["position"]),
        ("Segment vectors", parts["type"]),
    ):
        end = np.quantile(np.abs(table), 0.995)
        np.testing.assert_allclose(numbers_of(found[name]), table.clip(-end, end), atol=end / 127)
    one = parts["position"] / np.linalg.norm(parts["position"], axis=1, keepdims=True)
    np.testing.assert_allclose(
        numbers_of(found["Cosines of position vectors"]), one @ one.T, atol=1 / 127
    )
    cosine = parts["type"][0] @ parts["type"][1] / np.prod(np.linalg.norm(parts["type"], axis=1))
    assert f"Their cosine is {cosine:.4f}" in found["Segment vectors"]
    bins = [
        int(n) for n in re.findall(r": (\d+) vectors</title>", found["Lengths of token vectors"])
    ]
    assert bins == np.histogram(np.linalg.norm(parts["token"][:47], axis=1), 40)[0].tolist()
    cells = np.expm1(numbers_of(found["Token vectors on a plane (PCA), 47 of 47"]))
    assert cells.sum() == pytest.approx(47, abs=3)


@pytest.mark.parametrize("position", ["sinusoidal", "rotary", "alibi", "relative", "none"])
def test_positions_that_are_not_learned(run, position):
    config = toy.replace(run.config, model=toy.replace(run.config.model, position=position))
    text = tables(toy.replace(run, config=config))
    found = figures(text)
    if position == "sinusoidal":
        figure = found["Position vectors (sinusoids, computed and not learned)"]
        np.testing.assert_allclose(numbers_of(figure), make_sinusoids(24, 16), atol=0.02)
    else:
        assert not any("osition" in name for name in found)
        assert f"This model has no position{'s' if position == 'none' else ' table'}:" in text


def test_a_table_that_a_model_lacks_is_said_to_be_missing(run):
    embeddings = {k: v for k, v in run.params["encoder"]["embeddings"].items() if k != "type"}
    encoder = {**run.params["encoder"], "embeddings": embeddings}
    model = toy.replace(run.config.model, type_vocab=0, first_position=2)
    config = toy.replace(run.config, model=model)
    text = tables(toy.replace(run, params={**run.params, "encoder": encoder}, config=config))
    assert "This model has no segment types." in text
    assert "The first token reads row 2." in text
    assert "Segment vectors" not in figures(text)


def test_rows_that_were_never_trained_are_named(run):
    run = toy.replace(run, config=toy.replace(run.config, sequence_length=10))
    assert "Rows from 10 on were never trained" in tables(toy.replace(run, meta={}))
    assert "never trained" not in tables(run)  # nobody says how long the rows of others were


def test_rows_are_spread_over_a_table():
    assert spread(5, 9).tolist() == [0, 1, 2, 3, 4]
    chosen = spread(30_522, 256)
    assert len(chosen) == 256
    assert chosen[0] == 0
    assert chosen[-1] == 30_521
    assert np.ptp(np.diff(chosen)) <= 1


# --- the command ----------------------------------------------------------------------------------


def test_the_command_writes_the_page_and_says_where(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "texts.txt"
    file.write_bytes(b'the cat\r\n\n{"text": "a dog", "label": "x"}\nmat')
    assert cli.execute(["inspect", "embeddings", f"--model={GOLDEN}", f"--input={file}"]) == 0
    assert capsys.readouterr().out == "embeddings.html\n"
    assert data_of(Path("embeddings.html").read_text())["names"] == ["the cat", "a dog", "mat"]
    words = [
        "--text=the cat",
        "--text",
        "{a dog",
        "--text=mat",
        f"--output={tmp_path}/new/there.html",
    ]
    assert cli.execute(["inspect", "embeddings", f"--model={GOLDEN}", *words]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{tmp_path}/new/there.html"
    assert data_of((tmp_path / "new" / "there.html").read_text())["names"] == [
        "the cat",
        "{a dog",
        "mat",
    ]


def test_a_file_that_is_not_utf8_is_refused(run, tmp_path):
    (tmp_path / "x").write_bytes(b"the cat\n\xff\xfe\n")
    with pytest.raises(DataError, match="line 2: not UTF-8"):
        list(inspect.read(asked(run), tmp_path / "x"))


def test_a_missing_library_is_found_before_anything_is_computed(run, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="--method=tsne needs sklearn") as caught:
        embeddings.page(asked(run), [], method="tsne")
    assert "scikit-learn" in caught.value.hint


def test_a_wheel_holds_script_and_style(tmp_path):
    root = Path(__file__).resolve().parents[1]
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(words, cwd=root, check=True, capture_output=True)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        names = set(wheel.namelist())
    assert {f"bert_jax/views/embeddings.{end}" for end in ("py", "js", "css")} <= names
    assert {f"bert_jax/reporting/page.{end}" for end in ("py", "js", "css")} <= names
    assert "bert_jax/studies/report/build.css" in names


# --- in a browser ---------------------------------------------------------------------------------

# Done on the page as a person would: keys, the controls, the pictures. What is seen is written into
# the document.
ACTS = """<script>{
const seen = {}, key = (at, name) =>
  at.dispatchEvent(new KeyboardEvent('keydown', { key: name, bubbles: true }));
window.addEventListener('error', event => { seen.error = event.message; });
window.alert = text => { seen.alert = text; };
const of = (selector, from = document) => [...from.querySelectorAll(selector)];
const texts = (selector, from) => of(selector, from).map(one => one.textContent);
seen.labels = texts('#map text.label');
seen.boxes = of('#map text.label').map(one => {
  const b = one.getBBox(); return [b.x, b.y, b.width, b.height]; });
seen.first = document.querySelector('#one h3').textContent;
seen.aria = of('#map circle').map(one => one.getAttribute('aria-label'));
document.querySelector('#map circle').focus();
key(document.activeElement, 'End');
seen.last = document.querySelector('#one h3').textContent;
const before = document.activeElement;
const at = one => [+one.getAttribute('cx'), +one.getAttribute('cy')];
for (const name of ['ArrowUp', 'ArrowLeft', 'ArrowDown', 'ArrowRight'])
  key(document.activeElement, name);
seen.moved = document.activeElement !== before && document.activeElement.tagName;
seen.stops = of('#map circle[tabindex="0"]').length;
const cell = document.querySelector('#cosines tbody td');
cell.focus();
for (const name of ['ArrowRight', 'ArrowDown', 'ArrowRight']) key(document.activeElement, name);
seen.cosine = document.querySelector('#cosine-at').textContent;
seen.cell = document.activeElement.textContent;
document.querySelector('#down').click();
const pooling = document.querySelector('#pooling');
pooling.value = '1'; pooling.dispatchEvent(new Event('change'));
seen.table = of('#cosines tbody tr').map(row => texts('td', row));
seen.near = texts('#near tbody td:nth-child(4)');
seen.places = of('#map circle').map(one => [+one.dataset.x, +one.dataset.y]);
const frame = of('.picture .frame').at(-1);
frame.focus(); key(frame, 'ArrowDown'); key(frame, 'ArrowRight');
seen.read = frame.parentNode.querySelector('.read').textContent;
seen.wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
document.body.insertAdjacentHTML('beforeend', '<pre id="seen"></pre>');
document.querySelector('#seen').textContent = JSON.stringify(seen);
}</script>"""


def browsed(folder: Path, page: str, width: int = 1400) -> dict[str, Any]:
    """What ACTS saw of a page in a window of some width, which below 500 is a frame's."""
    found = chromium.document(folder, page.replace("</body>", f"{ACTS}</body>"), width=width)
    return json.loads(
        html.unescape(re.findall(r'<pre id="seen">(.*?)</pre>', found, re.DOTALL)[-1])
    )


def test_a_browser_shows_every_view_and_keys_move_through_it(run, page, tmp_path):
    seen = browsed(tmp_path, page)
    points = vectors.points(asked(run), rows(TEXTS))
    last, mine = vectors.unit(points.vectors[3, 0]), points.vectors[2, 1]
    assert "error" not in seen
    assert sorted(seen["labels"]) == sorted(f"\u2068{text}\u2069" for text in TEXTS)
    assert seen["first"] == TEXTS[0]
    assert seen["last"] == TEXTS[-1]
    assert seen["moved"] == "circle"
    assert seen["stops"] == 1
    assert seen["cosine"] == f"{TEXTS[1]} and {TEXTS[2]}: {last[1] @ last[2]:.6f}"
    assert seen["cell"] == f"{last[1] @ last[2]:.2f}"
    one = vectors.unit(mine)
    assert seen["table"] == [[f"{c:z.2f}" for c in row] for row in one @ one.T]
    order = [k for k in np.argsort(-(one @ one.T)[0]) if k != 0]
    assert [seen["near"][0].find(TEXTS[k]) for k in order] == sorted(
        seen["near"][0].find(TEXTS[k]) for k in order
    )
    np.testing.assert_allclose(seen["places"], vectors.project(mine, "pca")[0], atol=1e-4)
    table = np.asarray(run.params["encoder"]["embeddings"]["type"])
    name, value = re.fullmatch(
        r"(segment 1, dimension 1): (?:about|at least) (-?[\d.e-]+)", seen["read"]
    ).groups()
    assert name
    assert float(value) == pytest.approx(table[1, 1], abs=float(np.abs(table).max()) / 50)


@pytest.mark.parametrize("width", [1400, 500])
def test_a_browser_runs_nothing_of_a_text_and_its_labels_stay_apart(run, tmp_path, width):
    seen = browsed(tmp_path, made(run, [*NASTY, *TEXTS]), width)
    assert "alert" not in seen
    assert "error" not in seen
    assert seen["first"] == NASTY[0]
    assert seen["wide"] <= 0
    boxes = seen["boxes"]
    for i, (x, y, w, h) in enumerate(boxes):
        for a, b, c, d in boxes[:i]:
            assert (
                x >= a + c - 1 or a >= x + w - 1 or y >= b + d - 4 or b >= y + h - 4
            )  # boxes of glyphs have room
