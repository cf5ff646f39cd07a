"""The interface of a family, and how the values of a config.json are read and checked."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal

from bert_jax.batch import Special
from bert_jax.config import knobs
from bert_jax.errors import ConfigError
from bert_jax.interop.json_files import shorten
from bert_jax.interop.parameter_names import WORDS, Row, Rows, name_module

Stated = dict[str, Any]  # the contents of a config.json
Keys = Mapping[str, tuple[str, Any]]  # knob -> its key in a config.json, and the default there

ACTIVATIONS = {  # Hugging Face's name -> ours; export writes the first name of two
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
FIXED: Mapping[str, tuple[Any, ...]] = {  # key -> its only values in every family
    "add_cross_attention": (None, False),
    "quantization_config": (None,),
    "pruned_heads": (None, {}),
    "auto_map": (None, {}),  # code of the model's own
}
COUNTED = ("hidden", "layers", "heads", "mlp", "embedding", "max_positions", "type_vocab")
OVER_LABELS = ("classify", "regress", "tag", "choice")


@dataclasses.dataclass(frozen=True, eq=False)
class Family:
    """A model type of Hugging Face: a name table, and the functions `to_hf` and `from_hf`.

    `to_hf` writes the knobs of a model under the keys of config.json. `from_hf` reads them back.
    The family can express a model if the knobs that come back are the model's own.
    """

    model_type: str
    title: str  # in messages
    prefix: str  # of the encoder's tensors
    classes: Mapping[str, tuple[str, ...]]  # class -> its heads; export takes the first that fits
    names: Rows  # the tensors of an encoder and of all heads
    to_hf: Callable[[knobs.Config, Special], Stated]
    from_hf: Callable[[Stated, Collection[str]], knobs.Model]
    tied: str = ""  # the output matrix, if a file has it besides the table; empty if it is not tied
    second_bias: str = ""  # second name of the output's bias
    text_pooler: str = ""  # module of the pooler in classes over a whole text, if it has two names
    kept: tuple[str, ...] = ()  # keys with several values for one model: the stated value is kept
    unused: str = r"(?!)"  # regular expression of tensors that its classes leave aside

    @property
    def heads(self) -> set[str]:
        """The heads that the family's classes have."""
        found = {head for heads in self.classes.values() for head in heads}
        return found | {"regress"} if "classify" in found else found

    def rows(self, heads: Collection[str], word_head: str = "transform") -> Rows:
        """Name the tensors of a model with these heads, and with this `model.word_head`."""
        rows = dict(self.names)
        if self.text_pooler and {"classify", "regress"} & set(heads):
            rows |= name_module("encoder/pooler", self.text_pooler)
        if word_head == "untied":
            rows |= {f"{head}/table": Row(self.tied) for head in WORDS}
        return rows

    def mark(self, head: str) -> str:
        """Name the tensor that says that a head is there; empty if the family has no such head."""
        row = self.names.get(f"{head}/logits/kernel", self.names.get(f"{head}/bias"))
        return row.theirs if row else ""


def over_labels(name: str) -> dict[str, tuple[str, ...]]:
    """Name the classes over labels that begin with `name`, and their heads."""
    return {
        f"{name}ForSequenceClassification": ("classify",),
        f"{name}ForTokenClassification": ("tag",),
        f"{name}ForQuestionAnswering": ("span",),
        f"{name}ForMultipleChoice": ("choice",),
    }


# --- knobs under the keys of a config.json --------------------------------------------------------


def state_knobs(model: knobs.Model, keys: Keys) -> Stated:
    """Write the knobs of a model under their keys."""
    stated: Stated = {key: getattr(model, knob) for knob, (key, _) in keys.items()}
    if "activation" in keys:
        stated[keys["activation"][0]] = name_activation(model.activation)
    stated["tie_word_embeddings"] = model.word_head != "untied"
    return stated


def read_knobs(stated: Stated, keys: Keys) -> dict[str, Any]:
    """Read the knobs of a model from under their keys."""
    values: dict[str, Any] = {}
    for knob, (key, default) in keys.items():
        if knob == "activation":
            values[knob] = read_activation(stated, key, default)
        elif knob in COUNTED:
            values[knob] = read_count(stated, key, default)
        else:
            values[knob] = read_rate(stated, key, default)
    return values


def check_fixed(stated: Stated, fixed: Mapping[str, tuple[Any, ...]], title: str) -> None:
    """Refuse a value that makes a model another function than the family's."""
    for key, allowed in fixed.items():
        # Compared as JSON: in Python, 1 equals True.
        if key in stated and json.dumps(stated[key]) not in map(json.dumps, allowed):
            raise ConfigError(
                f"{key} = {shorten(stated[key])}", f"only {title}'s own encoder is read"
            )


def read_word_head(stated: Stated, heads: Collection[str]) -> Literal["transform", "untied"]:
    """Read whether the output over words has a matrix of its own: the knob `word_head`."""
    has_words = bool(set(WORDS) & set(heads))
    is_untied = has_words and stated.get("tie_word_embeddings") is False
    return "untied" if is_untied else "transform"


def read_count(stated: Stated, key: str, default: int | None = None, low: int = 1) -> int:
    """Read a whole number."""
    value: Any = stated.get(key, default)
    # Larger sizes could not be traced: padded, they would exceed the integers of jax.
    if type(value) is not int or not low <= value < 2**30:
        raise ConfigError(
            f"{key} = {shorten(value)}", f"a whole number of at least {low}, below 2**30"
        )
    return value


def read_rate(stated: Stated, key: str, default: float | None) -> float | None:
    """Read a number from 0 to 1; null is the default."""
    value = stated.get(key)
    if value is None:
        return default
    if type(value) not in (int, float) or not 0 <= value <= 1:
        raise ConfigError(f"{key} = {shorten(value)}", "a number from 0 to 1 is expected")
    return float(value)


def read_truth(stated: Stated, key: str, default: bool) -> bool:
    """Read true or false."""
    value = stated.get(key, default)
    if not isinstance(value, bool):
        raise ConfigError(f"{key} = {shorten(value)}", "true or false is expected")
    return value


def read_activation(stated: Stated, key: str, default: str = "gelu") -> Any:
    """Read an activation; return our name of it."""
    value = stated.get(key, default)
    if not isinstance(value, str) or value not in ACTIVATIONS:
        raise ConfigError(f"{key} = {shorten(value)}", f"one of: {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[value]


def name_activation(ours: str | None) -> str:
    """Return Hugging Face's name of an activation."""
    return next(theirs for theirs, name in ACTIVATIONS.items() if name == ours)
