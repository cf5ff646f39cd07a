"""What a BERT of 4 x 256 learns from ever more tokens, beside one that reads left to right.

    bert-jax study run experiments/pretrain_mini:learning_rate --workdir=runs/pretrain_mini_rates
    bert-jax study run experiments/pretrain_mini --workdir=runs/pretrain_mini
    bert-jax study run experiments/pretrain_mini:full --workdir=runs/pretrain_mini_full

Each amount of tokens is a finished training, and the phase of a constant learning rate is made once
for all of them. The first amount is an update at a learning rate of 0: the network untrained. At
full scale it is BERT-large by the recipe of Wettig et al. The first command tries peaks of the
learning rate.
"""

from bert_jax.config import put
from bert_jax.errors import ConfigError
from bert_jax.studies.definition import Budget, Finetune, Suite, axis, variants
from experiments.scales import get_scale

MASKED = "40 % masked"
MODELS = {
    MASKED: {"masking.rate": 0.4},
    "left to right": {
        "model.causal": True,
        "objectives.causal_lm.weight": 1.0,
        "objectives.causal_lm.end": True,  # of whose vector the tasks are read
        "objectives.mlm.weight": None,
    },
}
# The first is an update.
SMALL = (2_048, 750_000, 1_500_000, 3_000_000, 6_000_000, 12_000_000)
TOKENS = {
    **dict.fromkeys(("cpu", "docstrings"), SMALL),
    "full": (4_096 * 128, 3e9, 6e9, 12e9, 24e9),
}
MINI = {
    "model.size": "mini",
    "model.init_stddev": 0.0625,
    "model.dtype": "bfloat16_products",
    # The best of PEAKS for the masked model.
    "optim.learning_rate": 5e-4,
    "optim.warmup_steps": 100,
    "evals.validation.every": 500,
}
PEAKS = (2.5e-4, 5e-4, 1e-3)  # that were tried, for so many tokens
TRIED_FOR = 1_500_000
TUNED = {"epochs": 3.0, "optim.learning_rate": 3e-4}
TASKS = ("sst2", "stsb")


def get_study(scale="cpu"):
    sweep, scale = scale == "learning_rate", "cpu" if scale == "learning_rate" else scale
    if scale not in TOKENS:
        raise ConfigError(f"no scale {scale!r}", "cpu, docstrings, full or learning_rate")
    how = "wettig" if scale == "full" else ""
    shared = get_scale(scale, how)
    base = shared.base
    masks = (1.0, 0.0, 0.0)
    knobs = {"pairs": "none", "masking.replace": masks, "evals.validation.replace": masks}
    knobs |= {"optim.schedule": "wsd"} | ({} if scale == "full" else MINI)
    for path, value in knobs.items():
        put(base, path.split("."), value)
    validation = {"validation": Suite("pretrain")}
    if sweep:
        return shared._replace(
            evaluations=validation, budget=Budget("tokens", TRIED_FOR), seeds=shared.seeds[:1]
        ).study(
            question="Which peak of the learning rate is best?",
            axes=(variants("model", MODELS), axis("optim.learning_rate", PEAKS)),
            baselines={"optim.learning_rate": f"{PEAKS[1]:g}"},
        )
    # The bound first: both models have one.
    evaluations = {"bound": Suite("nelbo", (("draws", 2),)), **validation}
    if scale == "full":
        evaluations |= {task: Finetune(task) for task in TASKS}
    else:
        for task, tuned in (shared.sentences | shared.alike).items():
            settings = dict(tuned.changes) | TUNED
            evaluations[task] = Finetune(task, tuple(settings.items()))
    return shared._replace(
        evaluations=evaluations,
        budget=Budget("tokens", TOKENS[scale]),
        seeds=shared.seeds[:1],
    ).study(
        question="What does a model learn from ever more tokens?",
        axes=(variants("model", MODELS),),
        trunk=True,
        baselines={"model": MASKED},
        notes="One seed: the course of one training, not a comparison.",
    )
