"""NeoBERT, in the files of its authors' code, which transformers downloads and runs.

It has RMSNorm before each block and no norm after the embeddings, rotary positions, SwiGLU, and no
biases. In its files the query, key and value of each head are side by side in one matrix, and
rotary positions rotate pairs of neighbouring numbers. The MLM head is one matrix that is not tied
to the table. The dense layer before the classifier has a bias. The dropout before that layer is
left out here.
"""

from collections.abc import Collection

from bert_jax.batch import Special
from bert_jax.config import knobs
from bert_jax.interop.families import base
from bert_jax.interop.families.base import Family, Stated
from bert_jax.interop.parameter_names import Part

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
AUTO = {  # class in that code -> the class of transformers that loads a folder
    "NeoBERTConfig": "AutoConfig",
    "NeoBERT": "AutoModel",
    "NeoBERTLMHead": "AutoModelForMaskedLM",
    "NeoBERTForSequenceClassification": "AutoModelForSequenceClassification",
}
LAYER = "model.transformer_encoder.{}."


def name_part(part: int, is_turned: bool) -> Part:
    """Describe where a layer's queries, keys or values (part 0, 1, 2) are in its fused matrix.

    `is_turned` says that rotary positions turn pairs of neighbouring outputs.
    """
    return Part(f"{LAYER}qkv", part, 3, by_head=True, is_turned=is_turned)


def to_hf(config: knobs.Config, special: Special) -> Stated:
    """Convert a model to the keys of a config.json."""
    model = config.model
    assert model.mlp is not None
    assert model.hidden is not None
    assert model.heads is not None
    return base.state_knobs(model, KEYS) | {
        "intermediate_size": model.mlp * 3 // 2,
        "dim_head": model.hidden // model.heads,
        "max_length": max(model.max_positions, config.sequence_length),
        "pad_token_id": special.pad,
        "auto_map": {auto: f"{CODE}{name}" for name, auto in AUTO.items()},
        "tie_word_embeddings": False,
    }


def from_hf(stated: Stated, heads: Collection[str]) -> knobs.Model:
    """Convert a config.json to the knobs of a model.

    The file states the width that a feed-forward without a gate would have.
    """
    base.check_fixed(stated, ALLOWED, "NeoBERT")
    without_gate = base.read_value(stated, "intermediate_size", 3072)
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
    names={
        "encoder/embeddings/token": "model.encoder",
        "encoder/layer_{}/attention_norm": f"{LAYER}attention_norm",
        "encoder/layer_{}/attention/query": name_part(0, is_turned=True),
        "encoder/layer_{}/attention/key": name_part(1, is_turned=True),
        "encoder/layer_{}/attention/value": name_part(2, is_turned=False),
        "encoder/layer_{}/attention/out": f"{LAYER}wo",
        "encoder/layer_{}/mlp_norm": f"{LAYER}ffn_norm",
        "encoder/layer_{}/mlp/up": Part(f"{LAYER}ffn.w12", 0, 2),
        "encoder/layer_{}/mlp/gate": Part(f"{LAYER}ffn.w12", 1, 2),
        "encoder/layer_{}/mlp/down": f"{LAYER}ffn.w3",
        "encoder/final_norm": "model.layer_norm",
        "encoder/pooler": "dense",
        "classify/logits": "classifier",
        "regress/logits": "classifier",
        "mlm/table": "decoder",
        "mlm": "decoder",
    },
    to_hf=to_hf,
    from_hf=from_hf,
    auto_classes=AUTO,
)
