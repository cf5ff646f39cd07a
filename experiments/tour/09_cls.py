"""Stop 9: what [CLS] gathers. It stands for no word; training decides what its vector holds."""

import csv
from pathlib import Path

import numpy as np
import walk

from bert_jax.views.vectors import project_pca

COMPLAINTS = walk.HERE.parent / "complaints" / "complaints.tsv"
SHOWN = [
    "There is a crack in the screen",
    "The app shows an error message",
    "I was charged twice this month",
]
COLOURS = {"hardware": walk.BLUE, "software": walk.GREEN, "billing": walk.ORANGE}


def main(folder: Path = walk.HERE) -> None:
    """Compare [CLS] of thirty complaints before and after training, and show its attention."""
    run = walk.trained("complaints", folder)
    fresh = walk.untrained(run.config, run.tokenizer.size)
    with COMPLAINTS.open() as file:
        data = list(csv.DictReader(file, delimiter="\t"))
    labels = np.array([row["label"] for row in data])

    batch, _ = walk.batch_of(run, *(row["text"] for row in data))
    same = (labels[:, None] == labels) & ~np.eye(len(labels), dtype=bool)
    figure, panels = walk.plt.subplots(1, 3, figsize=(11, 3.6), width_ratios=(1, 1, 1.25))
    found = {}
    print("mean cosine of the [CLS] vectors of two complaints   of one kind   of two kinds")
    for panel, (when, params) in zip(
        panels, {"before": fresh, "after": run.params}.items(), strict=False
    ):
        hidden = walk.look_inside(run, batch, params).hidden
        last = np.asarray(hidden[-1, :, 0])  # [30, D]: [CLS] comes first
        alike = walk.cosines(last)
        found[when] = (float(alike[same].mean()), float(alike[labels[:, None] != labels].mean()))
        print(f"  {when + ' training':49} {found[when][0]:12.2f} {found[when][1]:14.2f}")
        places = project_pca(last)[0]
        for label, colour in COLOURS.items():
            panel.scatter(*places[labels == label].T, color=colour, s=18, label=label)
        panel.set(xticks=[], yticks=[], title=f"[CLS] of thirty complaints, {when} training")
    panels[1].legend(fontsize=8)

    print("\nwhat [CLS] looks at most in the last layer, mean of its heads:")
    batch, tokens = walk.batch_of(run, *SHOWN)
    attention = walk.look_inside(run, batch).attention
    names, weights = [], []
    for text, words, row in zip(SHOWN, tokens, attention[-1, :, :, 0].mean(1), strict=True):
        best = np.argsort(-row)[:3]
        print(f"  {text}:", ", ".join(f"{words[i]} {row[i]:.2f}" for i in best))
        names += [*words, ""]
        weights += [*row[: len(words)], 0.0]
    panels[2].barh(range(len(names) - 1), weights[:-1], color=walk.BLUE)
    panels[2].set_yticks(range(len(names) - 1), names[:-1], fontsize=7)
    panels[2].invert_yaxis()
    panels[2].tick_params(axis="y", length=0)
    panels[2].set_title("attention of [CLS], last layer")
    walk.save(figure, folder, __file__)


if __name__ == "__main__":
    main()
