"""The evaluations of a study: their checks, the cells that have them, and their metrics."""

import itertools
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from bert_jax import config as configs
from bert_jax import recipes, suites
from bert_jax.config import knobs, table, validation
from bert_jax.data import files, rows, tasks
from bert_jax.errors import ConfigError, DataError, UserError, need
from bert_jax.reporting.metric_names import need_direction
from bert_jax.studies.spec import BUDGET, Cell, Finetune, Study, Suite, check_known
from bert_jax.system import opening

READING = ("mlm", "causal_lm")  # objectives over words
# Endings of the metrics that suite pretrain has of each objective, and its other metrics.
OF_OBJECTIVE = (
    "loss accuracy accuracy_low accuracy_high predictions unigram_loss unigram_accuracy precision "
    "recall fraction majority_accuracy base_rate_loss"
)
OF_ALL = "examples unigram_loss unigram_accuracy majority_accuracy"
Records = Mapping[str, Mapping[str, Any]]  # evaluations by name, as study.json has them


def record_evaluations(study: Study) -> dict[str, dict[str, Any]]:
    """Make the record of each evaluation of a study for study.json, as {evaluation: record}."""
    records: dict[str, dict[str, Any]] = {}
    for name, evaluation in study.evaluations.items():
        if isinstance(evaluation, Suite):
            ask = dict(evaluation.ask)
            records[name] = {"kind": "suite", "name": evaluation.name, "ask": ask}
        else:
            changes = dict(evaluation.changes)
            records[name] = {"kind": "finetune", "task": evaluation.task, "changes": changes}
        if evaluation.budgets:
            records[name]["budgets"] = evaluation.budgets
    return json.loads(json.dumps(records))


def select_evaluations(
    records: Records, config: knobs.Config, values: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Select from `records` the evaluations that a cell gets; return {evaluation: record}.

    An evaluation may be limited to some budgets, and its head must be in the cell's model. `values`
    are the cell's values on the axes.
    """
    chosen = {}
    for name, record in records.items():
        head = suites.SUITES[record["name"]].head if record["kind"] == "suite" else ""
        budgets = record.get("budgets") or [values.get(BUDGET)]
        if values.get(BUDGET) in budgets and suites.has_head(config.heads, head):
            chosen[name] = {key: value for key, value in record.items() if key != "budgets"}
    return chosen


def describe_left_out(cells: Sequence[Cell], records: Records) -> list[str]:
    """Return a line for each evaluation that is made for only some of the cells."""
    lines = []
    for name in records:
        made = sum(name in cell.evaluations for cell in cells)
        if made < len(cells):
            reason = "the others have another budget, or no head for it"
            lines.append(f"{name} is made for {made} of {len(cells)} cells: {reason}")
    return lines


# --- what is refused ------------------------------------------------------------------------------


def check_evaluations(study: Study) -> None:
    """Refuse a study with invalid evaluations, before its cells are made."""
    budget = study.budget
    amounts = budget.amounts if budget and isinstance(budget.amount, tuple) else ()
    hint = f"the amounts that vary are {', '.join(f'{each:g}' for each in amounts) or 'none'}"
    for name, evaluation in study.evaluations.items():
        plain = re.fullmatch(r"\w+", name) is not None
        need(plain, f"{name!r} names an evaluation", "letters, digits and _ only")
        for amount in evaluation.budgets:
            said = f"evaluation {name!r} is made after a budget of {amount!r}"
            need(amount in amounts, said, hint)
        changes = dict(evaluation.changes) if isinstance(evaluation, Finetune) else {}
        if isinstance(evaluation, Suite):
            ask = dict(evaluation.ask)
            _check_options(evaluation)
            for path, text in ask.get("changes", ()):
                changes[path] = table.read_text(path, text)
                validation.check_evaluation(path)
        else:
            check_known(evaluation.task, tasks.TASKS, f"no task {evaluation.task!r}")
        for path, value in changes.items():
            configs.check_knob(path, value)


def _check_options(suite: Suite) -> None:
    """Refuse options that a suite ignores or a study may not set, and values of a wrong type."""
    suites.build_options([suite.name], **dict(suite.ask))
    asked = [name for name, row in suites.SUITES.items() if row.finds]
    check_known(suite.name, asked, f"no suite {suite.name!r} for a study")
    kinds = {name: type(field.default) for name, field in suites.list_options().items()}
    for name, value in suite.ask:
        said = f"suite {suite.name}: {name} = {value!r}"
        need(name not in ("config", "submission"), said, "a study has no such option")
        need(type(value) is kinds[name], said, f"a value of type {kinds[name].__name__}")


def list_finetunings(study: Study, cells: Iterable[knobs.Config]) -> list[tuple[str, knobs.Config]]:
    """List (evaluation, config) of every fine-tuning of the cells; refuse an invalid recipe."""
    tuned = {n: e for n, e in study.evaluations.items() if isinstance(e, Finetune)}
    starts = {config.model: config for config in cells}.values()
    resolved = []
    for (name, evaluation), start in itertools.product(tuned.items(), starts):
        try:
            changes = dict(evaluation.changes)
            config = configs.resolve(recipes.finetuning(evaluation.task, "a cell", changes, start))
            validation.check_trainable(config)
        except ConfigError as error:
            raise ConfigError(f"evaluation {name!r}: {error}", error.hint) from error
        resolved.append((name, config))
    return resolved


def check_metrics(study: Study, objectives: Collection[str]) -> None:
    """Refuse a comparison or a claim with a metric that its evaluation does not have."""
    compared = [metric for comparison in study.comparisons for metric in comparison.metrics]
    claimed = [one.metric for one in study.claims]
    for metric in [*compared, *claimed]:
        name, _, rest = metric.partition("/")
        hint = f"EVALUATION/METRIC; evaluations are {', '.join(study.evaluations)}"
        named = name in study.evaluations and bool(rest)
        need(named, f"{metric!r} names no evaluation of the study", hint)
        known = list_metrics(study.evaluations[name], objectives)
        if not any(fnmatchcase(rest, pattern) for pattern in known):
            check_known(rest, known, f"evaluation {name!r} has no metric {rest!r}")
    for metric in claimed:
        need_direction(metric)


def list_metrics(evaluation: Suite | Finetune, objectives: Collection[str]) -> list[str]:
    """List patterns that match the names of the metrics of an evaluation.

    `objectives` are the objectives of the cells that are evaluated.
    """
    if isinstance(evaluation, Finetune):
        row = tasks.list_knobs(evaluation.task) | dict(evaluation.changes)
        usual = knobs.METRICS[tasks.TASKS[evaluation.task].kind]
        return [*(row.get("task.metrics") or usual), *suites.OF_TASKS.split()]
    if evaluation.name != "pretrain":
        return suites.SUITES[evaluation.name].finds.split()
    named = itertools.product(objectives, OF_OBJECTIVE.split())
    return [*(f"{objective}_{ending}" for objective, ending in named), *OF_ALL.split()]


# --- data that has to be here ---------------------------------------------------------------------


def check_sources(study: Study, cells: Sequence[Cell]) -> None:
    """Refuse a study whose cells or evaluations need local files that do not exist.

    Sources outside this machine, such as TFDS, are not checked.
    """
    trained = [cell.config for cell in cells]
    for config in {(c.corpus, c.tokenizer.path, c.task.source): c for c in trained}.values():
        _check_data(config)
    for name, config in list_finetunings(study, trained):
        try:
            _check_data(config)
        except UserError as error:
            raise type(error)(f"evaluation {name!r}: {error}", error.hint) from error
    for name, evaluation in study.evaluations.items():
        source = dict(evaluation.ask).get("source", "") if isinstance(evaluation, Suite) else ""
        path = source.removeprefix("files:")
        plain = path != source and not set("{*?[=") & set(path)  # no pattern, no files by split
        if cells and plain and not opening.expand_home(path).exists():
            problem = f"evaluation {name!r}: source {source!r} does not exist"
            raise DataError(problem, "files:FILE, FOLDER or PATTERN")


def _check_data(config: knobs.Config) -> None:
    path = config.tokenizer.path
    if path and not opening.expand_home(path).exists():
        hint = "a vocab.txt, tokenizer.json or folder"
        raise ConfigError(f"config.tokenizer.path = {path!r} does not exist", hint)
    if config.task.source:
        splits = ["train", *(settings.split for settings in config.evals.values())]
        rows.check_files(config.task, dict.fromkeys(splits))
    elif config.corpus.source == "files":
        files.find_files(config.corpus)
