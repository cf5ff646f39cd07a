"""BERT as its paper states it, in plain float64 numpy, one row at a time: what the model is held
against.
"""

import math

import numpy as np


def norm(x, p, epsilon=1e-12):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon) * p["scale"] + p["bias"]


def gelu(x):
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def dense(x, p):
    return x @ p["kernel"] + p["bias"]


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def embed(e, tokens, types):
    """Vectors [n, D] of one unpadded row, with learned positions."""
    return norm(e["token"][tokens] + e["type"][types] + e["position"][: len(tokens)], e["norm"])


def encoder(params, tokens, types, heads, causal=False, embedded=None):
    """Hidden vectors [n, D] and pooled [D] of one unpadded row, post-LN; `embedded` may be those of
    another encoder.
    """
    x = embed(params["embeddings"], tokens, types) if embedded is None else embedded
    width = x.shape[-1] // heads
    for i in range(sum(name.startswith("layer_") for name in params)):
        layer = params[f"layer_{i}"]
        outs = []
        for h in range(heads):
            q, k, v = (
                x @ layer["attention"][n]["kernel"][:, h] + layer["attention"][n]["bias"][h]
                for n in ("query", "key", "value")
            )
            scores = q @ k.T / math.sqrt(width)
            if causal:
                scores[np.triu_indices(len(x), 1)] = -np.inf
            outs.append(softmax(scores) @ v @ layer["attention"]["out"]["kernel"][h])
        x = norm(x + sum(outs) + layer["attention"]["out"]["bias"], layer["attention_norm"])
        x = norm(
            x + dense(gelu(dense(x, layer["mlp"]["up"])), layer["mlp"]["down"]), layer["mlp_norm"]
        )
    return x, np.tanh(
        dense(x[-1 if causal else 0], params["pooler"])
    ) if "pooler" in params else None


def mlm_logits(params, hidden, columns, vocab):
    head, table = params["mlm"], params["encoder"]["embeddings"]["token"]
    y = norm(gelu(dense(hidden[columns], head["dense"])), head["norm"])
    return (y @ table.T + head["bias"])[:, :vocab]


def widen(tree):
    return {
        k: widen(v) if isinstance(v, dict) else np.asarray(v, np.float64) for k, v in tree.items()
    }
