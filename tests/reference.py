"""BERT and its variants in plain float64 numpy, one row at a time: what the model is held against.

`knobs` are those of a model, as `VARIANTS` has them. Rows have no padding.
"""

import math
from typing import Any

import numpy as np

Knobs = dict[str, Any]
Parameters = dict[str, Any]

# --- parts ----------------------------------------------------------------------------------------


def norm(x: np.ndarray, p: Parameters | None, epsilon: float = 1e-12) -> np.ndarray:
    """Return a layer norm, which may have no parameters."""
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    x = (x - mean) / np.sqrt(variance + epsilon)
    return x * p["scale"] + p["bias"] if p else x


def gelu(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def dense(x: np.ndarray, p: Parameters) -> np.ndarray:
    """Return a dense layer, which may have no bias."""
    return x @ p["kernel"] + p.get("bias", 0)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def log_softmax(x: np.ndarray) -> np.ndarray:
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def widen(tree: Parameters) -> Parameters:
    return {
        k: widen(v) if isinstance(v, dict) else np.asarray(v, np.float64) for k, v in tree.items()
    }


# --- a model --------------------------------------------------------------------------------------

VARIANTS: dict[str, Knobs] = {
    "learned": {},
    "sinusoidal": {"position": "sinusoidal", "max_positions": 512},
    "rotary": {"position": "rotary", "max_positions": 512, "rotary_base": 50.0},
    "alibi": {"position": "alibi", "max_positions": 512},
    "relative": {"position": "relative", "position_buckets": 4, "max_positions": 24},
    "none": {"position": "none", "max_positions": 512},
    "pre_norm": {"norm": "pre"},
    "window": {"window": 3, "global_every": 2},
    "gpt_bert": {
        "position": "relative",
        "position_buckets": 6,
        "max_positions": 24,
        "norm": "pre",
        "inner_norm": True,
        "norm_parameters": False,
        "mlp_biases": False,
        "gated": True,
        "attention_gate": True,
        "layer_weights": True,
        "type_vocab": 0,
    },
}


def embed(table: Parameters, tokens: np.ndarray, types: np.ndarray, knobs: Knobs) -> np.ndarray:
    """Return the vectors [n, D] of tokens and their types, with their positions."""
    x = table["token"][tokens]
    if "type" in table:
        x = x + table["type"][types]
    if "position" in table:
        x = x + table["position"][: len(x)]
    width = x.shape[1]
    if knobs.get("position") == "sinusoidal":
        for place in range(len(x)):
            for column in range(0, width, 2):
                angle = place / 10_000 ** (column / width)
                x[place, column] += math.sin(angle)
                x[place, column + 1] += math.cos(angle)
    return norm(x, table.get("norm"))


def encode(encoder: Parameters, x: np.ndarray, knobs: Knobs) -> list[np.ndarray]:
    """Return the vectors [n, D] of embeddings and of each layer."""
    pre = knobs.get("norm") == "pre"
    states, outputs = [x], [x]
    weights = iter(encoder["layer_weights"]["weights"] if "layer_weights" in encoder else ())

    def add(x: np.ndarray, own_norm: Parameters | None, block: Any) -> np.ndarray:
        """Return what is read after a block: the residual sum, or one of all outputs so far."""
        x = x + block(norm(x, own_norm)) if pre else norm(x + block(x), own_norm)
        outputs.append(x)
        if not knobs.get("layer_weights"):
            return x
        return sum((next(weights) * output for output in outputs), np.zeros_like(x))

    for number in range(sum(name.removeprefix("layer_").isdigit() for name in encoder)):
        layer = encoder[f"layer_{number}"]
        far = number % knobs.get("global_every", 1) == 0
        x = add(x, layer.get("attention_norm"), Attention(layer["attention"], encoder, knobs, far))
        x = add(x, layer.get("mlp_norm"), lambda y, layer=layer: feed(layer["mlp"], y, knobs))
        states.append(x)
    if pre:
        states[-1] = norm(x, encoder.get("final_norm"))
    return states


def predict_words(params: Parameters, x: np.ndarray) -> np.ndarray:
    """Return the MLM head's logits of vectors."""
    head = params["mlm"]
    y = norm(gelu(dense(x, head["dense"])), head.get("norm"))
    return y @ params["encoder"]["embeddings"]["token"].T + head["bias"]


def feed(mlp: Parameters, x: np.ndarray, knobs: Knobs) -> np.ndarray:
    """Return what the feed-forward adds."""
    hidden = gelu(dense(x, mlp["up"]))
    if knobs.get("gated"):
        hidden = hidden * dense(x, mlp["gate"])
    hidden = norm(hidden, mlp.get("norm")) if knobs.get("inner_norm") else hidden
    return dense(hidden, mlp["down"])


class Attention:
    """What the attention of a layer adds; a `far` one has no window."""

    def __init__(self, own: Parameters, encoder: Parameters, knobs: Knobs, far: bool):
        self.own, self.knobs, self.far = own, knobs, far
        self.heads = own["query"]["kernel"].shape[1]
        relative = encoder.get("relative_positions")
        self.distances = norm(relative["table"], relative["norm"]) if relative else None

    def project(self, x: np.ndarray, name: str, head: int) -> np.ndarray:
        """Return the queries, keys, values or gates of a head."""
        return x @ self.own[name]["kernel"][:, head] + self.own[name]["bias"][head]

    def __call__(self, x: np.ndarray) -> np.ndarray:
        found = np.concatenate([self.sum_values(x, head) for head in range(self.heads)], axis=1)
        if self.knobs.get("inner_norm"):
            found = norm(found, self.own.get("norm"))
        kernel = self.own["out"]["kernel"].reshape(-1, x.shape[1])
        return found @ kernel + self.own["out"]["bias"]

    def sum_values(self, x: np.ndarray, head: int) -> np.ndarray:
        """Return the weighted sums of a head."""
        query, key, value = (self.project(x, name, head) for name in ("query", "key", "value"))
        width, places = query.shape[1], np.arange(len(x))
        distance = places[:, None] - places
        kind = self.knobs.get("position", "learned")
        if kind == "rotary":
            query, key = (turn(y, self.knobs["rotary_base"]) for y in (query, key))
        scores = query @ key.T
        if kind == "relative":
            bucket = np.vectorize(lambda d: find_bucket(d, self.knobs))(distance)
            of_keys = self.project(self.distances, "key", head)[bucket]
            of_queries = self.project(self.distances, "query", head)[bucket]
            scores = scores + np.einsum("id,ijd->ij", query, of_keys)
            scores = (scores + np.einsum("jd,ijd->ij", key, of_queries)) / math.sqrt(3)
        scores = scores / math.sqrt(width)
        if kind == "alibi":
            scores = scores - 2.0 ** (-8 * (head + 1) / self.heads) * np.abs(distance)
        if self.knobs.get("window") and not self.far:
            scores[np.abs(distance) > self.knobs["window"]] = -np.inf
        if self.knobs.get("causal"):
            scores[distance < 0] = -np.inf
        found = softmax(scores) @ value
        return found * gelu(self.project(x, "gate", head)) if "gate" in self.own else found


def turn(x: np.ndarray, base: float) -> np.ndarray:
    """Return rotary positions: each pair of columns as a complex number, turned by its place."""
    half = x.shape[1] // 2
    angles = np.outer(np.arange(len(x)), base ** (-np.arange(half) / half))
    turned = (x[:, :half] + 1j * x[:, half:]) * np.exp(1j * angles)
    return np.concatenate([turned.real, turned.imag], axis=1)


def find_bucket(distance: int, knobs: Knobs) -> int:
    """Return the bucket of a distance: its own if short, else one of a geometric series."""
    count, last = knobs["position_buckets"], knobs["max_positions"] - 1
    own, size = count // 2, min(abs(int(distance)), last)
    if size > own:
        size = own + math.ceil(math.log(size / own) / math.log(last / own) * (own - 1) - 1e-9)
    return count - 1 + int(math.copysign(size, distance))
