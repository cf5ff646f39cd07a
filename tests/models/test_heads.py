"""Heads over words and labels, written out."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.batch import Encoded
from bert_jax.config import knobs
from bert_jax.models.encoder import Encoder
from bert_jax.models.heads import LabelHead, MlmHead
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


def test_a_head_of_a_matrix_is_only_that_matrix():
    cfg = toy.config(model__word_head="matrix").model
    x = np.random.default_rng(0).normal(size=(1, 5, 32)).astype(np.float32)
    encoded = Encoded(jnp.asarray(x), None, jnp.ones((64, 24)))
    slots, head = {"predict_positions": np.array([[1, 4, 2]])}, MlmHead(cfg, toy.VOCAB)
    fresh = head.init(jax.random.key(0), encoded, slots)["params"]
    assert not fresh["table"][toy.VOCAB :].any()
    params = toy.draw_parameters(head, encoded, slots)
    shapes = {name: value.shape for name, value in params.items()}
    assert shapes == {"table": (64, 32), "bias": (64,)}
    found = np.asarray(head.apply({"params": params}, encoded, slots))[0]
    expected = x[0, [1, 4, 2]] @ params["table"].T + params["bias"]
    np.testing.assert_allclose(found[:, : toy.VOCAB], expected[:, : toy.VOCAB], atol=1e-4)
    assert (found[:, toy.VOCAB :] < -1e8).all()


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


def test_features_are_read_without_a_pooler():
    """The paper's feature-based approach: last layers side by side, then the last matrix."""
    cfg = toy.config(model__features=2, model__pooler="transform", model__pooling="mean").model
    b = toy.batch(2, 24)
    features = np.random.default_rng(0).normal(size=(2, 24, 64)).astype(np.float32)
    encoded = Encoded(jnp.zeros((2, 24, 32)), None, jnp.zeros((60, 32)), features=features)
    head = LabelHead(cfg, 3, True, 0.0, False)
    params = toy.draw_parameters(head, encoded, b)
    assert [*params] == ["logits"]
    means = [row[ids > 0].mean(0) for row, ids in zip(features, b["segment_ids"], strict=True)]
    found = head.apply({"params": params}, encoded, b)[:, 0]
    np.testing.assert_allclose(found, reference.dense(np.array(means), params["logits"]), atol=1e-5)
