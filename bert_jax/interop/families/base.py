"""The class of families, and functions that read and write knobs as keys of a config.json."""

import dataclasses
import json
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal

from bert_jax.batch import Special
from bert_jax.config import knobs
from bert_jax.errors import ConfigError
from bert_jax.interop.parameter_names import WORDS, Names
from bert_jax.system.jsons import show

Stated = dict[str, Any]  # the contents of a config.json
Keys = Mapping[str, tuple[str, Any]]  # knob -> its key in a config.json, and the default there
Allowed = Mapping[str, tuple[Any, ...]]  # key -> the only values that a family has there

ACTIVATIONS = {  # Hugging Face's name -> ours; export writes the first name of two
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
FIXED: Allowed = {  # in every family
    "add_cross_attention": (None, False),
    "quantization_config": (None,),
    "pruned_heads": (None, {}),
    "auto_map": (None, {}),  # code of the model's own
}
OVER_TEXTS = ("classify", "regress")


@dataclasses.dataclass(frozen=True, eq=False)
class Family:
    """A model type of Hugging Face: a table of names, and the functions `to_hf` and `from_hf`.

    `to_hf` writes the knobs of a model under the keys of config.json, and `from_hf` reads them. The
    family can express a model if `from_hf` returns the knobs that `to_hf` was given.
    """

    model_type: str
    title: str  # in messages
    prefix: str  # of the encoder's tensors
    classes: Mapping[str, tuple[str, ...]]  # class -> its heads; export takes the first that fits
    names: Names  # the modules of an encoder and of all heads
    to_hf: Callable[[knobs.Config, Special], Stated]
    from_hf: Callable[[Stated, Collection[str]], knobs.Model]
    tied: str = ""  # the output matrix, if a file has it besides the table; empty if it is not tied
    second_bias: str = ""  # second name of the output's bias
    text_pooler: str = ""  # module of the pooler in classes over a whole text, if it has two names
    kept: tuple[str, ...] = ()  # keys with several values for one model: the stated value is kept
    unused: str = r"(?!)"  # regular expression of tensors that its classes leave aside
    # Class that is code on the hub -> class of transformers that downloads and runs the code.
    auto_classes: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def heads(self) -> set[str]:
        """The heads that the classes of the family have."""
        found = {head for heads in self.classes.values() for head in heads}
        return found | {"regress"} if "classify" in found else found

    def name_modules(self, heads: Collection[str], word_head: str = "transform") -> Names:
        """Return {our name: Hugging Face's name} of the modules of a model with these heads.

        `word_head` is the knob of the model.
        """
        names = dict(self.names)
        if self.text_pooler and not set(OVER_TEXTS).isdisjoint(heads):
            names["encoder/pooler"] = self.text_pooler
        if word_head == "untied":
            names |= {f"{head}/table": self.tied.removesuffix(".weight") for head in WORDS}
        return names

    def mark_head(self, head: str) -> str:
        """Return the name of the tensor that shows that a file has a head.

        The result is "" if the family has no such head.
        """
        if f"{head}/logits" in self.names:
            return f"{self.names[f'{head}/logits']}.weight"
        return f"{self.names[head]}.bias" if head in self.names else ""


def name_words(dense: str, norm: str, bias: str) -> dict[str, str]:
    """Return {our name: Hugging Face's name} of the modules of the heads over the vocabulary.

    `dense`, `norm` and `bias` are Hugging Face's names.
    """
    names: dict[str, str] = {}
    for head in WORDS:
        names |= {f"{head}/dense": dense, f"{head}/norm": norm, head: bias}
    return names


def over_labels(name: str) -> dict[str, tuple[str, ...]]:
    """Return {class: its heads} of Hugging Face's classes over labels.

    `name` is what they begin with, such as "Bert".
    """
    return {
        f"{name}ForSequenceClassification": ("classify",),
        f"{name}ForTokenClassification": ("tag",),
        f"{name}ForQuestionAnswering": ("span",),
        f"{name}ForMultipleChoice": ("choice",),
    }


def state_knobs(model: knobs.Model, keys: Keys) -> Stated:
    """Write the knobs of a model as {key of config.json: value}.

    `keys` maps each knob to its key in config.json, and to its default there.
    """
    stated: Stated = {key: getattr(model, knob) for knob, (key, _) in keys.items()}
    if "activation" in keys:
        stated[keys["activation"][0]] = name_activation(model.activation)
    stated["tie_word_embeddings"] = model.word_head != "untied"
    return stated


def read_knobs(stated: Stated, keys: Keys) -> dict[str, Any]:
    """Read the knobs of a model from a config.json, as {knob: value}; ranges are checked later.

    `keys` maps each knob to its key in config.json, and to its default there.
    """
    values = {knob: read_value(stated, key, default) for knob, (key, default) in keys.items()}
    if "activation" in keys:
        values["activation"] = read_activation(stated, keys["activation"][0])
    return values


def read_value(stated: Stated, key: str, default: Any) -> Any:
    """Read a value of a config.json; a missing value or null means the default."""
    value = stated.get(key)
    return default if value is None else value


def read_activation(stated: Stated, key: str) -> Any:
    """Read an activation, and convert Hugging Face's name to ours."""
    value = read_value(stated, key, "gelu")
    return ACTIVATIONS.get(value, value)


def name_activation(ours: str | None) -> str:
    """Convert our name of an activation to Hugging Face's."""
    return next(theirs for theirs, name in ACTIVATIONS.items() if name == ours)


def read_word_head(stated: Stated, heads: Collection[str]) -> Literal["transform", "untied"]:
    """Return the knob `word_head`: "untied" if the output matrix is not the token table."""
    has_words = not set(WORDS).isdisjoint(heads)
    is_untied = has_words and stated.get("tie_word_embeddings") is False
    return "untied" if is_untied else "transform"


def check_fixed(stated: Stated, allowed: Allowed, title: str) -> None:
    """Refuse values of a config.json with which the model would compute another function."""
    for key, values in allowed.items():
        # Compared as JSON: in Python, 1 equals True.
        if key in stated and json.dumps(stated[key]) not in map(json.dumps, values):
            raise ConfigError(f"{key} = {show(stated[key])}", f"only {title}'s own encoder is read")
