"""Draw curve.png beside this file from the metrics of a run.

python experiments/pretrain_mini/plot.py RUN/metrics.jsonl
"""

import json
import sys
from pathlib import Path

from bert_jax.reporting import files
from bert_jax.reporting.figures import Chart, Series
from bert_jax.reporting.metric_names import axis_title, is_share, pretty

rows = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]


def curve(name: str) -> list[tuple[int, float]]:
    """Return the values of a metric by step."""
    return [(row["step"], row[name]) for row in rows if name in row]


files.write(
    Path(__file__).with_name("curve"),
    [
        Chart(
            pretty(metric),
            [
                Series("train", curve(f"train/{metric}"), faint=True),
                Series("validation", curve(f"eval/validation/{metric}"), 2),
            ],
            baselines=[(label, curve(f"eval/validation/{baseline}")[-1][1])],
            percent=is_share(metric),
            x="updates",
            y=axis_title(metric),
        )
        for metric, baseline, label in (
            ("mlm_loss", "unigram_loss", "unigram"),
            ("nsp_accuracy", "majority_accuracy", "larger class"),
        )
    ],
    columns=2,
    kinds=("png",),
)
