"""Pooled vectors, written out."""

from __future__ import annotations

import numpy as np
import pytest

from bert_jax.models import pooler
from tests import toy


@pytest.mark.parametrize("how", ["mean", "first", "last"])
def test_pool_examples_reads_tokens_of_each_example(how):
    b = toy.batch(3, 24, seed=2, examples=2)
    x = np.random.default_rng(0).normal(size=(3, 24, 8)).astype(np.float32)
    pooling = "mean" if how == "mean" else "cls"
    found = np.asarray(pooler.pool_examples(x, b, pooling, causal=how == "last"))
    for row in range(3):
        for example in range(2):
            own = x[row, b["segment_ids"][row] == example + 1]
            expected = {"mean": own.mean(0), "first": own[0], "last": own[-1]}[how]
            np.testing.assert_allclose(found[row, example], expected, atol=1e-6)


def test_pool_examples_of_padding_stays_finite():
    b = {"segment_ids": np.zeros((1, 4), int), "cls_positions": np.zeros((1, 1), int)}
    found = pooler.pool_examples(np.ones((1, 4, 8), np.float32), b, "mean")
    np.testing.assert_array_equal(found, 0)
