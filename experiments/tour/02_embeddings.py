"""Stop 2: words as vectors. Words that stand in the same places come to lie in the same direction."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import walk

WORDS = ["cherry", "tomato", "digital", "information"]
BESIDE = ["sweet", "ripe", "files", "network"]


def counts(words: list[str], others: list[str]) -> np.ndarray:
    """How often each word stands in one sentence with each of the others."""
    sentences = [line.split() for line in (walk.DATA / "sentences.txt").read_text().splitlines()]
    return np.array([[sum(w in s and o in s for s in sentences) for o in others] for w in words], float)


def main(folder: Path = walk.HERE) -> dict:
    """Counts, then what a masked language model has learnt of the same sentences."""
    run = walk.trained("masked", folder)
    vocab = run.tokenizer.vocab
    table = counts(WORDS, BESIDE)
    print("sentences with both words".ljust(28), *(f"{word:>8}" for word in BESIDE))
    for word, row in zip(WORDS, table, strict=True):
        print(f"  {word:26}", *(f"{n:8.0f}" for n in row))

    counted = walk.cosines(table)
    vectors = run.params["encoder"]["embeddings"]["token"][[vocab.index(word) for word in WORDS]]
    learnt = walk.cosines(vectors)
    print("\ncosine of two words".ljust(29), f"{'counts':>8} {'learnt':>8}")
    for i, j in itertools.combinations(range(len(WORDS)), 2):
        print(f"  {WORDS[i]:12} {WORDS[j]:13} {counted[i, j]:8.2f} {learnt[i, j]:8.2f}")

    groups = [line.split() for line in walk.load(walk.DATA / "make.py").GRAMMAR]
    places = walk.flat(run.params["encoder"]["embeddings"]["token"][[vocab.index(w) for g in groups for w in g]])
    figure, (left, right) = walk.plt.subplots(1, 2, figsize=(9, 4), width_ratios=(2, 3))
    walk.heat(left, learnt, WORDS, WORDS, numbers=".2f", vmin=-1, vmax=1, cmap="RdBu")
    left.set_title("cosine of the learnt vectors")
    colours = iter(("#b23a48", walk.BLUE, walk.GREEN, walk.ORANGE, "#6b4fa0"))
    for group in groups:
        colour, spots = next(colours), places[: len(group)]
        places = places[len(group) :]
        right.scatter(*spots.T, color=colour, s=18)
        for word, spot in zip(group, spots, strict=True):
            right.annotate(word, spot, xytext=(4, 2), textcoords="offset points", fontsize=8, color=colour)
    right.set(xticks=[], yticks=[], title="all words of the grammar, flattened to two directions")
    walk.save(figure, folder, __file__)
    return {"words": WORDS, "counted": counted, "learnt": learnt}


if __name__ == "__main__":
    main()
