"""Suite `sts`: correlations of cosines, against those of `predict embed`."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import scipy.stats

from bert_jax.predictors import stream
from bert_jax.predictors.base import Model
from bert_jax.predictors.options import Options
from tests.suites.asking import ask, write_pairs


def test_sts_is_the_correlation_of_cosines(run, tmp_path, one_device):
    random = np.random.default_rng(1)
    gold = random.normal(size=15).round(2).tolist()
    file, pairs = write_pairs(tmp_path, "score", gold)
    told = dataclasses.replace(
        run, meta={"sentence": {"pooling": "cls", "normalize": True, "length": None}}
    )
    found = [ask(told, "sts", source=f"files:{file}", batch_size=size) for size in (0, 7)]
    # A model that knows nothing gives cosines that differ in their last digits, and correlations
    # near 0 of them: there the error of float32 is absolute. Batches of seven change its sums.
    assert found[0] == {
        key: pytest.approx(value, rel=1e-4, abs=1e-5) for key, value in found[1].items()
    }
    for pooling in ("mean", "cls"):
        options = Options(pooling=pooling, normalize=True)
        sides = [
            [
                one["embedding"]
                for one in stream.predict(Model(run, options), "embed", [pair[i] for pair in pairs])
            ]
            for i in (0, 1)
        ]
        cosines = (np.array(sides[0]) * np.array(sides[1])).sum(-1).round(6)  # like texts are a tie
        assert found[0][pooling]["spearman"] == pytest.approx(
            scipy.stats.spearmanr(cosines, gold).statistic
        )
        assert found[0][pooling]["pearson"] == pytest.approx(
            scipy.stats.pearsonr(cosines, gold).statistic, rel=1e-3
        )
    assert found[0]["own"] == found[0]["cls"]
