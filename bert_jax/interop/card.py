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
from bert_jax.interop import huggingface, runs
from bert_jax.interop.families import Family
from bert_jax.interop.json_files import read_json
from bert_jax.reporting import records
from bert_jax.reporting.formats import rounded

ABSOLUTE = re.compile(r"(?<![\w.~/-])~?/(?:[^\s\"',=|/]+/)+")  # folders of this machine
TEXT = """\
# {title}

{origin}

{parameters:,} parameters, {pieces:,} pieces of vocabulary, {case} text.

```python
from transformers import AutoTokenizer, {architecture}

model = {architecture}.from_pretrained("{place}")
tokenizer = AutoTokenizer.from_pretrained("{place}")
```

## Data

{data}

## Limits

- A text has at most {length} tokens; what lies beyond has to be cut or divided.
- It knows the language and subjects of its data, and their errors and prejudices: nothing was \
done against these, and nothing here measures them.
{limits}

## Licence

{licence} The code that trained it is Apache-2.0; its data have terms of their own.

## Held-out evaluation

{evaluation}
"""


def write_card(
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
      family: the family that it is written as.
      parameters: their number.
      architecture: the class of transformers that has all its heads.
      pipeline: the task of the hub that it is for.
      licence: the hub's name of the licence, as its author says; empty is not said.
      repository: ORG/NAME on the hub, if it goes there.
    """
    from huggingface_hub import ModelCardData

    c, m = run.config, run.config.model
    is_ours = "foreign" not in run.meta
    source = c.init_from if is_ours else run.meta["foreign"]
    base = _find_on_hub(source)
    corpora = _list_corpora(c) if is_ours else []
    data = ModelCardData(
        library_name="transformers",
        pipeline_tag=pipeline,
        license=licence or "unknown",
        base_model=base or None,
        datasets=sorted(name for kind, name in corpora if kind == "hub") or None,
        tags=[family.model_type, "jax", "sentence-transformers"],
    )
    name = base or Path(source).name
    layers = f"{m.layers} layer{'' if m.layers == 1 else 's'} of {m.hidden}"
    heads = ", ".join(c.objectives) or "none"
    shape = f"{family.title} with {layers} ({m.heads} heads, feed-forward {m.mlp}), heads: {heads}"
    if is_ours:
        origin = f"{shape}. {_state_training(run, name)}"
        learned = _state_data(c, corpora)
    else:
        origin = f"{shape}. Converted by bert_jax from `{name}`; trained elsewhere."
        learned = f"Trained elsewhere: the card of `{name}` says on what."
    stated = f"`{licence}`, as its author says." if licence else "Its author has not stated one."
    text = TEXT.format(
        title=repository.rpartition("/")[2] or (run.folder.resolve().name if is_ours else name),
        origin=origin,
        parameters=parameters,
        pieces=run.tokenizer.size,
        case="lower-cased" if run.tokenizer.lowercase else "cased",
        architecture=architecture,
        place=repository or "THIS_FOLDER",
        data=learned,
        length=min(run.longest, c.sequence_length),
        limits="\n".join(f"- {limit}" for limit in _list_limits(run, is_ours)),
        licence=stated,
        evaluation=_state_evaluation(run) if is_ours else "None is on record for this step.",
    )
    text += _state_run(run) if is_ours else ""
    return f"---\n{data.to_yaml()}\n---\n\n{text}"


# --- where it comes from --------------------------------------------------------------------------


def _find_on_hub(source: str) -> str:
    """Return the hub's name of a model that came from there; empty for folders and files."""
    import huggingface_hub

    match = huggingface.HUB_NAME.fullmatch(source)
    name = (match[1] or match[2]) if match and not Path(source).exists() else ""
    with contextlib.suppress(ValueError):  # the hub allows no such name
        if "/" in name:
            found = huggingface_hub.try_to_load_from_cache(name, "config.json")
            return name if isinstance(found, str) else ""
    return ""


def _state_training(run: runs.TrainedModel, base: str) -> str:
    """Say how the model was trained, and from what it started."""
    start = f"starting from `{base}`" if base else "from random parameters"
    verb = "Fine-tuned" if conditions.kind_of(run.config) else "Pre-trained"
    said = f"{verb} with bert_jax, {start}; step {run.step:,} of {run.config.steps:,}."
    if run.from_left is None:
        return said
    share = run.meta["config"]["objectives"]["hybrid"]["share"]
    return (
        f"{said} One head learned masks, and with a share of {share:g} of causal examples to go "
        "on with a text. These files hold it as a masked model, which sees the whole text; from "
        "left to right the same parameters take a causal attention mask."
    )


def _list_corpora(c: knobs.Config) -> list[tuple[str, str]]:
    """List kinds and names of the texts that the run read, without folders of this machine."""
    if conditions.kind_of(c):
        kind, _, place = c.task.source.partition(":")
        bare = re.sub(r"[^\s,=|]*/", "", place) if kind == "files" else place
        return [(kind, f"{c.task.name} {bare}".strip())]
    if c.corpus.source == "hub":
        return [("hub", path.strip().partition(":")[0]) for path in c.corpus.path.split(",")]
    bare = Path(c.corpus.path).name if c.corpus.source == "files" else c.corpus.path
    return [(c.corpus.source, bare)]


def _state_data(c: knobs.Config, corpora: list[tuple[str, str]]) -> str:
    """Say what the model learned from."""
    source = ", ".join(f"`{kind}: {name}`" if name else f"`{kind}`" for kind, name in corpora)
    if c.corpus.revision:
        source += f" at {c.corpus.revision}"
    if conditions.kind_of(c):
        return f"Labelled data: {source}."
    if c.corpus.source == "docstrings":
        source += ", the docstrings of Python and of packages installed beside it,"
    rows = f"{c.steps:,} updates of {c.batch_size} rows of at most {c.sequence_length} tokens"
    return f"Text of {source} by {rows}."


def _list_limits(run: runs.TrainedModel, is_ours: bool) -> list[str]:
    """List what the model cannot do, as far as the run shows it."""
    c = run.config
    limits = []
    if is_ours:
        if run.step < c.steps:
            limits.append(f"Training was to go on: this is step {run.step:,} of {c.steps:,}.")
        limits.append("It is one run with one seed; another seed gives other numbers.")
        limits.append("No objective trained its vectors of sentences; test them before use.")
    names = [name for head in c.objectives.values() for name in head.labels]
    if names:
        limits.append(f"It answers with one of {', '.join(names)}, whatever the text is.")
    elif "mlm" in c.objectives:
        limits.append("It fills masks; sentences that it is asked to write are not its task.")
    return limits


# --- what was measured ----------------------------------------------------------------------------


def _state_evaluation(run: runs.TrainedModel) -> str:
    """Say what was measured at the checkpoint's own step, how, and the results."""
    file = run.folder / "metrics.jsonl"
    c = run.config
    metrics = {"metric": "value"}
    for row in records.rows(file) if file.exists() else ():
        for name, value in row.items():
            measured = name.startswith("eval/") and isinstance(value, (int, float))
            if row["step"] == run.step and measured:
                text = f"{value:,}" if isinstance(value, int) else rounded(value, 4)
                metrics[name.removeprefix("eval/")] = text
    if len(metrics) == 1:
        return "None is on record for this step."
    lines = []
    for name, settings in c.evals.items():
        share = f"{100 * c.corpus.validation_fraction:.3g} %"
        how = f"every example of the {share} of documents that are held out by hash, once"
        if conditions.kind_of(c):
            how = f"every row of the split `{settings.split}` of the data above, once"
        elif "mlm" in c.objectives:
            masks = f"masks on {settings.rate:.0%} of the tokens, always the same"
            how += f", with {masks} (unit {settings.unit}, seed {settings.seed})"
        lines += [f"`{name}`, after update {run.step:,}: {how}.", ""]
    lines += ["Losses are in nats; `unigram_` and `majority_` are baselines.", ""]
    return "\n".join([*lines, _make_table(metrics)])


def _state_run(run: runs.TrainedModel) -> str:
    """Say with what the model was trained: its code and data, and knobs that were set."""
    environment = run.folder / "environment.json"
    text = ""
    if environment.exists():
        known = read_json(environment)
        code = f"bert-jax {known['versions']['bert-jax']}, commit {known['git_commit']}"
        prints = f"data fingerprint `{known['corpus']}`, tokenizer `{known['tokenizer']}`"
        text = f"\n## Run\n\n{code}; {prints}; on {', '.join(known['machine']['devices'])}.\n"
    changed = configs.differences(configs.to_dict(knobs.Config()), configs.to_dict(run.config))
    rows = {"knob": "value"}
    for path, (_, new) in changed.items():
        rows[f"`{path}`"] = f"`{ABSOLUTE.sub('', json.dumps(new))}`"
    heading = "\n## Config\n\nKnobs that differ from the defaults.\n\n"
    return f"{text}{heading}{_make_table(rows)}\n" if changed else text


def _make_table(rows: dict[str, str]) -> str:
    """Make a table of two columns; the first row is its heading."""
    escaped = {key: value.replace("|", "\\|") for key, value in rows.items()}
    first, *rest = [f"| {key} | {value} |" for key, value in escaped.items()]
    return "\n".join([first, "|---|---|", *rest])
