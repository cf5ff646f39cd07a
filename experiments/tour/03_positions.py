"""Stop 3: positions. Attention alone sees a bag of words; position vectors give it their order."""

import dataclasses
from pathlib import Path

import jax
import numpy as np
import walk

from bert_jax.config import load_file, resolve
from bert_jax.models.encoder import Encoder
from bert_jax.models.positions import make_sinusoids

SENTENCE = "the dog follows the cat"
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted(set(SENTENCE.split()))]


def changes_when_shuffled() -> dict[str, float]:
    """Return, by kind of position, the largest change of a word's vector when dog and cat swap."""
    config = resolve(load_file(f"{walk.HERE / 'config.py'}:masked"))
    params = walk.untrained(config, len(VOCAB))["encoder"]
    ids = np.array([[VOCAB.index(word) for word in SENTENCE.split()]], np.int32)
    batch = {"type_ids": np.zeros_like(ids), "segment_ids": np.ones_like(ids)}
    batch["positions"] = np.arange(ids.shape[1], dtype=np.int32)[None]
    swapped = np.array([0, 4, 2, 3, 1])  # "the cat follows the dog"
    changes = {}
    for kind in ("none", "sinusoidal", "learned"):
        model = dataclasses.replace(config.model, position=kind)
        encode = jax.jit(Encoder(model, len(VOCAB), pool=False).apply)
        straight, shuffled = (
            np.asarray(encode({"params": params}, {**batch, "tokens": tokens}).hidden)
            for tokens in (ids, ids[:, swapped])
        )
        changes[kind] = float(np.abs(straight[:, swapped] - shuffled).max())
    return changes


def main(folder: Path = walk.HERE) -> dict:
    """Show what positions are for, and compare sinusoids with learnt vectors."""
    changes = changes_when_shuffled()
    pair = '"the dog follows the cat" to "the cat follows the dog"'
    print(f"largest change of any word's vector from {pair}:")
    for kind, change in changes.items():
        print(f"  positions {kind:12} {change:.6f}")

    run = walk.trained("masked", folder)
    position = run.params["encoder"]["embeddings"]["position"]
    fresh = walk.untrained(run.config, run.tokenizer.size)
    moved = np.linalg.norm(position - fresh["encoder"]["embeddings"]["position"], axis=1)
    learnt, used = walk.cosines(position[:20]), run.config.sequence_length
    print("\nlearnt positions: how far training moved them, in the mean")
    reached, beyond = moved[:10].mean(), moved[used:].mean()
    print(f"  places 0 to 9, which texts reach: {reached:.2f}; 12 and more: {beyond:.2f}")

    waves = make_sinusoids(64, 64)
    alike = walk.cosines(waves)
    print("\ncosine of two sinusoidal positions, so many places apart: 1, 4, 16")
    for start in (0, 10, 40):
        print(
            f"  from place {start:2}",
            *(f"{alike[start, start + apart]:6.3f}" for apart in (1, 4, 16)),
        )

    figure, panels = walk.plt.subplots(1, 3, figsize=(10, 3.4))
    panels[0].imshow(waves, cmap="RdBu", vmin=-1, vmax=1)
    panels[0].set(title="sinusoids", xlabel="component", ylabel="place")
    panels[1].imshow(alike, cmap="RdBu", vmin=-1, vmax=1)
    panels[1].set(title="sinusoids: cosine of two places", xlabel="place", ylabel="place")
    drawn = panels[2].imshow(learnt, cmap="RdBu", vmin=-1, vmax=1)
    panels[2].set(title="learnt: cosine of two places", xlabel="place", ylabel="place")
    panels[2].set(xticks=range(0, 20, 4), yticks=range(0, 20, 4))
    panels[2].axhline(used - 0.5, color=walk.INK, linewidth=0.8, linestyle=":")
    panels[2].axvline(used - 0.5, color=walk.INK, linewidth=0.8, linestyle=":")
    figure.colorbar(drawn, ax=panels[2], shrink=0.8).outline.set_visible(False)
    walk.save(figure, folder, __file__)
    return {"changes": changes, "alike": alike, "moved": moved, "used": used}


if __name__ == "__main__":
    main()
