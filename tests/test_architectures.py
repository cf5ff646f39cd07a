"""What the knobs of other architectures compute, and that they train like any: packed, split over
devices, in a loop or unrolled, fused, counted.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import train
from bert_jax.batch import Encoded
from bert_jax.benchmarks import ours
from bert_jax.config import costs, knobs
from bert_jax.models import backends, bert, positions
from bert_jax.models.heads import LabelHead, MlmHead
from bert_jax.models.layers import LayerNorm
from bert_jax.objectives import TABLE, network
from bert_jax.system.trees import flat
from tests import reference, texts, toy
from tests.test_families import EXPRESSED, MODERN, NEO
from tests.test_fused_runs import metric
from tests.test_knobs import parameters
from tests.test_step import LAYOUTS, advance, batches
from tests.texts import configure

# Every knob of these architectures in one model or another.
MODELS: dict[str, dict[str, Any]] = {
    "modernbert": {k: v for k, v in (EXPRESSED["modernbert"] | MODERN).items() if k != "pairs"}
    | {"model__pooling": "mean", "model__pooler": "transform", "model__layers": 3},
    "roberta": {"model__first_position": 2, "model__type_vocab": 1, "model__norm": "pre"},
    "gpt_bert": {
        "model__position": "relative",
        "model__position_buckets": 6,
        "model__max_positions": 18,
        "model__norm": "pre",
        "model__inner_norm": "true",
        "model__norm_parameters": "false",
        "model__mlp_biases": "false",
        "model__gated": "true",
        "model__attention_gate": "true",
        "model__layer_weights": "true",
        "model__type_vocab": 0,
        "model__pooler": "transform",
    },
    "distilbert": {"model__type_vocab": 0, "model__pooler": "relu", "model__pooling": "mean"},
    "electra": {"model__embedding": 24, "model__pooler": "gelu", "model__window": 6},
    "neobert": NEO,
}


# --- one by one -----------------------------------------------------------------------------------


def embedded(config: knobs.Config, params: dict, b: dict) -> np.ndarray:
    module = bert.Embeddings(config.model, toy.VOCAB, False, 8)
    return np.asarray(
        jax.jit(module.apply)({"params": params}, b["tokens"], b["type_ids"], b["positions"])[0]
    )


def test_positions_and_types_are_the_rows_that_are_named():
    """Written out: the first token reads row `first_position`; one type is added to all tokens."""
    b = {key: np.arange(8, dtype=np.int32)[None] for key in ("tokens", "positions")}
    b["type_ids"] = np.array([[0, 0, 0, 0, 1, 1, 1, 1]], np.int32)
    for first, types in ((0, 2), (2, 1), (3, 0)):
        settings = {"model__first_position": first, "model__type_vocab": types}
        config = toy.config(**settings, model__max_positions=12, sequence_length=8)
        module = bert.Embeddings(config.model, toy.VOCAB, False, 8)
        params = parameters(module, b["tokens"], b["type_ids"], b["positions"])
        assert ("type" in params) == (types > 0)
        x = params["token"][:8] + params["position"][first : first + 8]
        if types:
            x = x + params["type"][b["type_ids"][0] if types == 2 else 0]
        expected = reference.norm(np.float64(x), reference.widen(params["norm"]))
        np.testing.assert_allclose(embedded(config, params, b)[0], expected, atol=1e-5)
        without = dataclasses.replace(config.model, embedding_norm=False)
        found = embedded(dataclasses.replace(config, model=without), params, b)[0]
        np.testing.assert_allclose(found, x, atol=1e-5)


def test_embeddings_of_another_width_are_projected():
    """After their norm, and also under a generator; every reader of layer 0 sees the projection."""
    for width in (24, 32):
        config = toy.config(model__embedding=width, model__type_vocab=0, model__layers=1)
        b = toy.batch(2, 24, seed=4)
        encoder = bert.Bert(config.model, toy.VOCAB, pool=False, capture=True)
        params = parameters(encoder, b)
        x = np.float64(embedded(config, params["embeddings"], b))
        assert ("projection" in params) == (width != 32)
        if width != 32:
            x = reference.dense(x, params["projection"])
        encoded = jax.jit(encoder.apply)({"params": params}, b)
        assert encoded.embedding_table.shape[-1] == width
        np.testing.assert_allclose(encoded.layers[0], x, rtol=1e-4, atol=1e-4)


def test_rms_norm_has_neither_mean_nor_bias():
    x = np.random.default_rng(0).normal(2, 3, size=(4, 32)).astype(np.float32)
    cfg = toy.config(model__norm_kind="rms", model__norm_epsilon=0.5).model
    params = parameters(LayerNorm(cfg), x)
    assert [*params] == ["scale"]
    expected = x / np.sqrt((x**2).mean(-1, keepdims=True) + 0.5) * params["scale"]
    found = LayerNorm(cfg).apply({"params": params}, x)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_head_of_a_matrix_alone_is_that_matrix():
    """Padding of the vocabulary has zeros in it, and is never predicted."""
    cfg = toy.config(model__word_head="matrix").model
    x = np.random.default_rng(0).normal(size=(1, 5, 32)).astype(np.float32)
    encoded = Encoded(jnp.asarray(x), None, jnp.ones((64, 24)))
    slots, head = {"predict_positions": np.array([[1, 4, 2]])}, MlmHead(cfg, toy.VOCAB)
    fresh = head.init(jax.random.key(0), encoded, slots)["params"]
    assert not fresh["table"][toy.VOCAB :].any()
    params = parameters(head, encoded, slots)
    assert {name: value.shape for name, value in params.items()} == {
        "table": (64, 32),
        "bias": (64,),
    }
    found = np.asarray(head.apply({"params": params}, encoded, slots))[0]
    expected = x[0, [1, 4, 2]] @ params["table"].T + params["bias"]
    np.testing.assert_allclose(found[:, : toy.VOCAB], expected[:, : toy.VOCAB], atol=1e-4)
    assert (found[:, toy.VOCAB :] < -1e8).all()


def test_rotary_positions_have_the_base_of_their_layer():
    near = toy.config(model__position="rotary", model__rotary_base=500.0, model__window=4).model
    both = dataclasses.replace(near, rotary_base_near=20.0)
    for cfg, far, base in (
        (near, None, 500),
        (near, True, 500),
        (both, None, 20),
        (both, False, 20),
        (both, True, 500),
        (dataclasses.replace(both, window=0), None, 500),
    ):
        flag = None if far is None else jnp.asarray(far)
        found = positions.frequencies(cfg, 8, flag)
        np.testing.assert_allclose(found, [base ** (-2 * i / 8) for i in range(4)], rtol=1e-6)


def test_the_first_layer_may_read_what_was_not_normalised():
    x = np.random.default_rng(1).normal(size=(1, 5, 32)).astype(np.float32)
    sight = backends.AttentionMask(
        np.ones((1, 5), int), np.arange(5)[None], np.zeros((1, 1, 5, 5), np.float32)
    )
    config = toy.config(model__norm="pre", model__first_norm="false").model
    layer = bert.Layer(config, train=False, capture=False)
    params = parameters(layer, x, sight)
    run = jax.jit(lambda p, first: layer.apply({"params": p}, x, sight, None, first)[0])
    doubled = params | {"attention_norm": {k: 2 * v for k, v in params["attention_norm"].items()}}
    for first in (True, False):
        one, other = (np.asarray(run(p, jnp.asarray(first))) for p in (params, doubled))
        assert (one == other).all() == first
    plain = layer.apply({"params": params}, x, sight)[0]
    np.testing.assert_allclose(plain, run(params, jnp.asarray(False)), atol=1e-4)


@pytest.mark.slow
def test_only_the_first_layer_goes_without_a_norm():
    config = toy.config(**MODELS["modernbert"])
    b = toy.batch(2, 24)
    encoder = bert.Bert(dataclasses.replace(config.model, scan=True), toy.VOCAB, pool=False)
    params = parameters(encoder, b)
    hidden = jax.jit(lambda p: jnp.sum(jnp.sin(encoder.apply({"params": p}, b).hidden)))
    slopes = jax.jit(jax.grad(hidden))(params)["layers"]["attention_norm"]["scale"]
    assert [bool(np.any(row)) for row in np.asarray(slopes)] == [False, True, True]


def test_without_biases_only_the_outputs_have_them():
    settings = MODELS["modernbert"] | {"model__biases": "false"}
    shapes = jax.eval_shape(lambda: network.init(toy.config(**settings), toy.VOCAB, np.uint32(0)))
    outputs = {"mlm/bias", "nsp/logits/bias"}
    assert {n for n in flat(shapes) if n.endswith("bias")} == outputs
    settings |= {"model__pooler": "tanh", "model__pooler_bias": "true"}
    shapes = jax.eval_shape(lambda: network.init(toy.config(**settings), toy.VOCAB, np.uint32(0)))
    own = {"encoder/pooler/bias"}
    assert {n for n in flat(shapes) if n.endswith("bias")} == outputs | own


def test_pooled_vectors_are_those_of_a_token_or_means_of_an_example():
    b, x = toy.batch(3, 24, seed=2, examples=2), np.random.default_rng(0).normal(size=(3, 24, 8))
    for pooling in ("cls", "mean"):
        cfg = toy.config(model__pooling=pooling).model
        found = np.asarray(bert.pooled_vectors(cfg, b, jnp.asarray(x, jnp.float32)))
        for row, example in ((r, e) for r in range(3) for e in range(2)):
            mine = x[row, b["segment_ids"][row] == example + 1]
            expected = (
                mine.mean(0) if pooling == "mean" else x[row, b["cls_positions"][row, example]]
            )
            np.testing.assert_allclose(found[row, example], expected, atol=1e-6)


@pytest.mark.parametrize(
    "pooler", [*(pytest.param(x, marks=pytest.mark.slow) for x in ("relu", "gelu")), "transform"]
)
def test_what_stands_between_a_vector_and_its_labels(pooler):
    """A dense layer of the encoder and ReLU or GELU; or the MLM head's layers in each head over
    labels.
    """
    config = toy.config(model__pooler=pooler, model__head_activation="silu", model__layers=1)
    heads = {"classify": knobs.Objective(1.0, ("a", "b")), "tag": knobs.Objective(1.0, ("a", "b"))}
    config = dataclasses.replace(config, objectives=heads)
    b = toy.batch(2, 24)
    params = parameters(network.build(config, toy.VOCAB), b)
    net = network.build(config, toy.VOCAB)
    encoder = bert.Bert(config.model, toy.VOCAB, pool=False)

    @jax.jit
    def run(params):
        hidden = encoder.apply({"params": params["encoder"]}, b).hidden
        return hidden, network.outputs(net, params, b)

    hidden, found = run(params)
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
        np.testing.assert_allclose(
            found[name], reference.dense(x, head["logits"]), rtol=1e-4, atol=1e-4
        )


def test_heads_that_read_one_vector_of_a_text_are_named_in_the_knobs():
    assert {name for name, objective in TABLE.items() if objective.pooled} == set(knobs.POOLED)


def test_features_are_read_without_a_pooler():
    """The paper's feature-based approach: last layers side by side, then the last matrix."""
    cfg = toy.config(model__features=2, model__pooler="transform", model__pooling="mean").model
    b = toy.batch(2, 24)
    features = np.random.default_rng(0).normal(size=(2, 24, 64)).astype(np.float32)
    encoded = Encoded(jnp.zeros((2, 24, 32)), None, jnp.zeros((60, 32)), features=features)
    head = LabelHead(cfg, 3, True, 0.0, False)
    params = parameters(head, encoded, b)
    assert [*params] == ["logits"]
    means = [row[ids > 0].mean(0) for row, ids in zip(features, b["segment_ids"], strict=True)]
    found = head.apply({"params": params}, encoded, b)[:, 0]
    np.testing.assert_allclose(found, reference.dense(np.array(means), params["logits"]), atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_bytes_of_a_run_are_those_of_its_matrices(name):
    config = toy.config(pairs="none", **MODELS[name], model__vocab_multiple=1)
    shapes = jax.eval_shape(lambda: network.init(config, toy.VOCAB, np.uint32(0)))
    matrices = {n: x for n, x in flat(shapes).items() if not n.endswith(("bias", "scale"))}
    numbers = sum(x.size for x in matrices.values())
    assert costs.state_bytes(config, toy.VOCAB) == 4 * costs.STATES * numbers
    layers = sum(x.size for n, x in matrices.items() if "/layers/" in n)
    assert config.model.layers * costs.layer_matrices(config) == layers


@pytest.mark.parametrize("name", ["electra", pytest.param("neobert", marks=pytest.mark.slow)])
def test_flops_are_those_of_the_matmuls_of_an_update(name):
    config = toy.config(pairs="none", **MODELS[name], model__layers=1, batch_size=4)
    types = config.model.type_vocab * config.model.table_width
    wanted = costs.flops_per_step(config, bert.padded_vocab(config.model, toy.VOCAB))
    found = ours.matmuls_of(config)
    assert sum(x.flops * n for x, n in found.items()) == wanted + 2 * 2 * 4 * 24 * types


# --- in training ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", MODELS)
def test_loss_and_gradients_do_not_depend_on_how_the_batch_is_split(name, layout):
    settings = MODELS[name] | {"optim__clip_norm": 0}
    alone, split = toy.config(**settings), toy.config(**settings, **LAYOUTS[layout])
    data = batches(alone, examples=2)
    (one, state1), (other, state2) = advance(alone, data, devices=1), advance(split, data)
    for a, b in zip(one, other, strict=True):
        for key in ("loss", "mlm_loss", "nsp_loss", "grad_norm"):
            assert b[key] == pytest.approx(a[key], rel=1e-5), key
    first, second = (flat(s["optimizer"].mu) for s in (state1, state2))
    for key in first:
        a, b = np.asarray(first[key]), np.asarray(second[key])
        np.testing.assert_allclose(b, a, atol=2e-5 * max(np.abs(a).max(), 1e-3), err_msg=key)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_loop_and_recomputation_change_no_number_that_counts(name):
    data = batches(toy.config(), examples=2)
    found = []
    for scan, remat in ((False, "none"), (True, "none"), (True, "full"), (True, "dots")):
        settings = {"model__scan": scan, "model__remat": remat, "optim__clip_norm": 0}
        history, state = advance(toy.config(**MODELS[name], **settings), data, devices=1)
        found.append((history, flat(state["optimizer"].mu)))
    for history, moments in found[1:]:
        assert [h["loss"] for h in history] == pytest.approx(
            [h["loss"] for h in found[0][0]], rel=1e-6
        )
        for key, a in found[0][1].items():
            scale = 2e-5 * max(np.abs(a).max(), 1e-3)
            np.testing.assert_allclose(moments[key], a, atol=scale, err_msg=key)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["map", "vmap"])
@pytest.mark.parametrize("name", MODELS)
def test_runs_that_train_together_are_the_runs_they_would_be_alone(name, how, tmp_path):
    base = texts.config_file(tmp_path)
    shared = {"steps": 12, "logging__every": 1, "evals__validation__every": 12}
    shared |= {"checkpoints__every": 12, "parallel__arms": how, **MODELS[name]}
    arms = ({"masking__rate": 0.15}, {"masking__rate": 0.4, "seed": 3})
    with texts.one_device():
        jobs = [(configure(base, **shared | arm), tmp_path / str(i)) for i, arm in enumerate(arms)]
        train.train(jobs, command=[])
        train.run(configure(base, **shared | arms[1]), tmp_path / "alone", command=[])
    together, alone = (metric(tmp_path / n, "train/loss") for n in ("1", "alone"))
    np.testing.assert_allclose(together, alone, atol=1e-4)
    assert alone[-1] < alone[0]
