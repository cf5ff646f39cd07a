"""Does the corruption rate matter, or the number of predictions? One is varied without the other.

    bert-jax study run experiments/corruption_vs_prediction \\
      --workdir=runs/corruption_vs_prediction
    bert-jax study run experiments/corruption_vs_prediction:full \\
      --workdir=runs/corruption_vs_prediction_full

After Wettig et al.
"""

from bert_jax.config import load_file
from bert_jax.studies.definition import axis

RATES = {"cpu": (0.2, 0.4, 0.8), "full": (0.1, 0.2, 0.4, 0.8)}


def get_study(scale="cpu"):
    shared = load_file(f"../scales.py:{scale},wettig", beside=__file__, function="get_scale")
    rates = RATES[scale]
    labels = [f"{100 * rate:g} %" for rate in rates]
    return shared.study(
        question="At a higher masking rate, does it help that more is predicted, and does it harm "
        "that more is hidden?",
        axes=(axis("masking.rate", rates, labels), axis("masking.prediction_rate", rates, labels)),
        # Each baseline is one that exists at every value of the other rate.
        baselines={"masking.rate": "80 %", "masking.prediction_rate": labels[0]},
        keep=lambda points: points["masking.prediction_rate"].value <= points["masking.rate"].value,
        notes="More predictions than corrupted tokens need an example to be shown several times, "
        "with other masks each time, as Wettig et al. do; that is not built, so those rows of "
        "theirs are missing.",
    )
