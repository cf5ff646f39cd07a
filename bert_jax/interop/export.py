"""Export of a model as a folder that transformers and sentence-transformers load, with a card.

The model is written as the first family of `families/` that can express it; a config that none can
is refused, naming the knob: a folder that loads and computes something else would be worse than
none. Weights are copied, not computed: exported and
imported again, they are the same bit for bit.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bert_jax.batch import Special
from bert_jax.config import knobs
from bert_jax.errors import CheckpointError, ConfigError, need
from bert_jax.interop import (
    card,
    config_json,
    families,
    parameter_names,
    runs,
    safetensors,
    sentence,
)
from bert_jax.interop.families import Family, base
from bert_jax.objectives import TABLE
from bert_jax.system import disk, jsons, trees

logger = logging.getLogger(__name__)

PIPELINES = {  # of the hub, by the first head that a class promises; else it has vectors
    "classify": "text-classification",
    "tag": "token-classification",
    "span": "question-answering",
    "choice": "multiple-choice",
    "causal_lm": "text-generation",
    "mlm": "fill-mask",
}


def part(run: runs.TrainedModel, generator: bool = False) -> runs.TrainedModel:
    """Return the encoder of a run and its heads without the generator beside it, or that alone.

    They are two models there. Of a run without a generator it is the run.
    """
    small = run.config.generator
    if small is None:
        need(not generator, "this model has no generator", "leave --generator out")
        return run
    objectives, params = dict(run.config.objectives), dict(run.params)
    objectives["replaced"] = dataclasses.replace(objectives["replaced"], generator=0.0)
    words = {"mlm": objectives.pop("mlm")}
    own, head = params.pop("generator"), params.pop("mlm")
    if not generator:
        logger.info("the generator is left out: --generator exports it, as a model of its own")
        return dataclasses.replace(run.changed(objectives=objectives), params=params)
    tables = {"embeddings": params["encoder"]["embeddings"]}
    alone = run.changed(model=small, objectives=words)
    return dataclasses.replace(alone, params={"encoder": tables | own, "mlm": head})


def write(run: runs.TrainedModel, folder: Path, licence: str = "", repository: str = "") -> None:
    """Write the whole folder; refuse what cannot be expressed before anything is written.

    The card names the licence, and the repository of the hub, ORG/NAME, as what to load.
    """
    family = family_of(run.config, run.tokenizer.special)
    architecture, pipeline = kind(run.config, family)
    config = config_json.state(run.config, run.tokenizer, family, architecture)
    stated = run.meta.get("stated", {})
    config |= {key: stated[key] for key in family.kept if key in stated}
    rows = family.names(run.config)
    values = parameter_names.to_theirs(trees.flat(run.params), rows, run.tokenizer.size)
    length = min(run.config.sequence_length, run.config.model.longest)
    runs.write_json(folder / "config.json", config)
    safetensors.write(folder / "model.safetensors", values, {"format": "pt"})
    run.tokenizer.save(folder, model_max_length=length)
    if run.config.model.type_vocab < 2:  # such classes take no types, or only one
        _leave_out_types(folder / "tokenizer_config.json")
    sentence.write(folder, run.sentence, length, run.config.model.hidden)
    parameters = sum(value.size for value in values.values())
    text = card.text(run, family, parameters, architecture, pipeline, licence, repository)
    disk.write(folder / "README.md", text)


def _leave_out_types(file: Path) -> None:
    """Have transformers' tokenizer return no token_type_ids."""
    stated = jsons.read(file, CheckpointError)
    runs.write_json(file, stated | {"model_input_names": ["input_ids", "attention_mask"]})


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


def family_of(config: knobs.Config, special: Special) -> Family:
    """Return the first family that can express a model; refuse one that none can express.

    It would load there and compute something else. A family with the model's pooler comes first,
    whether its heads read that or not: else ELECTRA's generator could be a BERT.
    """
    wrong = {family: obstacles(config, special, family) for family in families.TABLE.values()}
    pooler = config.model.pooler
    family = min(wrong, key=lambda family: (len(wrong[family]), family.pooler != pooler))
    if wrong[family]:
        listing = ", ".join(f"{key} = {value}" for key, value in wrong[family].items())
        hint = "keep our own checkpoint, which says it all"
        if "replaced" in config.objectives:
            hint = "fine-tune its encoder (--config.init_from=RUN) and export that, or " + hint
        raise ConfigError(f"Hugging Face's {family.title} cannot express {listing}", hint)
    return family


def obstacles(config: knobs.Config, special: Special, family: Family) -> dict[str, object]:
    """Return what a family cannot express: knobs and their values."""
    model, heads = config.model, set(config.objectives)
    wrong: dict[str, object] = {
        f"model.{key}": getattr(model, key)
        for key, allowed in (base.USUAL | dict(family.only)).items()
        if getattr(model, key) not in allowed
    }
    if model.table_width != model.hidden and "embedding" not in family.keys:
        wrong["model.embedding"] = model.embedding
    fixed = {"": model.activation, "any": model.head_activation}
    allowed = fixed.get(family.head_activation, family.head_activation)
    words = {"mlm", "causal_lm"} & heads
    if words and model.word_head not in family.word_heads:
        wrong["model.word_head"] = model.word_head
    elif words and model.word_head != "matrix" and model.head_activation != allowed:
        wrong["model.head_activation"] = model.head_activation
    pooled = any(TABLE[name].pooled for name in heads)
    # A head over tokens has the layers of `transform` too.
    through = pooled or ("transform" in (model.pooler, family.pooler) and heads & {"tag", "span"})
    if through and model.pooler != family.pooler:
        wrong["model.pooler"] = model.pooler
    biased, theirs = (
        model.biases if bias is None else bias for bias in (model.pooler_bias, family.pooler_bias)
    )
    if pooled and model.pooler != "transform" and biased != theirs:
        wrong["model.pooler_bias"] = biased
    if pooled and model.pooling not in family.poolings:
        wrong["model.pooling"] = model.pooling
    if model.causal and not family.causal:
        wrong["model.causal"] = True
    elif model.causal and pooled:
        wrong["model.causal"] = "True, of a text's vector that is not of [CLS]"
    wrong |= family.obstacles(config, special)
    if any(objective.shift for objective in config.objectives.values()):
        wrong["objectives.hybrid.shift"] = "True, masks filled by what stands before them"
    if "sop" in heads:
        wrong["objectives.sop"] = "a head that Hugging Face would take for NSP"
    known = {"sop", "regress"}.union(*family.classes.values())
    wrong |= {f"objectives.{name}": f"no head of {family.title}" for name in heads - known}
    shared = sorted(heads & set(family.exclusive))
    if len(shared) > 1:
        wrong["objectives"] = f"{' and '.join(shared)}, which share one name there"
    return wrong


def kind(config: knobs.Config, family: Family) -> tuple[str, str]:
    """Return Hugging Face's class and pipeline for the model's heads."""
    heads = {"classify" if name == "regress" else name for name in config.objectives}
    name, promised = next(row for row in family.classes.items() if heads.issuperset(row[1]))
    return name, PIPELINES.get((*promised, "")[0], "feature-extraction")
