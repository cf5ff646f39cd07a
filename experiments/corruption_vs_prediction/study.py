"""Does the corruption rate matter, or the number of predictions? One is varied without the other.

    bert-jax study run experiments/corruption_vs_prediction \\
      --workdir=runs/corruption_vs_prediction
    bert-jax study run experiments/corruption_vs_prediction:full \\
      --workdir=runs/corruption_vs_prediction_full

After Wettig et al.
"""

from bert_jax.studies.definition import Claimed, axis
from experiments.scales import get_scale

RATES = (0.1, 0.2, 0.4, 0.8)
FEW = RATES[1:]  # of a small model
LOSS = "validation/mlm_loss"
CLAIMS = (  # stated when the cells at `cpu` scale had been run
    Claimed("C4", "masking.prediction_rate", "40 %", "20 %", LOSS, effect=0.1),
    Claimed("C4", "masking.rate", "20 %", "40 %", LOSS, effect=0.1),
)


def get_study(scale="cpu"):
    shared = get_scale(scale, "wettig")
    rates = RATES if scale == "full" else FEW
    labels = [f"{100 * rate:g} %" for rate in rates]
    return shared.study(
        question="At a higher masking rate, does it help that more is predicted, and does it harm "
        "that more is hidden?",
        axes=(axis("masking.rate", rates, labels), axis("masking.prediction_rate", rates, labels)),
        # Each baseline is one that exists at every value of the other rate.
        baselines={"masking.rate": "80 %", "masking.prediction_rate": labels[0]},
        keep=lambda points: points["masking.prediction_rate"].value <= points["masking.rate"].value,
        claims=CLAIMS,
        notes="Wettig et al. also predict more tokens than are corrupted; those rows are left out.",
    )
