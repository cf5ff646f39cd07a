"""ModernBERT, and Ettin's encoders, which have the same architecture.

It has rotary positions with two bases, a window in all layers but every n-th, norms before all
blocks but the first, a gated feed-forward, and no biases. Query, key and value are one matrix in
the files. So are the first matrix of the feed-forward and the gate. Every class has the same module
`head` before its last matrix.
"""

from collections.abc import Collection
from typing import Any

from bert_jax.batch import Special
from bert_jax.config import knobs
from bert_jax.errors import ConfigError
from bert_jax.interop.families import base
from bert_jax.interop.families.base import Family, Stated
from bert_jax.interop.parameter_names import Part
from bert_jax.system.jsons import show

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
LAYER = "model.layers.{}."
HEADS = ("classify", "regress", "tag", "choice", "span")


def to_hf(config: knobs.Config, special: Special) -> Stated:
    """Convert a model to a config.json that transformers 4 and 5 read.

    The first layer attends to all tokens, because it does so in every model of transformers 4.
    """
    model = config.model
    assert model.layers is not None
    every = model.global_every or model.layers if model.window else 1
    stated = base.state_knobs(model, KEYS) | {
        "embedding_dropout": model.dropout,
        "max_position_embeddings": max(model.max_positions, config.sequence_length),
        "classifier_activation": base.name_activation(model.head_activation),
        "classifier_pooling": model.pooling,
        "layer_types": _list_kinds(model.layers, every),
        "global_attn_every_n_layers": every,
        "global_rope_theta": model.rotary_base,
        "local_rope_theta": model.rotary_base_near or model.rotary_base,
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
    """Convert a config.json of transformers 4 or 5 to the knobs of a model."""
    base.check_fixed(stated, ALLOWED, "ModernBERT")
    biases = {key: stated.get(key, False) for key in BIASES}
    has_biases = biases["norm_bias"]
    if any(value is not has_biases for value in biases.values()):
        said = ", ".join(f"{key} = {value}" for key, value in biases.items())
        raise ConfigError(said, "biases are read if all layers have them, or none")
    window, every = _read_windows(stated)
    rotary_base = _read_rotary_base(stated, GLOBAL)
    near = _read_rotary_base(stated, NEAR) if window else None
    return knobs.Model(
        **base.read_knobs(stated, KEYS),
        position="rotary",
        rotary_base=rotary_base,
        rotary_base_near=None if near == rotary_base else near,
        window=window,
        global_every=every,
        type_vocab=0,
        norm="pre",
        first_norm=False,
        biases=has_biases,
        gated=True,
        head_activation=base.read_activation(stated, "classifier_activation"),
        pooler="transform",
        pooling=base.read_value(stated, "classifier_pooling", "cls"),
        word_head=base.read_word_head(stated, heads),
        init="truncated_normal",
    )


def _list_kinds(layers: int, every: int) -> list[str]:
    """List the kinds of layers: the first and every n-th after it attend to all tokens."""
    return [NEAR if layer % every else GLOBAL for layer in range(layers)]


def _read_windows(stated: Stated) -> tuple[int, int]:
    """Read (window, n): all layers but every n-th attend to `window` tokens on either side.

    (0, 0) means that no layer has a window, and n = 0 that all layers have one.
    """
    layers = stated["num_hidden_layers"]
    kinds = stated.get("layer_types")
    if kinds is None:  # transformers 4
        every = min(layers, base.read_value(stated, "global_attn_every_n_layers", 3))
    else:
        count = len(kinds)
        # The second layer that attends to all tokens says every how many layers one does.
        every = kinds.index(GLOBAL, 1) if GLOBAL in kinds[1:] else count
        if kinds == [NEAR] * count:
            every = 0
        elif kinds != _list_kinds(count, every):
            every = -1
        if every < 0 or count != layers:
            raise ConfigError(
                f"layer_types = {show(kinds)} for {layers} layers",
                f"the first layer and every n-th after it are {GLOBAL}, or none",
            )
    if every == 1:
        return 0, 0
    reach = base.read_value(stated, "local_attention", 128)
    if type(reach) is not int:  # in Python, True // 2 is 0: no window
        raise ConfigError(f"local_attention = {show(reach)}", "a number of tokens")
    return reach // 2, every


def _read_rotary_base(stated: Stated, kind: str) -> Any:
    """Read the rotary base of a kind of layers.

    For layers with a window, None means the base of the other layers.
    """
    kinds = base.read_value(stated, "rope_parameters", {})
    if not isinstance(kinds, dict) or not kinds.keys() <= BASES.keys():
        raise ConfigError(f"rope_parameters = {show(kinds)}", f"keys: {', '.join(BASES)}")
    own = kinds.get(kind) or {}
    if own.get("rope_type", "default") != "default" or set(own) - {"rope_type", "rope_theta"}:
        raise ConfigError(
            f"rope_parameters.{kind} is not of the default type", "positions that are not scaled"
        )
    key, default = BASES[kind]
    return own.get("rope_theta", stated.get(key, default))


FAMILY = Family(
    model_type="modernbert",
    title="ModernBERT",
    prefix="model.",
    classes={
        **base.over_labels("ModernBert"),
        "ModernBertForMaskedLM": ("mlm",),
        "ModernBertModel": (),
    },
    names={
        "encoder/embeddings/token": "model.embeddings.tok_embeddings",
        "encoder/embeddings/norm": "model.embeddings.norm",
        "encoder/layer_{}/attention_norm": f"{LAYER}attn_norm",
        "encoder/layer_{}/attention/query": Part(f"{LAYER}attn.Wqkv", 0, 3),
        "encoder/layer_{}/attention/key": Part(f"{LAYER}attn.Wqkv", 1, 3),
        "encoder/layer_{}/attention/value": Part(f"{LAYER}attn.Wqkv", 2, 3),
        "encoder/layer_{}/attention/out": f"{LAYER}attn.Wo",
        "encoder/layer_{}/mlp_norm": f"{LAYER}mlp_norm",
        "encoder/layer_{}/mlp/up": Part(f"{LAYER}mlp.Wi", 0, 2),
        "encoder/layer_{}/mlp/gate": Part(f"{LAYER}mlp.Wi", 1, 2),
        "encoder/layer_{}/mlp/down": f"{LAYER}mlp.Wo",
        "encoder/final_norm": "model.final_norm",
        **base.name_words("head.dense", "head.norm", "decoder"),
        **{f"{head}/logits": "classifier" for head in HEADS},
        **{f"{head}/dense": "head.dense" for head in HEADS},
        **{f"{head}/norm": "head.norm" for head in HEADS},
    },
    to_hf=to_hf,
    from_hf=from_hf,
    tied="decoder.weight",
    # The first is halved and rounded down; the second is taken to be mlp_dropout.
    kept=("local_attention", "embedding_dropout"),
)
