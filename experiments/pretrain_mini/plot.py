"""Draw curve.png beside this file from the metrics of a run.

python experiments/pretrain_mini/plot.py RUN/metrics.jsonl
"""

import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt

rows = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
train = [row for row in rows if "train/mlm_loss" in row]
held_out = [row for row in rows if "eval/validation/mlm_loss" in row]
figure, panels = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
for panel, metric, baseline, label in (
    (panels[0], "mlm_loss", "unigram_loss", "unigram"),
    (panels[1], "nsp_accuracy", "majority_accuracy", "larger class"),
):
    for source, group, style in (
        ("train", train, {"alpha": 0.35}),
        ("eval/validation", held_out, {"marker": "o"}),
    ):
        values = [row[f"{source}/{metric}"] for row in group]
        panel.plot(
            [row["step"] for row in group], values, label=source.removeprefix("eval/"), **style
        )
    panel.axhline(
        held_out[-1][f"eval/validation/{baseline}"], linestyle="--", color="grey", label=label
    )
    panel.set(
        xlabel="updates", title=metric.replace("_", " ").replace("mlm", "MLM").replace("nsp", "NSP")
    )
    panel.legend(frameon=False)
    panel.spines[["top", "right"]].set_visible(False)
figure.savefig(Path(__file__).with_name("curve.png"), dpi=130)
