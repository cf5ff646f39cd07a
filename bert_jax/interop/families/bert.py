"""BERT: learned positions, two segment types, LayerNorm after each block, a pooler of its own."""

from __future__ import annotations

from bert_jax.batch import Special
from bert_jax.config import knobs
from bert_jax.interop.families.base import FIXED, PLAIN, Family, Stated, over_labels, same
from bert_jax.interop.parameter_names import Row, modules

KEYS = {
    "vocab_size": ("vocab_size", None),
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


def encoder(prefix: str, attention_norm: str, mlp_norm: str) -> dict[str, Row]:
    """Return the rows of an encoder; its two norms are at places of their own in each layer."""
    layer = f"{prefix}encoder.layer.{{}}."
    embeddings = f"{prefix}embeddings."
    named = {
        "encoder/embeddings/norm": (f"{embeddings}LayerNorm", "norm"),
        "encoder/layer_{}/attention/query": (f"{layer}attention.self.query", "dense"),
        "encoder/layer_{}/attention/key": (f"{layer}attention.self.key", "dense"),
        "encoder/layer_{}/attention/value": (f"{layer}attention.self.value", "dense"),
        "encoder/layer_{}/attention/out": (f"{layer}attention.output.dense", "dense"),
        "encoder/layer_{}/attention_norm": (f"{layer}{attention_norm}", "norm"),
        "encoder/layer_{}/mlp/up": (f"{layer}intermediate.dense", "dense"),
        "encoder/layer_{}/mlp/down": (f"{layer}output.dense", "dense"),
        "encoder/layer_{}/mlp_norm": (f"{layer}{mlp_norm}", "norm"),
        "encoder/pooler": (f"{prefix}pooler.dense", "dense"),
    }
    tables = {"token": "word", "type": "token_type", "position": "position"}
    return modules(named) | {
        f"encoder/embeddings/{ours}": Row(f"{embeddings}{theirs}_embeddings.weight")
        for ours, theirs in tables.items()
    }


def words(dense: str, norm: str, bias: str) -> dict[str, Row]:
    """Return the rows of the heads over the vocabulary."""
    rows = {f"{head}/bias": Row(bias) for head in ("mlm", "causal_lm")}
    for head in ("mlm", "causal_lm"):
        rows |= modules({f"{head}/dense": (dense, "dense"), f"{head}/norm": (norm, "norm")})
    return rows


def logits(**theirs: str) -> dict[str, Row]:
    """Return the rows of the last dense layer of heads over labels."""
    return modules({f"{head}/logits": (name, "dense") for head, name in theirs.items()})


LABELS = dict.fromkeys(("classify", "regress", "tag", "choice"), "classifier")
ROWS = (
    encoder("bert.", "attention.output.LayerNorm", "output.LayerNorm")
    | words(
        "cls.predictions.transform.dense",
        "cls.predictions.transform.LayerNorm",
        "cls.predictions.bias",
    )
    | logits(nsp="cls.seq_relationship", **LABELS, span="qa_outputs")
)


def state(config: knobs.Config, special: Special) -> Stated:
    """Return what config.json states besides the sizes and rates."""
    return {
        "pad_token_id": special.pad,
        "position_embedding_type": "absolute",
        "is_decoder": config.model.causal,
    }


FAMILY = Family(
    model_type="bert",
    title="BERT",
    prefix="bert.",
    classes=over_labels("Bert")
    | {
        "BertLMHeadModel": ("causal_lm",),  # of a model that is no decoder, mlm
        "BertForPreTraining": ("mlm", "nsp"),
        "BertForMaskedLM": ("mlm",),
        "BertForNextSentencePrediction": ("nsp",),
        "BertModel": (),
    },
    keys=KEYS,
    fixed=FIXED
    | {"position_embedding_type": (None, "absolute"), "is_decoder": (None, False, True)},
    rows=same(ROWS),
    tied="cls.predictions.decoder.weight",
    second_bias="cls.predictions.decoder.bias",
    state=state,
    only=PLAIN | {"norm": ("post",), "first_position": (0,), "type_vocab": range(1, 2**31)},
)
