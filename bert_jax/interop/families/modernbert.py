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
from bert_jax.interop.families import base, bert
from bert_jax.interop.families.base import Family, Stated
from bert_jax.interop.json_files import shorten
from bert_jax.interop.parameter_names import Row, name_module

KEYS = {
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
}
ALLOWED = {
    **base.FIXED,
    "decoder_bias": (True,),
    "rope_scaling": (None,),
    "is_decoder": (None, False),
}
BIASES = ("attention_bias", "mlp_bias", "norm_bias", "classifier_bias")
GLOBAL, NEAR = "full_attention", "sliding_attention"  # kinds of layers
BASES = {GLOBAL: ("global_rope_theta", 160_000.0), NEAR: ("local_rope_theta", 10_000.0)}
LABELS = (*base.OVER_LABELS, "span")
FUSED = (  # our module of a layer, its name there, its part and the number of parts
    ("attention_norm", "attn_norm", 0, 1),
    ("attention/query", "attn.Wqkv", 0, 3),
    ("attention/key", "attn.Wqkv", 1, 3),
    ("attention/value", "attn.Wqkv", 2, 3),
    ("attention/out", "attn.Wo", 0, 1),
    ("mlp_norm", "mlp_norm", 0, 1),
    ("mlp/up", "mlp.Wi", 0, 2),
    ("mlp/gate", "mlp.Wi", 1, 2),
    ("mlp/down", "mlp.Wo", 0, 1),
)


def name_tensors() -> dict[str, Row]:
    """Name the tensors of the encoder and of all heads."""
    rows = {
        "encoder/embeddings/token": Row("model.embeddings.tok_embeddings.weight"),
        **name_module("encoder/embeddings/norm", "model.embeddings.norm"),
        **name_module("encoder/final_norm", "model.final_norm"),
        **bert.name_words("head.dense", "head.norm", "decoder.bias"),
        **bert.name_logits(**dict.fromkeys(LABELS, "classifier")),
    }
    for head in LABELS:
        rows |= name_module(f"{head}/dense", "head.dense")
        rows |= name_module(f"{head}/norm", "head.norm")
    for ours, theirs, part, parts in FUSED:
        there = f"model.layers.{{}}.{theirs}"
        rows |= name_module(f"encoder/layer_{{}}/{ours}", there, part=part, parts=parts)
    return rows


def to_hf(config: knobs.Config, special: Special) -> Stated:
    """Write a model as a config.json that transformers 4 and 5 read.

    The first layer attends to all tokens: transformers 4 knows no model without such a layer.
    """
    model = config.model
    assert model.layers is not None
    every = model.global_every or model.layers if model.window else 1
    near = model.rotary_base if model.rotary_base_near is None else model.rotary_base_near
    stated = base.state_knobs(model, KEYS) | {
        "embedding_dropout": model.dropout,
        "max_position_embeddings": max(model.max_positions, config.sequence_length),
        "classifier_activation": base.name_activation(model.head_activation),
        "classifier_pooling": model.pooling,
        "layer_types": _list_kinds(model.layers, every),
        "global_attn_every_n_layers": every,
        "global_rope_theta": model.rotary_base,
        "local_rope_theta": near,
        **dict.fromkeys(BIASES, model.biases),
        "decoder_bias": True,
        "pad_token_id": special.pad,
        "bos_token_id": special.cls,
        "eos_token_id": special.sep,
        "cls_token_id": special.cls,
        "sep_token_id": special.sep,
    }
    return stated | {"local_attention": 2 * model.window} if model.window else stated


def from_hf(stated: Stated, heads: Collection[str]) -> knobs.Model:
    """Read a model from a config.json of transformers 4 or 5."""
    base.check_fixed(stated, ALLOWED, "ModernBERT")
    biases = {key: base.read_truth(stated, key, False) for key in BIASES}
    if len(set(biases.values())) > 1:
        said = ", ".join(f"{key} = {value}" for key, value in biases.items())
        raise ConfigError(said, "biases are read if all layers have them, or none")
    pooling: Any = stated.get("classifier_pooling", "cls")
    if pooling not in ("cls", "mean"):
        raise ConfigError(f"classifier_pooling = {shorten(pooling)}", "cls or mean")
    window, every = _read_windows(stated)
    everywhere = _read_base(stated, GLOBAL)
    assert everywhere is not None
    near = _read_base(stated, NEAR)
    if not window or near == everywhere:
        near = None
    return knobs.Model(
        **base.read_knobs(stated, KEYS),
        position="rotary",
        rotary_base=everywhere,
        rotary_base_near=near,
        window=window,
        global_every=every,
        type_vocab=0,
        norm="pre",
        first_norm=False,
        biases=biases["norm_bias"],
        gated=True,
        head_activation=base.read_activation(stated, "classifier_activation"),
        pooler="transform",
        pooling=pooling,
        word_head=base.read_word_head(stated, heads),
        init="truncated_normal",
    )


def _list_kinds(layers: int, every: int) -> list[str]:
    """List the kinds of layers if the first and every n-th after it attend to all tokens."""
    return [NEAR if layer % every else GLOBAL for layer in range(layers)]


def _read_windows(stated: Stated) -> tuple[int, int]:
    """Read the window, and every how many layers there is none; 0, 0 is no window at all."""
    layers = base.read_count(stated, "num_hidden_layers")
    kinds = stated.get("layer_types")
    if kinds is None:  # transformers 4
        every = min(layers, base.read_count(stated, "global_attn_every_n_layers", 3))
    else:
        every = _read_distance(kinds, layers)
    if every == 1:
        return 0, 0
    return base.read_count(stated, "local_attention", 128, low=2) // 2, every


def _read_distance(kinds: Any, layers: int) -> int:
    """Read every how many layers of a list attend to all tokens; 0 if none does."""
    if not isinstance(kinds, list) or not all(kind in (GLOBAL, NEAR) for kind in kinds):
        raise ConfigError(f"layer_types = {shorten(kinds)}", f"{GLOBAL} or {NEAR} for each layer")
    if GLOBAL not in kinds:
        every = 0
    elif GLOBAL in kinds[1:]:
        every = kinds.index(GLOBAL, 1)
    else:
        every = len(kinds)
    if len(kinds) != layers or (every and kinds != _list_kinds(layers, every)):
        raise ConfigError(
            f"layer_types has {kinds.count(GLOBAL)} {GLOBAL} among {len(kinds)} "
            f"for {layers} layers",
            "the first layer and every n-th after it attend to all tokens, or none",
        )
    return every


def _read_base(stated: Stated, kind: str) -> float | None:
    """Read the base of the rotary positions of a kind of layers; None is as the others'."""
    both = stated.get("rope_parameters")
    own = both.get(kind) if isinstance(both, dict) else None
    own = own if isinstance(own, dict) else {}
    if set(own) - {"rope_type", "rope_theta"} or own.get("rope_type", "default") != "default":
        raise ConfigError(
            f"rope_parameters.{kind} is not of the default type", "positions that are not scaled"
        )
    key, default = BASES[kind]
    value = own["rope_theta"] if "rope_theta" in own else stated.get(key, default)
    if value is None and kind == NEAR:
        return None
    if type(value) not in (int, float) or not 1 <= value < 1e30:
        raise ConfigError(f"{key} = {shorten(value)}", "a number of at least 1 is expected")
    return float(value)


FAMILY = Family(
    model_type="modernbert",
    title="ModernBERT",
    prefix="model.",
    classes={
        **base.over_labels("ModernBert"),
        "ModernBertForMaskedLM": ("mlm",),
        "ModernBertModel": (),
    },
    names=name_tensors(),
    to_hf=to_hf,
    from_hf=from_hf,
    tied="decoder.weight",
    kept=("local_attention",),  # it is halved, and the rest is dropped
)
