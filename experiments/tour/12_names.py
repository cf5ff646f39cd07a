"""Stop 12: named entities. A label for every word, read from the vector of its first piece."""

from pathlib import Path

import walk

SENTENCES = [
    "Maria works for Airbus in Berlin .",
    "Omar Baker flies from New York to Munich .",
    "Lena left Deutsche Bank last year .",
]
COLOURS = {"PER": "#cce8d6", "ORG": "#c5d8f0", "LOC": "#fbd9b5"}


def main(folder: Path = walk.HERE) -> None:
    """Find the names in three new sentences."""
    run = walk.trained("names", folder)
    answers = walk.ask(run, "tag", SENTENCES, entities=True)
    for sentence, answer in zip(SENTENCES, answers, strict=True):
        print(sentence)
        print("  ", " ".join(answer["labels"]))
        print("  ", ", ".join(f"{name['text']}: {name['label']}" for name in answer["entities"]))
    figure, panel = walk.plt.subplots(figsize=(8, 1.9))
    for row, answer in enumerate(answers):
        for column, (word, label) in enumerate(zip(answer["words"], answer["labels"], strict=True)):
            colour = COLOURS.get(label[2:], "none")
            box = {"boxstyle": "round,pad=0.35", "facecolor": colour, "edgecolor": "none"}
            panel.text(column, -row, word, ha="center", va="center", bbox=box)
            below = label if label != "O" else ""
            panel.text(column, -row - 0.42, below, ha="center", va="center", fontsize=7)
    panel.set(xlim=(-0.6, 8.6), ylim=(-2.6, 0.5))
    panel.axis("off")
    walk.save(figure, folder, __file__)


if __name__ == "__main__":
    main()
