"""The config.json of Hugging Face's models: read as a config, written for a model, compared."""

import dataclasses
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from bert_jax.config import conditions, knobs, read_recorded, to_dict
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.errors import CheckpointError, ConfigError
from bert_jax.interop.families.base import Family, Stated, read_value
from bert_jax.interop.parameter_names import BELONG, WORDS, Shape, count_layers, list_names
from bert_jax.system import jsons

OWN = "bert_jax"  # our own entry in a config.json, which transformers carries along unread
CLASSES = ("classify", "tag")  # heads whose classes have names
GOOGLES = "bert_config.json"
FREE = {  # knobs of the model that do not change what a trained model computes
    *("size", "vocab_multiple", "max_positions", "attention", "attention_bias", "scan", "remat"),
    *("dtype", "dropout", "attention_dropout", "classifier_dropout", "init", "init_stddev"),
}
FOLLOW = {  # knob -> the knob whose value it has if it is None
    "mlp_biases": "biases",
    "pooler_bias": "biases",
    "head_activation": "activation",
    "rotary_base_near": "rotary_base",
}


def find_config(folder: Path) -> tuple[Path, Stated]:
    """Find the config.json of a folder, or bert_config.json of google's code.

    The result is its path and its contents.
    """
    for name in ("config.json", GOOGLES):
        if (folder / name).exists():
            return folder / name, jsons.read(folder / name, CheckpointError, dict)
    raise CheckpointError(
        f"no config.json in {folder}", "weights alone do not say what model they are of"
    )


def read_config(
    stated: Stated,
    family: Family,
    shapes: Mapping[str, Shape],
    length: int | None,
    allow_missing: bool = False,
) -> knobs.Config:
    """Convert a config.json to the config of a model.

    Args:
      stated: the contents of config.json.
      family: the family of the model.
      shapes: the shape of each tensor of the file, under the name that the family gives it.
      length: the longest text that the folder states, if any.
      allow_missing: leave out heads that `stated` promises and the tensors lack.
    """
    heads = _read_heads(stated, family, shapes, allow_missing)
    model = family.from_hf(stated, heads)
    layers = count_layers(family.names, shapes)
    if model.layers != layers:  # before a network of so many layers is traced
        raise ConfigError(f"it states {model.layers} layers, and the file has {layers}", BELONG)
    if reads_last_token(model, heads):
        raise ConfigError("is_decoder = true", "a causal model's [CLS] sees itself alone")
    objectives = {}
    for head in heads:
        labels = _read_labels(stated, shapes[family.mark_head(head)]) if head in CLASSES else ()
        objectives[head] = knobs.Objective(knobs.OBJECTIVES[head].weight, labels)
    longest = min(model.longest, model.max_positions)
    config = knobs.Config(
        sequence_length=min(length or longest, longest),
        pairs="nsp" if "nsp" in heads else "none",
        model=model,
        objectives=objectives,
        evals={},
        checkpoints=knobs.Checkpoints(best=""),
    )
    return read_recorded(to_dict(config))  # which checks each knob's type and range


def state_config(
    config: knobs.Config, tokenizer: Tokenizer, family: Family, architecture: str
) -> Stated:
    """Write the contents of a config.json from which `read_config` reads the same model."""
    stated: Stated = {
        "architectures": [architecture],
        "model_type": family.model_type,
        "vocab_size": tokenizer.size,
        **family.to_hf(config, tokenizer.special),
        "dtype": "float32",
    }
    labels: tuple[str, ...] = ()
    for name in CLASSES:
        if name in config.objectives:
            labels = config.objectives[name].labels
    if "regress" in config.objectives:
        labels = ("LABEL_0",)
        stated["problem_type"] = "regression"
    if labels:
        stated["id2label"] = {str(i): label for i, label in enumerate(labels)}
        stated["label2id"] = {label: i for i, label in enumerate(labels)}
    return stated | {OWN: {"tokenizer": tokenizer.hash}}


def reads_last_token(model: knobs.Model, heads: Collection[str]) -> bool:
    """Tell whether a head reads the vector of the last token, because the model is causal.

    Heads of Hugging Face read [CLS], the first token, of any model.
    """
    return model.causal and not set(knobs.POOLED).isdisjoint(heads)


def _read_heads(
    stated: Stated, family: Family, shapes: Mapping[str, Shape], allow_missing: bool
) -> tuple[str, ...]:
    """List the heads that the classes in config.json promise, and other heads in the file."""
    classes = stated.get("architectures") or []
    if set(classes) - family.classes.keys():
        raise ConfigError(
            f"architectures = {str(classes)[:80]}", f"one of: {', '.join(family.classes)}"
        )
    promised = {head for name in classes for head in family.classes[name]}
    # The tensors of the two heads over words have the same names.
    words = "causal_lm" if "causal_lm" in promised and stated.get("is_decoder") else "mlm"
    if not promised.isdisjoint(WORDS):
        promised = promised - {*WORDS} | {words}
    if "classify" in promised and _is_regression(stated, family, shapes):
        promised = promised - {"classify"} | {"regress"}
    present = {head for head in family.heads if family.mark_head(head) in shapes}
    present -= {*WORDS} - {words}
    # Heads over labels whose tensors do not say which of several heads they are of.
    marks = Counter(family.mark_head(head) for head in family.heads)
    unclear = {head for head in present - {*WORDS} if marks[family.mark_head(head)] > 1}
    if unclear and not unclear & promised:
        raise ConfigError(
            "architectures does not say what `classifier` is for", "add the class it was trained as"
        )
    lacking = promised - present
    if lacking and not allow_missing:
        absent = [family.mark_head(head) for head in sorted(lacking)]
        raise ConfigError(
            f"architectures = {classes} and the file lacks {list_names(absent)}",
            "bert-jax import --allow-missing takes the model without",
        )
    kept = (promised | present - unclear) - lacking
    return tuple(name for name in knobs.OBJECTIVES if name in kept)


def _is_regression(stated: Stated, family: Family, shapes: Mapping[str, Shape]) -> bool:
    """Tell whether the head of ForSequenceClassification has one output for each text."""
    kind = stated.get("problem_type")
    if kind not in (None, "regression", "single_label_classification"):
        raise ConfigError(
            f"problem_type = {jsons.show(kind)}",
            "classify has one label a text, regress one number",
        )
    outputs = shapes.get(family.mark_head("classify"), (2,))[0]
    if kind == "regression" and outputs != 1:
        raise ConfigError(
            f"problem_type = 'regression' with {outputs} outputs", "regress has one number a text"
        )
    return outputs == 1


def _read_labels(stated: Stated, shape: Shape) -> tuple[str, ...]:
    """Read the names of the classes in order; the head's tensor has a row for each."""
    count = shape[0]
    named = stated.get("id2label") or {}
    stated_count = len(named) or read_value(stated, "num_labels", count)
    if stated_count != count:
        raise ConfigError(f"it has {stated_count} classes, and the file {count}", BELONG)
    labels = tuple(str(named.get(str(i), f"LABEL_{i}")) for i in range(count))
    if named and named.keys() != {str(i) for i in range(count)}:
        raise ConfigError("id2label does not map 0, 1, … to names", "it names every class")
    if len(set(labels)) < count:
        raise ConfigError("id2label names a class twice", "every class needs a name of its own")
    return labels


# --- comparing ------------------------------------------------------------------------------------


def list_different_knobs(config: knobs.Config, other: knobs.Model) -> dict[str, Any]:
    """Return {knob: value} of the config's knobs whose values differ in another model.

    A knob that does nothing in both models is left out.
    """
    ours = _complete(config.model)
    theirs = _complete(other)
    swapped = dataclasses.replace(config, model=other)
    different = {}
    for name, value in ours.items():
        needed = conditions.list_conditions(f"model.{name}")
        acts = any(all(one.holds(c, "") for one in needed) for c in (config, swapped))
        if value != theirs[name] and acts:
            different[name] = value
    return different


def _complete(model: knobs.Model) -> dict[str, Any]:
    """Return {knob: value} of the knobs that decide a model's outputs.

    Values that depend on other knobs are filled in.
    """
    assert model.layers is not None
    values = {name: value for name, value in vars(model).items() if name not in FREE}
    values["embedding"] = model.table_width
    values["global_every"] = min(model.global_every, model.layers)
    for name, source in FOLLOW.items():
        if values[name] is None:
            values[name] = values[source]
    return values
