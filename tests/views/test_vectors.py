"""Vectors of texts and words, projections and neighbours, against other ways to compute them."""

import numpy as np
import pytest

from bert_jax.api import Model
from bert_jax.views import vectors
from tests.views.making import FIVE, make_points


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_last_layer_is_what_predict_embed_writes(golden, pooling):
    theirs = Model(golden).embed(FIVE, pooling=pooling)
    points = make_points(golden, FIVE)
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


def test_nearest_are_those_of_sorting_all():
    random = np.random.default_rng(1)
    some = random.normal(size=(300, 8)).astype(np.float32)
    table = random.normal(size=(90, 8)).astype(np.float32)
    some[3] = table[5] = 0
    barred = [[int(i)] if i < 80 else [1, 2] for i in range(300)]
    ids, cosines = vectors.find_nearest(some, table, 4, barred)
    for i in range(300):
        norms = np.linalg.norm(some[i]) * np.linalg.norm(table, axis=1)
        every = np.where(norms > 0, table @ some[i] / np.where(norms > 0, norms, 1), 0)
        every[barred[i]] = -2
        np.testing.assert_allclose(cosines[i], np.sort(every)[::-1][:4], atol=1e-6)
        np.testing.assert_allclose(every[ids[i]], cosines[i], atol=1e-6)
    assert vectors.find_nearest(some, table, 100, barred)[0].shape == (300, 88)
