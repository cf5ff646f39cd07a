"""The page of embeddings: its map, neighbours and tables against other ways to compute them."""

import base64
import dataclasses
import io
import json
import re

import jax
import numpy as np
import pytest
from matplotlib import image

from bert_jax.api import Model
from bert_jax.errors import DataError
from bert_jax.interop import runs
from bert_jax.views import embeddings, tables, vectors
from tests.views.making import FIVE, make_page, make_points, read_data, run_inspect


def make(golden: runs.TrainedModel, texts: list[str], **options) -> str:
    return make_page("embeddings", golden, *({"text": text} for text in texts), **options)


def project(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Project points on two components, whose farthest point is positive; return the shares."""
    left, sizes, _ = np.linalg.svd(points - points.mean(0), full_matrices=False)
    places = (left * sizes)[:, :2]
    farthest = places[abs(places).argmax(0), [0, 1]]
    return places * np.sign(farthest), (sizes**2 / (sizes**2).sum())[:2]


def check_nearest(
    point: np.ndarray, table: np.ndarray, barred: list[int], ids: list[int], near: list, count: int
) -> None:
    """Check that rows of a table are the nearest to a point, of all that are not barred."""
    cosines = table @ point / np.linalg.norm(table, axis=1) / np.linalg.norm(point)
    cosines[barred] = -2
    np.testing.assert_allclose(near, np.sort(cosines)[: -1 - count : -1], atol=6e-4)
    np.testing.assert_allclose(cosines[ids], near, atol=6e-4)


# --- the page -------------------------------------------------------------------------------------


def test_numbers_of_every_view_are_on_the_page(golden):
    """[CLS] is the same for all texts below the first layer: those points lie in one place."""
    data, points = read_data(make(golden, FIVE)), make_points(golden, FIVE)
    assert (data["names"], data["start"], len(data["views"])) == (FIVE, [3, 0], 4 * 3)
    table = np.asarray(golden.params["encoder"]["embeddings"]["token"])[: golden.tokenizer.size]
    barred = [[*golden.tokenizer.special, *ids] for ids in points.pieces]
    for key, view in data["views"].items():
        layer, pool = map(int, key.split())
        mine = points.vectors[layer, pool]
        same = layer < 2 and pool == 2
        if same:
            assert not np.any(view["xy"])
        else:
            places, shares = project(mine)
            np.testing.assert_allclose(view["xy"], places / abs(places).max(), atol=6e-5)
            np.testing.assert_allclose(view["shares"], shares, atol=6e-5)
        names, said = view["words"]
        for row, point in enumerate(mine):
            check_nearest(point, mine, [row], *(some[row] for some in view["near"]), 4)
            ids = [golden.tokenizer.shown.index(name) for name in names[row]]
            check_nearest(point, table, barred[row], ids, said[row], 5)


@pytest.mark.parametrize(
    ("layer", "pooling", "start"),
    [("input", "cls", [0, 2]), ("0", "", [1, 0]), ("2", "mean", [3, 1])],
)
def test_first_view_is_what_was_asked_for(golden, layer, pooling, start):
    page = make(golden, FIVE, layer=layer, pooling=pooling, neighbours=2)
    data = read_data(page)
    assert data["start"] == start
    assert {len(view["near"][0][0]) for view in data["views"].values()} == {2}
    assert re.findall('<option value="(\\d)" selected', page) == [str(at) for at in start]


def test_words_are_told_apart_by_their_texts(golden):
    data = read_data(make(golden, ["the cat", "the dog"], points="words"))
    assert data["names"] == ["the₁", "cat₁", "the₂", "dog₂"]
    assert data["rows"] == [0, 0, 1, 1]
    assert data["places"] == ["1:1", "1:2", "2:1", "2:2"]


def test_tsne_shows_one_view_and_its_settings(golden):
    page = make(golden, [*FIVE, "cat " * 90], method="tsne", layer="1", long="cut")
    assert "<figcaption>t-SNE, perplexity 1.667, seed 0</figcaption>" in page
    assert list(read_data(page)["views"]) == ["2 0"]
    assert "1 cut to 24 tokens" in page
    assert vectors.choose_perplexity(2000) == 30


def test_many_points_have_no_table_of_cosines(golden, monkeypatch):
    monkeypatch.setattr(embeddings, "FEW", 4)
    page = make(golden, FIVE)
    views = read_data(page)["views"]
    assert sorted(key for key, view in views.items() if "words" in view) == ["0 0", "0 1", "0 2"]
    assert "at most 4 points; these are 5" in page
    monkeypatch.setattr(vectors, "MOST", 4)
    with pytest.raises(DataError, match="5 points, and a page holds 4"):
        make(golden, FIVE)


# --- tables and the command -----------------------------------------------------------------------


def test_tables_are_those_of_the_model(golden):
    parts = jax.tree.map(np.asarray, golden.params["encoder"]["embeddings"])
    readings = json.loads(re.search("data-readings='([^']*)'", tables.draw_lengths(golden))[1])
    bins = [int(text.rpartition(": ")[2]) for *_, text in readings]
    assert bins == np.histogram(np.linalg.norm(parts["token"][:47], axis=1), 40)[0].tolist()
    pixels = image.imread(io.BytesIO(base64.b64decode(tables.draw_positions(golden)[0])))
    cosines = np.where(pixels[..., 2] > pixels[..., 0], -1, 1) * pixels[..., 3]
    one = parts["position"] / np.linalg.norm(parts["position"], axis=1, keepdims=True)
    np.testing.assert_allclose(cosines, one @ one.T, atol=0.5 / 255 + 1e-6)


@pytest.mark.parametrize("position", ["sinusoidal", "rotary"])
def test_positions_that_are_not_learned_are_named(golden, position):
    model = dataclasses.replace(golden.config.model, position=position, first_position=2)
    _, text = tables.draw_positions(golden.replace_sections(model=model))
    assert ("24 of 24 rows" in text) == (position == "sinusoidal")
    assert ("no position table (model.position = rotary)" in text) == (position == "rotary")


def test_command_takes_texts_from_a_file_or_flags(tmp_path, capsys):
    source, output = tmp_path / "texts.txt", tmp_path / "new" / "there.html"
    source.write_bytes(b'the cat\r\n\n{"text": "a dog", "label": 3}\nmat')
    for words, names, labels in (
        ([f"--input={source}"], ["the cat", "a dog", "mat"], [None, "3", None]),
        (["--text=a", "--text", "{a dog", "--text=mat"], ["a", "{a dog", "mat"], [None] * 3),
    ):
        assert run_inspect("embeddings", *words, f"--output={output}") == 0
        data = read_data(output.read_text())
        assert (data["names"], data["labels"]) == (names, labels)
    source.write_text('{"text": "a dog", "label": []}')
    assert run_inspect("embeddings", f"--input={source}") == 3
    assert "line 1: Expected" in capsys.readouterr().err


# --- vectors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_last_layer_is_what_predict_embed_writes(golden, pooling, causal):
    model = dataclasses.replace(golden.config.model, causal=causal)
    read = golden.replace_sections(model=model)
    theirs = Model(read).embed(FIVE, pooling=pooling)
    points = make_points(read, FIVE)
    mine = points.vectors[-1, points.poolings.index(pooling)]
    np.testing.assert_allclose(mine, theirs, atol=2e-6)


def test_word_is_the_mean_of_its_pieces(golden):
    texts = ["The  walked zzz", "a bigger dog"]
    points = make_points(golden, texts, words=True)
    assert points.names == " ".join(texts).split()
    assert points.rows.tolist() == [0, 0, 0, 1, 1, 1]
    assert max(map(len, points.pieces)) > 1, "no word of several pieces: nothing is tested"
    table = np.asarray(golden.params["encoder"]["embeddings"]["token"])
    for at, ids in enumerate(points.pieces):
        np.testing.assert_allclose(points.vectors[0, 0, at], table[ids].mean(0), atol=1e-6)
    whole = make_points(golden, [*texts, "a"])
    weights = [len(ids) for ids in points.pieces[:3]]
    mean = np.average(points.vectors[-1, 0, :3], axis=0, weights=weights)
    np.testing.assert_allclose(mean, whole.vectors[-1, 0, 0], atol=2e-6)


def test_zeros_are_near_nothing_in_a_small_table():
    ids, cosines = vectors.find_nearest(np.zeros((2, 3)), np.eye(3), 9, [[0], [1]])
    assert (ids.shape, cosines.tolist()) == ((2, 2), [[0, 0], [0, 0]])
    assert [sorted(row) for row in ids.tolist()] == [[1, 2], [0, 2]]
