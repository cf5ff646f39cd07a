"""Suite `babylm`: the zero-shot tasks of the BabyLM challenge, by the rules of its own pipeline.

    bert-jax evaluate --model=RUN --suite=babylm --source=evaluation_data/full_eval

The rules come from github.com/babylm/evaluation-pipeline-2025 at bf55c11. For these tasks
babylm-org/babylm-eval (2026) at 45fe2c1 has the same code. The rules of reading times are in
`reading.py`.

- An option is scored by its tokens' log-probabilities. If options continue a context, only the
  tokens of the continuation count.
- The likeliest option is chosen, and ties are shared as `choices.py` says. The pipeline counts a
  tie as right, so its accuracy is higher if there are `ties`.
- A task's accuracy is the mean over its subsets (`UID`). Entity tracking has a subset for each file
  and number of operations; its accuracy is the mean over files of each file's mean over subsets.
- Tasks of `wug` have Spearman's correlation between the preferences of the model and of people.
- A text longer than a row of the model is read in windows. On such a text the pipeline fails, or it
  reads positions that were never trained.

All numbers are shares; the pipeline prints per cent. `macro_average` is the mean over the tasks
that the source has. To make a submission, run the pipeline on a model written by `bert-jax export`.
"""

import itertools
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bert_jax.errors import DataError
from bert_jax.interop import runs
from bert_jax.suites import SUITES, Detailed, Options, Result, reading
from bert_jax.suites.base import score_both_ways
from bert_jax.suites.choices import Choice, average_groups, credit_choices, score_options
from bert_jax.suites.texts import read_objects
from bert_jax.suites.token_scores import TokenScorer
from bert_jax.system import opening

logger = logging.getLogger(__name__)

EXAMPLE = SUITES["babylm"].needs_source
SCORES = ("accuracy", "spearman", *reading.SCORES)  # that the macro average is taken of


class Item(NamedTuple):
    """A row of a task's data: its choice, and a split or a ratio if the task needs them."""

    choice: Choice
    split: str = ""  # of subsets, if a task's accuracy is the mean over splits
    ratio: float = 0.0  # wug: the share of people who prefer the first


class BabylmTask(NamedTuple):
    """Row of TASKS: the folders in which a task may be, and the function that reads its rows."""

    folders: tuple[str, ...]  # of full_eval and of fast_eval
    # From FILE:LINE, a row, and its file's name without ending.
    read: Callable[[str, dict[str, Any], str], Item]


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
    targets = (f" {row['Target1']}", f" {row['Target2']}")
    groups = {"UID": row["Domain"], "context_type": row["ContextType"]}
    groups |= {"context_contrast": row["ContextDiff"], "target_contrast": row["TargetDiff"]}
    texts = tuple(row["Context1"] + target for target in targets)
    return Item(Choice(where, texts, targets, groups))


def _read_entity_tracking(where: str, row: dict[str, Any], stem: str) -> Item:
    options = tuple(row["options"])
    texts = tuple(row["input_prefix"] + option for option in options)
    return Item(Choice(where, texts, options, {"UID": f"{stem}_{row['numops']}_ops"}), split=stem)


def _read_wug(where: str, row: dict[str, Any], stem: str) -> Item:
    sentences = tuple(row["sentences"].split("\t"))
    return Item(Choice(where, sentences, sentences, {}), ratio=float(row["ratio"]))


def _read_comps(where: str, row: dict[str, Any], stem: str) -> Item:
    phrase = row["property_phrase"]
    prefixes = (row["prefix_acceptable"], row["prefix_unacceptable"])
    texts = tuple(f"{prefix} {phrase}" for prefix in prefixes)
    groups = {"UID": stem.removeprefix("comps_").replace("-", "_")}
    return Item(Choice(where, texts, (phrase, phrase), groups))


TASKS = {
    "blimp": BabylmTask(("blimp_filtered", "blimp_fast"), _read_blimp),
    "supplement": BabylmTask(("supplement_filtered", "supplement_fast"), _read_supplement),
    "ewok": BabylmTask(("ewok_filtered", "ewok_fast"), _read_ewok),
    "entity_tracking": BabylmTask(
        ("entity_tracking", "entity_tracking_fast"), _read_entity_tracking
    ),
    "wug_adj": BabylmTask(("wug_adj_nominalization",), _read_wug),
    "wug_past": BabylmTask(("wug_past_tense",), _read_wug),
    "comps": BabylmTask(("comps",), _read_comps),
}
FOLDERS = {name: task.folders for name, task in TASKS.items()} | {"reading": ("reading",)}


# --- the suite ------------------------------------------------------------------------------------


def score(run: runs.TrainedModel, options: Options) -> Detailed:
    """Score each task whose files the source has; return the tasks' scores and their mean.

    A hybrid model is also scored from left to right; these scores have the key `left_to_right`.
    """
    return score_both_ways(run, lambda run: (_score_tasks(run, options), {}))


def _score_tasks(run: runs.TrainedModel, options: Options) -> Result:
    scorer = TokenScorer(run, options)
    folders = _find_folders(options.source)
    # All is read before the first of it is scored.
    items = {
        name: _read_items(name, folder, options.limit)
        for name, folder in folders.items()
        if name in TASKS
    }
    words = reading.load_words(folders["reading"], options.limit) if "reading" in folders else []
    results: dict[str, Result] = {}
    for name, rows in items.items():
        totals = score_options(scorer, [row.choice for row in rows], f"babylm, {name}")
        summarize = _correlate_ratios if TASKS[name].read is _read_wug else _average_credits
        results[name] = summarize(rows, totals)
    if words:
        results["reading"] = reading.evaluate_words(scorer, words)
    scores = [result[key] for result in results.values() for key in SCORES if key in result]
    return {"macro_average": float(np.mean(scores)), **results}


def _find_folders(source: str) -> dict[str, Path]:
    """Find the folder of each task in the folder `source`, as {task: folder}.

    `source` may also be the folder of a single task.
    """
    root = opening.expand_home(source.removeprefix("files:"))
    if not root.is_dir():
        raise DataError(f"no folder {root}", f"for example --source={EXAMPLE}")
    if found := {name: root for name, names in FOLDERS.items() if root.name in names}:
        return found
    for name, names in FOLDERS.items():
        there = [root / folder for folder in names if (root / folder).is_dir()]
        if there:
            found[name] = there[0]
    if not found:
        listed = ", ".join(itertools.chain.from_iterable(FOLDERS.values()))
        hint = f"for example --source={EXAMPLE}"
        raise DataError(f"{root} has none of the folders {listed}", hint)
    if missing := [name for name in FOLDERS if name not in found]:
        logger.info(f"babylm: {root} has no folder for {', '.join(missing)}")
    return found


def _read_items(name: str, folder: Path, limit: int) -> list[Item]:
    """Read the items of a task, the first `limit` of each file."""
    items: list[Item] = []
    for file in sorted(folder.glob("*.jsonl")):
        for where, row in itertools.islice(read_objects(file, ()), limit or None):
            try:
                items.append(TASKS[name].read(where, row, file.stem))
            except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
                problem = f"{where}: no row of BabyLM's {name}: {error!r}"
                raise DataError(problem, reading.AGAIN) from error
            if len(items[-1].choice.options) < 2:
                raise DataError(f"{where}: fewer than two options", reading.AGAIN)
    if not items:
        raise DataError(f"{folder} has no rows in .jsonl files", reading.AGAIN)
    return items


def _average_credits(items: Sequence[Item], totals: Sequence[np.ndarray]) -> Result:
    """Return a task's accuracy, its accuracy on each group of items, and the number of ties.

    Groups are the subsets, and for example the fields of `blimp`.
    """
    credits, ties = credit_choices(totals)
    groups = average_groups([item.choice for item in items], credits)
    splits: dict[str, list[float]] = {}
    for subset, split in sorted({(item.choice.groups["UID"], item.split) for item in items}):
        splits.setdefault(split or subset, []).append(groups["UID"][subset])
    means = {split: float(np.mean(shares)) for split, shares in splits.items()}
    result: Result = {"examples": len(items), "ties": ties}
    result["accuracy"] = float(np.mean([*means.values()]))
    if items[0].split:
        result["split"] = means
    return result | groups


def _correlate_ratios(items: Sequence[Item], totals: Sequence[np.ndarray]) -> Result:
    """Return Spearman's correlation between the preferences of the model and of people.

    `totals` has the log-probabilities of each item's options. Probabilities are float32 as in the
    pipeline, so that those rounded to 1 have the same rank.
    """
    from scipy import stats

    logits = [(values - values.max()).astype(np.float32) for values in totals]
    given = np.array([np.exp(row[0]) / np.exp(row).sum() for row in logits], np.float32)
    wanted = np.array([item.ratio for item in items])
    defined = len(items) > 1 and np.ptp(given) > 0 and np.ptp(wanted) > 0
    found = float(stats.spearmanr(given, wanted).statistic) if defined else np.nan
    return {"examples": len(items), "spearman": found}
