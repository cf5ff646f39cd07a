"""Stop 4: attention. One layer in numpy on ten tokens, compared with the model's layer."""

import math
from pathlib import Path

import jax
import numpy as np
import walk

SENTENCE = "we bake a sweet pie with one cherry"  # eight words, [CLS] and [SEP]
ERF = np.vectorize(math.erf)


def softmax(scores: np.ndarray) -> np.ndarray:
    """Make each row positive, with a sum of one."""
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def normalised(x: np.ndarray, norm: dict) -> np.ndarray:
    """Apply LayerNorm: mean 0, deviation 1 over the components, then a learnt scale and shift."""
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
    return x * norm["scale"] + norm["bias"]


def layer_by_hand(x: np.ndarray, layer: dict) -> tuple[np.ndarray, np.ndarray]:
    """Put vectors [L, D] through one layer; return them and the attention [heads, L, L]."""
    attention, mlp = layer["attention"], layer["mlp"]

    def project(name: str) -> np.ndarray:  # [heads, L, d]
        return (
            np.einsum("ld,dhk->hlk", x, attention[name]["kernel"])
            + attention[name]["bias"][:, None]
        )

    query, key, value = project("query"), project("key"), project("value")
    # How well each query fits each key:
    scores = query @ key.swapaxes(1, 2) / np.sqrt(query.shape[-1])
    weights = softmax(scores)
    gathered = weights @ value  # each row a weighted mean of the values
    out = np.einsum("hlk,hkd->ld", gathered, attention["out"]["kernel"]) + attention["out"]["bias"]
    x = normalised(x + out, layer["attention_norm"])
    up = x @ mlp["up"]["kernel"] + mlp["up"]["bias"]
    gelu = up * 0.5 * (1 + ERF(up / np.sqrt(2)))
    down = gelu @ mlp["down"]["kernel"] + mlp["down"]["bias"]
    return normalised(x + down, layer["mlp_norm"]), weights


def main(folder: Path = walk.HERE) -> None:
    """Compute a layer by hand and by the model, and compare."""
    run = walk.trained("masked", folder)
    batch, (tokens,) = walk.batch_of(run, SENTENCE)
    inside = walk.look_inside(run, batch)
    first = jax.tree.map(np.float64, run.params["encoder"]["layer_0"])
    by_hand, weights = layer_by_hand(np.asarray(inside.hidden[0, 0], np.float64), first)
    gaps = {
        "attention": np.abs(weights - inside.attention[0, 0]).max(),
        "vectors": np.abs(by_hand - inside.hidden[1, 0]).max(),
    }
    print(f"{len(tokens)} tokens: {' '.join(tokens)}")
    print(f"rows of softmax sum to {weights.sum(-1).min():.6f} ... {weights.sum(-1).max():.6f}")
    for name, gap in gaps.items():
        size = "below 1e-5" if gap < 1e-5 else gap
        print(f"by hand and by the model, largest difference of {name}: {size}")
    for word in ("sweet", "cherry"):
        row = weights[:, tokens.index(word)]
        most = ", ".join(f"{tokens[head.argmax()]} ({head.max():.2f})" for head in row)
        print(f'"{word}" looks at {most} most, by head')
    figure, panels = walk.plt.subplots(1, 2, figsize=(9.5, 4.9), sharey=True)
    for head, panel in enumerate(panels):
        walk.heat(panel, weights[head], tokens, tokens, numbers=".2f", vmax=1)
        panel.set_title(f"head {head + 1} of the first layer: row looks at column")
    walk.save(figure, folder, __file__)


if __name__ == "__main__":
    main()
