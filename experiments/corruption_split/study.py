"""Splits of the selected tokens into [MASK], the same token and a random one.

    bert-jax study run experiments/corruption_split --workdir=runs/corruption_split
    bert-jax study run experiments/corruption_split:full --workdir=runs/corruption_split_full

The rows of BERT's table 8. `experiments/corruption_split:cpu,0.15,0.4` crosses the rows with two
masking rates.
"""

from bert_jax.studies.definition import Finetune, Suite, axis
from experiments.scales import get_scale

ROWS = (  # [MASK], random and the same token; labels have the paper's order
    (0.8, 0.1, 0.1),
    (1.0, 0.0, 0.0),
    (0.8, 0.2, 0.0),
    (0.8, 0.0, 0.2),
    (0.0, 0.8, 0.2),
    (0.0, 1.0, 0.0),
)


def get_study(scale="cpu"):
    name, *rates = scale.split(",")
    shared = get_scale(name)
    more = {
        "only_masks": Suite("pretrain", (("changes", (("evals.validation.replace", "(1,0,0)"),)),))
    }
    more |= shared.frozen
    if name == "full":
        more["ner"] = Finetune("conll2003")
    by_rate = [axis("masking.rate", [float(rate) for rate in rates])] if rates else []
    return shared.study(
        question="Which split of the selected tokens into [MASK], the same and a random token "
        "trains the best model?",
        axes=(*by_rate, axis("masking.replace", ROWS)),
        more=more,
        baselines={"masking.replace": "80/10/10"},
        published=("bert_table_8", "wettig_split"),
        notes="Labels are [MASK] / same / random, as in the paper. Held-out text is masked "
        "80/10/10 for every run, and once more by [MASK] alone. A run that never saw [MASK] fails "
        "both: what counts is what comes after.",
    )
