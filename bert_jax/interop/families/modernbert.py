"""ModernBERT, and Ettin's encoders, which are of the same family.

Rotary positions of two bases, a window in all layers but every n-th, norms before all blocks but
the first, a gated feed-forward, no biases. Queries, keys and values are one matrix, and so are the
two of the feed-forward. Every class has the same head, `head`, before its last matrix.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from bert_jax.batch import Special
from bert_jax.config import knobs
from bert_jax.errors import ConfigError
from bert_jax.interop.families import bert
from bert_jax.interop.families.base import (
    FIXED,
    OVER_LABELS,
    Family,
    Stated,
    activation,
    over_labels,
    same,
    their_activation,
    truth,
    whole,
)
from bert_jax.interop.parameter_names import Row, module, modules
from bert_jax.system import jsons
from bert_jax.system.jsons import show

LAYER = "model.layers.{}."
LABELS = (*OVER_LABELS, "span")
BIASES = ("attention_bias", "mlp_bias", "norm_bias", "classifier_bias")
GLOBAL, NEAR = "full_attention", "sliding_attention"
BASES = {GLOBAL: ("global_rope_theta", 160_000.0), NEAR: ("local_rope_theta", 10_000.0)}


def _rows() -> dict[str, Row]:
    norms = {
        "encoder/embeddings/norm": ("model.embeddings.norm", "norm"),
        "encoder/layer_{}/mlp_norm": (f"{LAYER}mlp_norm", "norm"),
        "encoder/final_norm": ("model.final_norm", "norm"),
        **{f"{head}/norm": ("head.norm", "norm") for head in LABELS},
    }
    found = {
        "encoder/embeddings/token": Row("model.embeddings.tok_embeddings.weight"),
        **bert.words("head.dense", "head.norm", "decoder.bias"),
        **bert.logits(**dict.fromkeys(LABELS, "classifier")),
        **modules({f"{head}/dense": ("head.dense", "dense") for head in LABELS} | norms),
        **module("encoder/layer_{}/attention_norm", f"{LAYER}attn_norm", "norm"),
    }
    for ours, theirs, part, parts in (
        ("attention/query", "attn.Wqkv", 0, 3),
        ("attention/key", "attn.Wqkv", 1, 3),
        ("attention/value", "attn.Wqkv", 2, 3),
        ("attention/out", "attn.Wo", 0, 1),
        ("mlp/up", "mlp.Wi", 0, 2),
        ("mlp/gate", "mlp.Wi", 1, 2),
        ("mlp/down", "mlp.Wo", 0, 1),
    ):
        there = f"{LAYER}{theirs}"
        found |= module(f"encoder/layer_{{}}/{ours}", there, "dense", part=part, parts=parts)
    return found


ROWS = _rows()


def read(stated: Stated, heads: Collection[str]) -> dict[str, Any]:
    """Return the knobs that follow from the family, its layers' kinds and its biases."""
    biases = {key: truth(stated, key, False) for key in BIASES}
    if len({*biases.values()}) > 1:
        said = ", ".join(f"{key} = {value}" for key, value in biases.items())
        raise ConfigError(said, "biases are read where all layers have them, or none")
    pooling = stated.get("classifier_pooling", "cls")
    if pooling not in ("cls", "mean"):
        raise ConfigError(f"classifier_pooling = {show(pooling)}", "cls or mean")
    window, every = _windows(stated)
    everywhere, near = (_base(stated, kind) for kind in (GLOBAL, NEAR))
    return {
        "position": "rotary",
        "rotary_base": everywhere,
        "rotary_base_near": near if window and near not in (None, everywhere) else None,
        "window": window,
        "global_every": every,
        "type_vocab": 0,
        "norm": "pre",
        "first_norm": False,
        "biases": biases["norm_bias"],
        "gated": True,
        "head_activation": activation(stated, "classifier_activation"),
        "pooler": "transform",
        "pooling": pooling,
        "init": "truncated_normal",
    }


def _windows(stated: Stated) -> tuple[int, int]:
    """Return the window and every how many layers there is none; transformers 4 and 5 state it."""
    layers = whole(stated, "num_hidden_layers")
    kinds = stated.get("layer_types")
    if kinds is None:
        every = whole(stated, "global_attn_every_n_layers", 3)
        kinds = [NEAR if layer % every else GLOBAL for layer in range(layers)]
    if problem := jsons.wrong(kinds, [{GLOBAL, NEAR}], "layer_types"):
        raise ConfigError(problem, f"{GLOBAL} or {NEAR} for each layer")
    if kinds == [GLOBAL] * layers:
        return 0, 0
    if (window := whole(stated, "local_attention", 128) // 2) == 0:
        raise ConfigError("local_attention = 1 lets no token see another", "2 or more")
    if kinds == [NEAR] * layers:
        return window, 0
    for every in range(2, layers + 1):
        if kinds == [NEAR if layer % every else GLOBAL for layer in range(layers)]:
            return window, every
    raise ConfigError(
        f"layer_types has {kinds.count(GLOBAL)} {GLOBAL} among {len(kinds)} for {layers} layers",
        "layers that see all tokens are read where they are the first and every n-th after it",
    )


def _base(stated: Stated, kind: str) -> float | None:
    """Return the base of rotary positions of layers of a kind; None is that of the others."""
    every = stated.get("rope_parameters")
    own = every.get(kind) if isinstance(every, dict) else None
    own = own if isinstance(own, dict) else {}
    key, default = BASES[kind]
    if {*own} - {"rope_type", "rope_theta"} or own.get("rope_type", "default") != "default":
        raise ConfigError(
            f"rope_parameters.{kind} is not of the default type", "positions that are not scaled"
        )
    value = own["rope_theta"] if "rope_theta" in own else stated.get(key, default)
    if value is None and kind == NEAR:
        return None
    if jsons.wrong(value, float) or value < 1:
        raise ConfigError(f"{key} = {show(value)}", "a number of at least 1 is expected")
    return float(value)


def state(config: knobs.Config, special: Special) -> Stated:
    """Return what config.json states besides sizes and rates, as transformers 4 and 5 read it."""
    m = config.model
    assert m.layers is not None
    assert m.head_activation is not None
    every = m.global_every if m.window else 1
    bases = (m.rotary_base, m.rotary_base if m.rotary_base_near is None else m.rotary_base_near)
    return {
        "embedding_dropout": m.dropout,
        "max_position_embeddings": max(m.max_positions, config.sequence_length),
        "classifier_activation": their_activation(m.head_activation),
        "classifier_pooling": m.pooling,
        "layer_types": [NEAR if layer % every else GLOBAL for layer in range(m.layers)],
        "global_attn_every_n_layers": every,
        **({"local_attention": 2 * m.window} if m.window else {}),
        **{key: base for (key, _), base in zip(BASES.values(), bases, strict=True)},
        **dict.fromkeys(BIASES, m.biases),
        "decoder_bias": True,
        "pad_token_id": special.pad,
        "bos_token_id": special.cls,
        "eos_token_id": special.sep,
        "cls_token_id": special.cls,
        "sep_token_id": special.sep,
    }


def obstacles(config: knobs.Config, special: Special) -> dict[str, Any]:
    """Return windows in every layer: transformers 4 has the first without."""
    m = config.model
    return {"model.global_every": 0} if m.window and not m.global_every else {}


FAMILY = Family(
    model_type="modernbert",
    title="ModernBERT",
    prefix="model.",
    classes=over_labels("ModernBert")
    | {
        "ModernBertForMaskedLM": ("mlm",),
        "ModernBertModel": (),
    },
    keys={
        "vocab_size": ("vocab_size", None),
        "hidden": ("hidden_size", None),
        "layers": ("num_hidden_layers", None),
        "heads": ("num_attention_heads", None),
        "mlp": ("intermediate_size", None),
        "activation": ("hidden_activation", "gelu"),
        "dropout": ("mlp_dropout", 0.0),
        "attention_dropout": ("attention_dropout", 0.0),
        "classifier_dropout": ("classifier_dropout", 0.0),
        "max_positions": ("max_position_embeddings", 8192),
        "init_stddev": ("initializer_range", 0.02),
        "norm_epsilon": ("norm_eps", 1e-5),
    },
    fixed=FIXED
    | {
        "decoder_bias": (True,),
        "rope_scaling": (None,),
        "is_decoder": (None, False),
    },
    rows=same(ROWS),
    tied="decoder.weight",
    kept=("local_attention",),  # it is halved, and the rest is dropped
    read=read,
    state=state,
    only={
        "position": ("rotary",),
        "norm": ("pre",),
        "first_norm": (False,),
        "gated": (True,),
        "type_vocab": (0,),
    },
    obstacles=obstacles,
    head_activation="any",
    pooler="transform",
    poolings=("cls", "mean"),
    causal=False,
    exclusive=("mlm", *LABELS),
)
