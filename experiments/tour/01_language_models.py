"""Stop 1: a language model says what comes next. Trained on the four lines of a poem, it recites
them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import walk

from bert_jax.models.backends import allowed

BEGINNING = "Before my"


def main(folder: Path = walk.HERE) -> dict:
    """The mask that hides what comes later, the training, the recitation."""
    poem = (walk.DATA / "poem.txt").read_text()
    words = ["[CLS]", *poem.split()[:6]]
    mask = np.asarray(allowed(np.ones((1, len(words)), np.int32), causal=True, window=0))[0, 0]
    for word, row in zip(words, mask, strict=True):
        print(f"{word:8}", *("x" if seen else "." for seen in row))

    run = walk.trained("poem", folder)
    curve = walk.losses(run, "causal_lm")
    print(
        f"\nloss, nats a token: {curve[0][1]:.2f} after {curve[0][0]} updates, {curve[-1][1]:.2f} after {curve[-1][0]}"
    )
    answer = walk.ask(run, "generate", [BEGINNING], max_tokens=40)[0]
    told = answer["text"]
    print(f"{BEGINNING!r} goes on:")
    rest = told
    for line in poem.splitlines():
        part, rest = rest[: len(line)], rest[len(line) :].lstrip()
        print(f"  {part}")
    print(
        f"word for word the poem: {told.split() == poem.split()}; stopped by: {answer['stopped']}"
    )

    figure, (left, right) = walk.plt.subplots(1, 2, figsize=(9, 3.4), width_ratios=(2, 3))
    walk.heat(left, mask.astype(float), words, words, vmax=1.6)
    left.set_title("causal mask: row sees column")
    right.plot(*zip(*curve, strict=True), color=walk.BLUE)
    right.set(
        xlabel="updates",
        ylabel="loss, nats a token",
        ylim=(0, None),
        title="four lines, learnt by heart",
    )
    walk.save(figure, folder, __file__)
    return {"mask": mask, "told": told, "stopped": answer["stopped"], "poem": poem}


if __name__ == "__main__":
    main()
