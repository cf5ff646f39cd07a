"""Should the masking rate change during training? Constant, falling, or rising.

    bert-jax study run experiments/schedule --workdir=runs/schedule
    bert-jax study run experiments/schedule:full --workdir=runs/schedule_full

It falls from 30 to 15 %, or rises from 15 to 30 %.
"""

from bert_jax.studies.definition import Claimed, Suite, variants
from experiments.scales import get_scale

ARMS = {
    "15 %": {"masking.rate": 0.15},
    "22.5 %": {"masking.rate": 0.225},
    "30 to 15 %": {"masking.rate": 0.3, "masking.phases": ((1.0, 0.15, "linear"),)},
    "15 to 30 %": {"masking.rate": 0.15, "masking.phases": ((1.0, 0.3, "linear"),)},
}
# Stated when the cells at `cpu` scale had been run.
CLAIMS = (
    Claimed("C7", "schedule", "30 to 15 %", "15 to 30 %", "validation/mlm_loss", effect=0.05),
    Claimed("C8", "schedule", "30 to 15 %", "22.5 %", "validation/mlm_loss", effect=0.05),
)


def get_study(scale="cpu"):
    shared = get_scale(scale, "wettig")
    return shared.study(
        question="Does a masking rate that falls or rises while training beat a constant one?",
        axes=(variants("schedule", ARMS),),
        apart={"cross_rate": Suite("cross_rate")},
        baselines={"schedule": "22.5 %"},
        claims=CLAIMS,
        notes="At 22.5 % as many tokens are predicted as under either schedule: they are compared "
        "with that.",
    )
