"""DistilBERT: a BERT without segment types, whose heads over texts have a dense layer and ReLU.

config.json states a dropout before the head for each kind of class. The dropout of the class that
is read becomes `model.classifier_dropout`. The table of positions is read from the file, whether it
was learned or made of sines.
"""

from collections.abc import Collection

from bert_jax.batch import Special
from bert_jax.config import knobs
from bert_jax.interop.families import base, bert
from bert_jax.interop.families.base import Family, Stated

KEYS = {
    "hidden": ("dim", None),
    "layers": ("n_layers", None),
    "heads": ("n_heads", None),
    "mlp": ("hidden_dim", None),
    "activation": ("activation", "gelu"),
    "dropout": ("dropout", 0.1),
    "attention_dropout": ("attention_dropout", 0.1),
    "max_positions": ("max_position_embeddings", 512),
    "init_stddev": ("initializer_range", 0.02),
}
LAYER = {  # our module of a layer -> its name there
    "attention/query": "attention.q_lin",
    "attention/key": "attention.k_lin",
    "attention/value": "attention.v_lin",
    "attention/out": "attention.out_lin",
    "attention_norm": "sa_layer_norm",
    "mlp/up": "ffn.lin1",
    "mlp/down": "ffn.lin2",
    "mlp_norm": "output_layer_norm",
}
OF_TEXTS, OF_ANSWERS = "seq_classif_dropout", "qa_dropout"


def to_hf(config: knobs.Config, special: Special) -> Stated:
    """Convert a model to the keys of a config.json."""
    rates = dict.fromkeys((OF_TEXTS, OF_ANSWERS), config.model.classifier_dropout)
    return base.state_knobs(config.model, KEYS) | rates | {"pad_token_id": special.pad}


def from_hf(stated: Stated, heads: Collection[str]) -> knobs.Model:
    """Convert a config.json to the knobs of a model."""
    base.check_fixed(stated, {**base.FIXED, "is_decoder": (None, False)}, "DistilBERT")
    values = base.read_knobs(stated, KEYS)
    if "span" in heads:
        values["classifier_dropout"] = base.read_value(stated, OF_ANSWERS, 0.1)
    elif "tag" not in heads:
        values["classifier_dropout"] = base.read_value(stated, OF_TEXTS, 0.2)
    return knobs.Model(
        **values,
        head_activation=values["activation"],
        type_vocab=0,
        norm_epsilon=1e-12,
        pooler="relu",
        word_head=base.read_word_head(stated, heads),
        init="normal",
    )


FAMILY = Family(
    model_type="distilbert",
    title="DistilBERT",
    prefix="distilbert.",
    classes={
        **base.over_labels("DistilBert"),
        "DistilBertForMaskedLM": ("mlm",),
        "DistilBertModel": (),
    },
    names={
        **bert.name_encoder("distilbert.", "transformer.layer", LAYER),
        "encoder/pooler": "pre_classifier",
        **base.name_words("vocab_transform", "vocab_layer_norm", "vocab_projector"),
        **dict.fromkeys(bert.LABELS, "classifier"),
        "span/logits": "qa_outputs",
    },
    to_hf=to_hf,
    from_hf=from_hf,
    tied="vocab_projector.weight",
    kept=(OF_TEXTS, OF_ANSWERS),
)
