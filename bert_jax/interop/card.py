"""The model card, which is the README of an exported model.

It says how to load the model, and states its origin, data, limits, licence, evaluation and config.
"""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path

from bert_jax import config as configs
from bert_jax.config import conditions, knobs
from bert_jax.errors import CheckpointError
from bert_jax.interop import huggingface, runs
from bert_jax.interop.families import Family
from bert_jax.reporting import records
from bert_jax.reporting.formats import rounded
from bert_jax.system import jsons
from bert_jax.system.jsons import Maybe

ENVIRONMENT = {  # schema of environment.json
    "machine": {"devices": [str]},
    "versions": {"bert-jax": str, str: str},
    "corpus": object,
    "tokenizer": object,
    "git_commit": object,
    "command": Maybe(list),
}
ABSOLUTE = re.compile(r"(?<![\w.~/-])~?/(?:[^\s\"',=|/]+/)+")  # folders of this machine


def text(
    run: runs.TrainedModel,
    family: Family,
    parameters: int,
    architecture: str,
    pipeline: str,
    licence: str = "",
    repository: str = "",
) -> str:
    """Write the card from what the run knows of itself, and nothing else.

    Args:
      run: the model.
      family: what it is written as.
      parameters: how many it has.
      architecture: the class of transformers that has all its heads.
      pipeline: the task of the hub that it is for.
      licence: the hub's name of the licence, as its author says; empty is not said.
      repository: ORG/NAME on the hub, if it goes there.
    """
    base = _on_hub(run.meta.get("foreign") or run.config.init_from)
    datasets = sorted(path for kind, path in _corpora(run) if kind == "hub")
    return "\n".join(
        [
            *("---", "library_name: transformers", f"pipeline_tag: {pipeline}"),
            f"license: {licence or 'unknown'}",
            *([f"base_model: {base}"] if base else []),
            *(["datasets:", *(f"- {name}" for name in datasets)] if datasets else []),
            *("tags:", f"- {family.model_type}", "- jax", "- sentence-transformers", "---", ""),
            *(f"# {repository.rpartition('/')[2] or _title(run)}", "", _origin(run, family), ""),
            f"{parameters:,} parameters, {run.tokenizer.size:,} pieces of vocabulary, "
            f"{'lower-cased' if run.tokenizer.lowercase else 'cased'} text.",
            *("", "```python", f"from transformers import AutoTokenizer, {architecture}", ""),
            f'model = {architecture}.from_pretrained("{repository or "THIS_FOLDER"}")',
            f'tokenizer = AutoTokenizer.from_pretrained("{repository or "THIS_FOLDER"}")',
            *("```", "", "## Data", "", _data(run), "", "## Limits", "", *_limits(run), ""),
            *("## Licence", "", _licence(licence), ""),
            *(*_evaluation(run), *_record(run), *_config(run)),
        ]
    )


def _record(run: runs.TrainedModel) -> list[str]:
    """Say with which code, versions and devices it was trained."""
    file = run.folder / "environment.json"
    if "foreign" in run.meta or not file.exists():
        return []
    known = jsons.read(file, CheckpointError, ENVIRONMENT, hint="restore or delete it")
    versions = known["versions"]
    code = f"bert-jax {versions.pop('bert-jax')}, commit {known['git_commit'] or 'unknown'}"
    rows = {
        "": "",
        "data fingerprint": f"`{known['corpus']}`",
        "tokenizer": f"`{known['tokenizer']}`",
        "seed, data_seed": f"{run.config.seed}, {run.config.data_seed}",
        "code": code,
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "devices": ", ".join(known["machine"]["devices"]),
    }
    lines = ["## Run", "", *_table(rows), ""]
    if command := known.get("command"):
        lines += ["```", ABSOLUTE.sub("", " ".join(map(str, command))), "```", ""]
    return lines


def _config(run: runs.TrainedModel) -> list[str]:
    changed = configs.differences(configs.to_dict(knobs.Config()), configs.to_dict(run.config))
    if "foreign" in run.meta or not changed:
        return []
    rows = {
        f"`{path}`": f"`{ABSOLUTE.sub('', json.dumps(new))}`" for path, (_, new) in changed.items()
    }
    lines = ["## Config", "", "Knobs that differ from the defaults.", ""]
    return [*lines, *_table({"knob": "value"} | rows), ""]


def _on_hub(source: str) -> str:
    """Return the hub's name of a model that came from there; empty for folders and files."""
    import huggingface_hub

    match = huggingface.HUB_NAME.fullmatch(source)
    name = (match[1] or match[2]) if match and not Path(source).exists() else ""
    with contextlib.suppress(ValueError):  # the hub allows no such name
        if "/" in name:
            found = huggingface_hub.try_to_load_from_cache(name, "config.json")
            return name if isinstance(found, str) else ""
    return ""


def _corpora(run: runs.TrainedModel) -> list[tuple[str, str]]:
    """List the sources of text that the run read itself, without the folders of this machine."""
    corpus, task = run.config.corpus, run.config.task
    if "foreign" in run.meta:
        return []
    if conditions.kind_of(run.config):
        kind, _, place = task.source.partition(":")
        bare = re.sub(r"[^\s,=|]*/", "", place) if kind == "files" else place
        return [(kind, " ".join(filter(None, (task.name, bare))))]
    if corpus.source == "hub":
        return [("hub", path.strip().partition(":")[0]) for path in corpus.path.split(",")]
    bare = Path(corpus.path).name if corpus.source == "files" else corpus.path
    return [(corpus.source, bare)]


def _data(run: runs.TrainedModel) -> str:
    """Say what the model learned from."""
    if "foreign" in run.meta:
        return f"Trained elsewhere: the card of `{_title(run)}` says on what."
    c = run.config
    named = [f"`{kind}: {name}`" if name else f"`{kind}`" for kind, name in _corpora(run)]
    source = f"{', '.join(named)}{f' at {c.corpus.revision}' * bool(c.corpus.revision)}"
    if conditions.kind_of(c):
        before = f" What it knew before came with `{_bare(c.init_from)}`." * bool(c.init_from)
        return f"Labelled data: {source}.{before}"
    if c.corpus.source == "docstrings":
        source += ", the docstrings of Python and of packages installed beside it,"
    rows = f"{c.steps:,} updates of {c.batch_size} rows of at most {c.sequence_length} tokens"
    return f"Text of {source} by {rows}."


def _limits(run: runs.TrainedModel) -> list[str]:
    """List what the model cannot do, as far as the run shows it."""
    c = run.config
    length = min(run.longest, c.sequence_length)
    limits = [
        f"A text has at most {length} tokens; what lies beyond has to be cut or divided.",
        "It knows the language and subjects of its data, and their errors and prejudices: nothing "
        "was done against these, and nothing here measures them.",
    ]
    if "foreign" not in run.meta:
        seed = "It is one run with one seed; another seed gives other numbers."
        early = f"Training was to go on: this is step {run.step:,} of {c.steps:,}."
        limits += [early, seed] if run.step < c.steps else [seed]
        limits.append("No objective trained its vectors of sentences; test them before use.")
    if names := [name for head in c.objectives.values() for name in head.labels]:
        limits.append(f"It answers with one of {', '.join(names)}, whatever the text is.")
    elif "mlm" in c.objectives:
        limits.append("It fills masks; sentences that it is asked to write are not its task.")
    return [f"- {limit}" for limit in limits]


def _licence(licence: str) -> str:
    stated = f"`{licence}`, as its author says." if licence else "Its author has not stated one."
    return f"{stated} The code that trained it is Apache-2.0; its data have terms of their own."


def _evaluation(run: runs.TrainedModel) -> list[str]:
    """Say what was measured, how, and the results."""
    lines = ["## Held-out evaluation", ""]
    metrics, c = _metrics(run), run.config
    if not metrics:
        return [*lines, "None is on record for this step.", ""]
    for name, settings in c.evals.items():
        if conditions.kind_of(c):
            how = f"every row of the split `{settings.split}` of the data above, once"
        else:
            share = f"{100 * c.corpus.validation_fraction:.3g} %"
            how = f"every example of the {share} of documents that are held out by hash, once"
            if "mlm" in c.objectives:
                masks = f"masks on {settings.rate:.0%} of the tokens, always the same"
                how += f", with {masks} (unit {settings.unit}, seed {settings.seed})"
        lines += [f"`{name}`, after update {run.step:,}: {how}.", ""]
    lines += ["Losses are in nats; `unigram_` and `majority_` are baselines.", ""]
    return [*lines, *_table({"metric": "value"} | metrics), ""]


def _title(run: runs.TrainedModel) -> str:
    """Return the model's name, without the folders of this machine before it."""
    source = run.meta.get("foreign", "")
    if source and not Path(source).exists():
        return source
    return Path(source or run.folder).resolve().name


def _bare(path: str) -> str:
    """Return a hub's name as it is, and a path without the folders of this machine."""
    return _on_hub(path) or Path(path).name


def _origin(run: runs.TrainedModel, family: Family) -> str:
    m = run.config.model
    layers = f"{m.layers} layer{'' if m.layers == 1 else 's'} of {m.hidden}"
    shape = f"{family.title} with {layers} ({m.heads} heads, feed-forward {m.mlp})"
    heads = ", ".join(run.config.objectives) or "none"
    model = f"{shape}, heads: {heads}"
    if "foreign" in run.meta:
        return f"{model}. Converted by bert_jax from `{_title(run)}`; trained elsewhere."
    base = run.config.init_from
    start = f", starting from `{_bare(base)}`" if base else ", from random parameters"
    steps = f"step {run.step:,} of {run.config.steps:,}"
    verb = "Fine-tuned" if conditions.kind_of(run.config) else "Pre-trained"
    origin = f"{model}. {verb} with bert_jax{start}; {steps}."
    if run.from_left is None:
        return origin
    share = run.meta["config"]["objectives"]["hybrid"]["share"]
    return (
        f"{origin} One head learned masks, and with a share of {share:g} of causal examples to go "
        "on with a text. These files hold it as a masked model, which sees the whole text; from "
        "left to right the same parameters take a causal attention mask."
    )


def _metrics(run: runs.TrainedModel) -> dict[str, str]:
    """Read the evaluations of the checkpoint's own step."""
    file = run.folder / "metrics.jsonl"
    if "foreign" in run.meta or not file.exists():
        return {}
    rows = [row for row in records.rows(file) if row["step"] == run.step]
    return {
        name.removeprefix("eval/"): f"{value:,}" if isinstance(value, int) else rounded(value, 4)
        for row in rows
        for name, value in row.items()
        if name.startswith("eval/") and isinstance(value, (int, float))
    }


def _table(rows: dict[str, str]) -> list[str]:
    escaped = {key: value.replace("|", "\\|") for key, value in rows.items()}
    first, *rest = [f"| {key} | {value} |" for key, value in escaped.items()]
    return [first, "|---|---|", *rest]
