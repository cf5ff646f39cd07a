"""Stop 10: text classification. A head on [CLS] learns from thirty complaints."""

from pathlib import Path

import walk

COMPLAINTS = [
    "The keyboard of my laptop is broken",
    "The program crashes with an error when I open the menu",
    "I was charged twice and want my money back",
]
MORE = {
    "hardware": [
        "The battery gets hot",
        "The printer does not turn on",
        "There is a crack in the screen",
        "My mouse is stuck",
    ],
    "software": [
        "The update shows an error",
        "I cannot open the file",
        "The app stops when I click on save",
        "The search is empty",
    ],
    "billing": [
        "The amount is wrong",
        "I was charged for an order I cancelled",
        "The price on the bill is wrong",
        "I paid last month",
    ],
}


def main(folder: Path = walk.HERE) -> None:
    """Classify twelve new complaints, and show three more."""
    run = walk.trained("complaints", folder)
    more = {text: label for label, several in MORE.items() for text in several}
    others = walk.ask(run, "classify", list(more))
    right = sum(a["label"] == label for a, label in zip(others, more.values(), strict=True))
    print(f"of {len(more)} new complaints: {right} right")
    answers = walk.ask(run, "classify", COMPLAINTS)
    labels = run.config.objectives["classify"].labels
    for answer in answers:
        print(answer["text"])
        shown = (f"{label} {answer['probabilities'][label]:.2f}" for label in labels)
        print("  ", ", ".join(shown), "->", answer["label"])
    figure, panels = walk.plt.subplots(3, 1, figsize=(7, 3.6), sharex=True)
    for panel, answer in zip(panels, answers, strict=True):
        chances = [answer["probabilities"][label] for label in labels]
        colours = [walk.BLUE if label == answer["label"] else walk.GREY for label in labels]
        panel.barh(labels, chances, color=colours)
        panel.set_title(answer["text"], loc="left")
        panel.tick_params(axis="y", length=0)
    panels[-1].set(xlim=(0, 1), xlabel="probability")
    walk.save(figure, folder, __file__)


if __name__ == "__main__":
    main()
