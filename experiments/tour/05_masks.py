"""Stop 5: attention masks. Where a mask hides an input, the gradient by it is exactly zero."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import walk

from bert_jax.config import load_file, resolve
from bert_jax.models.encoder import Encoder

WORDS = 8


def slopes(causal: bool) -> Callable[[np.ndarray], np.ndarray]:
    """Build a function from segment ids [L] to the size of d output_i / d input_j [L, L].

    The model is untrained and has two layers. A position vector is added to the vector of the token
    at its place, so the gradient by either is the same.
    """
    config = resolve(load_file(f"{walk.HERE / 'config.py'}:masked"))
    params = walk.untrained(config, WORDS)["encoder"]
    encoder = Encoder(dataclasses.replace(config.model, causal=causal), WORDS, pool=False)
    places = np.arange(WORDS, dtype=np.int32)[None]

    def outputs(inputs: jax.Array, segments: jax.Array) -> jax.Array:
        changed = params | {"embeddings": params["embeddings"] | {"position": inputs}}
        batch = {
            "tokens": places,
            "positions": places,
            "type_ids": 0 * places,
            "segment_ids": segments[None],
        }
        encoded: Any = encoder.apply({"params": changed}, batch)
        return encoded.hidden[0]

    gradient = jax.jit(jax.jacrev(outputs))
    inputs = params["embeddings"]["position"]  # [places, D], of which the first L are read
    return lambda segments: np.sqrt(
        np.sum(np.asarray(gradient(inputs, segments)) ** 2, axis=(1, 3))
    )[:, :WORDS]


def main(folder: Path = walk.HERE) -> None:
    """Show the gradients under three masks, side by side."""
    both_ways, to_the_left = slopes(causal=False), slopes(causal=True)
    full = np.ones(WORDS, np.int32)
    padded = (np.arange(WORDS) < WORDS - 3).astype(np.int32)  # 0 is padding
    found = {"none": both_ways(full), "causal": to_the_left(full), "padding": both_ways(padded)}
    for name, matrix in found.items():
        zero, least = matrix == 0, matrix[matrix != 0].min()
        zeros = f"{name:8} {zero.sum():2} of {matrix.size} gradients are exactly zero"
        size = "is above a thousandth" if least > 1e-3 else f"{least:.1e}"
        print(f"{zeros}; the smallest other {size}")
    names = [str(place + 1) for place in range(WORDS)]
    figure, panels = walk.plt.subplots(1, 3, figsize=(10, 3.7))
    titles = {"none": "no mask", "causal": "causal", "padding": "places 6 to 8 are padding"}
    for panel, (name, matrix) in zip(panels, found.items(), strict=True):
        shown = np.where(matrix == 0, np.nan, np.log10(np.where(matrix == 0, 1, matrix)))
        panel.set_facecolor("#f0f1f4")
        walk.heat(panel, shown, names, names, vmin=-2, vmax=1)
        for i, j in np.argwhere(matrix == 0):
            panel.text(j, i, "0", ha="center", va="center", fontsize=8, color="#8a93a0")
        panel.set(title=titles[name], xlabel="by input", ylabel="gradient of output")
    walk.save(figure, folder, __file__)


if __name__ == "__main__":
    main()
