"""Stop 7: masking. 15 % of tokens are predicted: 80 % as [MASK], 10 % random, 10 % unchanged."""

import functools
from collections.abc import Mapping
from pathlib import Path

import jax
import numpy as np
import walk

from bert_jax.batch import Batch, Metrics
from bert_jax.config import default, knobs, resolve
from bert_jax.data import tokenizer
from bert_jax.data.encoding import pad_rows
from bert_jax.data.vocabulary import train_vocabulary
from bert_jax.masking import corrupt, quotas
from bert_jax.training.ledger import Ledger
from bert_jax.training.step import compute_inputs

SENTENCE = "Rome is the capital of Italy, which is why it hosts many government buildings."
COPIES, SHOWN, LENGTH = 5_000, 12, 32
NAMES = ("mask_token", "random", "kept")  # in the ledger
COLOURS = ("#eef0f3", "#c5d8f0", "#fbd9b5", "#cce8d6")  # as it is, [MASK], random, kept


def mask_by_hand(tokens: list[str], vocabulary: list[str], numbers: np.ndarray) -> list[str]:
    """Mask 15 % of the tokens, by three random numbers from 0 to 1 for each token: [3, L]."""
    scores, coins, others = numbers
    masked = list(tokens)
    for place in np.argsort(scores)[: round(0.15 * len(tokens))]:  # the lowest scores are selected
        if coins[place] < 0.8:
            masked[place] = "[MASK]"
        elif coins[place] < 0.9:
            masked[place] = vocabulary[int(others[place] * len(vocabulary))]
        # Otherwise the token stays, and the model is asked for it all the same.
    return masked


def masked(wordpiece: tokenizer.Tokenizer, rate: float) -> tuple[Batch, Metrics, knobs.Config]:
    """Mask COPIES copies of the sentence, each by its own draw, with the code that a run calls.

    By default a run rounds 2.4 tokens to 2 or 3 by a draw, so that the mean is 15 %.
    """
    tree = default()
    tree.masking.update({"rate": rate, "rounding": "nearest"})  # two tokens in every copy
    config, special = resolve(tree), wordpiece.special
    batch = pad_rows(special, [wordpiece.encode_batch([SENTENCE])] * COPIES, LENGTH)
    words = batch["tokens"] > special.mask  # neither special nor padding
    batch["unit_ids"] = np.where(words, np.arange(LENGTH, dtype=np.int32)[None], -1)
    batch["example_ids"] = np.zeros((COPIES, 1), np.int32)
    batch["copies"] = np.arange(COPIES, dtype=np.int32)[:, None]  # as if each were an epoch
    slots = quotas.count_slots(config.masking, LENGTH)
    apply = jax.jit(
        functools.partial(
            corrupt.corrupt_batch,
            settings=config.masking,
            special=special,
            vocab_size=wordpiece.size,
            slots=slots,
        )
    )
    return *jax.device_get(apply(batch, compute_inputs(config, 0))), config


def chosen(batch: Batch) -> np.ndarray:
    """Mark the tokens to predict, bool [B, L]; slots that are not needed have weight 0."""
    hit = np.zeros(batch["tokens"].shape, bool)
    np.put_along_axis(hit, batch["predict_positions"], batch["predict_weights"] > 0, axis=1)
    return hit


def main(folder: Path = walk.HERE) -> dict:
    """Mask two copies by hand, then many by the code of a run, and show the ledger of these."""
    wordpiece = train_vocabulary([SENTENCE] * 2, knobs.Tokenizer(vocab_size=200))  # whole words
    tokens = [wordpiece.vocab[i] for i in wordpiece.encode_batch([SENTENCE])[0]]
    print(f"{len(tokens)} tokens; 15 % of them are {0.15 * len(tokens):.1f}, so two each time")
    generator = np.random.default_rng(0)
    for _ in range(2):
        numbers = generator.random((3, len(tokens)))
        print("  " + " ".join(mask_by_hand(tokens, wordpiece.vocab, numbers)))

    batch, metrics, config = masked(wordpiece, 0.15)
    ledger = Ledger(config.masking)
    # Raises an error where the masks are not what the config says:
    ledger.add(metrics, config.masking.rate, COPIES, step=1)
    totals = ledger.totals
    print(f"\nby the code of a run, the ledger of {COPIES:,} copies")
    selected, eligible = totals["masked"], totals["eligible"]
    print(f"  selected {selected:6.0f} of {eligible:.0f}; the quotas sum to {totals['quota']:.0f}")
    for name, share in zip(NAMES, config.masking.replace, strict=True):
        count = totals[name]
        print(f"  {name:10} {count:6.0f}, {count / selected:6.2%}, asked for {share:.0%}")
    nested = bool(np.all(chosen(masked(wordpiece, 0.40)[0])[chosen(batch)]))
    print(f"every token selected at 15 % is selected at 40 % too: {nested}")
    draw(batch, wordpiece.vocab, wordpiece.special.mask, totals, folder)
    found = {"totals": totals, "nested": nested}
    return found | {"batch": batch, "tokens": tokens, "vocabulary": wordpiece.vocab}


def draw(
    batch: Batch, vocab: list[str], mask: int, totals: Mapping[str, float], folder: Path
) -> None:
    """Draw the first copies, and the shares of all."""
    shown = np.s_[:SHOWN, 1 : int(batch["segment_ids"][0].sum()) - 1]
    now, was, hit = batch["inputs"][shown], batch["tokens"][shown], chosen(batch)[shown]
    kind = np.where(hit, np.where(now == mask, 1, np.where(now != was, 2, 3)), 0)
    figure, (left, right) = walk.plt.subplots(1, 2, figsize=(12, 3.6), width_ratios=(6, 1))
    colours = walk.matplotlib.colors.ListedColormap(COLOURS)
    left.pcolormesh(kind, cmap=colours, vmin=0, vmax=3, edgecolor="white", linewidth=2)
    middle = {"ha": "center", "va": "center", "fontsize": 6.5}
    for row, column in np.ndindex(now.shape):
        left.text(column + 0.5, row + 0.5, vocab[now[row, column]], **middle)
    left.set_title(f"{SHOWN} copies: blue [MASK], orange a random token, green kept")
    left.set(ylim=(SHOWN, 0))
    left.axis("off")
    right.bar(
        ("mask", *NAMES[1:]), [totals[name] / totals["masked"] for name in NAMES], color=COLOURS[1:]
    )
    right.set(ylim=(0, 1), title="the ledger")
    walk.save(figure, folder, __file__)


if __name__ == "__main__":
    main()
