"""ELECTRA: a BERT whose embeddings may be narrower than its layers, and its generator.

The discriminator has the head of objective `replaced`. The generator is a separate model, whose MLM
head has the width of the embeddings. Heads over texts have a dense layer and GELU, whatever the
activation of the feed-forward is. The dropout before that layer is left out here.
"""

import dataclasses
from collections.abc import Collection

from bert_jax.batch import Special
from bert_jax.config import knobs
from bert_jax.interop.families import base, bert
from bert_jax.interop.families.base import Family, Stated

SUMMARY = {"summary_type": "first", "summary_use_proj": True, "summary_activation": "gelu"}


def to_hf(config: knobs.Config, special: Special) -> Stated:
    """Convert a model to the keys of a config.json."""
    model = config.model
    return bert.to_hf(config, special) | {
        **SUMMARY,
        "summary_last_dropout": model.classifier_dropout,
        "embedding_size": model.table_width,
    }


def from_hf(stated: Stated, heads: Collection[str]) -> knobs.Model:
    """Convert a config.json to the knobs of a model."""
    fixed = {key: (value,) for key, value in SUMMARY.items()}
    base.check_fixed(stated, {**fixed, "summary_proj_to_labels": (None, False)}, "ELECTRA")
    width = base.read_value(stated, "embedding_size", 128)
    model = bert.from_hf(stated, heads)
    if "choice" in heads:
        dropout = base.read_value(stated, "summary_last_dropout", 0.1)
        model = dataclasses.replace(model, classifier_dropout=dropout)
    return dataclasses.replace(
        model,
        embedding=None if width == model.hidden else width,
        head_activation="gelu",
        pooler="gelu",
    )


FAMILY = Family(
    model_type="electra",
    title="ELECTRA",
    prefix="electra.",
    classes={
        **base.over_labels("Electra"),
        "ElectraForPreTraining": ("replaced",),
        "ElectraForCausalLM": ("causal_lm",),
        "ElectraForMaskedLM": ("mlm",),
        "ElectraModel": (),
    },
    names={
        **bert.name_encoder("electra.", "encoder.layer", bert.LAYER),
        "encoder/projection": "electra.embeddings_project",
        "encoder/pooler": "sequence_summary.summary",
        **base.name_words(
            "generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head"
        ),
        **dict.fromkeys(bert.LABELS, "classifier"),
        **dict.fromkeys(("classify/logits", "regress/logits"), "classifier.out_proj"),
        "span/logits": "qa_outputs",
        "replaced/dense": "discriminator_predictions.dense",
        "replaced/logits": "discriminator_predictions.dense_prediction",
    },
    to_hf=to_hf,
    from_hf=from_hf,
    tied="generator_lm_head.weight",
    text_pooler="classifier.dense",
    kept=("classifier_dropout", "summary_last_dropout"),
)
