"""Suite `babylm`: the zero-shot tasks of the BabyLM challenge, by the rules of its own pipeline.

    bert-jax evaluate --model=RUN --suite=babylm --source=evaluation_data/full_eval

The rules are those of github.com/babylm/evaluation-pipeline-2025 at bf55c11, whose code for these
tasks is also that of babylm-org/babylm-eval (2026) at 45fe2c1:

- An option is scored by its tokens' log-probabilities: each token masked alone (backend `mlm`, or
  `mntp` where a token is predicted from the place before it), or given those before it (`causal`).
  Where options continue a context, only the tokens of the continuation count.
- The likeliest option is chosen. If m options are equally likely, the right one earns 1 / m, as in
  suite `blimp` (`choices.py`). The pipeline chooses the first of them, which is the right one:
  its accuracy is higher where there are `ties`, and the predictions that are written are its own.
- A task's accuracy is the mean over its subsets (`UID`). Entity tracking has a subset for each file
  and number of operations: there it is the mean over files of their means.
- Both tasks of `wug` have Spearman's correlation of the probability that the model gives the first
  of two forms with the share of people who prefer it.
- `reading.py` says what becomes of reading times.
- A text longer than a row of the model is read in windows, as in other suites; the pipeline fails,
  or reads it at positions that were never trained.

Numbers are shares, where the pipeline prints per cent. `macro_average` is the mean over the tasks
that are there: of a submission, GLUE and the age of acquisition are not among them.
"""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bert_jax.errors import ConfigError, DataError
from bert_jax.interop import runs
from bert_jax.suites import Detailed, Result, Submitted, lines, reading
from bert_jax.suites.base import score_both_ways
from bert_jax.suites.choices import Choice, average_groups, credit_choices, score_options
from bert_jax.suites.token_scores import is_causal, make_scorer
from bert_jax.system import disk, jsons

logger = logging.getLogger(__name__)

EXAMPLE = "evaluation_data/full_eval"


class Item(NamedTuple):
    """A row of a task: the choice that it asks for, and what the task needs besides."""

    choice: Choice
    split: str = ""  # of subsets, where a task's accuracy is the mean over splits
    ratio: float = 0.0  # wug: the share of people who prefer the first


class Task(NamedTuple):
    """A row of TASKS: where the pipeline has the files of a task, and how it reads their rows."""

    name: str  # of the pipeline's --task
    folders: tuple[str, ...]  # of full_eval and of fast_eval
    schema: dict[str, Any]  # of a row
    # From FILE:LINE, a row, and its file's name without ending.
    item: Callable[[str, dict[str, Any], str], Item]


# --- rows of each task ----------------------------------------------------------------------------


def _read_blimp(where: str, row: dict[str, Any], stem: str) -> Item:
    sentences = (row["sentence_good"], row["sentence_bad"])
    groups = {name: row[name] for name in ("UID", "field", "linguistics_term")}
    groups["field"] = groups["field"].replace("/", "_")  # the files have both spellings
    return Item(Choice(where, sentences, sentences, groups))


def _read_supplement(where: str, row: dict[str, Any], stem: str) -> Item:
    sentences = (row["sentence_good"], row["sentence_bad"])
    return Item(Choice(where, sentences, sentences, {"UID": stem}))


def _read_ewok(where: str, row: dict[str, Any], stem: str) -> Item:
    targets = tuple(f" {row[name]}" for name in ("Target1", "Target2"))
    groups = {"UID": row["Domain"], "context_type": row["ContextType"]}
    groups |= {"context_contrast": row["ContextDiff"], "target_contrast": row["TargetDiff"]}
    texts = tuple(row["Context1"] + target for target in targets)
    return Item(Choice(where, texts, targets, groups))


def _read_entity_tracking(where: str, row: dict[str, Any], stem: str) -> Item:
    options = tuple(row["options"])
    groups = {"UID": f"{stem}_{row['numops']}_ops"}
    texts = tuple(row["input_prefix"] + option for option in options)
    return Item(Choice(where, texts, options, groups), split=stem)


def _read_wug(where: str, row: dict[str, Any], stem: str) -> Item:
    sentences = tuple(row["sentences"].split("\t"))
    return Item(Choice(where, sentences, sentences, {}), ratio=float(row["ratio"]))


def _read_comps(where: str, row: dict[str, Any], stem: str) -> Item:
    phrase = row["property_phrase"]
    prefixes = (row["prefix_acceptable"], row["prefix_unacceptable"])
    groups = {"UID": stem.removeprefix("comps_").replace("-", "_")}
    texts = tuple(f"{prefix} {phrase}" for prefix in prefixes)
    return Item(Choice(where, texts, (phrase, phrase), groups))


PAIR = dict.fromkeys(("sentence_good", "sentence_bad"), str)
BLIMP = PAIR | dict.fromkeys(("UID", "field", "linguistics_term"), str)
EWOK = dict.fromkeys(("Domain", "ContextType", "ContextDiff", "TargetDiff"), str)
EWOK |= dict.fromkeys(("Context1", "Target1", "Target2"), str)
WUG = {"sentences": str, "ratio": float | str}
COMPS = dict.fromkeys(("prefix_acceptable", "prefix_unacceptable", "property_phrase"), str)
TASKS = {
    "blimp": Task("blimp", ("blimp_filtered", "blimp_fast"), BLIMP, _read_blimp),
    "supplement": Task("blimp", ("supplement_filtered", "supplement_fast"), PAIR, _read_supplement),
    "ewok": Task("ewok", ("ewok_filtered", "ewok_fast"), EWOK, _read_ewok),
    "entity_tracking": Task(
        "entity_tracking",
        ("entity_tracking", "entity_tracking_fast"),
        {"input_prefix": str, "options": [str], "numops": int},
        _read_entity_tracking,
    ),
    "wug_adj": Task("wug_adj", ("wug_adj_nominalization",), WUG, _read_wug),
    "wug_past": Task("wug_past", ("wug_past_tense",), WUG, _read_wug),
    "comps": Task("comps", ("comps",), COMPS, _read_comps),
}
FOLDERS = {name: task.folders for name, task in TASKS.items()} | {"reading": ("reading",)}
SCORES = ("accuracy", "spearman", *reading.SCORES)  # that the macro average is taken of


# --- the suite ------------------------------------------------------------------------------------


def score(run: runs.TrainedModel, options: Submitted) -> Detailed:
    """Return the scores of each task whose files the source has, and their mean.

    A hybrid model also answers from left to right, as `left_to_right`. `submission` is the folder
    of a model and revision for the pipeline's collate_preds: results/NAME/main.
    """
    if not options.source:
        raise ConfigError("suite babylm needs --source", f"--source={EXAMPLE}")
    return score_both_ways(run, lambda run: (_score_tasks(run, options), {}))


def _score_tasks(run: runs.TrainedModel, options: Submitted) -> Result:
    score = make_scorer(run, options)
    folders = _find_folders(options.source)
    # All is read before the first of it is scored.
    items = {
        name: _read_items(name, folder, options.limit)
        for name, folder in folders.items()
        if name in TASKS
    }
    words = reading.load(folders["reading"], options.limit) if "reading" in folders else []
    backend = "causal" if is_causal(run) else "mlm"
    if any(objective.shift for objective in run.config.objectives.values()):
        backend = "mntp"
    results: dict[str, Result] = {}
    for name, rows in items.items():
        task = TASKS[name]
        totals = score_options(score, [row.choice for row in rows], f"babylm, {name}")
        summarize = _correlate if task.item is _read_wug else _average
        results[name] = summarize(rows, totals)
        place = f"{backend}/{task.name}/{folders[name].name}"
        _submit(options, place, _list_predictions(task, rows, totals))
    if words:
        results["reading"], predictions = reading.evaluate(score, words)
        _submit(options, f"{backend}/reading", {"reading": {"predictions": predictions}})
    scores = [result[key] for result in results.values() for key in SCORES if key in result]
    return {"macro_average": float(np.mean(scores)), **results}


def _find_folders(source: str) -> dict[str, Path]:
    """Find the folder of each task in the folder of all; the source may also be that of one."""
    root = Path(source.removeprefix("files:")).expanduser()
    if not root.is_dir():
        raise DataError(f"no folder {root}", f"for example --source={EXAMPLE}")
    if found := {name: root for name, names in FOLDERS.items() if root.name in names}:
        return found
    found = {
        name: root / folder
        for name, names in FOLDERS.items()
        for folder in reversed(names)  # so that the first of them stays
        if (root / folder).is_dir()
    }
    if not found:
        listed = ", ".join(itertools.chain.from_iterable(FOLDERS.values()))
        hint = f"for example --source={EXAMPLE}"
        raise DataError(f"{root} has none of the folders {listed}", hint)
    if missing := [name for name in FOLDERS if name not in found]:
        logger.info(f"babylm: {root} has no folder for {', '.join(missing)}")
    return found


def _read_items(name: str, folder: Path, limit: int) -> list[Item]:
    """Read the rows of a task, the first `limit` of each file."""
    task = TASKS[name]
    items: list[Item] = []
    files = sorted(folder.glob("*.jsonl"))
    if not files:
        raise DataError(f"{folder} has no .jsonl file", reading.AGAIN)
    for file in files:
        before = len(items)
        for where, row in itertools.islice(lines.read_objects(file, ()), limit or None):
            hint = f"rows of BabyLM's {name} have {', '.join(task.schema)}"
            if problem := jsons.wrong(row, task.schema):
                raise DataError(f"{where}: {problem}", hint)
            try:
                item = task.item(where, row, file.stem)
            except ValueError as error:  # a ratio that is a text, and no number
                raise DataError(f"{where}: {error}", hint) from error
            if len(item.choice.options) < 2:
                raise DataError(f"{where}: fewer than two options", hint)
            items.append(item)
        if len(items) == before:
            raise DataError(f"{file} is empty", reading.AGAIN)
    return items


def _average(items: Sequence[Item], totals: Sequence[np.ndarray]) -> Result:
    """Return the accuracy, by group too, and how many ties there were."""
    choices = [item.choice for item in items]
    credits, ties = credit_choices(totals)
    groups = average_groups(choices, credits)
    splits: dict[str, list[float]] = {}
    for subset, split in sorted({(item.choice.groups["UID"], item.split) for item in items}):
        splits.setdefault(split or subset, []).append(groups["UID"][subset])
    means = {split: float(np.mean(shares)) for split, shares in splits.items()}
    result: Result = {"examples": len(items), "ties": ties}
    result["accuracy"] = float(np.mean([*means.values()]))
    if items[0].split:
        result["split"] = means
    return result | groups


def _correlate(items: Sequence[Item], totals: Sequence[np.ndarray]) -> Result:
    """Return Spearman's correlation of the model's preferences with those of people."""
    from scipy import stats

    given, wanted = _prefer_first(totals), np.array([item.ratio for item in items])
    defined = len(items) > 1 and np.ptp(given) > 0 and np.ptp(wanted) > 0
    found = float(stats.spearmanr(given, wanted).statistic) if defined else np.nan
    return {"examples": len(items), "spearman": found}


def _prefer_first(totals: Sequence[np.ndarray]) -> np.ndarray:
    """Return the probability of each item's first option among its options: float32 [N].

    In the pipeline's precision, in which the surest ones are equal, as ranks are to be.
    """
    logits = [(values - values.max()).astype(np.float32) for values in totals]
    return np.array([np.exp(row[0]) / np.exp(row).sum() for row in logits], np.float32)


def _list_predictions(
    task: Task, items: Sequence[Item], totals: Sequence[np.ndarray]
) -> dict[str, Any]:
    """List the chosen options by subset, as the pipeline saves them."""
    found: dict[str, Any] = {}
    given = _prefer_first(totals) if task.item is _read_wug else None
    for number, (item, values) in enumerate(zip(items, totals, strict=True)):
        subset = item.choice.groups.get("UID", task.name)
        rows = found.setdefault(subset, {"predictions": []})["predictions"]
        choice = item.choice
        shown = choice.options if task.item is _read_comps else choice.scored
        row = {"id": f"{subset}_{len(rows)}", "pred": shown[int(np.argmax(values))]}
        rows.append(row if given is None else row | {"prob": float(given[number])})
    return found


def _submit(options: Submitted, place: str, predictions: dict[str, Any]) -> None:
    """Write predictions, where they are asked for, to the place that the pipeline reads."""
    if not options.submission:
        return
    file = Path(options.submission) / "zero_shot" / place / "predictions.json"
    with disk.output(file, ConfigError, "choose another --submission"):
        file.parent.mkdir(parents=True, exist_ok=True)
        disk.write(file, json.dumps(predictions) + "\n")
