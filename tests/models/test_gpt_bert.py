"""Relative positions, the gate of attention, layer weights and the norms of GPT-BERT: the authors'
outputs and gradients from the same weights, and each of them written out.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import objectives
from bert_jax.config import costs, knobs
from bert_jax.config.knobs import Config
from bert_jax.errors import ConfigError
from bert_jax.models import gpt_bert as parts
from bert_jax.models.attention_mask import make_attention_mask
from bert_jax.models.encoder import Attention, Encoder, FeedForward, read_layers
from bert_jax.models.layers import make_norm
from bert_jax.objectives import network
from bert_jax.system.trees import flat
from experiments.performance.matmuls import count_matmuls
from tests import gpt_bert, reference, toy

SHIFTED = objectives.TABLE["hybrid"].configure(knobs.Objective(shift=True))

# --- the authors' numbers -------------------------------------------------------------------------


@functools.cache
def golden() -> dict[str, np.ndarray]:
    return dict(np.load(gpt_bert.GOLDEN))


def weights() -> Any:
    """Those of the recipe, under our names; rows of padding are 0."""
    named = {k.removeprefix("gradient/"): v.shape for k, v in golden().items() if "/" in k}
    params = gpt_bert.to_ours({name: gpt_bert.tensor(name, shape) for name, shape in named.items()})
    more = {"constant_values": 0, "mode": "constant"}
    table, bias = params["encoder"]["embeddings"], params["mlm"]
    table["token"] = np.pad(table["token"], ((0, 64 - gpt_bert.VOCAB), (0, 0)), **more)
    bias["bias"] = np.pad(bias["bias"], (0, 64 - gpt_bert.VOCAB), **more)
    return params


def computed(config: Config) -> tuple[Any, dict[str, np.ndarray]]:
    """Gradients of the hybrid loss, and hidden states, logits and loss, by the authors' names."""
    b, vocab = gpt_bert.batch(), gpt_bert.VOCAB
    encoder = Encoder(config.model, vocab, pool=False)
    head = SHIFTED.make_head(config.model, vocab, 0, False, "mlm")

    def compute(params: Any) -> tuple[jax.Array, Any]:
        encoded = encoder.apply({"params": params["encoder"]}, b)
        logits = head.apply({"params": params["mlm"]}, encoded, b)
        sums, counts = SHIFTED.loss(logits, b), SHIFTED.count(b)
        masked, causal = (sums[f"{n}_loss"][0] / counts[n] for n in ("mlm", "causal_lm"))
        loss = (1 - gpt_bert.SHARE) * masked + gpt_bert.SHARE * causal
        hidden = read_layers(config.model, vocab, params["encoder"], b).hidden
        return loss, {"hidden_states": hidden, "logits": logits[..., :vocab], "loss": loss}

    return jax.device_get(jax.jit(jax.grad(compute, has_aux=True))(weights()))


@pytest.mark.parametrize("remat", ["none", pytest.param("full", marks=pytest.mark.slow)])
def test_outputs_and_gradients_are_the_authors(remat):
    gradients, ours = computed(gpt_bert.config(model__remat=remat))
    real, theirs, far = gpt_bert.batch()["segment_ids"] > 0, golden(), {}
    states = theirs["hidden_states"].astype(np.float64)
    # Theirs end before the norm that their head begins with; ours end after it.
    states[-1] = reference.norm(states[-1], {"scale": 1, "bias": 0}, 1e-5)
    for i, (x, y) in enumerate(zip(ours["hidden_states"], states, strict=True)):
        far[f"hidden states {i}"] = np.abs(x - y)[real].max() / np.abs(y[real]).max()
    far["logits"] = np.abs(ours["logits"] - theirs["logits"])[real].max()
    far["logits"] /= np.abs(theirs["logits"][real]).max()
    far["loss"] = abs(ours["loss"] - theirs["loss"]) / theirs["loss"]
    named = {k.removeprefix("gradient/"): v for k, v in theirs.items() if "/" in k}
    expected, found = flat(gpt_bert.to_ours(named)), flat(gradients)
    assert expected.keys() == found.keys()
    for name, gradient in expected.items():
        mine = np.asarray(found[name])
        if name in ("encoder/embeddings/token", "mlm/bias"):
            assert not mine[gpt_bert.VOCAB :].any()
            mine = mine[: gpt_bert.VOCAB]
        far[name] = np.abs(mine - gradient).max() / np.abs(gradient).max()
    assert {name: value for name, value in far.items() if not value <= 1e-5} == {}


def test_assign_buckets_does_as_the_authors_code():
    found = parts.assign_buckets(
        gpt_bert.config(model__position_buckets=32, model__max_positions=512).model
    )
    np.testing.assert_array_equal(found, golden()["buckets"])


def test_buckets_with_none_to_share_are_refused():
    settings = {"model__position": "relative", "model__max_positions": 24}
    toy.config(**settings, model__position_buckets=45)
    with pytest.raises(ConfigError, match=r"half of them reach model\.max_positions = 24"):
        toy.config(**settings, model__position_buckets=46)


# --- one by one -----------------------------------------------------------------------------------


def test_add_distances_adds_what_is_written_out():
    random = np.random.default_rng(0)
    settings = {"model__position_buckets": 4, "model__max_positions": 6}
    cfg = toy.config(model__position="relative", **settings).model
    query, key = random.normal(size=(2, 2, 9, 3, 8)).astype(np.float32)
    distance_query, distance_key = random.normal(size=(2, 7, 3, 8)).astype(np.float32)
    columns = np.broadcast_to(np.arange(9, dtype=np.int32), (2, 9))
    mask = make_attention_mask({"segment_ids": columns * 0 + 1, "positions": columns}, cfg)
    near = {-2: 1, -1: 2, 0: 3, 1: 4, 2: 5}
    bucket = np.array([[near.get(i - j, 6 if i > j else 0) for j in range(9)] for i in range(9)])
    expected = np.einsum("bihd,ijhd->bhij", query, distance_key[bucket])
    expected += np.einsum("bjhd,ijhd->bhij", key, distance_query[bucket])
    vectors = (query, key, distance_query, distance_key)
    scaled, found = jax.jit(parts.add_distances, static_argnums=0)(cfg, *vectors, mask)
    np.testing.assert_allclose(scaled, query / np.sqrt(3), atol=1e-6)
    np.testing.assert_allclose(found.bias, expected / np.sqrt(3 * 8), atol=1e-5)


def test_norms_of_distances_keep_their_parameters():
    config = toy.config(model__position="relative", model__norm_parameters="false")
    shapes = jax.eval_shape(lambda: network.init(config, toy.VOCAB, np.uint32(0)))
    assert {n for n in flat(shapes) if "norm/" in n} == {
        f"encoder/relative_positions/norm/{name}" for name in ("scale", "bias")
    }
    x = np.random.default_rng(0).normal(3, 2, (2, 5, 32)).astype(np.float32)
    plain = reference.norm(np.float64(x), {"scale": 1, "bias": 0})
    np.testing.assert_allclose(make_norm(config.model).apply({}, x), plain, atol=1e-5)


@pytest.mark.parametrize(("biases", "own", "there"), [(1, None, 1), (1, 0, 0), (0, 1, 1)])
def test_the_feed_forward_may_have_its_own_biases(biases, own, there):
    config = toy.config(model__biases=bool(biases), model__gated="true", model__inner_norm="true")
    model = dataclasses.replace(config.model, mlp_biases=own if own is None else bool(own))
    shapes = flat(jax.eval_shape(FeedForward(model).init, jax.random.key(0), jnp.zeros((2, 3, 32))))
    dense = {f"params/{name}/bias" for name in ("up", "gate", "down")}
    assert (dense & shapes.keys() == dense) == bool(there)
    assert ("params/norm/bias" in shapes) == bool(biases)  # no dense layer's


def test_a_gate_multiplies_what_attention_summed():
    """With a gate that is the same at every token, as if it were in the last matrix."""
    b, x = toy.batch(2, 24), np.random.default_rng(1).normal(size=(2, 24, 32)).astype(np.float32)
    gated, plain = (
        Attention(toy.config(model__attention_gate=gate).model, train=False, backend="einsum")
        for gate in (True, False)
    )
    mask = make_attention_mask(b, plain.cfg)
    params = toy.draw_parameters(gated, x, mask)
    params["gate"]["kernel"][:] = 0
    found = jax.jit(lambda p: gated.apply({"params": p}, x, mask))(params)
    share = reference.gelu(np.float64(params.pop("gate")["bias"]))[..., None]
    params["out"]["kernel"] = params["out"]["kernel"] * share.astype(np.float32)  # a new array
    expected = jax.jit(lambda p: plain.apply({"params": p}, x, mask))(params)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_layers_read_the_sum_that_weights_say():
    """At first the latest output: a model with layer weights is then the one without."""
    b = toy.batch(2, 24)
    weighted, plain = (toy.config(model__layer_weights=on).model for on in ("true", "false"))
    fresh = toy.init(toy.config(model__layer_weights="true"))["encoder"]
    before = fresh["layer_weights"]["weights"]
    rest = {name: value for name, value in fresh.items() if name != "layer_weights"}
    run = jax.jit(lambda p: read_layers(weighted, toy.VOCAB, p, b).hidden)
    without = jax.jit(lambda p: read_layers(plain, toy.VOCAB, p, b).hidden)(rest)
    np.testing.assert_array_equal(run(fresh), without)
    assert before.shape == (2 + 3 + 4 + 5,)
    for layer, first, count in ((1, 2, 3), (2, 9, 5)):
        chosen = np.array(before)
        chosen[first : first + count] = [2, *[0] * (count - 1)]  # the embeddings alone, doubled
        states = run(fresh | {"layer_weights": {"weights": chosen}})
        np.testing.assert_array_equal(states[layer], 2 * states[0])


def test_flops_are_the_matmuls_but_for_buckets():
    config = gpt_bert.config(batch_size=4)
    net, b = network.build(config, gpt_bert.VOCAB), gpt_bert.batch()

    def loss(params: Any) -> jax.Array:
        sums = SHIFTED.loss(network.outputs(net, params, b)["hybrid"], b)
        return sum(total for total, _ in sums.values())

    counted = count_matmuls(jax.make_jaxpr(jax.grad(loss))(weights()).jaxpr)
    flops = sum(one.flops * times for one, times in counted.items())
    pairs, rows = 4 * gpt_bert.LENGTH**2 * gpt_bert.HEADS, 2 * gpt_bert.BUCKETS - 1
    choice = 2 * 2 * 2 * pairs * rows * gpt_bert.LAYERS  # two scores, forwards and backwards
    assert flops - choice == costs.flops_per_step(config, 64)
