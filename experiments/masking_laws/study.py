"""Which law should the masking rate follow? A number, a schedule, or a draw for each example.

    bert-jax study run experiments/masking_laws:trial --workdir=runs/masking_laws_trial
    bert-jax study run experiments/masking_laws --workdir=runs/masking_laws
    bert-jax study run experiments/masking_laws:full --workdir=runs/masking_laws_full

`trial` is one seed of a larger model at the tokens of the other studies. Whatever they are trained
with, all are compared by the bound on the likelihood of the same text (suite nelbo), which is exact
for the model that reads from left to right.
"""

import dataclasses

from bert_jax.config import put
from bert_jax.studies.definition import Budget, Claimed, Suite, variants
from experiments.scales import get_scale

TOKENS = 6_000_000
SIZE = "2 x 64"  # at cpu scale: best_rate found the same best learning rate at 15 and at 40 %
BOUND = "bound/nats_per_token"
CLAIMS = (
    Claimed("C7", "law", "30 to 15 %", "15 to 30 %", BOUND, effect=0.05),
    Claimed("C13", "law", "cosine, low", "uniform", BOUND, effect=0.05),
    Claimed("C16", "law", "10 to 50 %, drawn", "15 %", BOUND, effect=0.05, within=0.05),
)
LAWS = {
    "15 %": {"masking.rate": 0.15},
    "40 %": {"masking.rate": 0.4},
    "30 to 15 %": {"masking.rate": 0.3, "masking.phases": ((1.0, 0.15, "linear"),)},
    "15 to 30 %": {"masking.rate": 0.15, "masking.phases": ((1.0, 0.3, "linear"),)},
    "10 to 50 %, drawn": {
        "masking.draw": "uniform",
        "masking.draw_low": 0.1,
        "masking.draw_high": 0.5,
    },
    "uniform": {"masking.draw": "uniform"},
    "cosine, low": {"masking.draw": "cosine_low"},
    "cosine, high": {"masking.draw": "cosine_high"},
    "uniform, the bound": {
        "masking.draw": "uniform",
        "objectives.diffusion.gamma": 1.0,
        "objectives.mlm.weight": None,
    },
    "half left to right": {
        "objectives.hybrid.share": 0.5,
        "objectives.mlm.weight": None,
    },
    "left to right": {
        "model.causal": True,
        "objectives.causal_lm.weight": 1.0,
        "objectives.mlm.weight": None,
    },
}


def get_study(scale="cpu"):
    name = "cpu" if scale == "trial" else scale
    shared = get_scale(name)
    if scale in ("cpu", "docstrings"):
        for path, value in shared.sizes[SIZE].items():
            put(shared.base, path.split("."), value)
    shared.base.pairs = "none"
    shared.base.masking.replace = (1.0, 0.0, 0.0)
    shared.base.evals.validation.replace = (1.0, 0.0, 0.0)
    # The bound first: every law has one.
    shared = shared._replace(evaluations={"bound": Suite("nelbo")} | shared.evaluations)
    study = shared.study(
        question="Which law of the masking rate gives the best model for the tokens it reads?",
        axes=(variants("law", LAWS),),
        apart={"cross_rate": Suite("cross_rate")},
        baselines={"law": "15 %"},
        claims=CLAIMS,
        notes="Every selected token is replaced by [MASK], in training and in evaluations.",
    )
    if scale == "trial":
        return dataclasses.replace(study, seeds=study.seeds[:1])
    return study if scale == "full" else dataclasses.replace(study, budget=Budget("tokens", TOKENS))
