"""DistilBERT: a BERT without segment types, whose classes over a text have a dense layer and ReLU.

Its dropout is a number for each class: ours is the number of the class at hand.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from bert_jax.batch import Special
from bert_jax.config import knobs
from bert_jax.interop.families import bert
from bert_jax.interop.families.base import FIXED, PLAIN, Family, Stated, number, over_labels, same
from bert_jax.interop.parameter_names import Row, modules

LAYER = "distilbert.transformer.layer.{}."
MODULES = {
    "encoder/embeddings/norm": ("distilbert.embeddings.LayerNorm", "norm"),
    "encoder/layer_{}/attention/query": (f"{LAYER}attention.q_lin", "dense"),
    "encoder/layer_{}/attention/key": (f"{LAYER}attention.k_lin", "dense"),
    "encoder/layer_{}/attention/value": (f"{LAYER}attention.v_lin", "dense"),
    "encoder/layer_{}/attention/out": (f"{LAYER}attention.out_lin", "dense"),
    "encoder/layer_{}/attention_norm": (f"{LAYER}sa_layer_norm", "norm"),
    "encoder/layer_{}/mlp/up": (f"{LAYER}ffn.lin1", "dense"),
    "encoder/layer_{}/mlp/down": (f"{LAYER}ffn.lin2", "dense"),
    "encoder/layer_{}/mlp_norm": (f"{LAYER}output_layer_norm", "norm"),
    "encoder/pooler": ("pre_classifier", "dense"),
}
ROWS = {
    "encoder/embeddings/token": Row("distilbert.embeddings.word_embeddings.weight"),
    "encoder/embeddings/position": Row("distilbert.embeddings.position_embeddings.weight"),
    **bert.words("vocab_transform", "vocab_layer_norm", "vocab_projector.bias"),
    **bert.logits(**bert.LABELS, span="qa_outputs"),
    **modules(MODULES),
}

OF_TEXTS = "seq_classif_dropout"
RATES = {OF_TEXTS: 0.2, "qa_dropout": 0.1}


def read(stated: Stated, heads: Collection[str]) -> dict[str, Any]:
    """Return the knobs that follow from the family, and the dropout of the class."""
    found: dict[str, Any] = {"type_vocab": 0, "norm_epsilon": 1e-12, "pooler": "relu"}
    rates = {key: number(stated, key, default) for key, default in RATES.items()}
    if "tag" not in heads:
        found["classifier_dropout"] = rates["qa_dropout" if "span" in heads else OF_TEXTS]
    return found


def state(config: knobs.Config, special: Special) -> Stated:
    """Return what config.json states besides the sizes and rates."""
    rates = dict.fromkeys(RATES, config.model.classifier_dropout)
    return {**rates, "pad_token_id": special.pad}


FAMILY = Family(
    model_type="distilbert",
    title="DistilBERT",
    prefix="distilbert.",
    classes=over_labels("DistilBert")
    | {
        "DistilBertForMaskedLM": ("mlm",),
        "DistilBertModel": (),
    },
    keys={
        "vocab_size": ("vocab_size", None),
        "hidden": ("dim", None),
        "layers": ("n_layers", None),
        "heads": ("n_heads", None),
        "mlp": ("hidden_dim", None),
        "activation": ("activation", "gelu"),
        "dropout": ("dropout", 0.1),
        "attention_dropout": ("attention_dropout", 0.1),
        "max_positions": ("max_position_embeddings", 512),
        "init_stddev": ("initializer_range", 0.02),
    },
    # The table of positions is read from the file, whether it was learned or made of sines.
    fixed=FIXED | {"is_decoder": (None, False)},
    rows=same(ROWS),
    tied="vocab_projector.weight",
    kept=tuple(RATES),
    read=read,
    state=state,
    only=PLAIN
    | {
        "norm": ("post",),
        "first_position": (0,),
        "type_vocab": (0,),
        "norm_epsilon": (1e-12,),
    },
    pooler="relu",
    causal=False,
)
