"""`bert-jax inspect embeddings`: its numbers against other ways to them, and its command."""

from __future__ import annotations

import base64
import importlib
import io
import re
import subprocess
import sys
import types
import zipfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from matplotlib import image

from bert_jax import cli, inspect
from bert_jax.errors import ConfigError, DataError
from bert_jax.interop import runs
from bert_jax.models.encoder import read_layers
from bert_jax.predictors import stream
from bert_jax.predictors.base import Model, OfText, Row
from bert_jax.predictors.options import Options
from bert_jax.views import embeddings, vectors
from bert_jax.views.tables import write_tables
from bert_jax.views.texts import Labelled
from tests import families, toy
from tests.pages import Checker, read_figure
from tests.views.making import FOLDER, make_page, read_data

TEXTS = ["the cat sat", "a big dog", "the dog walked", "a mat", "jumping"]


@pytest.fixture(scope="module")
def run() -> runs.TrainedModel:
    return runs.open_run(str(FOLDER))


def asked(run: runs.TrainedModel, long: str = "refuse") -> OfText:
    return OfText(Model(run, Options(long=long)))


def rows(texts: list[str]) -> list[Row]:
    return [Row(i, {"text": text}) for i, text in enumerate(texts, 1)]


def made(run: runs.TrainedModel, texts: list[str], **options: Any) -> str:
    return make_page("embeddings", run, *({"text": text} for text in texts), **options)


@pytest.fixture(scope="module")
def page(run) -> str:
    return made(run, TEXTS)


def read_cells(page: str) -> list[str]:
    """The text of every cell of a page's tables."""
    cells = re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", page, re.DOTALL)
    return [re.sub("<[^>]*>", "", cell) for cell in cells]


# --- vectors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_the_last_layer_is_what_predict_embed_writes(run, pooling):
    theirs = list(stream.predict(Model(run, Options(pooling=pooling)), "embed", TEXTS))
    points = vectors.make_points(asked(run), rows(TEXTS))
    mine = points.vectors[-1, points.poolings.index(pooling)]
    np.testing.assert_allclose(mine, [row["embedding"] for row in theirs], atol=2e-6)


@pytest.mark.slow
def test_narrow_tables_are_shown_in_the_layers_width(tmp_path):
    folder = families.folder(tmp_path, "electra", "masked_lm")
    opened = runs.open_run(str(families.vocabulary(folder, "electra")))
    encoder = opened.params["encoder"]
    found = vectors.make_points(asked(opened), rows(["w5 w6", "w7", "w8 w9"])).vectors[0]
    ids = [families.CLS, 7, families.SEP]
    expected = encoder["embeddings"]["token"][np.array(ids)] @ encoder["projection"]["kernel"]
    np.testing.assert_allclose(found[1, 1], expected.mean(0), atol=1e-5)
    assert "layers of 8" in made(opened, ["w5 w6", "w7", "w8 w9"])


def test_every_layer_is_the_mean_one_takes_by_hand(run):
    """A text at a time, without padding; the first two stages from the tables alone."""
    parts = jax.tree.map(np.asarray, run.params["encoder"]["embeddings"])
    size = run.tokenizer.size
    layers_of = jax.jit(lambda params, b: read_layers(run.config.model, size, params, b).hidden)
    points = vectors.make_points(asked(run), rows(TEXTS))
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
    points = vectors.make_points(asked(run), rows(texts), words=True)
    assert [
        texts[row].split()[k] for row, k in zip(points.rows, [0, 1, 2, 0, 1, 2], strict=True)
    ] == points.names
    assert max(map(len, points.pieces)) > 1, "no word of several pieces: nothing is tested"
    table = np.asarray(run.params["encoder"]["embeddings"]["token"])
    for at, ids in enumerate(points.pieces):
        np.testing.assert_allclose(points.vectors[0, 0, at], table[ids].mean(0), atol=1e-6)
    whole = vectors.make_points(asked(run), rows([*texts, "a"]))
    mean = np.average(
        points.vectors[-1, 0, :3], axis=0, weights=[len(ids) for ids in points.pieces[:3]]
    )
    np.testing.assert_allclose(mean, whole.vectors[-1, 0, 0], atol=2e-6)


def test_batches_change_nothing(run, monkeypatch):
    expected = vectors.make_points(asked(run), rows(TEXTS)).vectors
    monkeypatch.setattr(vectors, "ROWS", 1)
    np.testing.assert_allclose(
        vectors.make_points(asked(run), rows(TEXTS)).vectors, expected, atol=2e-6
    )


@pytest.mark.parametrize("shape", [(6, 20), (40, 5)])
def test_pca_is_numpys_svd(shape):
    data = np.random.default_rng(0).normal(size=shape) * np.arange(1, shape[1] + 1)
    places, shares = vectors.project_pca(data.astype(np.float32))
    left, sizes, _ = np.linalg.svd(data - data.mean(0), full_matrices=False)
    expected = left[:, :2] * sizes[:2]
    for axis in (0, 1):
        assert abs(places[:, axis]).max() == places[:, axis].max()
        sign = np.sign(expected[abs(expected[:, axis]).argmax(), axis])
        np.testing.assert_allclose(places[:, axis], sign * expected[:, axis], atol=1e-4)
    np.testing.assert_allclose(shares, sizes[:2] ** 2 / (sizes**2).sum(), rtol=1e-5)
    np.testing.assert_allclose(vectors.project_pca(-data.astype(np.float32))[1], shares, rtol=1e-6)


def test_points_that_are_one_vector_lie_in_one_place(run):
    points = vectors.make_points(asked(run), rows(TEXTS))
    for layer, same in ((0, True), (1, True), (2, False)):  # [CLS] sees the text in the first layer
        assert vectors.are_alike(points.vectors[layer, 2]) == same
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
    ids, cosines = vectors.find_nearest(
        vectors.scale_to_unit(some), vectors.scale_to_unit(table), 4, barred
    )
    for i in range(300):
        norms = np.linalg.norm(some[i]) * np.linalg.norm(table, axis=1)
        every = np.where(norms > 0, table @ some[i] / np.where(norms > 0, norms, 1), 0)
        every[barred[i]] = -2
        np.testing.assert_allclose(cosines[i], np.sort(every)[::-1][:4], atol=1e-6)
        np.testing.assert_allclose(every[ids[i]], cosines[i], atol=1e-6)
    assert vectors.find_nearest(
        vectors.scale_to_unit(some), vectors.scale_to_unit(table), 100, barred
    )[0].shape == (
        300,
        88,
    )


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
    data = read_data(made(run, TEXTS, method="umap"))
    assert data["method"] == "UMAP"
    assert all(call["n_neighbors"] == 4 and call["random_state"] == 0 for call in calls)
    assert len(calls) == 12 - 2  # [CLS] is one vector at the input and in layer 0


# --- the page -------------------------------------------------------------------------------------


def test_the_numbers_of_every_view_are_on_the_page(run, page):
    data, points = read_data(page), vectors.make_points(asked(run), rows(TEXTS))
    assert data["names"] == TEXTS
    assert data["start"] == [3, 0]
    assert len(data["views"]) == 4 * 3
    table = np.asarray(run.params["encoder"]["embeddings"]["token"])[: run.tokenizer.size]
    table = table / np.linalg.norm(table, axis=1, keepdims=True)
    for key, view in data["views"].items():
        layer, pool = map(int, key.split())
        mine = points.vectors[layer, pool]
        places = vectors.project(mine, "pca")[0]
        expected = places / (np.abs(places).max() or 1.0)
        np.testing.assert_allclose(view["xy"], expected, atol=6e-5)
        one = mine / np.linalg.norm(mine, axis=1, keepdims=True)
        cosines = one @ one.T
        ids, near = map(np.array, view["near"])
        np.testing.assert_allclose(np.take_along_axis(cosines, ids, 1), near, atol=6e-4)
        best = -np.sort(-(cosines - 9 * np.eye(5)), 1)[:, :4]
        np.testing.assert_allclose(near, best, atol=6e-4)
        for i in range(5):
            pieces = [run.tokenizer.shown.index(name) for name in view["words"][0][i]]
            every = table @ one[i]
            np.testing.assert_allclose(every[pieces], view["words"][1][i], atol=6e-4)
            every[[*run.tokenizer.special, *points.pieces[i]]] = -2
            best = np.sort(every)[::-1][: len(pieces)]
            np.testing.assert_allclose(every[pieces], best, atol=1e-5)


def test_neighbours_and_cosines_need_no_script(run, page):
    cells, data = read_cells(page), read_data(page)
    points = vectors.make_points(asked(run), rows(TEXTS))
    one = vectors.scale_to_unit(points.vectors[3, 0])
    cosines = one @ one.T
    for i, text in enumerate(TEXTS):
        at = cells.index(text)
        assert cells[at - 1] == str(i + 1)
        assert cells[at + 1] == str(len(points.pieces[i]))
        best = [k for k in np.argsort(-cosines[i]) if k != i]
        assert cells[at + 2] == "".join(f"{TEXTS[k]} {k + 1} {cosines[i, k]:z.3f}" for k in best)
        shown = [float(cosine) for cosine in re.findall(r"-?\d\.\d{3}", cells[at + 3])]
        near = data["views"]["3 0"]["words"][1][i]
        wanted = [cosine for cosine in near if cosine >= data["least"]]
        assert shown == pytest.approx(wanted, abs=1e-3)
        row = cells.index(f"{i + 1} {text}")
        assert cells[row + 1 : row + 6] == [f"{c:z.2f}" for c in cosines[i]]


def test_vocabulary_no_nearer_than_chance_is_left_out(run, page, monkeypatch):
    least = vectors.find_chance_cosine(run.tokenizer.size, run.config.model.hidden)
    assert read_data(page)["least"] == least
    assert f"cosines below {least:.3f} are left out" in page
    rng = np.random.default_rng(0)
    table, drawn = (vectors.scale_to_unit(rng.normal(size=(n, 128))) for n in (8000, 2000))
    reached = (drawn @ table.T).max(1) >= vectors.find_chance_cosine(8000, 128)
    assert reached.mean() == pytest.approx(vectors.RARE, abs=0.02)
    monkeypatch.setattr(vectors, "find_chance_cosine", lambda count, width: -1.0)
    everything = read_cells(made(run, TEXTS))
    at = everything.index(TEXTS[0])
    assert len(re.findall(r"-?\d\.\d{3}", everything[at + 3])) == 5


def test_the_first_view_is_what_was_asked_for(run):
    for layer, pooling, start in (
        ("input", "cls", [0, 2]),
        ("0", "", [1, 0]),
        ("2", "mean", [3, 1]),
    ):
        page = made(run, TEXTS, layer=layer, pooling=pooling, neighbours=2)
        data = read_data(page)
        assert data["start"] == start
        assert {len(view["near"][0][0]) for view in data["views"].values()} == {2}
        chosen = re.findall('<option value="(\\d)" selected', page)
        assert chosen == [str(number) for number in start]
    own = run.meta | {"sentence": {"pooling": "mean"}}
    assert read_data(made(toy.replace(run, meta=own), TEXTS))["start"] == [3, 1]


def test_words_are_told_apart_by_their_texts(run):
    data = read_data(made(run, ["the cat", "the dog"], points="words"))
    assert data["names"] == ["the₁", "cat₁", "the₂", "dog₂"]
    assert data["texts"] == ["the cat", "the dog"]
    assert data["rows"] == [0, 0, 1, 1]
    assert data["places"] == ["1:1", "1:2", "2:1", "2:2"]
    assert read_data(made(run, TEXTS))["places"] == ["1", "2", "3", "4", "5"]


def test_neighbours_without_punctuation_are_words(run):
    texts = ["the cat , the dog .", "a mat ?"]
    data = read_data(made(run, texts, points="words", neighbours=3))
    assert data["names"][2] == ",₁"
    assert data["punctuation"] == [2, 5, 8]
    raw = vectors.make_points(asked(run), rows(texts), words=True).vectors[3, 0]
    one = vectors.scale_to_unit(raw)
    cosines = one @ one.T - 9 * np.eye(9)
    for key, barred in (("near", []), ("plain", [2, 5, 8])):
        cosines[:, barred] = -9
        ids, near = map(np.array, data["views"]["3 0"][key])
        best = -np.sort(-cosines, 1)[:, :3]
        np.testing.assert_allclose(near, best, atol=6e-4)
        np.testing.assert_allclose(np.take_along_axis(cosines, ids, 1), best, atol=1e-5)
    for bare in (["the cat", "a dog"], ["the cat . . .", "."]):  # none, and nothing besides
        data = read_data(made(run, bare, points="words"))
        assert data["punctuation"] == []
        assert "plain" not in data["views"]["3 0"]


def test_labels_of_json_lines_are_on_the_page(run):
    reader = Labelled(Model(run, Options()))
    lines = ['{"text": "the cat", "label": "x"}', '{"text": "a dog", "label": 3}', "mat"]
    read = [reader.read(n, line) for n, line in enumerate(lines, 1)]
    assert read_data(embeddings.page(reader, read))["labels"] == ["x", "3", None]
    with pytest.raises(DataError, match="line 7: label is a list"):
        reader.read(7, '{"text": "the cat", "label": []}')


def test_a_page_states_the_settings_of_its_projection(run):
    page = made(run, TEXTS, method="tsne", layer="1")
    assert "<figcaption>t-SNE, perplexity 1.333, seed 0</figcaption>" in page
    assert vectors.choose_settings("tsne", 2000) == {"perplexity": 30.0, "seed": 0}
    assert vectors.choose_settings("umap", 2000) == {"neighbours": 15, "seed": 0}


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
    data = read_data(page)
    assert data["names"][:5] == NASTY[:5]
    assert data["names"][5:] == ["reversed  the  rest", NASTY[6], "lone   surrogate", NASTY[8]]
    assert page.count("<script") == 2
    assert not any(mark in page for mark in ("\u202e", "\u2066r", "\x00", "<img src=x"))
    checked = Checker(page)
    assert all(kind.startswith("img src=data:") for kind in checked.outside)
    assert NASTY[0] in "".join(checked.text)


def test_a_text_as_long_as_the_model_takes(run):
    long = " ".join(["the cat"] * 11)  # 22 tokens, and two
    page = made(run, [long, "the cat", "a dog"])
    at = read_cells(page).index(long)
    assert read_cells(page)[at + 1] == "22"
    with pytest.raises(DataError, match="line 1: 25 tokens"):
        made(run, [f"{long} a", "the cat", "a dog"])
    cut = made(run, [f"{long} a", "the cat", "a dog"], long="cut")
    assert "1 cut to 24 tokens" in cut
    assert read_data(cut)["views"] == read_data(page)["views"]


def test_many_points_have_no_table_of_cosines(run, monkeypatch):
    monkeypatch.setattr(embeddings, "FEW", 4)
    page = made(run, TEXTS)
    views = read_data(page)["views"]
    assert sorted(key for key, view in views.items() if "words" in view) == ["0 0", "0 1", "0 2"]
    assert "at most 4 points; these are 5" in page
    monkeypatch.setattr(vectors, "MOST", 4)
    with pytest.raises(DataError, match="5 points, and a page holds 4"):
        made(run, TEXTS)


def test_what_is_slow_is_made_of_one_view(run, monkeypatch, capsys):
    monkeypatch.setattr(embeddings, "SLOW", 59)
    data = read_data(made(run, TEXTS, method="tsne", layer="1"))
    assert list(data["views"]) == ["2 0"]
    said = capsys.readouterr().err
    assert "this layer alone" in said
    assert "t-SNE of 5 points, view 1 of 1" in said
    monkeypatch.setattr(embeddings, "SLOW", 0)
    assert len(read_data(made(run, TEXTS))["views"]) == 12


# --- tables ---------------------------------------------------------------------------------------


def test_tables_are_those_of_the_model(run):
    found = write_tables(run)
    parts = jax.tree.map(np.asarray, run.params["encoder"]["embeddings"])
    said = read_figure(found, "Lengths of token vectors")
    bins = [int(text.rpartition(": ")[2]) for text in said]
    assert bins == np.histogram(np.linalg.norm(parts["token"][:47], axis=1), 40)[0].tolist()
    content = base64.b64decode(re.search('base64,([^"]*)', found)[1])
    pixels = image.imread(io.BytesIO(content))
    cosines = np.where(pixels[..., 2] > pixels[..., 0], -1, 1) * pixels[..., 3]
    one = parts["position"] / np.linalg.norm(parts["position"], axis=1, keepdims=True)
    np.testing.assert_allclose(cosines, one @ one.T, atol=0.5 / 255 + 1e-6)


@pytest.mark.parametrize("position", ["sinusoidal", "rotary", "alibi", "relative", "none"])
def test_positions_that_are_not_learned_are_named(run, position):
    model = toy.replace(run.config.model, position=position, first_position=2)
    text = write_tables(toy.replace(run, config=toy.replace(run.config, model=model)))
    if position == "sinusoidal":
        assert "24 of 24 rows, sinusoids, computed and not learned." in text
        assert "The first token reads row 2." in text
    else:
        assert "<img" not in text
        assert f"This model has no position{'s' if position == 'none' else ' table'}:" in text


def test_rows_that_were_never_trained_are_named(run):
    run = toy.replace(run, config=toy.replace(run.config, sequence_length=10))
    assert "Rows from 10 on were never trained" in write_tables(toy.replace(run, meta={}))
    assert "never trained" not in write_tables(run)  # nobody says how long the rows of others were


# --- the command ----------------------------------------------------------------------------------


def test_the_command_writes_the_page_and_says_where(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "texts.txt"
    file.write_bytes(b'the cat\r\n\n{"text": "a dog", "label": "x"}\nmat')
    assert cli.execute(["inspect", "embeddings", f"--model={FOLDER}", f"--input={file}"]) == 0
    assert capsys.readouterr().out == "embeddings.html\n"
    assert read_data(Path("embeddings.html").read_text())["names"] == ["the cat", "a dog", "mat"]
    words = [
        "--text=the cat",
        "--text",
        "{a dog",
        "--text=mat",
        f"--output={tmp_path}/new/there.html",
    ]
    assert cli.execute(["inspect", "embeddings", f"--model={FOLDER}", *words]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{tmp_path}/new/there.html"
    assert read_data((tmp_path / "new" / "there.html").read_text())["names"] == [
        "the cat",
        "{a dog",
        "mat",
    ]


def test_a_file_that_is_not_utf8_is_refused(run, tmp_path):
    (tmp_path / "x").write_bytes(b"the cat\n\xff\xfe\n")
    with pytest.raises(DataError, match="line 2: not UTF-8"):
        list(inspect.read(asked(run), tmp_path / "x"))


def test_a_missing_library_is_found_before_any_computing(run, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="--method=umap needs umap") as caught:
        embeddings.page(asked(run), [], method="umap")
    assert "umap-learn" in caught.value.hint


def test_a_wheel_holds_script_and_style(tmp_path):
    root = Path(__file__).resolve().parents[2]
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(words, cwd=root, check=True, capture_output=True)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        names = set(wheel.namelist())
    assert {f"bert_jax/views/embeddings.{end}" for end in ("py", "js", "css")} <= names
    assert {f"bert_jax/reporting/page.{end}" for end in ("py", "js", "css")} <= names
    assert {"bert_jax/reporting/metrics.csv", "bert_jax/studies/report/build.css"} <= names
