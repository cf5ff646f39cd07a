"""The model card, which is the README of an exported model.

The card says how to load the model, and states its origin, data, limits, licence, evaluation and
config.
"""

import contextlib
import json
import re
from pathlib import Path

from bert_jax import config as configs
from bert_jax.config import knobs
from bert_jax.interop import huggingface, runs
from bert_jax.interop.families import Family
from bert_jax.reporting import records
from bert_jax.reporting.formats import escape_markdown, rounded

ABSOLUTE = re.compile(r"(?<![\w.~/-])~?/(?:[^\s\"',=|/]+/)+")  # folders of this machine
NONE = "None is on record for this step."
HYBRID = (
    "These files hold it as a masked model, which sees the whole text; from left to right the same "
    "parameters take a causal attention mask."
)
OWN_LIMITS = """\
- Unless its data are pairs of sentences, no objective trained its vectors of sentences.
- It is one run with one seed; another seed gives other numbers.
"""
TEXT = """\
---
{data}
---

# {title}

{family} with {model.layers} layers of {model.hidden} ({model.heads} heads, feed-forward \
{model.mlp}), heads: {heads}. {origin}

{parameters:,} parameters, {pieces:,} pieces of vocabulary, {case} text.

```python
from transformers import AutoTokenizer, {loader}

model = {loader}.from_pretrained("{place}"{trust})
tokenizer = AutoTokenizer.from_pretrained("{place}")
```

## Data

{learned}

## Limits

- A text has at most {length} tokens; what lies beyond has to be cut or divided.
- It knows the language and subjects of its data, and their errors and prejudices: nothing was \
done against these, and nothing here measures them.
{own_limits}{limits}
## Licence

{licence}{code} The training data have terms of their own.

## Held-out evaluation

{evaluation}
{config}"""


def write_card(
    run: runs.TrainedModel,
    family: Family,
    parameters: int,
    architecture: str,
    pipeline: str,
    licence: str = "",
    repository: str = "",
) -> str:
    """Return the text of the model card, made from the facts that the run has recorded.

    Args:
      run: the model.
      family: the family in whose format the model is exported.
      parameters: the number of parameters.
      architecture: the class of transformers that has all heads of the model.
      pipeline: the task on the hub that the model is for.
      licence: the hub's name of the licence, as the author states it; "" for an unknown licence.
      repository: ORG/NAME on the hub, if the model is uploaded.
    """
    from huggingface_hub import ModelCardData

    config = run.config
    source = run.meta.get("foreign", config.init_from)
    base = _find_on_hub(source)
    corpora = [] if "foreign" in run.meta else _list_corpora(config)
    facts = _state_facts(run, base or Path(source).name, corpora)
    if repository:
        facts["title"] = repository.rpartition("/")[2]
    data = ModelCardData(
        library_name="transformers",
        pipeline_tag=pipeline,
        license=licence or "unknown",
        base_model=base or None,
        datasets=sorted(name for kind, name in corpora if kind == "hub") or None,
        tags=[family.model_type, "jax", "sentence-transformers"],
    )
    heads = config.objectives.values()
    labels = [escape_markdown(label) for head in heads for label in head.labels]
    return TEXT.format(
        **facts,
        data=data.to_yaml(),
        family=family.title,
        model=config.model,
        heads=", ".join(config.objectives) or "none",
        parameters=parameters,
        pieces=run.tokenizer.size,
        case="lower-cased" if run.tokenizer.lowercase else "cased",
        loader=family.auto_classes.get(architecture, architecture),
        trust=", trust_remote_code=True" if architecture in family.auto_classes else "",
        place=repository or "THIS_FOLDER",
        length=min(run.longest, config.sequence_length),
        limits=f"- It answers with one of {', '.join(labels)}, always.\n" if labels else "",
        licence=f"`{licence}`, as its author says." if licence else "Its author has stated none.",
    )


def _state_facts(
    run: runs.TrainedModel, origin: str, corpora: list[tuple[str, str]]
) -> dict[str, str]:
    """Return the facts that differ between a run of ours and a model that others trained.

    `origin` names the model that others trained, or that the run began from.
    """
    if "foreign" in run.meta:
        return {
            "title": origin,
            "origin": f"Converted by bert_jax from `{origin}`.",
            "learned": f"See the card of `{origin}`.",
            "own_limits": "",
            "code": "",
            "evaluation": NONE,
            "config": "",
        }
    return {
        "title": run.folder.resolve().name,
        "origin": _state_training(run, origin),
        "learned": _state_data(run, corpora),
        "own_limits": OWN_LIMITS,
        "code": " The code that trained it is Apache-2.0.",
        "evaluation": _state_evaluation(run),
        "config": _state_config(run.config),
    }


def _find_on_hub(source: str) -> str:
    """Return the hub's name of a model that was downloaded from the hub; "" for other models."""
    import huggingface_hub
    from huggingface_hub.errors import HFValidationError

    match = huggingface.HUB_NAME.fullmatch(source)
    if match is None or Path(source).exists():
        return ""
    name = match[1] or match[2]
    cached = None
    with contextlib.suppress(HFValidationError):  # the hub allows no such name
        cached = huggingface_hub.try_to_load_from_cache(name, "config.json")
    return name if isinstance(cached, str) and "/" in name else ""


def _state_training(run: runs.TrainedModel, base: str) -> str:
    """Describe how the model was trained, and from which parameters it started."""
    start = f"starting from `{base}`" if base else "from random parameters"
    verb = "Fine-tuned" if run.config.kind else "Pre-trained"
    said = f"{verb} with bert_jax, {start}; step {run.step:,} of {run.config.steps:,}."
    return f"{said} {HYBRID}" if run.from_left else said


def _list_corpora(config: knobs.Config) -> list[tuple[str, str]]:
    """List (kind, name) of the texts that the run trained on, without folders of this machine."""
    if config.kind:
        kind, _, place = config.task.source.partition(":")
        bare = re.sub(r"[^\s,=|]*/", "", place) if kind == "files" else place
        return [(kind, f"{config.task.name} {bare}".strip())]
    corpus = config.corpus
    if corpus.source == "hub":
        return [("hub", path.strip().partition(":")[0]) for path in corpus.path.split(",")]
    return [(corpus.source, Path(corpus.path).name if corpus.source == "files" else corpus.path)]


def _state_data(run: runs.TrainedModel, corpora: list[tuple[str, str]]) -> str:
    """Describe the data that the model was trained on."""
    config = run.config
    source = ", ".join(f"`{kind}: {name}`" if name else f"`{kind}`" for kind, name in corpora)
    if config.kind:
        return f"Labelled data: {source}."
    if config.corpus.revision:
        source += f" at {config.corpus.revision}"
    rows = f"{config.batch_size} rows of at most {config.sequence_length} tokens"
    return f"Text of {source} by {run.step:,} updates of {rows}."


def _state_evaluation(run: runs.TrainedModel) -> str:
    """Write the metrics recorded at the checkpoint's step, and how they were measured."""
    file = run.folder / "metrics.jsonl"
    metrics = {}
    for row in records.read_rows(file) if file.exists() else ():
        for name, value in row.items():
            is_known = isinstance(value, (int, float))  # null is no number
            if row["step"] == run.step and name.startswith("eval/") and is_known:
                text = f"{value:,}" if isinstance(value, int) else rounded(value, 4)
                metrics[name.removeprefix("eval/")] = text
    if not metrics:
        return NONE
    lines = [f"After update {run.step:,}. Losses are in nats; `unigram_` and `majority_` are"]
    lines += ["baselines.", ""]
    for name, settings in run.config.evals.items():
        how = "every example of the documents that are held out"
        if run.config.kind:
            how = f"every row of the split `{settings.split}` of the data above"
        elif "mlm" in run.config.objectives:
            how += f", masked at {100 * settings.rate:g} %"
        lines += [f"`{name}`: {how}.", ""]
    return "\n".join([*lines, _make_table("metric", metrics), ""])


def _state_config(config: knobs.Config) -> str:
    """Write a table of the knobs that differ from the defaults."""
    changed = configs.differences(configs.to_dict(knobs.Config()), configs.to_dict(config))
    rows = {}
    for path, (_, new) in changed.items():
        rows[f"`{path}`"] = f"`{ABSOLUTE.sub('', json.dumps(new))}`"
    heading = "\n## Config\n\nKnobs that differ from the defaults.\n\n"
    return f"{heading}{_make_table('knob', rows)}\n" if rows else ""


def _make_table(heading: str, rows: dict[str, str]) -> str:
    """Write names and values as a Markdown table."""
    lines = [f"| {heading} | value |", "|---|---|"]
    for name, value in rows.items():
        escaped = value.replace("|", "\\|")
        lines.append(f"| {name} | {escaped} |")
    return "\n".join(lines)
