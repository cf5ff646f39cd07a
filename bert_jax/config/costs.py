"""Costs of a run: FLOPs, tokens and predictions of a step, and the bytes it holds.

The costs follow from the config and the size of the vocabulary. That size is not always
`tokenizer.vocab_size`: a trained vocabulary may be smaller, and a given one has its own size.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping
from importlib.metadata import version
from typing import NamedTuple

import numpy as np
from packaging.version import Version

from bert_jax.config import knobs
from bert_jax.masking import quotas, rates


class Kept(NamedTuple):
    """What the backward pass finds stored of a layer, as numbers of arrays in the compute type."""

    vectors: float  # [rows, L, D]
    features: float  # [rows, L, F]; one more in a gated layer
    scores: float  # [rows, heads, L, L]


# By compiler and remat. Of an accelerator, the arrays that cross from the loop of the forward pass
# to that of the backward pass. dots: results of matmuls (query, key, value, context, two outputs,
# up), the layer's input, and scores in float32. none: the inputs of both norms and of the last
# matmul too, two masks of dropout at half an array each, and of attention the probabilities in
# float32, the dropped ones and their mask; a GPU's compiler has no probabilities in float32 but one
# more in the compute type, and two gradients of vectors beside the loop's arrays. Of a CPU, the
# buffers in XLA's report of memory: each factor of a matmul is there as it was and turned, and
# dropout and norms keep their steps.
KEPT: Mapping[str, Mapping[str, Kept]] = {
    "tpu": {"none": Kept(10, 2, 3.5), "dots": Kept(7, 1, 2), "full": Kept(1, 0, 0)},
    "cuda": {"none": Kept(12, 2, 2.5), "dots": Kept(7, 1, 2), "full": Kept(1, 0, 0)},
    "cpu": {"none": Kept(20, 3, 3), "dots": Kept(7, 1, 1), "full": Kept(1, 0, 0)},
}
# What knobs add: inputs of norms and products of gates, two outputs of blocks for the gradients of
# layer weights (and the input of a second block to compute again), and scores of distances, which
# are results of matmuls. Those of heads of 64 with 63 distances are a vector a token.
MORE: Mapping[str, Mapping[str, Mapping[str, Kept]]] = {
    "cuda": {
        "gate": {"none": Kept(3, 0, 0), "dots": Kept(1, 0, 0)},
        "norm": {"none": Kept(1, 1, 0)},
        "sums": {"none": Kept(2, 0, 0), "dots": Kept(3, 0, 0), "full": Kept(3, 0, 0)},
        "distances": {"dots": Kept(0, 0, 2)},
    },
    "cpu": {
        "gate": {"none": Kept(4, 0, 0), "dots": Kept(1, 0, 0)},
        "norm": {"none": Kept(3, 3, 0)},
        "sums": {"none": Kept(2, 0, 0), "dots": Kept(3, 0, 0), "full": Kept(3, 0, 0)},
        "distances": {"none": Kept(2, 0, 0), "dots": Kept(0, 0, 2)},
    },
}
STATES = 4  # arrays of the parameters' size that a run holds: parameters, two moments, gradients


def per_step(kind: str, config: knobs.Config, vocab_size: int) -> float:
    """Compute the cost of a step in the unit of a budget: steps, tokens, predictions or FLOPs."""
    tokens = float(config.batch_size * config.sequence_length)
    if kind == "flops":
        return flops_per_step(config, vocab_size)
    return {"steps": 1.0, "tokens": tokens, "predictions": tokens * predicted(config)}[kind]


def predicted(config: knobs.Config) -> float:
    """Return the share of tokens that are predicted, on average over training and over views."""
    if "mlm" not in config.heads:
        return 1.0
    rate, share = config.masking.prediction_rate, causal(config)
    views = rates.count_views(config.masking)
    masked = rates.mean_rate(config.masking) if rate is None else rate / views
    return masked + share * (1 - masked) if share else masked


def own_slots(config: knobs.Config) -> int:
    """Return the prediction slots per row of a run that is not fused with others."""
    if "mlm" not in config.heads:
        return 1
    if "hybrid" in config.objectives:
        return config.sequence_length
    return quotas.count_slots(config.masking, config.sequence_length, config.packing)


def flops_per_step(config: knobs.Config, vocab_size: int, slots: int = 0) -> float:
    """Return the FLOPs an update computes, with padding, spare slots and masked attention."""
    length, rows = config.sequence_length, config.batch_size
    tokens = rows * length
    predictions = rows * _predicted(config, slots)
    return _flops(config, vocab_size, tokens, float(tokens * length), predictions, rows)


def flops(config: knobs.Config, vocab_size: int, tokens: int, pairs: float, examples: int) -> float:
    """Return the FLOPs an update needs for its real tokens, pairs that may attend, and examples."""
    heads = sum(
        predicted(config) if name == "mlm" else name == "causal_lm" for name in config.heads
    )
    return _flops(config, vocab_size, tokens, pairs, tokens * heads, examples)


def pairs(model: knobs.Model, sizes: np.ndarray, causal: float = 0.0) -> float:
    """Count the pairs that may attend in examples of these sizes, on average over layers.

    A share of the examples is `causal` in a model that is not.
    """
    assert model.layers is not None
    n, w = sizes.astype(np.float64), model.window
    one_side = n * (n - 1) / 2
    near = np.where(n > w, n * w - w * (w + 1) / 2, one_side) if w else one_side
    far = -(-model.layers // model.global_every) / model.layers if model.global_every else 0.0
    sides = 1 if model.causal else 2 - causal
    return float((n + sides * (far * one_side + (1 - far) * near)).sum())


def _flops(
    config: knobs.Config,
    vocab_size: int,
    tokens: int,
    pairs: float,
    predictions: float,
    examples: int,
) -> float:
    """Count the matmuls of the forward pass, and twice as many of the backward pass.

    A layer multiplies each token with 4 D x D (5 with a gate of attention) and 2 (3 when gated)
    D x F, and each pair of tokens twice over D. With relative positions it multiplies each bucket
    of distances with 2 D x D, and each token twice with the vectors of all buckets. Embeddings of
    another width E are multiplied with E x D. The MLM head multiplies each predicted token with
    D x E and E x V, or with D x V only. The head of `replaced` multiplies each token with D x D and
    D. Left out are lookups, norms, layer weights, the choice of each pair's bucket, and the
    optimizer.
    """
    width = _shape(config)[1]
    of_layers = 0.0
    for one in _encoders(config):
        layers, read, _ = _shape(one)
        of_distances = 2 * distances(one) * read * (read + tokens)
        of_layers += layers * (tokens * layer_matrices(one) + 2 * pairs * read + of_distances)
        of_layers += tokens * _projection(one)
    words = predictions * _word_weights(config, vocab_size, tied=True)
    pooled = examples * width**2 if config.pairs != "none" else 0
    judged = tokens * (width**2 + width) if "replaced" in config.objectives else 0
    return 3.0 * 2 * (of_layers + words + pooled + judged)


def attention_flops(config: knobs.Config) -> float:
    """Return the FLOPs of an update's scores and weighted sums, padding included."""
    pairs = config.batch_size * config.sequence_length**2
    shapes = map(_shape, _encoders(config))
    return sum(3.0 * 2 * layers * 2 * pairs * width for layers, width, _ in shapes)


def layer_matrices(config: knobs.Config) -> int:
    """Return the number of weight-matrix parameters per layer."""
    _, width, mlp = _shape(config)
    squares = 4 + config.model.attention_gate
    return squares * width**2 + (3 if config.model.gated else 2) * width * mlp


def distances(config: knobs.Config) -> int:
    """Return the rows of the table of relative positions; 0 without one."""
    m = config.model
    return 2 * m.position_buckets - 1 if m.position == "relative" else 0


def state_bytes(config: knobs.Config, vocab_size: int) -> int:
    """Return the bytes of parameters, moments and gradients of a run, without biases and norms."""
    (layers, width, _), encoders = _shape(config), _encoders(config)
    m = config.model
    tables = vocab_size + m.type_vocab + (m.max_positions if m.position == "learned" else 0)
    several = (config.pairs != "none") + ("replaced" in config.objectives)  # the pooler, its head
    numbers = m.table_width * tables + _word_weights(config, vocab_size) + several * width**2
    for one in encoders:
        numbers += layers * layer_matrices(one) + distances(one) * _shape(one)[1]
        numbers += layers * (2 * layers + 3) * one.model.layer_weights + _projection(one)
    return 4 * STATES * numbers


def least_bytes(config: knobs.Config, vocab_size: int) -> tuple[int, int]:
    """Return the fewest bytes that a run can take over all devices: of its state, of its batches.

    The state is parameters and two moments. The backward pass needs the input of each layer, or
    of heads alone where the encoder is frozen, and an evaluation the vectors of one layer.
    """
    layers, width, _ = _shape(config)
    kept = 1 if _is_encoder_frozen(config.optim.freeze, layers) else layers
    trained = kept * config.batch_size // config.optim.accumulation
    read = max((each.batch_size or 1 for each in config.evals.values()), default=0)
    vectors = max(trained, read) * config.sequence_length * width
    return state_bytes(config, vocab_size) * 3 // STATES, 2 * vectors


def _is_encoder_frozen(pattern: str, layers: int) -> bool:
    """Tell whether optim.freeze matches the names of all embeddings and layers."""
    below = ["encoder/embeddings/", *(f"encoder/layer_{layer}/" for layer in range(layers))]
    return bool(pattern) and all(re.search(pattern, names) for names in below)


def activation_bytes(
    config: knobs.Config,
    vocab_size: int,
    rows: int,
    slots: int = 0,
    *,
    device: str = "cpu",
    fused: bool = False,
) -> int:
    """Estimate the most bytes of activations that an update of `rows` rows holds at once.

    That is when the backward pass begins, with what all layers have kept and the arrays of the
    head, or, where those are smaller, what one layer computes again.

    Args:
      config: its compute type, remat and scan are those of the device, or else of a CPU.
      vocab_size: of the head.
      rows: of a device and microbatch.
      slots: prediction slots per row, where they are not the config's own.
      device: the kind of device that is compiled for.
      fused: attention is a fused kernel, which keeps no scores.
    """
    m, length = config.model, config.sequence_length
    tokens = rows * length

    def size(kind: str, one: knobs.Config = config) -> float:
        _, width, mlp = _shape(one)
        kept = _kept(device, kind, one.model)
        pairs = 0 if fused else rows * (one.model.heads or 1) * length**2
        features = (kept.features + (m.gated and kept.features > 0)) * mlp
        numbers = tokens * (kept.vectors * width + features) + kept.scores * pairs
        return (2 if m.dtype == "bfloat16" else 4) * numbers

    # Compilers undo the recomputation of layers that are no loop, but for a CPU's since jax 0.12.
    recomputes = m.scan or (device == "cpu" and _cpu_recomputes())
    remat = m.remat if m.remat != "auto" and recomputes else "none"
    logits = 4 * rows * _predicted(config, slots) * vocab_size
    head = (3 if device == "cpu" else 2) * logits
    again = size("none") - size(remat)
    kept = sum(_shape(one)[0] * size(remat, one) for one in _encoders(config))
    return int(kept + max(head, again))


def _kept(device: str, kind: str, m: knobs.Model) -> Kept:
    """Count the arrays of a layer that are stored until the backward pass."""
    more = MORE.get(device, MORE["cuda"])
    used = {"gate": m.attention_gate, "norm": m.inner_norm, "sums": m.layer_weights}
    used["distances"] = m.position == "relative"
    rows = [more[name].get(kind, Kept(0, 0, 0)) for name, on in used.items() if on]
    return Kept(*map(sum, zip(KEPT.get(device, KEPT["cuda"])[kind], *rows, strict=True)))


@functools.cache
def _cpu_recomputes() -> bool:
    return Version(version("jax")) >= Version("0.12")


def causal(config: knobs.Config) -> float:
    """Return the share of examples that objective hybrid reads from left to right."""
    return config.objectives["hybrid"].share if "hybrid" in config.objectives else 0.0


def _predicted(config: knobs.Config, slots: int) -> int:
    """Return the tokens per row that go through the heads over the vocabulary."""
    heads = {"mlm": slots or own_slots(config), "causal_lm": config.sequence_length}
    return sum(heads[name] for name in config.heads if name in heads)


def _encoders(config: knobs.Config) -> list[knobs.Config]:
    """Return the config, and where there is a generator the config with that as its model."""
    small = config.generator
    return [config, *([dataclasses.replace(config, model=small)] if small else [])]


def _projection(config: knobs.Config) -> int:
    """Return the weights of the projection of the embeddings to the width of the layers."""
    table, width = config.model.table_width, _shape(config)[1]
    return table * width if table != width else 0


def _word_weights(config: knobs.Config, vocab_size: int, *, tied: bool = False) -> int:
    """Return the weights of the MLM head, with the token table if it is `tied` to that."""
    read = _shape(_encoders(config)[-1])[1]  # of the generator, if there is one
    if config.model.word_head == "matrix":
        return read * vocab_size
    own = tied or config.model.word_head == "untied"
    return config.model.table_width * (read + vocab_size * own)


def _shape(config: knobs.Config) -> tuple[int, int, int]:
    m = config.model
    assert m.layers is not None
    assert m.hidden is not None
    assert m.mlp is not None
    return m.layers, m.hidden, m.mlp
