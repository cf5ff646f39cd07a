"""Draw curves.png beside this file from the table of the study beside it.

python experiments/pretrain_mini/plot.py
"""

import csv
from pathlib import Path

from bert_jax.reporting import files
from bert_jax.reporting.figures import Chart, Series
from bert_jax.reporting.metric_names import is_share

HERE = Path(__file__).parent
MODELS = ("40 % masked", "left to right")
# Metric, title, title of the axis, models, baseline and its name.
PANELS = (
    ("validation/mlm_loss", "Held-out loss at 15 % masked", "nats", MODELS[:1], "unigram"),
    ("bound/nats_per_token", "Held-out text: likelihood, or its bound", "nats", MODELS, "unigram"),
    ("sst2/accuracy", "SST-2, fine-tuned", "accuracy", MODELS, "larger class"),
    ("stsb/spearman", "STS-B, fine-tuned", "Spearman's correlation", MODELS, ""),
)
BASELINES = {"unigram": "validation/unigram_loss", "larger class": "sst2/majority_accuracy"}

with (HERE / "results.csv").open() as file:
    rows = list(csv.DictReader(file))
tokens = sorted({float(row["budget.value"]) for row in rows})
ticks = [(place, f"{number / 1e6:g}" if place else "0") for place, number in enumerate(tokens)]


def curve(model: str, metric: str) -> list[tuple[float, float]]:
    """Return the values of a metric by the place of its tokens; from the second on they double."""
    return sorted(
        (float(tokens.index(float(row["budget.value"]))), float(row[metric]))
        for row in rows
        if row["model"] == model and row[metric]
    )


charts = []
for metric, title, y, models, baseline in PANELS:
    same = [row for row in rows if baseline and row["model"] == models[-1]]
    level = [float(row[BASELINES[baseline]]) for row in same[:1]]
    charts.append(
        Chart(
            title,
            [
                Series(model, curve(model, metric), f"c{1 + MODELS.index(model)}")
                for model in models
            ],
            baselines=[(baseline, value) for value in level],
            percent=is_share(metric),
            x="million tokens, 0: untrained",
            y=y,
            ticks=ticks,
        )
    )
files.write_figures(HERE / "curves", charts, columns=2, kinds=("png",))
