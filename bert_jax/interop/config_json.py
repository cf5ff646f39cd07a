"""The config.json of Hugging Face's BERT: read as our config, and written for a model of ours."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.config import knobs, recorded, to_dict
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.errors import CheckpointError, ConfigError
from bert_jax.interop import parameter_names
from bert_jax.objectives import TABLE
from bert_jax.system import jsons, opening
from bert_jax.system.jsons import show

ARCHITECTURES: dict[str, tuple[str, ...]] = {  # Hugging Face's classes -> the heads they promise
    "BertModel": (),
    "BertForPreTraining": ("mlm", "nsp"),
    "BertForMaskedLM": ("mlm",),
    "BertLMHeadModel": ("causal_lm",),  # of a model that is no decoder, mlm
    "BertForNextSentencePrediction": ("nsp",),
    "BertForSequenceClassification": ("classify",),
    "BertForTokenClassification": ("tag",),
    "BertForMultipleChoice": ("choice",),
    "BertForQuestionAnswering": ("span",),
}
ACTIVATIONS = {  # Hugging Face's name -> ours; where two names are one, export writes the first
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
FIXED: dict[str, tuple] = {  # values in a config.json under which a model is still BERT
    "model_type": (None, "bert"),
    "position_embedding_type": (None, "absolute"),
    "add_cross_attention": (None, False),
    "quantization_config": (None,),
    "pruned_heads": (None, {}),
    "auto_map": (None, {}),  # code of its own
    "is_decoder": (None, False, True),
}
OWN = "bert_jax"  # our own entry in a config.json, which transformers carries along unread
# Sizes in a config.json -> default, the tensor that has this size, and its axis.
SIZES: dict[str, tuple[int | None, str, int]] = {
    "vocab_size": (None, "bert.embeddings.word_embeddings.weight", 0),
    "hidden_size": (None, "bert.embeddings.word_embeddings.weight", 1),
    "max_position_embeddings": (512, "bert.embeddings.position_embeddings.weight", 0),
    "type_vocab_size": (2, "bert.embeddings.token_type_embeddings.weight", 0),
    "intermediate_size": (None, "bert.encoder.layer.0.intermediate.dense.weight", 0),
}
BELONG = "the file and its config.json must belong together"


def load(folder: Path, values: dict[str, np.ndarray]) -> tuple[Path, dict[str, Any]]:
    """Find and read a folder's config.json; add from the tensors what it need not state."""
    files = [folder / name for name in ("config.json", "bert_config.json")]
    file = next((file for file in files if os.path.lexists(file)), None)
    if file is None:
        raise CheckpointError(
            f"no config.json in {folder}", "weights alone do not say what model they are of"
        )
    stated = jsons.read(opening.inside(folder, file, CheckpointError), CheckpointError, strict=True)
    if "classifier.weight" in values:  # its rows count where config.json gives no number
        stated.setdefault("num_labels", len(np.atleast_1d(values["classifier.weight"])))
        # Of Google's scripts, run_classifier.py alone has a tensor of this name.
        if file.name == "bert_config.json":
            stated.setdefault("architectures", ["BertForSequenceClassification"])
    return file, stated


def parse(
    stated: dict[str, Any],
    values: dict[str, np.ndarray],
    length: int | None,
    allow_missing: bool = False,
) -> tuple[knobs.Config, int]:
    """Return the config of the model and the size of its vocabulary.

    Args:
      stated: the contents of config.json.
      values: the tensors, against which every size is checked.
      length: the longest text that the folder states, if any.
      allow_missing: leave out heads that `stated` promises and the tensors lack.
    """
    layers = _confirmed(stated, values)
    heads = _heads(stated, set(values), allow_missing)
    config = _config(stated, heads, layers, _labels(stated, heads, values), length)
    vocab_size = _whole(stated, "vocab_size")
    untied = {"mlm", "causal_lm"} & set(heads) and stated.get("tie_word_embeddings") is False
    if untied and parameter_names.TIED not in values:
        raise ConfigError(
            f"tie_word_embeddings is false, and the file lacks {parameter_names.TIED}",
            "BERT ties them",
        )
    return config, vocab_size


def state(config: knobs.Config, tokenizer: Tokenizer, architecture: str) -> dict[str, Any]:
    """Return the contents of config.json, out of which `parse` reads the same model."""
    model = config.model
    activation = next(theirs for theirs, ours in ACTIVATIONS.items() if ours == model.activation)
    stated: dict[str, Any] = {
        "architectures": [architecture],
        "model_type": "bert",
        "vocab_size": tokenizer.size,
        "hidden_size": model.hidden,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "intermediate_size": model.mlp,
        "hidden_act": activation,
        "hidden_dropout_prob": model.dropout,
        "attention_probs_dropout_prob": model.attention_dropout,
        "classifier_dropout": model.classifier_dropout,
        "max_position_embeddings": model.max_positions,
        "type_vocab_size": model.type_vocab,
        "initializer_range": model.init_stddev,
        "layer_norm_eps": model.norm_epsilon,
        "pad_token_id": tokenizer.special.pad,
        "position_embedding_type": "absolute",
        "is_decoder": model.causal,
        "tie_word_embeddings": True,
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


def _confirmed(stated: dict[str, Any], values: dict[str, np.ndarray]) -> int:
    """Check every size against the tensors before it allocates anything; return the layers."""
    for key, (default, tensor, axis) in SIZES.items():
        size = _whole(stated, key, default)
        if tensor not in values:
            raise ConfigError(f"{key} = {size} and the file lacks {tensor}", BELONG)
        shape = values[tensor].shape
        if len(shape) != 2 or shape[axis] != size:
            raise ConfigError(f"{key} = {size} and {tensor} is {list(shape)}", BELONG)
    matches = [re.match(r"bert\.encoder\.layer\.(\d{1,6})\.", name) for name in values]
    numbers = {int(match[1]) for match in matches if match}
    layers = _whole(stated, "num_hidden_layers")
    if layers != len(numbers):
        raise ConfigError(
            f"num_hidden_layers = {layers} and the file has {len(numbers)}", "which is it?"
        )
    if max(numbers) >= layers:
        raise ConfigError(
            f"the file has {layers} layers, one of them number {max(numbers)}", "they count from 0"
        )
    return layers


def _whole(stated: dict[str, Any], key: str, default: int | None = None) -> int:
    value: Any = stated.get(key, default)
    if problem := jsons.wrong(value, range(1, 2**31), key):
        raise ConfigError(problem, "a whole number above 0 is expected")
    return value


def _number(stated: dict[str, Any], key: str, default: float) -> float:
    value = stated[key] if stated.get(key) is not None else default
    if jsons.wrong(value, float) or not 0 <= value <= 1:
        raise ConfigError(f"{key} = {show(value)}", "a number from 0 to 1 is expected")
    return float(value)


def _heads(stated: dict[str, Any], names: set[str], allow_missing: bool) -> tuple[str, ...]:
    """Return our names of the heads that the class promises, and of those the file has besides."""
    classes = stated.get("architectures") or []
    if not isinstance(classes, list) or any(str(c) not in ARCHITECTURES for c in classes):
        value = show(", ".join(map(str, classes)) if isinstance(classes, list) else classes)
        raise ConfigError(f"architectures = {value}", f"one of: {', '.join(ARCHITECTURES)}")
    left_to_right = bool(stated.get("is_decoder")) and "BertLMHeadModel" in classes
    other = "mlm" if left_to_right else "causal_lm"  # its tensors have the same names
    rows = parameter_names.ROWS.items()
    present = {ours.partition("/")[0] for ours, row in rows if row.theirs in names}
    present -= {"encoder", other}
    over_labels = present & {"classify", "regress", "tag", "choice"}  # one tensor's name for all
    promised = {head for c in classes for head in ARCHITECTURES[c]}
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
        absent = [row.theirs for ours, row in rows if ours.partition("/")[0] in lacking]
        raise ConfigError(
            f"architectures = {classes} and the file lacks {parameter_names.listing(absent)}",
            "bert-jax import --allow-missing takes the model without",
        )
    kept = (promised | present) - (over_labels - promised) - lacking
    return tuple(name for name in knobs.OBJECTIVES if name in kept)


def _is_regression(stated: dict[str, Any]) -> bool:
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


def _outputs(stated: dict[str, Any]) -> int:
    """Return the number of classes that config.json states."""
    named = stated.get("id2label")
    if named is None:
        return _whole(stated, "num_labels", 2)
    if not isinstance(named, dict) or named.keys() != {str(i) for i in range(len(named))}:
        raise ConfigError(
            f"id2label is {show(named)} that does not map 0, 1, … to names", "it names every class"
        )
    return len(named)


def _labels(
    stated: dict[str, Any], heads: tuple[str, ...], values: dict[str, np.ndarray]
) -> tuple[str, ...]:
    """Return the names of the classes in order, as many as the tensors have; () without classes."""
    if not {"classify", "tag"} & set(heads):
        return ()
    count, shape = _outputs(stated), values["classifier.weight"].shape
    if shape[:1] != (count,):
        key = "num_labels" if stated.get("id2label") is None else "classes in id2label"
        raise ConfigError(f"{key} = {count} and classifier.weight is {list(shape)}", BELONG)
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


def _config(
    stated: dict[str, Any],
    heads: tuple[str, ...],
    layers: int,
    labels: tuple[str, ...],
    length: int | None,
) -> knobs.Config:
    """Return the config of a run with this model; refuse values that make it another one."""
    for key, allowed in FIXED.items():
        # Compared as JSON: in Python, 1 equals True.
        if key in stated and json.dumps(stated[key]) not in map(json.dumps, allowed):
            raise ConfigError(f"{key} = {show(stated[key])}", "only BERT's own encoder is read")
    activation = stated.get("hidden_act", "gelu")
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        raise ConfigError(f"hidden_act = {show(activation)}", f"one of: {', '.join(ACTIVATIONS)}")
    dropout = _number(stated, "hidden_dropout_prob", 0.1)
    model = knobs.Model(
        layers=layers,
        hidden=_whole(stated, "hidden_size"),
        heads=_whole(stated, "num_attention_heads"),
        mlp=_whole(stated, "intermediate_size"),
        max_positions=_whole(stated, "max_position_embeddings", 512),
        type_vocab=_whole(stated, "type_vocab_size", 2),
        activation=ACTIVATIONS[activation],
        causal=bool(stated.get("is_decoder")),
        dropout=dropout,
        attention_dropout=_number(stated, "attention_probs_dropout_prob", 0.1),
        classifier_dropout=_number(stated, "classifier_dropout", dropout),
        norm_epsilon=_number(stated, "layer_norm_eps", 1e-12),
        init="normal",
        init_stddev=_number(stated, "initializer_range", 0.02),
    )
    if model.causal and any(TABLE[name].pooled for name in heads):
        raise ConfigError(
            "is_decoder = true",
            "of a causal model no head here reads [CLS], which sees itself alone",
        )
    objectives = {
        h: knobs.Objective(1.0, labels if h in ("classify", "tag") else ()) for h in heads
    }
    config = knobs.Config(
        sequence_length=min(length or model.max_positions, model.max_positions),
        pairs="nsp" if "nsp" in heads else "none",
        model=model,
        objectives=objectives,
        evals={},
        checkpoints=knobs.Checkpoints(best=""),
    )
    return recorded(to_dict(config))
