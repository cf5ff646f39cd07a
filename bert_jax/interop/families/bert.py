"""BERT: learned positions, two segment types, LayerNorm after each block, a pooler of its own."""

from collections.abc import Collection

from bert_jax.batch import Special
from bert_jax.config import knobs
from bert_jax.interop.families import base
from bert_jax.interop.families.base import Family, Stated

KEYS = {
    "hidden": ("hidden_size", None),
    "layers": ("num_hidden_layers", None),
    "heads": ("num_attention_heads", None),
    "mlp": ("intermediate_size", None),
    "activation": ("hidden_act", "gelu"),
    "dropout": ("hidden_dropout_prob", 0.1),
    "attention_dropout": ("attention_probs_dropout_prob", 0.1),
    "classifier_dropout": ("classifier_dropout", None),  # the hidden dropout
    "max_positions": ("max_position_embeddings", 512),
    "type_vocab": ("type_vocab_size", 2),
    "init_stddev": ("initializer_range", 0.02),
    "norm_epsilon": ("layer_norm_eps", 1e-12),
}
ALLOWED = {
    **base.FIXED,
    "position_embedding_type": (None, "absolute"),
    "is_decoder": (None, False, True),
}
LAYER = {  # our module of a layer -> its name there
    "attention/query": "attention.self.query",
    "attention/key": "attention.self.key",
    "attention/value": "attention.self.value",
    "attention/out": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "mlp/up": "intermediate.dense",
    "mlp/down": "output.dense",
    "mlp_norm": "output.LayerNorm",
}
LABELS = ("classify/logits", "regress/logits", "tag/logits", "choice/logits")


def name_encoder(prefix: str, layers: str, modules: dict[str, str]) -> dict[str, str]:
    """Return {our name: Hugging Face's name} of each module of an encoder.

    Args:
      prefix: what all names of Hugging Face begin with, such as "bert.".
      layers: the list of layers in the model of Hugging Face, such as "encoder.layer".
      modules: {our name: Hugging Face's name} of each module of a layer.
    """
    return {
        "encoder/embeddings/token": f"{prefix}embeddings.word_embeddings",
        "encoder/embeddings/type": f"{prefix}embeddings.token_type_embeddings",
        "encoder/embeddings/position": f"{prefix}embeddings.position_embeddings",
        "encoder/embeddings/norm": f"{prefix}embeddings.LayerNorm",
        **{
            f"encoder/layer_{{}}/{ours}": f"{prefix}{layers}.{{}}.{theirs}"
            for ours, theirs in modules.items()
        },
    }


def to_hf(config: knobs.Config, special: Special) -> Stated:
    """Convert a model to the keys of a config.json; BERT has at least one segment type."""
    return base.state_knobs(config.model, KEYS) | {
        "type_vocab_size": max(1, config.model.type_vocab),
        "pad_token_id": special.pad,
        "position_embedding_type": "absolute",
        "is_decoder": config.model.causal,
    }


def from_hf(stated: Stated, heads: Collection[str]) -> knobs.Model:
    """Convert a config.json to the knobs of a model."""
    base.check_fixed(stated, ALLOWED, "BERT")
    values = base.read_knobs(stated, KEYS)
    return knobs.Model(
        **values,
        head_activation=values["activation"],
        word_head=base.read_word_head(stated, heads),
        causal=stated.get("is_decoder") is True,
        init="normal",
    )


FAMILY = Family(
    model_type="bert",
    title="BERT",
    prefix="bert.",
    classes={
        **base.over_labels("Bert"),
        "BertLMHeadModel": ("causal_lm",),  # of a model that is no decoder, mlm
        "BertForPreTraining": ("mlm", "nsp"),
        "BertForMaskedLM": ("mlm",),
        "BertForNextSentencePrediction": ("nsp",),
        "BertModel": (),
    },
    names={
        **name_encoder("bert.", "encoder.layer", LAYER),
        "encoder/pooler": "bert.pooler.dense",
        **base.name_words(
            "cls.predictions.transform.dense",
            "cls.predictions.transform.LayerNorm",
            "cls.predictions",
        ),
        "nsp/logits": "cls.seq_relationship",
        **dict.fromkeys(LABELS, "classifier"),
        "span/logits": "qa_outputs",
    },
    to_hf=to_hf,
    from_hf=from_hf,
    tied="cls.predictions.decoder.weight",
    second_bias="cls.predictions.decoder.bias",
)
