"""Stop 1: language models. A model that is trained on the four lines of a poem recites them."""

from pathlib import Path

import numpy as np
import walk

from bert_jax.config.knobs import Model
from bert_jax.models.attention_mask import make_attention_mask

BEGINNING = "Before my"


def main(folder: Path = walk.HERE) -> None:
    """Train a model on the poem, let it recite, and show the causal mask."""
    poem = (walk.DATA / "poem.txt").read_text()
    words = ["[CLS]", *poem.split()[:6]]
    text = np.arange(len(words), dtype=np.int32)[None]
    batch = {"positions": text, "segment_ids": np.ones_like(text)}
    mask = np.asarray(make_attention_mask(batch, Model(causal=True)).allowed)[0, 0]

    run = walk.trained("poem", folder)
    curve = walk.losses(run, "causal_lm")
    (first, before), (last, after) = curve[0], curve[-1]
    print(f"loss, nats a token: {before:.2f} after {first} updates, {after:.2f} after {last}")
    answer = walk.ask(run, "generate", [BEGINNING], max_tokens=40)[0]
    recited = rest = answer["text"]
    print(f"{BEGINNING!r} goes on:")
    for line in poem.splitlines():
        part, rest = rest[: len(line)], rest[len(line) :].lstrip()
        print(f"  {part}")
    same = recited.split() == poem.split()
    print(f"word for word the poem: {same}; stopped by: {answer['stopped']}")

    print("\nthe causal mask: x is seen")
    for word, row in zip(words, mask, strict=True):
        print(f"{word:8}", *("x" if seen else "." for seen in row))

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


if __name__ == "__main__":
    main()
