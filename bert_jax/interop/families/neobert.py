"""NeoBERT, in the files of its authors' code; transformers has no class of it, and runs theirs.

RMSNorm before each block and none after the embeddings, rotary positions, SwiGLU, no biases. Each
head has its query, key and value side by side in one matrix, and its rotary positions turn
neighbours. The MLM head is one matrix that is not tied to the table, and the layer before the
classifier has a bias; the dropout before that layer is left out here.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from bert_jax.batch import Special
from bert_jax.config import knobs
from bert_jax.interop.families import bert
from bert_jax.interop.families.base import FIXED, SIZES, Family, Stated, same, whole
from bert_jax.interop.parameter_names import Row, module, modules

LAYER = "model.transformer_encoder.{}."
MULTIPLE = 8  # of the feed-forward's width
CODE = "chandar-lab/NeoBERT--model."  # on the hub, what loads such a folder
MODULES = {
    "encoder/layer_{}/attention/out": (f"{LAYER}wo", "dense"),
    "encoder/layer_{}/attention_norm": (f"{LAYER}attention_norm", "norm"),
    "encoder/layer_{}/mlp/down": (f"{LAYER}ffn.w3", "dense"),
    "encoder/layer_{}/mlp_norm": (f"{LAYER}ffn_norm", "norm"),
    "encoder/final_norm": ("model.layer_norm", "norm"),
    "encoder/pooler": ("dense", "dense"),
}


def _rows() -> dict[str, Row]:
    found = modules(MODULES) | bert.logits(classify="classifier", regress="classifier")
    found |= {
        "encoder/embeddings/token": Row("model.encoder.weight"),
        "mlm/table": Row("decoder.weight"),
        "mlm/bias": Row("decoder.bias"),
    }
    for i, name in enumerate(("query", "key", "value")):
        stored = {"part": i, "parts": 3, "by_head": True, "turned": name != "value"}
        found |= module(f"encoder/layer_{{}}/attention/{name}", f"{LAYER}qkv", "dense", **stored)
    for i, name in enumerate(("up", "gate")):
        found |= module(
            f"encoder/layer_{{}}/mlp/{name}", f"{LAYER}ffn.w12", "dense", part=i, parts=2
        )
    return found


def read(stated: Stated, heads: Collection[str]) -> dict[str, Any]:
    """Return the knobs that follow from the family, and the width of the feed-forward."""
    of_plain = whole(stated, "intermediate_size", 3072)  # with as many weights and no gate
    return {
        "mlp": -(-int(2 * of_plain / 3) // MULTIPLE) * MULTIPLE,
        "activation": "silu",
        "attention_dropout": 0.0,
        "position": "rotary",
        "type_vocab": 0,
        "norm": "pre",
        "norm_kind": "rms",
        "embedding_norm": False,
        "biases": False,
        "gated": True,
        "word_head": "matrix",
        "pooler_bias": True,
    }


def state(config: knobs.Config, special: Special) -> Stated:
    """Return what config.json states besides sizes and rates."""
    m = config.model
    assert m.mlp is not None
    assert m.hidden is not None
    assert m.heads is not None
    names = {"Config": "NeoBERTConfig", "Model": "NeoBERT", "ModelForMaskedLM": "NeoBERTLMHead"}
    names["ModelForSequenceClassification"] = "NeoBERTForSequenceClassification"
    return {
        "intermediate_size": m.mlp * 3 // 2,
        "dim_head": m.hidden // m.heads,
        "max_length": max(m.max_positions, config.sequence_length),
        "pad_token_id": special.pad,
        "auto_map": {f"Auto{auto}": f"{CODE}{name}" for auto, name in names.items()},
    }


def obstacles(config: knobs.Config, special: Special) -> dict[str, Any]:
    """Return a width of the feed-forward that it does not have."""
    mlp = config.model.mlp or 0
    return {"model.mlp": mlp} if mlp % MULTIPLE else {}


FAMILY = Family(
    model_type="neobert",
    title="NeoBERT",
    prefix="model.",
    classes={
        "NeoBERTForSequenceClassification": ("classify",),
        "NeoBERTHFForSequenceClassification": ("classify",),  # in their repository
        "NeoBERTLMHead": ("mlm",),
        "NeoBERT": (),
    },
    keys={
        "vocab_size": ("vocab_size", None),
        "hidden": ("hidden_size", None),
        "layers": ("num_hidden_layers", None),
        "heads": ("num_attention_heads", None),
        "dropout": ("dropout", 0.0),
        "classifier_dropout": ("classifier_dropout", 0.1),
        "max_positions": ("max_length", 1024),
        "init_stddev": ("classifier_init_range", 0.02),
        "norm_epsilon": ("norm_eps", 1e-6),
    },
    fixed={key: values for key, values in FIXED.items() if key != "auto_map"}
    | {
        "rope": (True,),
        "rms_norm": (True,),
        "ngpt": (False,),
        "hidden_act": ("SwiGLU", "swiglu"),
        "is_decoder": (None, False),
    },
    rows=same(_rows()),
    tied="",
    read=read,
    state=state,
    sizes={key: SIZES[key] for key in ("vocab_size", "hidden", "max_positions")},
    only={
        "position": ("rotary",),
        "rotary_base": (10_000.0,),
        "window": (0,),
        "norm": ("pre",),
        "norm_kind": ("rms",),
        "first_norm": (True,),
        "embedding_norm": (False,),
        "biases": (False,),
        "gated": (True,),
        "activation": ("silu",),
        "type_vocab": (0,),
    },
    obstacles=obstacles,
    word_head="matrix",
    pooler_bias=True,
    causal=False,
)
