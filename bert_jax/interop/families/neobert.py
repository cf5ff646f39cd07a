"""NeoBERT, in the files of its authors' code; transformers has no class of it, and runs theirs.

RMSNorm before each block and none after the embeddings, rotary positions, SwiGLU, no biases. Each
head has its query, key and value side by side in one matrix, and its rotary positions turn
neighbours. The MLM head is one matrix that is not tied to the table, and the layer before the
classifier has a bias. The dropout before that layer is left out here.
"""

from __future__ import annotations

from collections.abc import Collection

from bert_jax.batch import Special
from bert_jax.config import knobs
from bert_jax.interop.families import base, bert
from bert_jax.interop.families.base import Family, Stated
from bert_jax.interop.parameter_names import Row, name_module

KEYS = {
    "hidden": ("hidden_size", None),
    "layers": ("num_hidden_layers", None),
    "heads": ("num_attention_heads", None),
    "dropout": ("dropout", 0.0),
    "classifier_dropout": ("classifier_dropout", 0.1),
    "max_positions": ("max_length", 1024),
    "init_stddev": ("classifier_init_range", 0.02),
    "norm_epsilon": ("norm_eps", 1e-6),
}
ALLOWED = {
    **{key: values for key, values in base.FIXED.items() if key != "auto_map"},
    "rope": (True,),
    "rms_norm": (True,),
    "ngpt": (False,),
    "hidden_act": ("SwiGLU", "swiglu"),
    "is_decoder": (None, False),
}
MULTIPLE = 8  # of the feed-forward's width
CODE = "chandar-lab/NeoBERT--model."  # on the hub, what loads such a folder
AUTO = {  # class of transformers that loads a folder -> the class in that code
    "AutoConfig": "NeoBERTConfig",
    "AutoModel": "NeoBERT",
    "AutoModelForMaskedLM": "NeoBERTLMHead",
    "AutoModelForSequenceClassification": "NeoBERTForSequenceClassification",
}
LAYER = {  # our module of a layer -> its name there
    "attention/out": "wo",
    "attention_norm": "attention_norm",
    "mlp/down": "ffn.w3",
    "mlp_norm": "ffn_norm",
}


def name_tensors() -> dict[str, Row]:
    """Name the tensors of the encoder and of all heads."""
    there = "model.transformer_encoder.{}."
    rows = {
        "encoder/embeddings/token": Row("model.encoder.weight"),
        **name_module("encoder/final_norm", "model.layer_norm"),
        **name_module("encoder/pooler", "dense"),
        **bert.name_logits(classify="classifier", regress="classifier"),
        "mlm/table": Row("decoder.weight"),
        "mlm/bias": Row("decoder.bias"),
    }
    for ours, theirs in LAYER.items():
        rows |= name_module(f"encoder/layer_{{}}/{ours}", f"{there}{theirs}")
    for part, name in enumerate(("query", "key", "value")):
        rows |= name_module(
            f"encoder/layer_{{}}/attention/{name}",
            f"{there}qkv",
            part=part,
            parts=3,
            by_head=True,
            turned=name != "value",
        )
    for part, name in enumerate(("up", "gate")):
        rows |= name_module(f"encoder/layer_{{}}/mlp/{name}", f"{there}ffn.w12", part=part, parts=2)
    return rows


def to_hf(config: knobs.Config, special: Special) -> Stated:
    """Write a model as a config.json."""
    model = config.model
    assert model.mlp is not None
    assert model.hidden is not None
    assert model.heads is not None
    return base.state_knobs(model, KEYS) | {
        "intermediate_size": model.mlp * 3 // 2,
        "dim_head": model.hidden // model.heads,
        "max_length": max(model.max_positions, config.sequence_length),
        "pad_token_id": special.pad,
        "auto_map": {auto: f"{CODE}{name}" for auto, name in AUTO.items()},
        "tie_word_embeddings": False,
    }


def from_hf(stated: Stated, heads: Collection[str]) -> knobs.Model:
    """Read a model from a config.json, which states the width of a feed-forward without gate."""
    base.check_fixed(stated, ALLOWED, "NeoBERT")
    without_gate = base.read_count(stated, "intermediate_size", 3072)
    return knobs.Model(
        **base.read_knobs(stated, KEYS),
        mlp=-(-int(2 * without_gate / 3) // MULTIPLE) * MULTIPLE,
        activation="silu",
        head_activation="silu",
        attention_dropout=0.0,
        position="rotary",
        type_vocab=0,
        norm="pre",
        norm_kind="rms",
        embedding_norm=False,
        biases=False,
        gated=True,
        word_head="matrix",
        pooler_bias=True,
        init="normal",
    )


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
    names=name_tensors(),
    to_hf=to_hf,
    from_hf=from_hf,
)
