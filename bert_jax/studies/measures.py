"""Metrics that each evaluation of a study has: a comparison by another would never be made."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from bert_jax.config import knobs, suggest
from bert_jax.data import tasks
from bert_jax.errors import ConfigError
from bert_jax.studies.spec import BUDGET, Cell, Finetune, Study, Suite
from bert_jax.suites import OF_TASKS, SUITES

READING = ("mlm", "causal_lm")  # objectives over words; the others but one are over pairs
DETECTING = (
    *("replaced_precision", "replaced_recall", "replaced_fraction"),
    *("replaced_majority_accuracy", "replaced_base_rate_loss"),
)


def metrics(evaluation: Suite | Finetune, objectives: Collection[str]) -> Sequence[str]:
    """List the metrics of an evaluation, as patterns.

    Args:
      evaluation: the evaluation.
      objectives: names of the objectives of the cells.
    """
    if isinstance(evaluation, Finetune):
        row = tasks.list_knobs(evaluation.task) | dict(evaluation.changes)
        kind = tasks.TASKS[evaluation.task].kind
        return (*(row.get("task.metrics") or knobs.METRICS[kind]), *OF_TASKS.split())
    if evaluation.name != "pretrain":
        return SUITES[evaluation.name].metrics
    names: list[str] = []
    for name in objectives:
        names += [f"{name}_loss", f"{name}_accuracy"]
        if name in READING:
            names += [f"{name}_predictions", "unigram_loss", "unigram_accuracy"]
        if name == "causal_lm":  # of a hybrid model, beside those of its masks
            names += ["causal_lm_unigram_loss", "causal_lm_unigram_accuracy"]
        if name == "replaced":
            names += DETECTING
        elif name not in READING:
            names += [f"{name}_accuracy_low", f"{name}_accuracy_high", "majority_accuracy"]
    return list(dict.fromkeys([*names, "examples"]))


def possible(cell: Cell, evaluations: Mapping[str, Any]) -> dict[str, Any]:
    """Return the evaluations of a cell, of those that study.json records.

    They are those of its budget, whose head its model has.
    """
    return {
        name: {key: value for key, value in record.items() if key != "budgets"}
        for name, record in evaluations.items()
        if _of_budget(cell, record) and not _missing_head(cell, record)
    }


def left_out(cells: Sequence[Cell], evaluations: Mapping[str, Any]) -> list[str]:
    """Return a line for each evaluation that is not made of all cells."""
    lines = []
    for name, record in evaluations.items():
        made = [cell for cell in cells if _of_budget(cell, record)]
        if len(made) < len(cells):
            amounts = " and ".join(f"{amount:,.12g}" for amount in record["budgets"])
            share = f"{len(made)} of {len(cells)} cells"
            lines.append(f"{name} is made after a budget of {amounts} alone ({share})")
        if without := sum(bool(_missing_head(cell, record)) for cell in made):
            head, share = SUITES[record["name"]].head, f"{without} of {len(cells)} cells"
            lines.append(f"{name} is left out for models without an {head} head ({share})")
    return lines


def _of_budget(cell: Cell, record: Mapping[str, Any]) -> bool:
    return not record.get("budgets") or cell.values.get(BUDGET) in record["budgets"]


def _missing_head(cell: Cell, record: Mapping[str, Any]) -> str:
    """Return the head that an evaluation reads and the model of a cell lacks."""
    head = SUITES[record["name"]].head if record["kind"] == "suite" else ""
    return head if head and head not in cell.config.heads else ""


def check(study: Study, objectives: Collection[str]) -> None:
    """Refuse a comparison by a metric that its evaluation does not have."""
    compared = [metric for comparison in study.comparisons for metric in comparison.metrics]
    for metric in [*compared, *(claimed.metric for claimed in study.claims)]:
        name, _, rest = metric.partition("/")
        known = metrics(study.evaluations[name], objectives)
        if not any(fnmatchcase(rest, pattern) for pattern in known):
            message = f"evaluation {name!r} has no metric {rest!r}"
            raise ConfigError(message, suggest(rest, known))
