"""RoBERTa, with LayerNorm after each block or before it.

Its table of positions begins with rows that no token reads: the first token reads the row after the
padding token's id. In classes over a whole text, the pooler is named `classifier.dense`. The
activation of the MLM head is always GELU.
"""

import dataclasses
from collections.abc import Collection, Iterable

from bert_jax.batch import Special
from bert_jax.config import knobs
from bert_jax.interop.families import base, bert
from bert_jax.interop.families.base import Family, Stated

HEADS = {
    **base.name_words("lm_head.dense", "lm_head.layer_norm", "lm_head"),
    **dict.fromkeys(("classify/logits", "regress/logits"), "classifier.out_proj"),
    **dict.fromkeys(("tag/logits", "choice/logits"), "classifier"),
    "span/logits": "qa_outputs",
}
PRE_NORM_LAYER = {
    **bert.LAYER,
    "attention_norm": "attention.LayerNorm",
    "mlp_norm": "intermediate.LayerNorm",
}


def is_pre_norm(model_type: str, tensors: Iterable[str]) -> bool:
    """Tell whether a model of type roberta has pre-norm, as DinkyTrain's models have."""
    return model_type == "roberta" and any(
        name.endswith("encoder.layer.0.attention.LayerNorm.weight") for name in tensors
    )


def to_hf(config: knobs.Config, special: Special) -> Stated:
    """Convert a model to a config.json; the first position follows from the padding token."""
    tokens = {"bos_token_id": special.cls, "eos_token_id": special.sep}
    return bert.to_hf(config, special) | tokens


def from_hf(stated: Stated, heads: Collection[str]) -> knobs.Model:
    """Convert a config.json to the knobs of a model with LayerNorm after each block."""
    first = base.read_value(stated, "pad_token_id", 1) + 1
    return dataclasses.replace(
        bert.from_hf(stated, heads), first_position=first, head_activation="gelu"
    )


def from_hf_pre_norm(stated: Stated, heads: Collection[str]) -> knobs.Model:
    """Convert a config.json to the knobs of a model with LayerNorm before each block."""
    return dataclasses.replace(from_hf(stated, heads), norm="pre")


def list_classes(name: str) -> dict[str, tuple[str, ...]]:
    """Return {class: its heads} of the classes of transformers that begin with `name`."""
    return base.over_labels(name) | {
        f"{name}ForCausalLM": ("causal_lm",),
        f"{name}ForMaskedLM": ("mlm",),
        f"{name}Model": (),
    }


FAMILY = Family(
    model_type="roberta",
    title="RoBERTa",
    prefix="roberta.",
    classes=list_classes("Roberta"),
    names={
        **bert.name_encoder("roberta.", "encoder.layer", bert.LAYER),
        "encoder/pooler": "roberta.pooler.dense",
        **HEADS,
    },
    to_hf=to_hf,
    from_hf=from_hf,
    tied="lm_head.decoder.weight",
    second_bias="lm_head.decoder.bias",
    text_pooler="classifier.dense",
    unused=r"roberta\.pooler\.",  # of versions that kept it besides `classifier.dense`
)
PRE_NORM = dataclasses.replace(
    FAMILY,
    model_type="roberta-prelayernorm",
    title="RoBERTa with pre-norm",
    prefix="roberta_prelayernorm.",
    # DinkyTrain names the classes of RoBERTa.
    classes=list_classes("RobertaPreLayerNorm") | list_classes("Roberta"),
    names={
        **bert.name_encoder("roberta_prelayernorm.", "encoder.layer", PRE_NORM_LAYER),
        "encoder/pooler": "roberta_prelayernorm.pooler.dense",
        "encoder/final_norm": "roberta_prelayernorm.LayerNorm",
        **HEADS,
    },
    from_hf=from_hf_pre_norm,
    # The second norm of attention is in files of DinkyTrain, where nothing reads it.
    unused=r"roberta_prelayernorm\.(pooler\.|encoder\.layer\.\d+\.attention\.self\.LayerNorm\.)",
)
