"""Stop 15: sizes. The parameters of base and large, counted from shapes; nothing is allocated."""

import math
from pathlib import Path

import jax
import numpy as np
import walk

from bert_jax.config import load_file, resolve
from bert_jax.objectives import network

VOCABULARY = 30_522  # pieces of the published uncased vocabulary
PARTS = (
    "token vectors",
    "position and segment vectors",
    "attention",
    "feed-forward",
    "pooler",
    "heads",
)
COLOURS = ("#1f4e8c", "#86aeda", "#d9822b", "#f3c48b", "#3f9266", "#8a93a0")


def part(name: str) -> str:
    """Return the part of the model that a parameter belongs to, by its name."""
    if "/embeddings/" in name:
        return PARTS[0] if name.endswith("/token") else PARTS[1]
    if "/layer_" in name:
        return PARTS[2] if "/attention" in name else PARTS[3]
    return PARTS[4] if "/pooler/" in name else PARTS[5]


def count(size: str) -> dict[str, int]:
    """Count the parameters of a published size, by part."""
    configs = walk.HERE.parents[1] / "configs"
    tree = load_file(f"{configs / 'preset.py'}:google_2018,{size}")
    tree.model.vocab_multiple = 1  # no padding of the table, as published
    config = resolve(tree)
    shapes = jax.eval_shape(
        lambda seed: network.init_params(config, VOCABULARY, seed), np.uint32(0)
    )
    counts = dict.fromkeys(PARTS, 0)
    for path, leaf in jax.tree_util.tree_leaves_with_path(shapes):
        counts[part("/" + "/".join(key.key for key in path))] += math.prod(leaf.shape)
    return counts


def main(folder: Path = walk.HERE) -> None:
    """Print the parameters of both sizes, part by part."""
    found = {size: count(size) for size in ("base", "large")}
    print(f"{'':30}" + "".join(f"{size:>14}" for size in found))
    for name in PARTS:
        print(f"{name:30}" + "".join(f"{counts[name]:14,}" for counts in found.values()))
    totals = {size: sum(counts.values()) for size, counts in found.items()}
    print(f"{'with heads':30}" + "".join(f"{total:14,}" for total in totals.values()))
    print(f"{'without':30}" + "".join(f"{totals[s] - found[s]['heads']:14,}" for s in found))
    figure, panel = walk.plt.subplots(figsize=(9, 2.6))
    for row, counts in enumerate(list(found.values())[::-1]):
        left = 0.0
        for name, colour in zip(PARTS, COLOURS, strict=True):
            width, label = counts[name] / 1e6, name if row == 0 else None
            panel.barh(row, width, left=left, color=colour, label=label)
            left += width
        panel.text(left + 3, row, f"{left:.0f} M", va="center")
    panel.set_yticks((0, 1), list(found)[::-1])
    panel.tick_params(axis="y", length=0)
    panel.set(xlabel="million parameters", xlim=(0, 375))
    panel.legend(ncols=3, fontsize=8, loc="lower left", bbox_to_anchor=(0, 1))
    walk.save(figure, folder, __file__)


if __name__ == "__main__":
    main()
