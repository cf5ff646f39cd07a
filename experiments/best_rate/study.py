"""The best masking rate, and whether it changes with the tokens read and the size of the model.

    bert-jax study run experiments/best_rate:learning_rate --workdir=runs/best_rate_learning_rate
    bert-jax study run experiments/best_rate --workdir=runs/best_rate
    bert-jax study run experiments/best_rate:full --workdir=runs/best_rate_full

Three sizes of model, each trained for four budgets of tokens; the phase of a constant learning rate
is trained once for all four. The first command is the sweep that PEAKS was read from.
`--only size="2 x 64"` runs a part of the second, one size.
"""

import dataclasses

from bert_jax.config import put
from bert_jax.studies.definition import Budget, Claimed, Suite, axis, variants
from experiments.scales import get_scale

RATES = (0.1, 0.15, 0.2, 0.3, 0.4, 0.6)
FEW = (0.15, 0.3, 0.6)  # of the largest, at cpu scale
LARGEST = "4 x 192"
DEEPER = {"model.layers": 4, "model.hidden": 192, "model.heads": 3, "model.init_stddev": 0.05}
SMALL = (1_500_000, 3_000_000, 6_000_000, 12_000_000)
TOKENS = {
    **dict.fromkeys(("cpu", "docstrings"), SMALL),
    "full": (3e9, 6e9, 12e9, 24e9),  # the third is that of Wettig et al.
}
WARMUP = 100  # updates, at cpu scale
# Of the bound: it takes a quarter of the time of its 8 draws, for a standard error less than twice
# as large.
DRAWS = 2
# Each size's peak learning rate at cpu scale, and those that were tried.
PEAKS = {"2 x 64": 3e-3, "2 x 128": 1.5e-3, LARGEST: 7.5e-4}
TRIED = (3.75e-4, 7.5e-4, 1.5e-3, 3e-3, 6e-3)
LEAST = {"2 x 64": 1.5e-3, "2 x 128": 7.5e-4, LARGEST: 3.75e-4}
TRIED_AT = (0.15, 0.4)


def get_study(scale="cpu"):
    sweep = scale == "learning_rate"
    name = "cpu" if sweep else scale
    how = "wettig" if name == "full" else ""
    shared = get_scale(name, how)
    for path, value in _training(name).items():
        put(shared.base, path.split("."), value)
    sizes = _sizes(shared, name, peaks=not sweep)
    if sweep:
        return _learning_rates(shared, sizes)
    late = TOKENS[name][2:]
    scored = {
        label: dataclasses.replace(evaluation, budgets=() if label == "validation" else late)
        for label, evaluation in (shared.evaluations | shared.sentences).items()
    }
    return shared._replace(evaluations=scored, budget=Budget("tokens", TOKENS[name])).study(
        question="Which masking rate is best, and does it rise or fall with the tokens read and "
        "the size of the model?",
        axes=(variants("size", sizes), _rates(RATES)),
        keep=lambda at: at["size"].label != LARGEST or at["masking.rate"].value in FEW,
        trunk=True,
        more={"bound": Suite("nelbo", (("draws", DRAWS),))},
        apart={"cross_rate": Suite("cross_rate")},
        baselines={"masking.rate": "15 %"},
        claims=_claims(sizes, TOKENS[name]),
        notes="Every selected token is replaced by [MASK], in training and in evaluations.",
    )


def _training(scale):
    masks = (1.0, 0.0, 0.0)
    knobs = {"pairs": "none", "masking.replace": masks, "evals.validation.replace": masks}
    knobs["optim.schedule"] = "wsd"
    return knobs | ({} if scale == "full" else {"optim.warmup_steps": WARMUP})


def _sizes(shared, scale, peaks):
    if scale == "full":
        return shared.sizes
    sizes = shared.sizes | {LARGEST: DEEPER}
    if not peaks:
        return sizes
    return {size: sizes[size] | {"optim.learning_rate": PEAKS[size]} for size in sizes}


def _rates(values):
    return axis("masking.rate", values, [f"{100 * rate:g} %" for rate in values])


def _claims(sizes, tokens):
    """Claim that 40 % gains more over 15 % in a larger model, and after fewer tokens."""
    gain = ("masking.rate", "40 %", "15 %", "validation/mlm_loss")
    small, *_, large = (size for size in sizes if size != LARGEST)  # which has no 40 %
    early, late = (f"{amount:,.12g} tokens" for amount in (tokens[1], tokens[-1]))
    return (
        Claimed("C1", *gain, effect=0.05, more_at=("size", large, small)),
        Claimed("C2", *gain, effect=0.05, more_at=("budget", early, late)),
    )


def _learning_rates(shared, sizes):
    evaluations = {"validation": shared.evaluations["validation"]}
    small = shared._replace(
        seeds=shared.seeds[:1],
        budget=Budget("tokens", TOKENS["cpu"][0]),
        evaluations=evaluations,
    )
    return small.study(
        question="Which peak learning rate is best for each size, at a low and a high rate?",
        axes=(
            variants("size", sizes),
            _rates(TRIED_AT),
            axis("optim.learning_rate", TRIED, [f"{rate:g}" for rate in TRIED]),
        ),
        keep=lambda at: at["optim.learning_rate"].value >= LEAST[at["size"].label],
        baselines={"optim.learning_rate": f"{TRIED[2]:g}"},
    )
