"""Does the type of matmuls cost accuracy? float32, or bfloat16 factors with float32 sums.

bert-jax study run experiments/precision --workdir=runs/precision
bert-jax study run experiments/precision:full --workdir=runs/precision_full
"""

from bert_jax.studies.definition import variants
from experiments.scales import get_scale

ARMS = {name.replace("_", " "): {"model.dtype": name} for name in ("float32", "bfloat16_products")}


def get_study(scale="cpu"):
    shared = get_scale(scale)
    return shared.study(
        question="Are models trained with products of bfloat16 factors as good as those of "
        "float32?",
        axes=(variants("precision", ARMS),),
        baselines={"precision": "float32"},
        notes="Both runs of a seed start from the same parameters and see the same masks.",
    )
