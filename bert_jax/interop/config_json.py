"""The config.json of a family of Hugging Face's: read as our config, and written for a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_jax.config import knobs, recorded, to_dict
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.errors import CheckpointError, ConfigError
from bert_jax.interop.families.base import Family, Stated, read_count
from bert_jax.interop.json_files import list_names, read_json, shorten
from bert_jax.interop.parameter_names import WORDS, Shape, count_layers

OWN = "bert_jax"  # our own entry in a config.json, which transformers carries along unread
CLASSES = ("classify", "tag")  # heads whose classes have names
GOOGLES = "bert_config.json"


def find_config(folder: Path) -> tuple[Path, Stated]:
    """Find and read a folder's config.json, or the file that google's code has in its place."""
    for name in ("config.json", GOOGLES):
        if (folder / name).exists():
            return folder / name, read_json(folder / name)
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
    """Read the config of a model.

    Args:
      stated: the contents of config.json.
      family: the family of the model.
      shapes: names of the file's tensors, as the family has them, and their shapes.
      length: the longest text that the folder states, if any.
      allow_missing: leave out heads that `stated` promises and the tensors lack.
    """
    heads = _read_heads(stated, family, shapes, allow_missing)
    labels = _read_labels(stated, family, heads, shapes)
    model = family.from_hf(stated, heads)
    layers = count_layers(family.names, shapes)
    if model.layers != layers:  # before a network of so many layers is traced
        raise ConfigError(
            f"it states {model.layers} layers, and the file has {layers}", "which is it?"
        )
    if reads_last_token(model, heads):
        raise ConfigError("is_decoder = true", "a causal model's [CLS] sees itself alone")
    is_untied = bool(set(WORDS) & set(heads)) and stated.get("tie_word_embeddings") is False
    if is_untied and family.tied and family.tied not in shapes:
        raise ConfigError(
            f"tie_word_embeddings is false, and the file lacks {family.tied}",
            "the file and its config.json must belong together",
        )
    objectives = {
        head: knobs.Objective(knobs.OBJECTIVES[head].weight, labels if head in CLASSES else ())
        for head in heads
    }
    longest = min(model.longest, model.max_positions)
    config = knobs.Config(
        sequence_length=min(length or longest, longest),
        pairs="nsp" if "nsp" in heads else "none",
        model=model,
        objectives=objectives,
        evals={},
        checkpoints=knobs.Checkpoints(best=""),
    )
    return recorded(to_dict(config))


def state_config(
    config: knobs.Config, tokenizer: Tokenizer, family: Family, architecture: str
) -> Stated:
    """Write the contents of config.json, out of which `read_config` reads the same model."""
    stated: Stated = {
        "architectures": [architecture],
        "model_type": family.model_type,
        "vocab_size": tokenizer.size,
        **family.to_hf(config, tokenizer.special),
        "dtype": "float32",
    }
    for name in CLASSES:
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


def reads_last_token(model: knobs.Model, heads: Any) -> bool:
    """Tell whether a head reads the last token of a causal model as the vector of a text.

    Heads of Hugging Face read [CLS], the first token, of any model.
    """
    return model.causal and bool(set(knobs.POOLED) & set(heads))


# --- heads ----------------------------------------------------------------------------------------


def _read_heads(
    stated: Stated, family: Family, shapes: Mapping[str, Shape], allow_missing: bool
) -> tuple[str, ...]:
    """List the heads that the classes promise, and the heads that the file has besides."""
    classes = stated.get("architectures") or []
    if not isinstance(classes, list) or any(name not in [*family.classes] for name in classes):
        raise ConfigError(
            f"architectures = {shorten(classes)}", f"one of: {', '.join(family.classes)}"
        )
    promised = {head for name in classes for head in family.classes[name]}
    # The tensors of the two heads over words have the same names.
    absent_words = "causal_lm"
    if "causal_lm" in promised:
        is_causal = bool(stated.get("is_decoder"))
        absent_words = "mlm" if is_causal else "causal_lm"
        promised = promised - {*WORDS} | {"causal_lm" if is_causal else "mlm"}
    if "classify" in promised and _is_regression(stated, family, shapes):
        promised = promised - {"classify"} | {"regress"}
    present = {head for head in family.heads if family.mark(head) in shapes} - {absent_words}
    # Heads over labels whose tensors do not say which of several heads they are of.
    marks = Counter(family.mark(head) for head in family.heads)
    unclear = {h for h in present if h not in WORDS and marks[family.mark(h)] > 1}
    if unclear and not unclear & promised:
        raise ConfigError(
            "architectures does not say what `classifier` is for", "add the class it was trained as"
        )
    lacking = promised - present
    if lacking and not allow_missing:
        rows = family.rows(promised).items()
        names = [row.theirs for ours, row in rows if ours.partition("/")[0] in lacking]
        absent = [name for name in dict.fromkeys(names) if name not in shapes]
        raise ConfigError(
            f"architectures = {shorten(classes)} and the file lacks {list_names(absent)}",
            "bert-jax import --allow-missing takes the model without",
        )
    kept = (promised | present - unclear) - lacking
    return tuple(name for name in knobs.OBJECTIVES if name in kept)


def _is_regression(stated: Stated, family: Family, shapes: Mapping[str, Shape]) -> bool:
    """Tell whether the head of ForSequenceClassification has one number a text."""
    kind = stated.get("problem_type")
    if kind not in (None, "regression", "single_label_classification"):
        raise ConfigError(
            f"problem_type = {shorten(kind)}", "classify has one label a text, regress one number"
        )
    outputs = _count_labels(stated, shapes.get(family.mark("classify"), (2,)))
    if kind == "regression" and outputs != 1:
        raise ConfigError(
            f"problem_type = 'regression' with {outputs} outputs", "regress has one number a text"
        )
    return outputs == 1


# --- labels ---------------------------------------------------------------------------------------


def _read_labels(
    stated: Stated, family: Family, heads: tuple[str, ...], shapes: Mapping[str, Shape]
) -> tuple[str, ...]:
    """Read the names of the classes in order; () without classes."""
    head = next((head for head in CLASSES if head in heads), "")
    if not head:
        return ()
    tensor = family.mark(head)
    count = _count_labels(stated, shapes[tensor])
    if shapes[tensor][:1] != (count,):  # before so many names are made
        raise ConfigError(
            f"it has {count} classes, and {tensor} is {list(shapes[tensor])}",
            "the file and its config.json must belong together",
        )
    named = stated.get("id2label") or {str(i): f"LABEL_{i}" for i in range(count)}
    wrong = [name for name in named.values() if not isinstance(name, (str, int, float))]
    if wrong:
        raise ConfigError(f"id2label names a class {shorten(wrong[0])}", "a name is a text")
    labels = tuple(str(named[str(i)]) for i in range(count))
    if len(set(labels)) < count:
        repeated = next(label for label, times in Counter(labels).items() if times > 1)
        raise ConfigError(
            f"id2label names a class twice: {shorten(repeated)}",
            "every class needs a name of its own",
        )
    return labels


def _count_labels(stated: Stated, shape: Shape) -> int:
    """Count the classes that config.json names or counts, or else the rows of the head's tensor."""
    named = stated.get("id2label")
    if named is None:
        return read_count(stated, "num_labels", *shape[:1])
    if not isinstance(named, dict) or named.keys() != {str(i) for i in range(len(named))}:
        raise ConfigError(
            f"id2label = {shorten(named)} does not map 0, 1, … to names", "it names every class"
        )
    return len(named)
