"""Stop 2: embeddings. Words that are used in the same places get vectors of like direction."""

import itertools
from pathlib import Path

import numpy as np
import walk

from bert_jax.views.vectors import project_pca

WORDS = ["cherry", "tomato", "digital", "information"]
BESIDE = ["sweet", "ripe", "files", "network"]


def counts(words: list[str], others: list[str]) -> np.ndarray:
    """Count how often each word stands in one sentence with each of the others."""
    sentences = [line.split() for line in (walk.DATA / "sentences.txt").read_text().splitlines()]
    return np.array(
        [[sum(w in s and o in s for s in sentences) for o in others] for w in words], float
    )


def main(folder: Path = walk.HERE) -> dict:
    """Compare counts with the vectors that a masked language model learns from the sentences."""
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
    every = [word for group in groups for word in group]
    spots = project_pca(
        run.params["encoder"]["embeddings"]["token"][[vocab.index(word) for word in every]]
    )[0]
    figure, (left, right) = walk.plt.subplots(1, 2, figsize=(10, 3.8), width_ratios=(2, 3))
    walk.heat(left, learnt, WORDS, WORDS, numbers=".2f", vmin=-1, vmax=1, cmap="RdBu")
    left.set_title("cosine of the learnt vectors")
    for group, colour in zip(
        groups, ("#b23a48", walk.BLUE, walk.GREEN, walk.ORANGE, "#6b4fa0"), strict=True
    ):
        points = spots[[every.index(word) for word in group]]
        right.scatter(*points.T, color=colour, s=22, label=" ".join(group))
    for word in WORDS:
        left_of = word in ("cherry", "information")
        aside = {"xytext": (-7 if left_of else 7, 4), "ha": "right" if left_of else "left"}
        right.annotate(word, spots[every.index(word)], textcoords="offset points", **aside)
    right.legend(
        fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.02), labelcolor="linecolor"
    )
    right.set(xticks=[], yticks=[], title="all words of the grammar, flattened to two directions")
    walk.save(figure, folder, __file__)
    return {"words": WORDS, "counted": counted, "learnt": learnt}


if __name__ == "__main__":
    main()
