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

from bert_jax.config import knobs
from bert_jax.errors import CheckpointError, ConfigError
from bert_jax.interop import card, config_json, parameter_names, runs, safetensors, sentence
from bert_jax.objectives import TABLE
from bert_jax.system import disk, trees

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


def write(run: runs.TrainedModel, folder: Path, licence: str = "", repository: str = "") -> None:
    """Write the whole folder; refuse what cannot be expressed before anything is written.

    The card names the licence, and the repository of the hub, ORG/NAME, as what to load.
    """
    check(run.config)
    architecture, pipeline = kind(run.config)
    config = config_json.state(run.config, run.tokenizer, architecture)
    values = parameter_names.to_theirs(trees.flat(run.params), run.tokenizer.size)
    length = min(run.config.sequence_length, run.config.model.max_positions)
    runs.write_json(folder / "config.json", config)
    safetensors.write(folder / "model.safetensors", values, {"format": "pt"})
    run.tokenizer.save(folder, model_max_length=length)
    sentence.write(folder, run.sentence, length, run.config.model.hidden)
    parameters = sum(value.size for value in values.values())
    text = card.text(run, parameters, architecture, pipeline, licence, repository)
    disk.write(folder / "README.md", text)


@contextlib.contextmanager
def fresh_folder(output: Path) -> Iterator[Path]:
    """Yield a draft folder that gets its final name only once it is complete."""
    if output.is_symlink():
        raise ConfigError(f"{output} is a link", "give the folder it should lead to")
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ConfigError(
            f"{output} exists and is not empty", "choose another --output, or delete it"
        )
    with disk.output(output, ConfigError, "choose another --output"):
        output.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{output.name}.", dir=output.parent))
    try:
        with disk.output(output, CheckpointError, "may you write there?"):
            yield draft
            draft.chmod(0o755)
            if output.exists():
                output.rmdir()
            draft.rename(output)
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
    if any(objective.shift for objective in config.objectives.values()):
        wrong["objectives.hybrid.shift"] = "True, masks filled by what stands before them"
    if "sop" in config.objectives:
        wrong["objectives.sop"] = "a head that Hugging Face would take for NSP"
    if "replaced" in config.objectives:
        wrong["objectives.replaced"] = "a head of ELECTRA's"
    known = {"sop", "replaced"}.union(*CLASSES)
    wrong |= {f"objectives.{name}": "no head of BERT" for name in {*config.objectives} - known}
    shared = sorted(set(config.objectives) & {"classify", "regress", "tag", "choice"})
    if len(shared) > 1:
        wrong["objectives"] = f"{' and '.join(shared)}, which share one name there"
    if wrong:
        listing = ", ".join(f"{key} = {value}" for key, value in wrong.items())
        hint = "keep our own checkpoint, which says it all"
        if "replaced" in config.objectives:
            hint = "fine-tune its encoder (--config.init_from=RUN) and export that, or " + hint
        raise ConfigError(f"Hugging Face's BERT cannot express {listing}", hint)


def kind(config: knobs.Config) -> tuple[str, str]:
    """Return Hugging Face's class and pipeline for the model's heads."""
    heads = set(config.objectives)
    return next(row for needed, row in CLASSES.items() if heads.issuperset(needed))
