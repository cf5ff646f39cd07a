"""ELECTRA: a BERT whose embeddings may be narrower than its layers, and its generator.

The discriminator has the head of objective `replaced`; the generator, a model of its own there, the
MLM head, which ends at the width of the embeddings. Classes over a text have a dense layer and
GELU, whatever the activation of the feed-forward; the dropout before that layer is left out here.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from bert_jax.batch import Special
from bert_jax.config import knobs
from bert_jax.interop.families import bert
from bert_jax.interop.families.base import PLAIN, SIZES, Family, Stated, number, over_labels
from bert_jax.interop.parameter_names import Rows, module, modules

MODULES = {
    "encoder/projection": ("electra.embeddings_project", "dense"),
    "replaced/dense": ("discriminator_predictions.dense", "dense"),
}
ROWS = (
    bert.encoder("electra.", "attention.output.LayerNorm", "output.LayerNorm")
    | bert.words(
        "generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head.bias"
    )
    | bert.logits(
        **bert.LABELS | dict.fromkeys(("classify", "regress"), "classifier.out_proj"),
        span="qa_outputs",
        replaced="discriminator_predictions.dense_prediction",
    )
    | modules(MODULES)
)
SUMMARY = {"summary_type": "first", "summary_use_proj": True, "summary_activation": "gelu"}


def rows(heads: Collection[str]) -> Rows:
    """Return the names of the tensors of a model with these heads."""
    of_text = {"classify", "regress"} & set(heads)
    pooler = "classifier.dense" if of_text else "sequence_summary.summary"
    return ROWS | module("encoder/pooler", pooler, "dense")


def read(stated: Stated, heads: Collection[str]) -> dict[str, Any]:
    """Return the knobs that follow from the family, and the dropout of the class."""
    found: dict[str, Any] = {"head_activation": "gelu", "pooler": "gelu"}
    if stated.get("embedding_size", 128) == stated["hidden_size"]:
        found["embedding"] = None
    if "choice" in heads:
        found["classifier_dropout"] = number(stated, "summary_last_dropout", 0.1)
    return found


def state(config: knobs.Config, special: Special) -> Stated:
    """Return what config.json states besides the sizes and rates."""
    m = config.model
    widths = {"embedding_size": m.table_width, "summary_last_dropout": m.classifier_dropout}
    return bert.state(config, special) | SUMMARY | widths


FAMILY = Family(
    model_type="electra",
    title="ELECTRA",
    prefix="electra.",
    classes=over_labels("Electra")
    | {
        "ElectraForPreTraining": ("replaced",),
        "ElectraForCausalLM": ("causal_lm",),
        "ElectraForMaskedLM": ("mlm",),
        "ElectraModel": (),
    },
    keys=bert.KEYS | {"embedding": ("embedding_size", 128)},
    fixed={
        **bert.FAMILY.fixed,
        **{key: (value,) for key, value in SUMMARY.items()},
        "summary_proj_to_labels": (None, False),
    },
    rows=rows,
    tied="generator_lm_head.weight",
    kept=("classifier_dropout", "summary_last_dropout"),
    read=read,
    state=state,
    sizes={
        **SIZES,
        "hidden": ("encoder/layer_{}/mlp/up/kernel", 1),
        "embedding": ("encoder/embeddings/token", 1),
    },
    only=PLAIN | {"norm": ("post",), "first_position": (0,), "type_vocab": range(1, 2**31)},
    head_activation="gelu",
    pooler="gelu",
)
