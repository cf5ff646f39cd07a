"""Stop 8: next sentence prediction. Two lines of four poems: does the second follow the first."""

from pathlib import Path

import numpy as np
import walk


def main(folder: Path = walk.HERE) -> dict:
    """Ask a model about every line of four poems after every other."""
    poems = [
        poem.splitlines() for poem in (walk.DATA / "verses.txt").read_text().strip().split("\n\n")
    ]
    lines = [line for poem in poems for line in poem]
    run = walk.trained("nsp", folder)
    pairs = [{"text": first, "text_pair": second} for first in lines for second in lines]
    answers = walk.ask(run, "nsp", pairs, long="cut")
    chance = np.array([answer["is_next"] for answer in answers]).reshape(len(lines), -1)

    poem_of = np.repeat(np.arange(len(poems)), [len(poem) for poem in poems])
    place = np.arange(len(lines))
    same = poem_of[:, None] == poem_of
    kinds = {
        "the next line of the poem": same & (place[None] == place[:, None] + 1),
        "a line of another poem": ~same,
        "a later line, not the next": same & (place[None] > place[:, None] + 1),
        "an earlier line of the poem": same & (place[None] < place[:, None]),
    }
    shares = {name: float(np.mean(chance[mask] > 0.5)) for name, mask in kinds.items()}
    print("called the next line:")
    for name, mask in kinds.items():
        print(f"  {name:28} {int(np.sum(chance[mask] > 0.5)):3} of {int(mask.sum()):3}")
    print("\nprobability that the second line follows the first:")
    for first, second in ((0, 1), (0, 4), (3, 0), (1, 2), (2, 3), (2, 9)):
        print(f"  {chance[first, second]:.2f}  {lines[first]} / {lines[second]}")

    figure, panel = walk.plt.subplots(figsize=(6.6, 5))
    names = [
        f"{poem + 1}.{line + 1}"
        for poem, several in enumerate(poems)
        for line in range(len(several))
    ]
    walk.heat(panel, chance, names, names, vmax=1)
    for edge in (3.5, 7.5, 11.5):
        panel.axhline(edge, color=walk.INK, linewidth=0.6)
        panel.axvline(edge, color=walk.INK, linewidth=0.6)
    panel.plot(
        *zip(*((j, i) for i, j in np.argwhere(kinds["the next line of the poem"])), strict=True),
        "o",
        mfc="none",
        mec=walk.ORANGE,
        ms=11,
    )
    panel.set(xlabel="second line (poem.line)", ylabel="first line")
    figure.colorbar(panel.images[0], label="probability that it follows").outline.set_visible(False)
    walk.save(figure, folder, __file__)
    return {"chance": chance, "shares": shares}


if __name__ == "__main__":
    main()
