"""Stop 16: from masking 15 % to writing a text out of nothing but masks."""

import itertools
from pathlib import Path

import numpy as np
import walk

POEMS = [" ".join(poem.split()) for poem in (walk.DATA / "verses.txt").read_text().split("\n\n")]
SHARES = (0.15, 1.0)
ROUNDS = (1, 8, 34)
TEXTS = 20
COPIES = 5  # of each poem, with different masks
LINES = (9, 11, 9, 8)  # tokens of each line of Li Bai's poem


def right(run: walk.runs.TrainedModel, share: float) -> float:
    """Return the share of masked tokens that a model fills as the poems have them, all at once."""
    rng = np.random.default_rng(0)
    tokens = [run.tokenizer.encode_batch([poem])[0] for poem in POEMS] * COPIES
    found = total = 0
    masked = [rng.permutation(len(ids))[: round(share * len(ids))] for ids in tokens]
    words = [[run.tokenizer.vocab[i] for i in ids] for ids in tokens]
    texts = [
        " ".join("[MASK]" if i in hidden else word for i, word in enumerate(each))
        for each, hidden in zip(words, masked, strict=True)
    ]
    for each, hidden, answer in zip(words, masked, walk.ask(run, "fill-mask", texts), strict=True):
        guesses = [mask[0]["token"] for mask in answer["masks"]]
        found += sum(each[i] == guess for i, guess in zip(sorted(hidden), guesses, strict=True))
        total += len(hidden)
    return found / total


def written(run: walk.runs.TrainedModel, rounds: int) -> list[str]:
    """Draw texts out of 34 masks; two of the poems are as long as that."""
    options = {"max_tokens": 34, "temperature": 1.0, "steps": rounds}
    return [answer["text"] for answer in walk.ask(run, "generate", [""] * TEXTS, **options)]


def main(folder: Path = walk.HERE) -> dict:
    """Compare a model trained at 15 % with one trained at any share, and let the latter write."""
    models = {"15 %": walk.trained("bert", folder), "any share": walk.trained("diffusion", folder)}
    print("of the masked words of four poems, right   " + "".join(f"{s:8.0%}" for s in SHARES))
    rights = {name: [right(run, share) for share in SHARES] for name, run in models.items()}
    for name, row in rights.items():
        print(f"  trained at {name:30}" + "".join(f"{share:8.2f}" for share in row))

    run = models["any share"]
    answer = walk.ask(run, "generate", [""], max_tokens=37, show_steps=True)[0]
    chosen = np.zeros(37, int)
    for number, revealed in enumerate(answer["steps"], 1):
        chosen[[one["place"] for one in revealed]] = number
    print("\nout of 37 masks, one a round; its first line")
    for number in (9, 18, 37):
        now = [word if chosen[i] <= number else "_" for i, word in enumerate(answer["tokens"][:9])]
        print(f"  after {number:2} rounds  {' '.join(now)}")
    print(f"word for word the poem: {answer['text'] == POEMS[0]}")

    drawn = {rounds: written(run, rounds) for rounds in ROUNDS}
    poems = {rounds: sum(text in POEMS for text in texts) for rounds, texts in drawn.items()}
    print(f"\nout of 34 masks, of {TEXTS} texts so many are one of the poems, word for word")
    for rounds, count in poems.items():
        example = f", such as: {drawn[rounds][0][:46]} ..." if not count else ""
        print(f"  {rounds:2} rounds {count:3}{example}")
    other = sum(text in POEMS for text in written(models["15 %"], ROUNDS[-1]))
    print(f"  trained at 15 %, {ROUNDS[-1]} rounds: {other}")

    figure, (left, panel) = walk.plt.subplots(1, 2, figsize=(10, 3), width_ratios=(5, 2))
    order = np.full((4, max(LINES)), np.nan)
    starts = itertools.accumulate((0, *LINES))
    for line, (start, end) in enumerate(itertools.pairwise(starts)):
        order[line, : end - start] = chosen[start:end]
        for i, word in enumerate(answer["tokens"][start:end]):
            colour = "white" if chosen[start + i] > 20 else walk.INK
            left.text(i, line, word, ha="center", va="center", fontsize=8, color=colour)
    drawing = left.imshow(order, cmap="Blues", vmin=-8, vmax=40, aspect="auto")
    left.set(xticks=[], yticks=[], title="the round in which each word was chosen")
    left.spines[:].set_visible(False)
    figure.colorbar(drawing, ax=left, boundaries=np.arange(1, 38), ticks=(1, 10, 19, 28, 37))
    panel.bar([str(rounds) for rounds in ROUNDS], list(poems.values()), color=walk.BLUE)
    panel.set(xlabel="rounds", ylabel=f"poems among {TEXTS} texts", yticks=(0, 10, TEXTS))
    walk.save(figure, folder, __file__)
    return {"right": rights, "told": answer["text"], "poems": poems, "other": other}


if __name__ == "__main__":
    main()
