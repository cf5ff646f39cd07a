"""RoBERTa, with LayerNorm after each block or before it.

Its table of positions begins with rows that no token reads: the first token's is the padding
token's id + 1. The pooler of its classes over labels is called `classifier.dense`, and the
activation of its MLM head is always GELU.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable
from typing import Any

from bert_jax.batch import Special
from bert_jax.config import knobs
from bert_jax.interop.families import bert
from bert_jax.interop.families.base import PLAIN, Family, Stated, over_labels, whole
from bert_jax.interop.parameter_names import Row, Rows, module

HEADS = bert.words("lm_head.dense", "lm_head.layer_norm", "lm_head.bias") | bert.logits(
    classify="classifier.out_proj",
    regress="classifier.out_proj",
    tag="classifier",
    choice="classifier",
    span="qa_outputs",
)


def names(encoder: dict[str, Row]) -> Callable[[Collection[str]], Rows]:
    """Return the function of a model's heads that returns the names of its tensors."""
    rows = encoder | HEADS

    def of(heads: Collection[str]) -> Rows:
        if {"classify", "regress"} & set(heads):
            return rows | module("encoder/pooler", "classifier.dense", "dense")
        return rows

    return of


def is_pre_norm(model_type: str, tensors: Iterable[str]) -> bool:
    """Tell whether tensors called RoBERTa's are those of the pre-norm family, as DinkyTrain's."""
    return model_type == "roberta" and any(
        name.endswith("encoder.layer.0.attention.LayerNorm.weight") for name in tensors
    )


def read(stated: Stated, heads: Collection[str]) -> dict[str, Any]:
    """Return the knobs that follow from the family and from the padding token."""
    first = whole(stated, "pad_token_id", 1, low=0) + 1
    return {"first_position": first, "head_activation": "gelu"}


def read_pre_norm(stated: Stated, heads: Collection[str]) -> dict[str, Any]:
    """Return the same of the pre-norm family."""
    return read(stated, heads) | {"norm": "pre"}


def state(config: knobs.Config, special: Special) -> Stated:
    """Return what config.json states besides the sizes and rates."""
    tokens = {"bos_token_id": special.cls, "eos_token_id": special.sep}
    return bert.state(config, special) | tokens


def obstacles(config: knobs.Config, special: Special) -> dict[str, Any]:
    """Return first_position where it is not the row after that of the padding token."""
    first = config.model.first_position
    return {} if first == special.pad + 1 else {"model.first_position": first}


def classes(name: str) -> dict[str, tuple[str, ...]]:
    """Return the classes whose names begin with `name`, and the heads they promise."""
    return over_labels(name) | {
        f"{name}ForCausalLM": ("causal_lm",),
        f"{name}ForMaskedLM": ("mlm",),
        f"{name}Model": (),
    }


FAMILY = Family(
    model_type="roberta",
    title="RoBERTa",
    prefix="roberta.",
    classes=classes("Roberta"),
    keys=bert.KEYS,
    fixed=bert.FAMILY.fixed,
    rows=names(bert.encoder("roberta.", "attention.output.LayerNorm", "output.LayerNorm")),
    tied="lm_head.decoder.weight",
    second_bias="lm_head.decoder.bias",
    read=read,
    state=state,
    only=PLAIN | {"norm": ("post",), "type_vocab": range(1, 2**31)},
    obstacles=obstacles,
    head_activation="gelu",
    unused=r"roberta\.pooler\.",  # of versions that kept it beside `classifier.dense`
)
PRE_NORM = dataclasses.replace(
    FAMILY,
    model_type="roberta-prelayernorm",
    title="RoBERTa with pre-norm",
    prefix="roberta_prelayernorm.",
    # DinkyTrain names the others.
    classes=classes("RobertaPreLayerNorm") | classes("Roberta"),
    rows=names(
        bert.encoder("roberta_prelayernorm.", "attention.LayerNorm", "intermediate.LayerNorm")
        | module("encoder/final_norm", "roberta_prelayernorm.LayerNorm", "norm")
    ),
    read=read_pre_norm,
    only=PLAIN | {"norm": ("pre",), "first_norm": (True,), "type_vocab": range(1, 2**31)},
    # The second is in files of DinkyTrain, and nothing reads it there.
    unused=r"roberta_prelayernorm\.(pooler\.|encoder\.layer\.\d+\.attention\.self\.LayerNorm\.)",
)
