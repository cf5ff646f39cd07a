"""The model card: the README of an exported model, with its run, config, evaluation and usage."""

from __future__ import annotations

import json
from pathlib import Path

from bert_jax import config as configs
from bert_jax.config import knobs
from bert_jax.errors import CheckpointError
from bert_jax.interop import runs
from bert_jax.reporting import records
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


def text(run: runs.TrainedModel, parameters: int, pipeline: str) -> str:
    """Write the card from what the run knows of itself, and nothing else."""
    lines = [
        *("---", "library_name: transformers", f"pipeline_tag: {pipeline}"),
        *("tags:", "- bert", "- jax", "- sentence-transformers", "---", ""),
        f"# {_title(run)}",
        "",
        _origin(run),
        "",
        f"{parameters:,} parameters, {run.tokenizer.size:,} pieces of vocabulary, "
        f"{'lower-cased' if run.tokenizer.lowercase else 'cased'} text.",
        "",
        "```python",
        "from transformers import AutoModel, AutoTokenizer",
        "",
        'model, tokenizer = (kind.from_pretrained("THIS_FOLDER") '
        "for kind in (AutoModel, AutoTokenizer))",
        "```",
        "",
    ]
    file = run.folder / "environment.json"
    if file.exists() and "foreign" not in run.meta:
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
        lines += ["## Run", "", *_table(rows), ""]
        if command := known.get("command"):
            lines += ["```", " ".join(map(str, command)), "```", ""]
    metrics = _metrics(run)
    if metrics:
        lines += ["## Held-out evaluation", "", *_table({"metric": "value"} | metrics), ""]
    default = configs.to_dict(knobs.Config())
    changed = configs.differences(default, configs.to_dict(run.config))
    if "foreign" not in run.meta and changed:
        rows = {f"`{path}`": f"`{json.dumps(new)}`" for path, (_, new) in changed.items()}
        lines += ["## Config", "", "Knobs that differ from the defaults.", ""]
        lines += [*_table({"knob": "value"} | rows), ""]
    return "\n".join(lines)


def _title(run: runs.TrainedModel) -> str:
    """Return the model's name, without the folders of this machine before it."""
    source = run.meta.get("foreign", "")
    if source and not Path(source).exists():
        return source
    return Path(source or run.folder).resolve().name


def _origin(run: runs.TrainedModel) -> str:
    m = run.config.model
    layers = f"{m.layers} layer{'' if m.layers == 1 else 's'} of {m.hidden}"
    shape = f"BERT with {layers} ({m.heads} heads, feed-forward {m.mlp})"
    heads = ", ".join(run.config.objectives) or "none"
    model = f"{shape}, heads: {heads}"
    if "foreign" in run.meta:
        return f"{model}. Converted by bert_jax from `{_title(run)}`; trained elsewhere."
    start = f", starting from `{Path(run.config.init_from).name}`" if run.config.init_from else ""
    steps = f"step {run.step:,} of {run.config.steps:,}"
    origin = f"{model}. Pre-trained with bert_jax{start}; {steps}."
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
        name.removeprefix("eval/"): f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
        for row in rows
        for name, value in row.items()
        if name.startswith("eval/") and isinstance(value, (int, float))
    }


def _table(rows: dict[str, str]) -> list[str]:
    escaped = {key: value.replace("|", "\\|") for key, value in rows.items()}
    first, *rest = [f"| {key} | {value} |" for key, value in escaped.items()]
    return [first, "|---|---|", *rest]
