"""The config.json of a family of Hugging Face's: read as our config, and written for a model."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.config import knobs, recorded, to_dict
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.errors import CheckpointError, ConfigError
from bert_jax.interop import parameter_names
from bert_jax.interop.families import base
from bert_jax.interop.families.base import Family, Stated
from bert_jax.objectives import TABLE
from bert_jax.system import jsons, opening
from bert_jax.system.jsons import show

OWN = "bert_jax"  # our own entry in a config.json, which transformers carries along unread
BELONG = "the file and its config.json must belong together"


def load(folder: Path) -> tuple[Path, Stated]:
    """Find and read a folder's config.json."""
    files = [folder / name for name in ("config.json", "bert_config.json")]
    file = next((file for file in files if os.path.lexists(file)), None)
    if file is None:
        raise CheckpointError(
            f"no config.json in {folder}", "weights alone do not say what model they are of"
        )
    return file, jsons.read(
        opening.inside(folder, file, CheckpointError), CheckpointError, strict=True
    )


def complete(stated: Stated, file: Path, family: Family, values: dict[str, np.ndarray]) -> None:
    """Add from the tensors what a config.json need not state."""
    theirs = base.marks(family)
    named = [theirs[head] for head in ("classify", "tag") if head in theirs]
    found = [values[name] for name in named if name in values]
    if found:  # its rows count where config.json gives no number
        stated.setdefault("num_labels", len(np.atleast_1d(found[0])))
        # Of Google's scripts, run_classifier.py alone has a tensor of this name.
        if file.name == "bert_config.json":
            stated.setdefault("architectures", ["BertForSequenceClassification"])


def parse(
    stated: Stated,
    family: Family,
    values: dict[str, np.ndarray],
    length: int | None,
    allow_missing: bool = False,
) -> tuple[knobs.Config, int]:
    """Return the config of the model and the size of its vocabulary.

    Args:
      stated: the contents of config.json.
      family: the one it is of.
      values: the tensors, against which every size is checked.
      length: the longest text that the folder states, if any.
      allow_missing: leave out heads that `stated` promises and the tensors lack.
    """
    sizes = _sizes(stated, family, values)
    heads = _heads(stated, family, set(values), allow_missing)
    labels = _labels(stated, family, heads, values)
    config = _config(stated, family, sizes, heads, labels, length)
    untied = family.tied and _is_untied(stated, heads)
    if untied and family.tied not in values:
        raise ConfigError(
            f"tie_word_embeddings is false, and the file lacks {family.tied}",
            BELONG,
        )
    return config, sizes["vocab_size"]


def state(
    config: knobs.Config, tokenizer: Tokenizer, family: Family, architecture: str
) -> dict[str, Any]:
    """Return the contents of config.json, out of which `parse` reads the same model."""
    model = config.model
    values = {knob: getattr(model, knob) for knob in family.keys if knob != "vocab_size"}
    values |= {"vocab_size": tokenizer.size, "activation": base.their_activation(model.activation)}
    stated: dict[str, Any] = {
        "architectures": [architecture],
        "model_type": family.model_type,
        **{key: values[knob] for knob, (key, _) in family.keys.items()},
        **family.state(config, tokenizer.special),
        "tie_word_embeddings": bool(family.tied) and model.word_head != "untied",
        "dtype": "float32",
    }
    for name in ("classify", "tag"):
        if name in config.objectives:
            labels = config.objectives[name].labels
            stated["id2label"] = {str(i): label for i, label in enumerate(labels)}
            stated["label2id"] = {label: i for i, label in enumerate(labels)}
    if "regress" in config.objectives:
        stated |= {
            "id2label": {"0": "LABEL_0"},
            "label2id": {"LABEL_0": 0},
            "problem_type": "regression",
        }
    return stated | {OWN: {"tokenizer": tokenizer.hash}}


# --- the parts of a config.json ------------------------------------------------------------------


def _sizes(stated: Stated, family: Family, values: dict[str, np.ndarray]) -> dict[str, int]:
    """Return the sizes, checked against the tensors before they allocate anything."""
    rows, sizes = family.rows(()), {}
    for knob, (ours, axis) in family.sizes.items():
        if knob not in family.keys:
            continue
        key, default = family.keys[knob]
        size = sizes[knob] = base.whole(stated, key, default)
        if ours not in rows:
            continue
        row = rows[ours]
        tensor = row.theirs.format(0)
        if tensor not in values:
            raise ConfigError(f"{key} = {size} and the file lacks {tensor}", BELONG)
        shape = values[tensor].shape
        if len(shape) != 2 or shape[axis] != size * (1 if axis else row.parts):
            raise ConfigError(f"{key} = {size} and {tensor} is {list(shape)}", BELONG)
    before = re.escape(rows["encoder/layer_{}/mlp/up/kernel"].theirs.partition("{}")[0])
    matches = [re.match(rf"{before}(\d{{1,6}})\.", name) for name in values]
    numbers = {int(match[1]) for match in matches if match}
    key, default = family.keys["layers"]
    layers = base.whole(stated, key, default)
    if layers != len(numbers):
        raise ConfigError(f"{key} = {layers} and the file has {len(numbers)}", "which is it?")
    if max(numbers) >= layers:
        raise ConfigError(
            f"the file has {layers} layers, one of them number {max(numbers)}", "they count from 0"
        )
    return sizes | {"layers": layers, "heads": base.whole(stated, *family.keys["heads"])}


def _heads(stated: Stated, family: Family, names: set[str], allow_missing: bool) -> tuple[str, ...]:
    """Return our names of the heads that the class promises, and of those the file has besides."""
    classes = stated.get("architectures") or []
    if not isinstance(classes, list) or any(str(c) not in family.classes for c in classes):
        value = show(", ".join(map(str, classes)) if isinstance(classes, list) else classes)
        raise ConfigError(f"architectures = {value}", f"one of: {', '.join(family.classes)}")
    promised = {head for c in classes for head in family.classes[c]}
    left_to_right = bool(stated.get("is_decoder")) and "causal_lm" in promised
    other = "mlm" if left_to_right else "causal_lm"  # its tensors have the same names
    marks = base.marks(family)
    present = {head for head, tensor in marks.items() if tensor in names} - {other}
    # One tensor's name for all of them, unless it is the name of one alone.
    over_labels = {head for head in present if list(marks.values()).count(marks[head]) > 1}
    over_labels -= {"mlm", "causal_lm"}
    if not left_to_right and "causal_lm" in promised:
        promised = promised - {"causal_lm"} | {"mlm"}
    if "classify" in promised and _is_regression(stated):
        promised = promised - {"classify"} | {"regress"}
    if over_labels and not over_labels & promised:
        raise ConfigError(
            "architectures does not say what `classifier` is for", "add the class it was trained as"
        )
    lacking = promised - present
    if lacking and not allow_missing:
        rows = family.rows(()).items()
        theirs = (row.theirs for ours, row in rows if ours.partition("/")[0] in lacking)
        absent = [name for name in theirs if name not in names]
        raise ConfigError(
            f"architectures = {classes} and the file lacks {parameter_names.listing(absent)}",
            "bert-jax import --allow-missing takes the model without",
        )
    kept = (promised | present) - (over_labels - promised) - lacking
    return tuple(name for name in knobs.OBJECTIVES if name in kept)


def _is_untied(stated: Stated, heads: Collection[str]) -> bool:
    words = set(parameter_names.WORDS) & set(heads)
    return bool(words) and stated.get("tie_word_embeddings") is False


def _is_regression(stated: Stated) -> bool:
    kind = stated.get("problem_type")
    if kind not in (None, "regression", "single_label_classification"):
        raise ConfigError(
            f"problem_type = {show(kind)}", "classify has one label a text, regress one number"
        )
    outputs = _outputs(stated)
    if kind == "regression" and outputs != 1:
        raise ConfigError(
            f"problem_type = 'regression' with {outputs} outputs", "regress has one number a text"
        )
    return outputs == 1


def _outputs(stated: Stated) -> int:
    """Return the number of classes that config.json states."""
    named = stated.get("id2label")
    if named is None:
        return base.whole(stated, "num_labels", 2)
    if not isinstance(named, dict) or named.keys() != {str(i) for i in range(len(named))}:
        raise ConfigError(
            f"id2label is {show(named)} that does not map 0, 1, … to names", "it names every class"
        )
    return len(named)


def _labels(
    stated: Stated, family: Family, heads: tuple[str, ...], values: dict[str, np.ndarray]
) -> tuple[str, ...]:
    """Return the names of the classes in order, as many as the tensors have; () without classes."""
    head = next((head for head in ("classify", "tag") if head in heads), "")
    if not head:
        return ()
    tensor = base.marks(family)[head]
    count, shape = _outputs(stated), values[tensor].shape
    if shape[:1] != (count,):
        key = "num_labels" if stated.get("id2label") is None else "classes in id2label"
        raise ConfigError(f"{key} = {count} and {tensor} is {list(shape)}", BELONG)
    named = stated.get("id2label") or {str(i): f"LABEL_{i}" for i in range(count)}
    if problem := jsons.wrong(named, {str: str | int | float | bool}, "id2label"):
        raise ConfigError(problem, "it maps 0, 1, … to names")
    labels = tuple(str(named[str(i)]) for i in range(count))
    if len(set(labels)) < count:
        repeated = next(label for label, times in Counter(labels).items() if times > 1)
        raise ConfigError(
            f"id2label names a class twice: {show(repeated)}", "every class needs a name of its own"
        )
    return labels


def _model(
    stated: Stated, family: Family, sizes: dict[str, int], heads: tuple[str, ...]
) -> knobs.Model:
    """Return the model; refuse values that make it another one."""
    for key, allowed in family.fixed.items():
        # Compared as JSON: in Python, 1 equals True.
        if key in stated and json.dumps(stated[key]) not in map(json.dumps, allowed):
            raise ConfigError(
                f"{key} = {show(stated[key])}", f"only {family.title}'s own encoder is read"
            )
    values: dict[str, Any] = {k: v for k, v in sizes.items() if k != "vocab_size"}
    if "activation" in family.keys:
        values["activation"] = base.activation(stated, *family.keys["activation"])
    for knob, (key, default) in family.keys.items():
        if knob not in sizes and knob not in values:
            default = values["dropout"] if default is None else default
            values[knob] = base.number(stated, key, default)
    values |= {"causal": bool(stated.get("is_decoder")), "init": "normal"}
    if "untied" in family.word_heads and _is_untied(stated, heads):
        values["word_head"] = "untied"
    model = knobs.Model(**values | family.read(stated, heads))
    if model.causal and any(TABLE[name].pooled for name in heads):
        raise ConfigError(
            "is_decoder = true",
            "of a causal model no head here reads [CLS], which sees itself alone",
        )
    return model


def _config(
    stated: Stated,
    family: Family,
    sizes: dict[str, int],
    heads: tuple[str, ...],
    labels: tuple[str, ...],
    length: int | None,
) -> knobs.Config:
    """Return the config of a run with this model."""
    model = _model(stated, family, sizes, heads)
    longest = min(model.longest, model.max_positions)
    objectives = {
        h: knobs.Objective(knobs.OBJECTIVES[h].weight, labels if h in ("classify", "tag") else ())
        for h in heads
    }
    config = knobs.Config(
        sequence_length=min(length or longest, longest),
        pairs="nsp" if "nsp" in heads else "none",
        model=model,
        objectives=objectives,
        evals={},
        checkpoints=knobs.Checkpoints(best=""),
    )
    return recorded(to_dict(config))
