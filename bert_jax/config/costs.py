"""What a run costs, from its config and the size of its vocabulary: what a step spends, and the bytes it holds.

`tokenizer.vocab_size` is what is asked for. A trained vocabulary may be smaller, and one that is given has its own
size: the real one counts.
"""

from __future__ import annotations

import numpy as np

from bert_jax.config import knobs, quotas

STATES = (
    4  # copies of the parameters that an arm holds: themselves, two moments, what is being computed
)


def per_step(kind: str, config: knobs.Config, vocab_size: int) -> float:
    """What a step spends of a budget: one step, tokens with their padding, predictions, or FLOPs."""
    tokens = float(config.batch_size * config.sequence_length)
    if kind == "flops":
        return flops_per_step(config, vocab_size)
    return {"steps": 1.0, "tokens": tokens, "predictions": tokens * predicted(config)}[kind]


def predicted(config: knobs.Config) -> float:
    """The share of tokens predicted, on average over training."""
    if "mlm" not in config.objectives:
        return 1.0
    masking = config.masking
    if masking.prediction_rate is not None:
        return masking.prediction_rate
    return (masking.rate + quotas.rate_at(masking, config.steps, config.steps)) / 2


def own_slots(config: knobs.Config) -> int:
    """Prediction slots a row of a run by itself."""
    return (
        quotas.slots(config.masking, config.sequence_length, config.packing)
        if "mlm" in config.objectives
        else 1
    )


def flops_per_step(config: knobs.Config, vocab_size: int, slots: int = 0) -> float:
    """Of an update as it is computed, with padding, spare slots, and what attention forbids after computing it."""
    length, rows = config.sequence_length, config.batch_size
    tokens = rows * length
    return _flops(
        config, vocab_size, tokens, float(tokens * length), rows * _predicted(config, slots), rows
    )


def flops(config: knobs.Config, vocab_size: int, tokens: int, pairs: float, examples: int) -> float:
    """Of an update, as far as they are needed: for real tokens, pairs of them that may see each other, and examples."""
    heads = sum(
        predicted(config) if name == "mlm" else name == "causal_lm" for name in config.objectives
    )
    return _flops(config, vocab_size, tokens, pairs, tokens * heads, examples)


def pairs(model: knobs.Model, sizes: np.ndarray) -> float:
    """Pairs of a token and one it may see, on average over layers, in examples of these sizes."""
    assert model.layers is not None
    n, w = sizes.astype(np.float64), model.window
    one_side = n * (n - 1) / 2
    near = np.where(n > w, n * w - w * (w + 1) / 2, one_side) if w else one_side
    far = -(-model.layers // model.global_every) / model.layers if model.global_every else 0.0
    sides = 1 if model.causal else 2
    return float((n + sides * (far * one_side + (1 - far) * near)).sum())


def _flops(
    config: knobs.Config,
    vocab_size: int,
    tokens: int,
    pairs: float,
    predictions: float,
    examples: int,
) -> float:
    """The matrix products of the forward pass, and twice as many backwards.

    A layer multiplies each token with 4 D x D and 2 (3 when gated) D x F, and each pair of tokens twice over D. The
    head multiplies each predicted token with D x D and D x V. Embeddings, norms and the optimizer are left out.
    """
    layers, width, _ = _shape(config)
    layer = tokens * layer_weights(config) + 2 * pairs * width
    pooled = examples * width**2 if config.pairs != "none" else 0
    return 3.0 * 2 * (layers * layer + predictions * (width**2 + width * vocab_size) + pooled)


def layer_weights(config: knobs.Config) -> int:
    """Of the matrices of one layer."""
    _, width, mlp = _shape(config)
    return 4 * width**2 + (3 if config.model.gated else 2) * width * mlp


def state_bytes(config: knobs.Config, vocab_size: int) -> int:
    """What an arm keeps between steps and while it computes one; biases and norms are left out."""
    layers, width, _ = _shape(config)
    m = config.model
    tables = vocab_size + m.type_vocab + (m.max_positions if m.position == "learned" else 0)
    heads = (2 if config.pairs != "none" else 1) * width**2  # of words, and the pooler
    return 4 * STATES * (layers * layer_weights(config) + width * tables + heads)


def activation_bytes(config: knobs.Config, vocab_size: int, rows: int, slots: int = 0) -> int:
    """What the backward pass keeps for `rows` rows, by counting arrays; compilers do somewhat better or worse.

    A layer keeps about 10 arrays of [rows, L, D] (inputs of products and norms, residuals), 2 of [rows, L, F] (3 when
    gated) and 3 of [rows, heads, L, L]; the head keeps logits and their gradient in float32.
    """
    layers, width, mlp = _shape(config)
    m, length = config.model, config.sequence_length
    assert m.heads is not None
    one = (
        rows * length * (10 * width + (3 if m.gated else 2) * mlp) + 3 * rows * m.heads * length**2
    )
    kept = one + (layers - 1) * rows * length * width if m.remat else layers * one
    logits = 2 * 4 * rows * _predicted(config, slots) * vocab_size
    return (2 if m.dtype == "bfloat16" else 4) * kept + logits


def _predicted(config: knobs.Config, slots: int) -> int:
    """Tokens of a row that a head over the vocabulary looks at."""
    heads = {"mlm": slots or own_slots(config), "causal_lm": config.sequence_length}
    return sum(heads[name] for name in config.objectives if name in heads)


def _shape(config: knobs.Config) -> tuple[int, int, int]:
    m = config.model
    assert m.layers is not None
    assert m.hidden is not None
    assert m.mlp is not None
    return m.layers, m.hidden, m.mlp
