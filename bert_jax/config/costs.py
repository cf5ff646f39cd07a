"""Costs of a run: FLOPs, tokens and predictions of a step, and the bytes of its activations.

The costs follow from the config and the size of the vocabulary. That size is not always
`tokenizer.vocab_size`: a trained vocabulary may be smaller, and a given one has its own size.
"""

import numpy as np

from bert_jax.config import knobs
from bert_jax.masking import quotas, rates

# --- what a step makes ----------------------------------------------------------------------------


def per_step(kind: str, config: knobs.Config, vocab_size: int) -> float:
    """Compute the cost of a step in the unit of a budget: steps, tokens, predictions or FLOPs."""
    tokens = float(config.batch_size * config.sequence_length)
    if kind == "flops":
        return flops_per_step(config, vocab_size)
    return {"steps": 1.0, "tokens": tokens, "predictions": tokens * predicted_share(config)}[kind]


def predicted_share(config: knobs.Config, progress: float = 1.0) -> float:
    """Return the share of tokens that are predicted, averaged over training and over views.

    With `progress` it is averaged over this first part of training.
    """
    if "mlm" not in config.heads:
        return 1.0
    masking = config.masking
    masked = rates.mean_rate(masking, progress)
    if masking.prediction_rate is not None:
        masked = masking.prediction_rate / rates.count_views(masking)
    return masked + causal_share(config) * (1 - masked)


def causal_share(config: knobs.Config) -> float:
    """Return the share of examples that objective hybrid reads from left to right."""
    return config.objectives["hybrid"].share if "hybrid" in config.objectives else 0.0


def own_slots(config: knobs.Config) -> int:
    """Count the prediction slots of a row if the run does not share a program with other runs."""
    if "mlm" not in config.heads:
        return 1
    if "hybrid" in config.objectives:
        return config.sequence_length
    return quotas.count_slots(config.masking, config.sequence_length, config.packing)


# --- FLOPs ----------------------------------------------------------------------------------------


def flops_per_step(config: knobs.Config, vocab_size: int) -> float:
    """Count the FLOPs that an update computes, with padding, spare slots and masked attention."""
    length, rows = config.sequence_length, config.batch_size
    tokens = rows * length
    predictions = rows * _count_predictions(config)
    return _sum_flops(config, vocab_size, tokens, float(tokens * length), predictions, rows)


def count_flops(
    config: knobs.Config, vocab_size: int, tokens: int, pairs: float, examples: int
) -> float:
    """Count the FLOPs that an update needs for its real tokens, without padding.

    `pairs` counts the pairs of tokens that may attend to each other, and `examples` the texts that
    are pooled.
    """
    shares = {"mlm": predicted_share(config), "causal_lm": 1.0}
    heads = sum(shares.get(name, 0.0) for name in config.heads)
    return _sum_flops(config, vocab_size, tokens, pairs, tokens * heads, examples)


def count_pairs(model: knobs.Model, sizes: np.ndarray, causal: float = 0.0) -> float:
    """Count the pairs of tokens that may attend, averaged over layers, in examples of these sizes.

    `causal` is the share of examples that a bidirectional model reads from left to right.
    """
    layers = model.shape[0]
    n, window = sizes.astype(np.float64), model.window
    one_side = n * (n - 1) / 2
    near = one_side
    if window:
        near = np.where(n > window, n * window - window * (window + 1) / 2, one_side)
    far = 0.0  # the share of layers that attend to all tokens
    if model.global_every:
        far = -(-layers // model.global_every) / layers
    sides = 1 if model.causal else 2 - causal
    return float((n + sides * (far * one_side + (1 - far) * near)).sum())


def _sum_flops(
    config: knobs.Config,
    vocab_size: int,
    tokens: int,
    pairs: float,
    predictions: float,
    examples: int,
) -> float:
    """Count the FLOPs of all matmuls; the backward pass takes twice as many as the forward pass.

    A layer multiplies each token with 4 matrices D x D (5 with a gate of attention) and with 2
    matrices D x F (3 when gated). It multiplies each pair of tokens twice over D. With relative
    positions it multiplies each bucket of distances with 2 D x D, and each token twice with the
    vectors of all buckets. Embeddings of another width E are multiplied with E x D. The MLM head
    multiplies each predicted token with D x E and E x V, or only with D x V. The head of `replaced`
    multiplies each token with D x D and D. Left out are lookups, norms, layer weights, the choice
    of each pair's bucket, and the optimizer.
    """
    width = config.model.shape[1]
    products = predictions * _count_word_weights(config, vocab_size)
    for model in _list_encoders(config):
        layers, read, _, _ = model.shape
        of_layer = tokens * count_layer_matrices(model) + 2 * pairs * read
        of_layer += 2 * count_distances(model) * read * (read + tokens)
        products += layers * of_layer
        if model.table_width != read:
            products += tokens * model.table_width * read
    if config.pairs != "none":
        products += examples * width**2
    if "replaced" in config.objectives:
        products += tokens * (width**2 + width)
    return 3.0 * 2 * products


# --- bytes ----------------------------------------------------------------------------------------


def activation_bytes(
    config: knobs.Config, vocab_size: int, rows: int, *, fused: bool = False
) -> int:
    """Estimate the bytes of activations when the backward pass of `rows` rows begins.

    These are the arrays that all layers keep, and the arrays of the head. The estimate follows XLA
    on a CPU, which keeps more than other compilers. `bert-jax plan` asks the compiler itself.

    Args:
      config: the config, with the compute type, remat and scan that the device will use.
      vocab_size: the number of classes of the head.
      rows: rows of a microbatch on one device.
      fused: whether attention is a fused kernel, which keeps no scores.
    """
    m, length = config.model, config.sequence_length
    remat = m.remat if m.scan else "none"  # compilers undo the recomputation of layers in no loop
    kept = 0
    for model in _list_encoders(config):
        layers, width, heads, mlp = model.shape
        vectors, features, scores = _count_arrays(model, remat)
        pairs = 0 if fused else heads * length**2
        kept += layers * (length * (vectors * width + features * mlp) + scores * pairs)
    number = 2 if m.dtype == "bfloat16" else 4
    logits = 3 * 4 * _count_predictions(config) * vocab_size
    return rows * (number * kept + logits)


def _count_arrays(m: knobs.Model, remat: str) -> tuple[int, int, int]:
    """Count the arrays that a layer keeps for its backward pass, by their shape.

    Returns:
      The numbers of arrays [rows, L, D], [rows, L, F] and [rows, heads, L, L].
    """
    gate = m.attention_gate
    norm = m.inner_norm
    weights = m.layer_weights
    relative = m.position == "relative"
    if remat == "full":
        return 1 + 3 * weights, 0, 0
    if remat == "dots":
        return 7 + gate + 3 * weights, 1 + m.gated, 1 + 2 * relative
    return 20 + 4 * gate + 3 * norm + 2 * weights + 2 * relative, 3 + m.gated + 3 * norm, 3


# --- sizes ----------------------------------------------------------------------------------------


def count_layer_matrices(model: knobs.Model) -> int:
    """Count the parameters in the weight matrices of one layer."""
    _, width, _, mlp = model.shape
    return (4 + model.attention_gate) * width**2 + (2 + model.gated) * width * mlp


def count_distances(model: knobs.Model) -> int:
    """Count the rows of the table of relative positions; 0 if the model has no such table."""
    return 2 * model.position_buckets - 1 if model.position == "relative" else 0


def _count_predictions(config: knobs.Config) -> int:
    """Count the tokens of a row for which logits over the vocabulary are computed."""
    heads = {"mlm": own_slots(config), "causal_lm": config.sequence_length}
    return sum(heads.get(name, 0) for name in config.heads)


def _list_encoders(config: knobs.Config) -> list[knobs.Model]:
    """List the knobs of the encoder, then those of the generator if there is a generator."""
    generator = config.generator
    return [config.model] if generator is None else [config.model, generator]


def _count_word_weights(config: knobs.Config, vocab_size: int) -> int:
    """Count the weights by which the MLM head multiplies a predicted token.

    The weights of the token table are among them.
    """
    read = _list_encoders(config)[-1].shape[1]  # of the generator, if there is one
    if config.model.word_head == "matrix":
        return read * vocab_size
    return config.model.table_width * (read + vocab_size)
