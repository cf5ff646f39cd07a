"""The page of embeddings: its map, neighbours and tables against other ways to compute them."""

import base64
import io
import json
import re

import jax
import numpy as np
import pytest
from matplotlib import image

from bert_jax.errors import DataError
from bert_jax.interop import runs
from bert_jax.predictors.base import AskedModel
from bert_jax.predictors.options import Options
from bert_jax.views import embeddings, vectors
from bert_jax.views.tables import draw_lengths, draw_positions
from bert_jax.views.texts import Labelled
from tests import tiny
from tests.views.making import FIVE, make_page, make_points, read_data, run_inspect


def make(golden: runs.TrainedModel, texts: list[str], **options) -> str:
    return make_page("embeddings", golden, *({"text": text} for text in texts), **options)


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
        places = np.zeros((5, 2)) if same else vectors.project_pca(mine)[0]
        np.testing.assert_allclose(view["xy"], places / (abs(places).max() or 1.0), atol=6e-5)
        one = mine / np.linalg.norm(mine, axis=1, keepdims=True)
        cosines, (ids, near) = one @ one.T, map(np.array, view["near"])
        np.testing.assert_allclose(np.take_along_axis(cosines, ids, 1), near, atol=6e-4)
        best = -np.sort(-(cosines - 9 * np.eye(5)), 1)[:, :4]
        np.testing.assert_allclose(near, best, atol=6e-4)
        ids, near = vectors.find_nearest(mine, table, 5, barred)
        names, said = view["words"]
        np.testing.assert_allclose(said, near, atol=6e-4)
        assert same or names == [[golden.tokenizer.shown[i] for i in row] for row in ids]


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


def test_labels_of_json_lines_are_on_the_page(golden):
    reader = Labelled(AskedModel(golden, Options()))
    lines = ['{"text": "the cat", "label": "x"}', '{"text": "a dog", "label": 3}', "mat"]
    read = [reader.read(n, line) for n, line in enumerate(lines, 1)]
    assert read_data(embeddings.make_embeddings_page(reader, read))["labels"] == ["x", "3", None]
    with pytest.raises(DataError, match=r"line 7: Expected .* got `array` - at `.*label`"):
        reader.read(7, '{"text": "the cat", "label": []}')


def test_tsne_shows_one_view_and_its_settings(golden):
    page = make(golden, FIVE, method="tsne", layer="1")
    assert "<figcaption>t-SNE, perplexity 1.333, seed 0</figcaption>" in page
    assert list(read_data(page)["views"]) == ["2 0"]
    assert vectors.choose_perplexity(2000) == 30


def test_cut_text_is_the_text_of_its_first_tokens(golden):
    long = " ".join(["the cat"] * 11)  # 22 tokens, and two
    whole = read_data(make(golden, [long, "the cat", "a dog"]))
    assert whole["counts"][0] == 22
    cut = make(golden, [f"{long} a", "the cat", "a dog"], long="cut")
    assert "1 cut to 24 tokens" in cut
    assert read_data(cut)["views"] == whole["views"]


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
    readings = json.loads(re.search("data-readings='([^']*)'", draw_lengths(golden))[1])
    bins = [int(text.rpartition(": ")[2]) for *_, text in readings]
    assert bins == np.histogram(np.linalg.norm(parts["token"][:47], axis=1), 40)[0].tolist()
    pixels = image.imread(io.BytesIO(base64.b64decode(draw_positions(golden)[0])))
    cosines = np.where(pixels[..., 2] > pixels[..., 0], -1, 1) * pixels[..., 3]
    one = parts["position"] / np.linalg.norm(parts["position"], axis=1, keepdims=True)
    np.testing.assert_allclose(cosines, one @ one.T, atol=0.5 / 255 + 1e-6)


@pytest.mark.parametrize("position", ["sinusoidal", "rotary"])
def test_positions_that_are_not_learned_are_named(golden, position):
    model = tiny.replace(golden.config.model, position=position, first_position=2)
    _, text = draw_positions(tiny.replace(golden, config=tiny.replace(golden.config, model=model)))
    assert ("24 of 24 rows" in text) == (position == "sinusoidal")
    assert ("no position table (model.position = rotary)" in text) == (position == "rotary")


def test_command_takes_texts_from_a_file_or_flags(tmp_path):
    source, output = tmp_path / "texts.txt", tmp_path / "new" / "there.html"
    source.write_bytes(b'the cat\r\n\n{"text": "a dog", "label": "x"}\nmat')
    for words, names in (
        ([f"--input={source}"], ["the cat", "a dog", "mat"]),
        (["--text=the cat", "--text", "{a dog", "--text=mat"], ["the cat", "{a dog", "mat"]),
    ):
        assert run_inspect("embeddings", *words, f"--output={output}") == 0
        assert read_data(output.read_text())["names"] == names
