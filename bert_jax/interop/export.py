"""Export of a model as a folder that transformers and sentence-transformers load, with a card.

A config that Hugging Face's BERT cannot express is refused, naming the knob: a folder that loads
and computes something else would be worse than none. Weights are copied, not computed: exported and
imported again, they are the same bit for bit. Only we read the exported tokenizer by Google's rules
of characters: transformers reads the same files by its library's rules, which differ for rare
characters (`bert_jax.data.characters`).
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bert_jax import trees
from bert_jax.config import knobs
from bert_jax.errors import CheckpointError, ConfigError
from bert_jax.interop import card, huggingface, parameter_names, runs, safetensors, sentence
from bert_jax.models.heads import TABLE
from bert_jax.system import disk

CLASSES = {  # our heads -> Hugging Face's class and its hub's pipeline; the first that fits counts
    ("classify",): ("BertForSequenceClassification", "text-classification"),
    ("regress",): ("BertForSequenceClassification", "text-classification"),
    ("tag",): ("BertForTokenClassification", "token-classification"),
    ("span",): ("BertForQuestionAnswering", "question-answering"),
    ("choice",): ("BertForMultipleChoice", "multiple-choice"),
    ("causal_lm",): ("BertLMHeadModel", "text-generation"),
    ("mlm", "nsp"): ("BertForPreTraining", "fill-mask"),
    ("mlm",): ("BertForMaskedLM", "fill-mask"),
    ("nsp",): ("BertForNextSentencePrediction", "feature-extraction"),
    (): ("BertModel", "feature-extraction"),
}
# The only values of config.model that Hugging Face's BERT can express.
EXPRESSED = {"position": "learned", "norm": "post", "gated": False, "features": 1, "window": 0}


def write(run: runs.Run, folder: Path) -> None:
    """Write the whole folder; refuse what cannot be expressed before anything is written."""
    check(run.config)
    stated = config_json(run.config, run.tokenizer.size, run.tokenizer.special.pad)
    stated[huggingface.OWN] = {"tokenizer": run.tokenizer.hash}
    values = parameter_names.to_theirs(trees.flat(run.params), run.tokenizer.size)
    length = min(run.config.sequence_length, run.config.model.max_positions)
    runs.write_json(folder / "config.json", stated)
    safetensors.write(folder / "model.safetensors", values, {"format": "pt"})
    run.tokenizer.save(folder, model_max_length=length)
    sentence.write(folder, run.sentence, length, run.config.model.hidden)
    _, pipeline = kind(run.config)
    parameters = sum(value.size for value in values.values())
    disk.write(folder / "README.md", card.text(run, parameters, pipeline))


@contextlib.contextmanager
def fresh_folder(output: Path) -> Iterator[Path]:
    """Yield a draft folder that gets its final name only once it is complete."""
    if output.is_symlink():
        raise ConfigError(f"{output} is a link", "give the folder it should lead to")
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ConfigError(
            f"{output} exists and is not empty", "choose another --output, or delete it"
        )
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{output.name}.", dir=output.parent))
    except OSError as error:
        if disk.is_full(error):
            raise disk.full(output) from error
        raise ConfigError(
            f"cannot write {output}: {error.strerror}", "choose another --output"
        ) from error
    try:
        yield draft
        draft.chmod(0o755)
        if output.exists():
            output.rmdir()
        draft.rename(output)
    except OSError as error:
        if disk.is_full(error):
            raise disk.full(output) from error
        raise CheckpointError(
            f"cannot write {output}: {error.strerror}", "may you write there?"
        ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def check(config: knobs.Config) -> None:
    """Refuse a config that would load in Hugging Face's BERT and compute something else."""
    model = config.model
    wrong = {
        f"model.{key}": getattr(model, key)
        for key, only in EXPRESSED.items()
        if getattr(model, key) != only
    }
    if {"mlm", "causal_lm"} & set(config.objectives) and model.head_activation != model.activation:
        wrong["model.head_activation"] = model.head_activation
    if model.causal and any(TABLE[name].pooled for name in config.objectives):
        wrong["model.causal"] = "True, of a text's vector that is not of [CLS]"
    if "sop" in config.objectives:
        wrong["objectives.sop"] = "a head that Hugging Face would take for NSP"
    shared = sorted(set(config.objectives) & {"classify", "regress", "tag", "choice"})
    if len(shared) > 1:
        wrong["objectives"] = f"{' and '.join(shared)}, which share one name there"
    if wrong:
        listing = ", ".join(f"{key} = {value}" for key, value in wrong.items())
        raise ConfigError(
            f"Hugging Face's BERT cannot express {listing}",
            "keep our own checkpoint, which says it all",
        )


def kind(config: knobs.Config) -> tuple[str, str]:
    """Return Hugging Face's class and pipeline for the model's heads."""
    heads = set(config.objectives)
    return next(row for needed, row in CLASSES.items() if heads.issuperset(needed))


def config_json(config: knobs.Config, vocab_size: int, pad: int) -> dict[str, Any]:
    """Return the contents of config.json, out of which `huggingface` reads the same model."""
    model = config.model
    activation = next(
        theirs for theirs, ours in huggingface.ACTIVATIONS.items() if ours == model.activation
    )
    stated: dict[str, Any] = {
        "architectures": [kind(config)[0]],
        "model_type": "bert",
        "vocab_size": vocab_size,
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
        "pad_token_id": pad,
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
    return stated
