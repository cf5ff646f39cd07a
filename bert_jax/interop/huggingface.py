"""Models trained elsewhere: Hugging Face folders, safetensors files, hub names, TF1 checkpoints.

Each becomes what a run of ours has: a config, parameters, and the path of a tokenizer. Only JSON,
vocabularies and tensors are read; no code and no pickle is ever run.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import trees
from bert_jax.config import knobs, recorded, to_dict
from bert_jax.errors import CheckpointError, ConfigError
from bert_jax.interop import parameter_names, safetensors, sentence, tf1
from bert_jax.models import network
from bert_jax.models.heads import TABLE
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
STORED = ("float32", "float16", "bfloat16", "float64")
HUB_FILES = (
    *("config.json", "model*.safetensors", "model.safetensors.index.json"),
    *("vocab.txt", "tokenizer.json", "tokenizer_config.json"),
    *("modules.json", "*_Pooling/config.json", *sentence.FILES),
)
HUB_NAME = re.compile(r"hf:([\w.-]+(?:/[\w.-]+)?)|([\w.-]+/[\w.-]+)")


@dataclasses.dataclass(frozen=True)
class Foreign:
    """The contents of a folder or file from elsewhere."""

    config: knobs.Config
    params: Any
    vocab_size: int
    tokenizer: Path | None  # its folder, if there is a tokenizer
    tokenizer_hash: str | None  # of the tokenizer it was exported with, if we wrote it
    sentence: dict[str, Any]  # pooling, normalize, length of a sentence-transformers folder


def fetch(name: str) -> Path | None:
    """Download a model from the hub, or find it in the cache; None if the name cannot be one."""
    match = HUB_NAME.fullmatch(name)
    if match is None:
        return None
    if match[2] and (Path(name).parent.exists() or name.startswith("runs/")):  # a mistyped path
        return None
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    repository = match[1] or match[2]
    # ValueError: the hub allows no such name.
    failures = (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError)
    try:
        return Path(huggingface_hub.snapshot_download(repository, allow_patterns=list(HUB_FILES)))
    except failures as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise CheckpointError(
            f"no file or folder {name} here, and the hub's {repository} cannot be fetched: {first}",
            "give an existing folder, "
            "or fetch the model where there is a network and copy its folder",
        ) from error


def read(path: Path, allow_missing: bool = False, allow_unused: bool = False) -> Foreign:
    """Read a folder, a .safetensors file with its config.json beside it, or a TF1 checkpoint.

    Args:
      path: the folder or file; of TF1 also the prefix, such as DIR/bert_model.ckpt.
      allow_missing: leave out heads that config.json promises and the file lacks, instead of
        refusing.
      allow_unused: ignore tensors that belong to no part of BERT.
    """
    folder = path if path.is_dir() else path.parent
    values = _values(path)
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
    try:
        layers = _confirmed(stated, values)
        heads = _heads(stated, set(values), allow_missing)
        labels = _labels(stated, heads, values)
        config = _config(stated, heads, layers, labels, sentence.length(folder))
        vocab_size = _whole(stated, "vocab_size")
    except ConfigError as error:
        raise CheckpointError(f"{file}: {error}", error.hint) from error
    over_vocabulary = {"mlm", "causal_lm"} & set(heads)
    untied = over_vocabulary and stated.get("tie_word_embeddings") is False
    if untied and parameter_names.TIED not in values:
        raise CheckpointError(
            f"{file}: tie_word_embeddings is false, and {path} has no {parameter_names.TIED}",
            "BERT ties them",
        )
    shapes = _shapes(config, values, vocab_size)
    expected = {
        name for ours, shape in shapes.items() for name in parameter_names.names(ours, shape)
    } | parameter_names.SECOND_NAMES
    unused = sorted(values.keys() - expected)
    if unused and not allow_unused:
        raise CheckpointError(
            f"{path} holds {parameter_names.listing(unused)}, "
            "which the model of its config.json has not",
            "bert-jax import --allow-unused leaves them aside",
        )
    values = {
        name: _float32(name, value, path) for name, value in values.items() if name in expected
    }
    safetensors.check_finite(values, path)
    params = trees.nested(parameter_names.to_ours(values, shapes, vocab_size, str(path)))
    has_tokenizer = any(os.path.lexists(folder / name) for name in ("tokenizer.json", "vocab.txt"))
    own = stated.get(OWN)
    written = own.get("tokenizer") if isinstance(own, dict) else None
    return Foreign(
        config,
        params,
        vocab_size,
        folder if has_tokenizer else None,
        written,
        sentence.read(folder),
    )


def _float32(name: str, value: np.ndarray, path: Path) -> np.ndarray:
    if value.dtype.name not in STORED:
        raise CheckpointError(
            f"{path}: {name} is stored as {value.dtype.name}", f"weights are {', '.join(STORED)}"
        )
    with np.errstate(over="ignore"):  # too large a number becomes infinite, and is refused as such
        return value.astype(np.float32, copy=False)


def _values(path: Path) -> dict[str, np.ndarray]:
    """Read the tensors, by the names Hugging Face gives them today."""
    if path.is_file() and path.suffix not in (".safetensors", ".index", *safetensors.PICKLES):
        raise CheckpointError(
            f"{path} is no .safetensors file", "give the folder it is in, or its weights"
        )
    is_tf1 = path.suffix == ".index" or Path(f"{path}.index").is_file()
    if path.is_dir():
        is_tf1 |= any(path.glob("*.index")) and not any(path.glob("*.safetensors*"))
    if is_tf1:
        raw = tf1.read(path, lambda name: parameter_names.from_tf1(name) is not None)
        names = {name: str(parameter_names.from_tf1(name)) for name in raw}
        values = {
            plain: parameter_names.tf1_layout(name, raw[name]) for name, plain in names.items()
        }
    else:
        raw = safetensors.read(path)
        names = parameter_names.plain_names(raw)
        values = {plain: raw[name] for name, plain in names.items()}
    if len(values) < len(names):
        twice = sorted(plain for plain in values if list(names.values()).count(plain) > 1)
        raise CheckpointError(
            f"{path} holds {parameter_names.listing(twice)} twice, under two names",
            "keep one of them",
        )
    return values


# --- config.json ---------------------------------------------------------------------------------


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
    present = parameter_names.heads_in(names) - {other}
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
        rows = parameter_names.ROWS.items()
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


def _shapes(
    config: knobs.Config, names: dict[str, np.ndarray], vocab_size: int
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of our parameters, and of an unused pooler if the file has one."""
    # A scan over layers has the same shapes and is traced sooner.
    scanned = dataclasses.replace(config, model=dataclasses.replace(config.model, scan=True))
    tree = jax.eval_shape(lambda: network.init(scanned, vocab_size, jnp.uint32(0)))
    shapes = {name: leaf.shape for name, leaf in trees.flat(tree).items()}
    if any(name.startswith("bert.pooler.") for name in names):
        width = config.model.hidden
        assert width is not None
        shapes |= {"encoder/pooler/kernel": (width, width), "encoder/pooler/bias": (width,)}
    return shapes
