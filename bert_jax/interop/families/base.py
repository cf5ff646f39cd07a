"""The interface of a family, and how values of a config.json are read and checked."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any

from bert_jax.batch import Special
from bert_jax.config import knobs
from bert_jax.errors import ConfigError
from bert_jax.interop.parameter_names import WORDS, Row, Rows
from bert_jax.system import jsons
from bert_jax.system.jsons import show

Stated = dict[str, Any]  # the contents of a config.json

ACTIVATIONS = {  # Hugging Face's name -> ours; where two names are one, export writes the first
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
FIXED: dict[str, tuple[Any, ...]] = {  # values in a config.json that every family has
    "add_cross_attention": (None, False),
    "quantization_config": (None,),
    "pruned_heads": (None, {}),
    "auto_map": (None, {}),  # code of its own
}
# A size that a config.json states -> the tensor of ours whose axis has it, there as [out, in].
SIZES: Mapping[str, tuple[str, int]] = {
    "vocab_size": ("encoder/embeddings/token", 0),
    "hidden": ("encoder/embeddings/token", 1),
    "max_positions": ("encoder/embeddings/position", 0),
    "type_vocab": ("encoder/embeddings/type", 0),
    "mlp": ("encoder/layer_{}/mlp/up/kernel", 0),
}
OVER_LABELS = ("classify", "regress", "tag", "choice")
# Values of config.model of a BERT, whatever its positions, norms and types; see `Family.only`.
PLAIN: dict[str, Collection[Any]] = {
    "position": ("learned",),
    "gated": (False,),
    "window": (0,),
    "biases": (True,),
}
# Those of every family whose `only` has no others.
USUAL: dict[str, Collection[Any]] = {
    "features": (1,),
    "norm_kind": ("layer",),
    "embedding_norm": (True,),
    "inner_norm": (False,),
    "norm_parameters": (True,),
    "mlp_biases": (None,),
    "attention_gate": (False,),
    "layer_weights": (False,),
}


def nothing(*_: Any) -> dict[str, Any]:
    """Return no further knobs, keys or obstacles."""
    return {}


def same(rows: Rows) -> Callable[[Collection[str]], Rows]:
    """Return the function of a family whose tensors have the same names whatever its heads."""
    return lambda heads: rows


@dataclasses.dataclass(frozen=True, eq=False)
class Family:
    """A row of the table: one of Hugging Face's model types."""

    model_type: str
    title: str  # in messages
    prefix: str  # of the encoder's tensors
    # Class -> the heads that it promises; a model is exported as the first that it has all heads
    # of, in which classify stands for regress too.
    classes: Mapping[str, tuple[str, ...]]
    keys: Mapping[str, tuple[str, Any]]  # knob, or vocab_size -> its key, and the default
    fixed: Mapping[str, tuple[Any, ...]]  # values under which a model is still of this family
    rows: Callable[[Collection[str]], Rows]  # names of a model's tensors, by its heads
    tied: str  # the output matrix, where a file has it beside the table; empty if it is not tied
    second_bias: str = ""  # of the output, where it has two names
    # Keys that have several values for one model of ours: a model of others keeps the stated value.
    kept: tuple[str, ...] = ()
    read: Callable[[Stated, Collection[str]], dict[str, Any]] = nothing  # further knobs
    state: Callable[[knobs.Config, Special], Stated] = nothing  # further keys
    sizes: Mapping[str, tuple[str, int]] = dataclasses.field(default_factory=lambda: SIZES)
    # Knobs of the model -> their only values in this family; what `obstacles` adds to them.
    only: Mapping[str, Collection[Any]] = dataclasses.field(default_factory=dict)
    obstacles: Callable[[knobs.Config, Special], dict[str, Any]] = nothing
    head_activation: str = ""  # of the MLM head: always this one, or that of the feed-forward
    word_head: str = "transform"
    pooler: str = "tanh"
    pooler_bias: bool | None = None  # None is as all others have it
    poolings: Collection[str] = ("cls",)
    causal: bool = True
    exclusive: tuple[str, ...] = OVER_LABELS  # heads of which a model has at most one
    unused: str = r"(?!)"  # regular expression of tensors that its classes leave aside

    @property
    def word_heads(self) -> tuple[str, ...]:
        """Return the values of model.word_head that the family has.

        Where the bias has two names, transformers unties that too, and such models are not read.
        """
        unties = self.tied and not self.second_bias
        return (self.word_head, "untied") if unties else (self.word_head,)

    def names(self, config: knobs.Config) -> Rows:
        """Return the names of the tensors of a model, its own output matrix among them."""
        rows = self.rows(config.objectives)
        if config.model.word_head != "untied":
            return rows
        return {**rows, **{f"{head}/table": Row(self.tied) for head in WORDS}}


def over_labels(name: str) -> dict[str, tuple[str, ...]]:
    """Return the classes over labels whose names begin with `name`, and the heads they promise."""
    return {
        f"{name}ForSequenceClassification": ("classify",),
        f"{name}ForTokenClassification": ("tag",),
        f"{name}ForQuestionAnswering": ("span",),
        f"{name}ForMultipleChoice": ("choice",),
    }


def word_bias(family: Family) -> str:
    """Return the family's name of the output's bias."""
    return family.rows(())["mlm/bias"].theirs


def marks(family: Family) -> dict[str, str]:
    """Return a tensor of each head that says the head is there: its bias or its logits' matrix."""
    rows = family.rows(())
    found: dict[str, Row | None] = {
        head: rows.get(f"{head}/logits/kernel", rows.get(f"{head}/bias"))
        for head in knobs.OBJECTIVES
    }
    return {head: row.theirs for head, row in found.items() if row}


# --- values of a config.json ----------------------------------------------------------------------


def whole(stated: Stated, key: str, default: int | None = None, low: int = 1) -> int:
    """Return a whole number."""
    value: Any = stated.get(key, default)
    if problem := jsons.wrong(value, range(low, 2**31), key):
        raise ConfigError(problem, f"a whole number of at least {low} is expected")
    return value


def number(stated: Stated, key: str, default: float) -> float:
    """Return a number from 0 to 1; null is the default."""
    value = stated[key] if stated.get(key) is not None else default
    if jsons.wrong(value, float) or not 0 <= value <= 1:
        raise ConfigError(f"{key} = {show(value)}", "a number from 0 to 1 is expected")
    return float(value)


def truth(stated: Stated, key: str, default: bool) -> bool:
    """Return true or false."""
    value = stated.get(key, default)
    if problem := jsons.wrong(value, bool, key):
        raise ConfigError(problem, "true or false is expected")
    return value


def activation(stated: Stated, key: str, default: str = "gelu") -> str:
    """Return our name of an activation."""
    value = stated.get(key, default)
    if not isinstance(value, str) or value not in ACTIVATIONS:
        raise ConfigError(f"{key} = {show(value)}", f"one of: {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[value]


def their_activation(ours: str) -> str:
    """Return Hugging Face's name of an activation."""
    return next(theirs for theirs, name in ACTIVATIONS.items() if name == ours)
