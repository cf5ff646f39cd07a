"""Print a table of the tokens each model puts in the same places after each amount of training.

python experiments/pretrain_mini/sentences.py WORKDIR

Of a sentence with several masks it is the first one; right tokens are bold.
"""

import json
import sys
from pathlib import Path

from bert_jax.reporting.records import SAMPLES
from bert_jax.studies.folder import StudyFolder


def show(folder: StudyFolder, model: str) -> None:
    """Print the table of a model: a row for each sentence, a column for each amount of tokens."""
    cells = [entry for entry in folder.read_cells() if entry.labels["model"] == model]
    cells.sort(key=lambda entry: entry.values["budget"])
    amounts = [f"{round(entry.values['budget'] / 1e6, 2):g} M" for entry in cells]
    print(f"\n| {model} | right |", " | ".join(amounts), "|")
    print("| --- | --- |", " --- |" * len(cells))
    rows: dict[str, list[str]] = {}
    for entry in cells:
        lines = (folder.cell(entry.id) / SAMPLES).read_text().splitlines()
        samples = [json.loads(line) for line in lines]
        for sample in samples:
            if sample["step"] != samples[-1]["step"]:
                continue
            answer, best = sample["answers"][0], sample["predictions"][0][0]
            token = f"**{best['token']}**" if best["token"] == answer else best["token"]
            row = rows.setdefault(sample["text"], [answer])
            row.append(f"{token} {100 * best['probability']:.0f} %")
    for text, row in rows.items():
        print(f"| {text} |", " | ".join(row).replace("#", "\\#"), "|")


if __name__ == "__main__":
    if len(sys.argv) != 2 or not StudyFolder(Path(sys.argv[1])).study.exists():
        sys.exit("error: no study\nhint: sentences.py WORKDIR, that of `bert-jax study run`")
    study = StudyFolder(Path(sys.argv[1]))
    for name in ("40 % masked", "left to right"):
        show(study, name)
