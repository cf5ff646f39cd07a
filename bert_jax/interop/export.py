"""Export of a model as a folder that transformers and sentence-transformers load, with a card.

The model is written in the format of the first family of `families/` that can express it: from what
its `to_hf` writes, its `from_hf` must read the same knobs. A config that no family can express is
refused with the knobs that differ, because a folder that loads and computes something else would be
worse than none. Weights are copied, not computed: if exported and imported again, they are the same
bit for bit.
"""

import contextlib
import dataclasses
import logging
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flax.traverse_util import flatten_dict

from bert_jax.batch import Special
from bert_jax.config import knobs
from bert_jax.errors import CheckpointError, ConfigError, need
from bert_jax.interop import (
    card,
    config_json,
    families,
    parameter_names,
    runs,
    sentence,
    tensor_files,
)
from bert_jax.interop.families import Family
from bert_jax.system import disk, jsons

logger = logging.getLogger(__name__)

PIPELINES = {  # of the hub, by the first head that a class promises; else it has vectors
    "classify": "text-classification",
    "tag": "token-classification",
    "span": "question-answering",
    "choice": "multiple-choice",
    "causal_lm": "text-generation",
    "mlm": "fill-mask",
}


def split_generator(run: runs.TrainedModel, generator: bool = False) -> runs.TrainedModel:
    """Return a run without its generator, or with `generator` only the generator.

    In Hugging Face's format these are two models. A run without a generator is returned as it is.
    """
    small = run.config.generator
    if small is None:
        need(not generator, "this model has no generator", "leave --generator out")
        return run
    objectives = dict(run.config.objectives)
    objectives["replaced"] = dataclasses.replace(objectives["replaced"], generator=0.0)
    words = {"mlm": objectives.pop("mlm")}
    params = dict(run.params)
    own = params.pop("generator")
    head = params.pop("mlm")
    if not generator:
        logger.info("the generator is left out: --generator exports it, as a model of its own")
        return dataclasses.replace(run.replace_sections(objectives=objectives), params=params)
    tables = {"embeddings": params["encoder"]["embeddings"]}
    alone = run.replace_sections(model=small, objectives=words)
    return dataclasses.replace(alone, params={"encoder": tables | own, "mlm": head})


def write_folder(
    run: runs.TrainedModel, folder: Path, licence: str = "", repository: str = ""
) -> None:
    """Write a model as a folder; refuse what no family can express before anything is written.

    The card states the licence. The card also names the repository of the hub, ORG/NAME, as the
    place to load the model from.
    """
    family = find_family(run.config, run.tokenizer.special)
    architecture, pipeline = find_class(run.config, family)
    config = config_json.state_config(run.config, run.tokenizer, family, architecture)
    stated = run.meta.get("stated", {})
    config |= {key: stated[key] for key in family.kept if key in stated}
    modules = family.name_modules(run.config.objectives, run.config.model.word_head)
    params = flatten_dict(run.params, sep="/")
    values = parameter_names.to_theirs(params, modules, run.tokenizer.size)
    _, bias = parameter_names.find_theirs(family.names, "mlm/bias")
    if run.config.model.word_head == "untied" and family.second_bias and bias in values:
        values[family.second_bias] = values[bias]  # which transformers 5 reads, and 4 the first
    length = min(run.config.sequence_length, run.config.model.longest)
    jsons.write(folder / "config.json", config)
    tensor_files.write_tensors(folder / tensor_files.SINGLE, values)
    run.tokenizer.save(folder, length, types=run.config.model.type_vocab >= 2)
    sentence.write_settings(folder, run.sentence, length, run.config.model.hidden)
    parameters = sum(value.size for value in values.values())
    text = card.write_card(run, family, parameters, architecture, pipeline, licence, repository)
    disk.write(folder / "README.md", text)


@contextlib.contextmanager
def fresh_folder(output: Path) -> Iterator[Path]:
    """Yield a temporary folder, which is renamed to `output` when the block has succeeded."""
    if output.is_symlink():
        raise ConfigError(f"{output} is a link", "give the folder it should lead to")
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ConfigError(
            f"{output} exists and is not empty", "choose another --output, or delete it"
        )
    with disk.explain_output_errors(output, ConfigError, disk.ELSEWHERE):
        output.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{output.name}.", dir=output.parent))
    try:
        with disk.explain_output_errors(output, CheckpointError, "may you write there?"):
            yield draft
            draft.chmod(0o755)
            draft.rename(output)  # also over an empty folder
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def find_family(config: knobs.Config, special: Special) -> Family:
    """Find the first family that can express a model; refuse a model if no family can.

    Of several families, one with the model's pooler is preferred, even if no head reads the pooler.
    Otherwise ELECTRA's generator could be exported as a BERT.
    """
    wrong = {family: list_differences(config, special, family) for family in families.FAMILIES}

    def distance(family: Family) -> tuple[int, bool]:
        read = family.from_hf(family.to_hf(config, special), config.objectives)
        return len(wrong[family]), read.pooler != config.model.pooler

    family = min(wrong, key=distance)
    if wrong[family]:
        listing = ", ".join(f"{key} = {value}" for key, value in wrong[family].items())
        hint = "keep our own checkpoint, which says it all"
        if "replaced" in config.objectives:
            hint = "fine-tune its encoder (--config.init_from=RUN) and export that, or " + hint
        raise ConfigError(f"Hugging Face's {family.title} cannot express {listing}", hint)
    return family


def list_differences(config: knobs.Config, special: Special, family: Family) -> dict[str, Any]:
    """Return {knob: value} of the knobs of a config that a family cannot express."""
    heads = set(config.objectives)
    read = family.from_hf(family.to_hf(config, special), heads)
    different = config_json.list_different_knobs(config, read)
    wrong: dict[str, Any] = {f"model.{name}": value for name, value in different.items()}
    if config_json.reads_last_token(config.model, heads):
        wrong["model.causal"] = "True, of a text's vector that is not of [CLS]"
    if config.shifted:
        wrong["objectives.hybrid.shift"] = "True, masks filled by what stands before them"
    for name in sorted(heads - family.heads):
        wrong[f"objectives.{name}"] = f"no head of {family.title}"
    owners = {(ours.partition("/")[0], theirs) for ours, theirs in family.names.items()}
    counts = Counter(theirs for head, theirs in owners if head in heads)
    shared = sorted({head for head, theirs in owners if head in heads and counts[theirs] > 1})
    if shared:
        wrong["objectives"] = f"{' and '.join(shared)}, which share one name there"
    return wrong


def find_class(config: knobs.Config, family: Family) -> tuple[str, str]:
    """Find the class of transformers that has the model's heads; return (class, pipeline).

    The pipeline is the hub's name of the model's task, such as "fill-mask".
    """
    heads = {"classify" if name == "regress" else name for name in config.objectives}
    name, promised = next(row for row in family.classes.items() if heads.issuperset(row[1]))
    return name, PIPELINES.get((*promised, "")[0], "feature-extraction")
