"""Encoders that no Hugging Face folder can hold, in plain float64 numpy, a text at a time."""

import math
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from tests.reference import dense, gelu, norm, softmax, widen

HEADS, LAYERS, WIDTH = 2, 2, 32
GPT_BERT = {
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
}
VARIANTS: dict[str, dict[str, Any]] = {  # knobs of a model
    "learned": {},
    "sinusoidal": {"position": "sinusoidal", "max_positions": 512},
    "rotary": {"position": "rotary", "max_positions": 512, "rotary_base": 50.0},
    "alibi": {"position": "alibi", "max_positions": 512},
    "relative": {"position": "relative", "position_buckets": 4, "max_positions": 24},
    "none": {"position": "none", "max_positions": 512},
    "pre_norm": {"norm": "pre"},
    "window": {"window": 3, "global_every": 2},
    "gpt_bert": GPT_BERT,
}


def read_parameters(run: Path) -> dict[str, Any]:
    """Return the parameters of a run's last checkpoint as float64, as Orbax has them."""
    (latest,) = (run.resolve() / "checkpoints").iterdir()
    reader = ocp.PyTreeCheckpointer()
    tree = reader.metadata(latest / "params").item_metadata.tree
    wanted = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree)
    found: dict[str, Any] = {}
    for name, array in reader.restore(latest / "params", restore_args=wanted).items():
        *path, last = name.split("/")
        place = found
        for part in path:
            place = place.setdefault(part, {})
        place[last] = array
    return widen(found)


def compute(
    params: dict[str, Any], tokens: np.ndarray, knobs: dict[str, Any]
) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the vectors of embeddings and layers [n, D], and the logits of each token."""
    encoder, pre = params["encoder"], knobs.get("norm") == "pre"
    x = embed(encoder["embeddings"], tokens, knobs)
    states, outputs = [x], [x]
    weights = iter(encoder["layer_weights"]["weights"] if "layer_weights" in encoder else ())

    def add(x: np.ndarray, own_norm: dict[str, Any], block: Any) -> np.ndarray:
        """Return what is read after a block: the residual sum, or one of all outputs so far."""
        x = x + block(scale(x, own_norm)) if pre else scale(x + block(x), own_norm)
        outputs.append(x)
        if not knobs.get("layer_weights"):
            return x
        return sum((next(weights) * output for output in outputs), np.zeros_like(x))

    for number in range(LAYERS):
        layer = encoder[f"layer_{number}"]
        far = number % knobs.get("global_every", 1) == 0
        x = add(x, layer.get("attention_norm"), Attention(layer["attention"], encoder, knobs, far))
        x = add(x, layer.get("mlp_norm"), lambda y, layer=layer: feed(layer["mlp"], y, knobs))
        states.append(x)
    if pre:
        states[-1] = x = scale(x, encoder.get("final_norm"))
    head = params["mlm"]
    y = scale(gelu(dense(x, head["dense"])), head.get("norm"))
    return states, y @ encoder["embeddings"]["token"].T + head["bias"]


def scale(x: np.ndarray, parameters: dict[str, Any] | None) -> np.ndarray:
    """Return a layer norm, of parameters or without any."""
    return norm(x, parameters or {"scale": 1, "bias": 0})


def embed(table: dict[str, Any], tokens: np.ndarray, knobs: dict[str, Any]) -> np.ndarray:
    """Return the vectors of tokens of the first type, with their positions."""
    x = table["token"][tokens] + (table["type"][0] if "type" in table else 0)
    if "position" in table:
        x = x + table["position"][: len(x)]
    if knobs.get("position") == "sinusoidal":
        for place in range(len(x)):
            for column in range(0, WIDTH, 2):
                angle = place / 10_000 ** (column / WIDTH)
                x[place, column] += math.sin(angle)
                x[place, column + 1] += math.cos(angle)
    return scale(x, table.get("norm"))


def feed(mlp: dict[str, Any], x: np.ndarray, knobs: dict[str, Any]) -> np.ndarray:
    """Return what the feed-forward adds."""
    hidden = gelu(multiply(x, mlp["up"]))
    if knobs.get("gated"):
        hidden = hidden * multiply(x, mlp["gate"])
    hidden = scale(hidden, mlp.get("norm")) if knobs.get("inner_norm") else hidden
    return multiply(hidden, mlp["down"])


def multiply(x: np.ndarray, layer: dict[str, Any]) -> np.ndarray:
    """Return a dense layer, which may have no bias."""
    return x @ layer["kernel"] + layer.get("bias", 0)


class Attention:
    """What the attention of a layer adds; a `far` one has no window."""

    def __init__(
        self, own: dict[str, Any], encoder: dict[str, Any], knobs: dict[str, Any], far: bool
    ):
        self.own, self.knobs, self.far = own, knobs, far
        relative = encoder.get("relative_positions")
        self.distances = scale(relative["table"], relative["norm"]) if relative else None

    def project(self, x: np.ndarray, name: str, head: int) -> np.ndarray:
        """Return the queries, keys, values or gates of a head."""
        return x @ self.own[name]["kernel"][:, head] + self.own[name]["bias"][head]

    def __call__(self, x: np.ndarray) -> np.ndarray:
        found = np.concatenate([self.sum_values(x, head) for head in range(HEADS)], axis=1)
        if self.knobs.get("inner_norm"):
            found = scale(found, self.own.get("norm"))
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
            scores = scores - 2.0 ** (-8 * (head + 1) / HEADS) * np.abs(distance)
        if self.knobs.get("window") and not self.far:
            scores[np.abs(distance) > self.knobs["window"]] = -np.inf
        found = softmax(scores) @ value
        return found * gelu(self.project(x, "gate", head)) if "gate" in self.own else found


def turn(x: np.ndarray, base: float) -> np.ndarray:
    """Return rotary positions: each pair of columns as a complex number, turned by its place."""
    half = x.shape[1] // 2
    angles = np.outer(np.arange(len(x)), base ** (-np.arange(half) / half))
    turned = (x[:, :half] + 1j * x[:, half:]) * np.exp(1j * angles)
    return np.concatenate([turned.real, turned.imag], axis=1)


def find_bucket(distance: int, knobs: dict[str, Any]) -> int:
    """Return the bucket of a distance: its own if short, else one of a geometric series."""
    count, last = knobs["position_buckets"], knobs["max_positions"] - 1
    own, size = count // 2, min(abs(int(distance)), last)
    if size > own:
        size = own + math.ceil(math.log(size / own) / math.log(last / own) * (own - 1) - 1e-9)
    return count - 1 + int(math.copysign(size, distance))
