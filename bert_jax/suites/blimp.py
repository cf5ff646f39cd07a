"""Minimal pairs (BLiMP, Warstadt et al., 2020): how often the good sentence is the likelier one."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bert_jax.config import knobs
from bert_jax.data import tfds
from bert_jax.data.task_files import read_rows
from bert_jax.errors import ConfigError, DataError
from bert_jax.evaluation.metrics import EXAMPLES, digest, wilson
from bert_jax.interop import runs
from bert_jax.suites import lines
from bert_jax.suites.base import Detailed, Progress, Result, SuiteOptions, both_ways
from bert_jax.suites.left_to_right import scorer

logger = logging.getLogger(__name__)

EXAMPLE = "files:blimp, a folder of PARADIGM.jsonl files, or tfds:blimp"
SENTENCES = ("sentence_good", "sentence_bad")
# Key of the result -> key of a row.
GROUPS = {"field": "field", "term": "linguistics_term", "paradigm": "UID"}


class Pair(NamedTuple):
    """Two sentences, and the groups of phenomena that their difference belongs to."""

    where: str  # FILE:LINE, for messages
    good: str
    bad: str
    groups: dict[str, str]


def blimp(run: runs.TrainedModel, options: SuiteOptions) -> Result:
    """Return the share of right pairs: of all, and by field, linguistic term and paradigm.

    A pair is right where the good sentence has the higher score. Equal scores are wrong: BabyLM's
    pipeline takes them as right, which suite `babylm` calls `pipeline_accuracy`. A hybrid model
    also scores pairs from left to right, as `left_to_right`.
    """
    return blimp_each(run, options)[0]


def blimp_each(run: runs.TrainedModel, options: SuiteOptions) -> Detailed:
    """Return the same, and for each pair whether it is right."""
    if not options.source:
        raise ConfigError("suite blimp needs --source", f"--source={EXAMPLE}")
    return both_ways(_each, run, options)


def _each(run: runs.TrainedModel, options: SuiteOptions) -> Detailed:
    score = scorer(run, options, "blimp")
    pairs = list(_pairs(options))
    texts = [p.good for p in pairs] + [p.bad for p in pairs]
    encoded = run.tokenizer.encode_batch(texts)
    for pair, text, ids in zip(pairs * 2, texts, encoded, strict=True):
        if not ids:  # an empty sentence would score 0, more than any other
            raise DataError(
                f"{pair.where}: no token in {text[:80]!r}", "repair or leave out the pair"
            )
    scores = score(encoded, Progress("blimp: tokens"))
    totals = [float(tokens.sum()) for tokens in scores]
    compared = list(zip(totals[: len(pairs)], totals[len(pairs) :], strict=True))
    right = [good > bad for good, bad in compared]
    if ties := sum(good == bad for good, bad in compared):
        logger.info(f"blimp: {ties:,} of {len(pairs):,} pairs have equal scores and count as wrong")
    low, high = wilson(sum(right), len(right))
    name = "accuracy_word_l2r" if options.within_word else "accuracy"
    result: Result = {"pairs": len(pairs), "ties": ties, name: sum(right) / len(right)}
    result |= {f"{name}_low": low, f"{name}_high": high}
    for group in GROUPS:
        hits_of: dict[str, list[bool]] = {}
        for pair, hit in zip(pairs, right, strict=True):
            hits_of.setdefault(pair.groups[group], []).append(hit)
        result[group] = {key: sum(hits) / len(hits) for key, hits in sorted(hits_of.items()) if key}
    each = {f"{name}.sum": np.array(right, np.float64), f"{name}.count": np.ones(len(right))}
    return result, each | {EXAMPLES: digest(f"{len(text)}:{text}".encode() for text in texts)}


def _pairs(options: SuiteOptions) -> Iterator[Pair]:
    for paradigm, located in _paradigms(options.source):
        first = next(located, None)
        if first is None:
            raise DataError(
                f"{paradigm} of {options.source} holds no pairs", f"for example --source={EXAMPLE}"
            )
        for where, row in itertools.islice(
            itertools.chain([first], located), options.limit or None
        ):
            groups = {key: row.get(field) or "" for key, field in GROUPS.items()}
            good, bad = (row[name] for name in SENTENCES)
            yield Pair(where, good, bad, groups | {"paradigm": row.get("UID") or paradigm})


def _paradigms(source: str) -> Iterator[tuple[str, Iterator[tuple[str, dict[str, str]]]]]:
    """Yield each paradigm's name and its rows, each with FILE:LINE."""
    scheme, _, name = source.partition(":")
    if scheme != "tfds":
        for path in lines.find(source, "blimp", EXAMPLE):
            yield path.name.partition(".")[0], lines.objects(path, SENTENCES)
        return
    names = [name]
    if "/" not in name:
        builder = tfds.builder(name, "", "--source")
        names = [f"{name}/{config}" for config in sorted(builder.builder_configs)]
    for full_name in names:
        task = knobs.Task(source=f"tfds:{full_name}")
        table = read_rows(task, "train")
        located = ((row.where, lines.checked(row.where, row.fields, SENTENCES)) for row in table)
        yield full_name.partition("/")[2], located
