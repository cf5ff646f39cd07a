"""Heads over words and labels, written out."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config import knobs
from bert_jax.models.encoder import Encoder
from bert_jax.objectives import network
from tests import reference, toy

OUTPUTS = {"classify": 3, "tag": 3, "regress": 1, "choice": 1, "span": 2, "nsp": 2, "sop": 2}


def test_padding_of_the_table_is_never_predicted():
    config = toy.config()
    b, _ = toy.mask(toy.batch(4, 24), config.masking, slots=8)
    logits = jax.jit(network.build(config, toy.VOCAB).apply)({"params": toy.init(config)}, b)["mlm"]
    assert logits.shape[-1] == 64
    assert (np.asarray(jax.nn.softmax(logits))[..., toy.VOCAB :] == 0).all()


def test_logits_are_finer_than_the_compute_type():
    config = toy.config(model__dtype="bfloat16")
    b, _ = toy.mask(toy.batch(4, 24), config.masking, slots=8)
    found = jax.jit(network.build(config, toy.VOCAB).apply)({"params": toy.init(config)}, b)
    for name, logits in found.items():
        values = np.asarray(logits)[..., : toy.VOCAB]
        assert (values != values.astype(jnp.bfloat16).astype(np.float32)).mean() > 0.9, name


def test_label_heads_are_one_dense_layer():
    """Dropout stands before it where the paper's fine-tuning has it."""
    config = toy.config(model__classifier_dropout=0.5)
    heads = {
        name: knobs.Objective(1.0, ("a", "b", "c") if name in ("classify", "tag") else ())
        for name in OUTPUTS
    }
    config = dataclasses.replace(config, objectives=heads)
    params, b = toy.init(config), toy.batch(6, 24)
    encoder = Encoder(config.model, toy.VOCAB)
    encoded = jax.jit(encoder.apply)({"params": params["encoder"]}, b)
    found, noisy = (
        jax.jit(network.build(config, toy.VOCAB, train=train).apply)(
            {"params": params}, b, rngs={"dropout": jax.random.key(0)}
        )
        for train in (False, True)
    )
    for name, count in OUTPUTS.items():
        x = np.float64(encoded.hidden if name in ("tag", "span") else encoded.pooled)
        expected = reference.dense(x, params[name]["logits"])
        assert found[name].shape == (*x.shape[:-1], count)
        np.testing.assert_allclose(found[name], expected, atol=1e-6)
        dropped = (np.abs(noisy[name] - found[name]) > 1e-4).any()
        assert dropped == (name not in ("span", "nsp", "sop")), name


@pytest.mark.parametrize("pooler", ["relu", "gelu", "transform"])
def test_poolers_stand_between_a_vector_and_labels(pooler):
    """A dense layer of the encoder, or the MLM head's layers in each head over labels."""
    config = toy.config(model__pooler=pooler, model__head_activation="silu", model__layers=1)
    heads = {"classify": knobs.Objective(1.0, ("a", "b")), "tag": knobs.Objective(1.0, ("a", "b"))}
    config = dataclasses.replace(config, objectives=heads)
    b, net = toy.batch(2, 24), network.build(config, toy.VOCAB)
    params = toy.draw_parameters(net, b)
    encoder = Encoder(config.model, toy.VOCAB, pool=False)
    hidden = jax.jit(encoder.apply)({"params": params["encoder"]}, b).hidden
    found = jax.jit(net.apply)({"params": params}, b)
    assert ("pooler" in params["encoder"]) == (pooler != "transform")
    for name in heads:
        x = np.float64(hidden if name == "tag" else hidden[:, :1])
        head = reference.widen(params[name])
        if pooler == "transform":
            x = reference.dense(x, head["dense"])
            x = reference.norm(x / (1 + np.exp(-x)), head["norm"])
        elif name == "classify":
            x = reference.dense(x, reference.widen(params["encoder"]["pooler"]))
            x = reference.gelu(x) if pooler == "gelu" else np.maximum(x, 0)
        expected = reference.dense(x, head["logits"])
        np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-4)
