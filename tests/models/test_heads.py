"""Heads over words and labels, written out."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config import knobs
from bert_jax.objectives import network
from tests import toy


def test_padding_of_the_table_is_never_predicted():
    config = toy.config()
    b, _ = toy.mask(toy.batch(4, 24), config.masking, slots=8)
    logits = jax.jit(network.build_network(config, toy.VOCAB).apply)(
        {"params": toy.init(config)}, b
    )["mlm"]
    assert logits.shape[-1] == 64
    assert (np.asarray(jax.nn.softmax(logits))[..., toy.VOCAB :] == 0).all()


def test_logits_are_finer_than_the_compute_type():
    config = toy.config(model__dtype="bfloat16")
    b, _ = toy.mask(toy.batch(4, 24), config.masking, slots=8)
    found = jax.jit(network.build_network(config, toy.VOCAB).apply)({"params": toy.init(config)}, b)
    for name, logits in found.items():
        values = np.asarray(logits)[..., : toy.VOCAB]
        assert (values != values.astype(jnp.bfloat16).astype(np.float32)).mean() > 0.9, name


def test_dropout_stands_before_heads_of_tasks():
    """As in the paper's fine-tuning; the head over answers and those over pairs have none.

    What the heads compute is held by tests/interop/test_parity.py.
    """
    config = toy.config(model__classifier_dropout=0.5, model__layers=1)
    names = ("classify", "tag", "regress", "choice", "span", "nsp", "sop")
    heads = {name: knobs.Objective(1.0, ("a", "b")) for name in names}
    config = dataclasses.replace(config, objectives=heads)
    params = toy.init(config)
    b = toy.batch(6, 24)
    plain, noisy = (
        jax.jit(network.build_network(config, toy.VOCAB, train=train).apply)(
            {"params": params}, b, rngs={"dropout": jax.random.key(0)}
        )
        for train in (False, True)
    )
    changed = {name for name in names if (np.abs(noisy[name] - plain[name]) > 1e-4).any()}
    assert changed == {"classify", "tag", "regress", "choice"}
