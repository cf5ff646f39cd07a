"""Heads over labels, and what they read; heads over words are held by test_encoder.py."""

import dataclasses

import jax
import numpy as np

from bert_jax.config import knobs
from bert_jax.models import pooler
from bert_jax.objectives import network
from tests import tiny


def test_dropout_stands_before_heads_of_tasks():
    """As in the paper's fine-tuning; the head over answers and those over pairs have none.

    What the heads compute is held by tests/interop/test_parity.py.
    """
    config = tiny.config(model__classifier_dropout=0.5, model__layers=1)
    names = ("classify", "tag", "regress", "choice", "span", "nsp", "sop")
    heads = {name: knobs.Objective(1.0, ("a", "b")) for name in names}
    config = dataclasses.replace(config, objectives=heads)
    params = tiny.init(config)
    b = tiny.batch(6, 24)
    plain, noisy = (
        jax.jit(network.build_network(config, tiny.VOCAB, train=train).apply)(
            {"params": params}, b, rngs={"dropout": jax.random.key(0)}
        )
        for train in (False, True)
    )
    changed = {name for name in names if (np.abs(noisy[name] - plain[name]) > 1e-4).any()}
    assert changed == {"classify", "tag", "regress", "choice"}


def test_pool_examples_averages_each_example():
    """Of an example that the row does not have the mean is 0, and not 0 / 0."""
    x = np.arange(8, dtype=np.float32).reshape(1, 4, 2)
    segments = np.array([[1, 1, 2, 0]], np.int32)
    b = {"segment_ids": segments, "cls_positions": np.zeros((1, 3), np.int32)}
    found = pooler.pool_examples(x, b, "mean", False)
    np.testing.assert_array_equal(found, [[[1, 2], [4, 5], [0, 0]]])
