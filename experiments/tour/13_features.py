"""Stop 13: feature-based or fine-tuned. A pre-trained encoder stays frozen or trains on."""

from pathlib import Path

import jax
import numpy as np
import walk

from bert_jax.training import optim


def main(folder: Path = walk.HERE) -> dict:
    """Train on six labelled words, and ask about twelve that only unlabelled sentences have."""
    start = ("init_from", str(walk.trained("masked", folder).folder)), ("init_fresh", "^tag/")
    ways = {
        "from nothing": (),
        "feature-based": (*start, ("optim.freeze", "^encoder/"), ("model.features", "2")),
        "fine-tuned": start,
    }
    found = {}
    print("way              parameters trained   kinds of 12 words, twice each, that had no label")
    for way, changes in ways.items():
        run = walk.trained("kinds", folder, *changes, place=f"kinds {way}")
        still = optim.find_frozen(run.params, run.config.optim.freeze)
        leaves = zip(jax.tree.leaves(run.params), jax.tree.leaves(still), strict=True)
        free = sum(leaf.size for leaf, fixed in leaves if not fixed)
        right = list(hits(run))
        found[way] = (free, sum(right) / len(right))
        print(f"{way:16} {free:18,}   {sum(right)} of {len(right)} right")
    figure, panel = walk.plt.subplots(figsize=(6, 2.2))
    names = list(ways)[::-1]
    panel.barh(names, [found[name][1] for name in names], color=[walk.BLUE, walk.BLUE, walk.GREY])
    panel.tick_params(axis="y", length=0)
    panel.set(xlim=(0, 1), xlabel="share of unseen words whose kind is found")
    walk.save(figure, folder, __file__)
    return found


def hits(run: walk.runs.TrainedModel) -> np.ndarray:
    """Mark the labelled words of unseen.conll that got their label."""
    blocks = (walk.DATA / "unseen.conll").read_text().strip().split("\n\n")
    rows = [[line.split() for line in block.splitlines()] for block in blocks]
    answers = walk.ask(run, "tag", [{"words": [word for word, _ in row]} for row in rows])
    pairs = zip(rows, answers, strict=True)
    return np.array(
        [
            predicted == label
            for row, answer in pairs
            for (_, label), predicted in zip(row, answer["labels"], strict=True)
            if label != "O"
        ]
    )


if __name__ == "__main__":
    main()
