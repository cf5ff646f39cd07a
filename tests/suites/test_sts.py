"""Suite `sts`: correlations of cosines, against those of `predict embed`."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest
import scipy.stats

from bert_jax.api import Model
from tests.suites.asking import ask, write_pairs


def test_sts_is_the_correlation_of_cosines(run, tmp_path, one_device):
    gold = np.random.default_rng(1).normal(size=15).round(2).tolist()
    file, pairs = write_pairs(tmp_path, "score", gold)
    stated = {"pooling": "cls", "normalize": True, "length": None}
    told = dataclasses.replace(run, meta={"sentence": stated})
    found = ask(told, "sts", source=f"files:{file}", batch_size=7)
    for pooling in ("mean", "cls"):
        embed = functools.partial(Model(run).embed, pooling=pooling, normalize=True)
        vectors = embed([a for a, _ in pairs]) * embed([b for _, b in pairs])
        cosines = vectors.sum(-1).round(6)  # equal texts are a tie
        spearman = scipy.stats.spearmanr(cosines, gold).statistic
        assert found[pooling]["spearman"] == pytest.approx(spearman)
        # Cosines of a model that knows nothing differ in their last digits.
        pearson = scipy.stats.pearsonr(cosines, gold).statistic
        assert found[pooling]["pearson"] == pytest.approx(pearson, rel=1e-3)
    assert found["own"] == found["cls"]
    assert found["pairs"] == 15
