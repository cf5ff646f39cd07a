"""Do new masks in every epoch help? 1, 4 and 10 static copies of the text against dynamic masks.

    bert-jax study run experiments/static_vs_dynamic --workdir=runs/static_vs_dynamic
    bert-jax study run experiments/static_vs_dynamic:full --workdir=runs/static_vs_dynamic_full

RoBERTa's table 1.
"""

from bert_jax.studies.definition import Finetune, variants
from experiments.scales import get_scale

COPIES = {"1 copy": 1, "4 copies": 4, "10 copies": 10, "dynamic": 0}


def get_study(scale="cpu"):
    shared = get_scale(scale, "read_often")
    more = {"squad2": Finetune("squad2")} if scale == "full" else {}
    arms = {label: {"masking.dupe_factor": count} for label, count in COPIES.items()}
    return shared.study(
        question="Do masks that are drawn anew in every epoch train a better model than a few "
        "copies masked once?",
        axes=(variants("copies", arms),),
        more=more,
        baselines={"copies": "10 copies"},
        published=("roberta_table_1",),
        notes="The text must be read many times over: in a single epoch nothing could differ.",
    )
