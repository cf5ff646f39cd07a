"""Minimal pairs (BLiMP, Warstadt et al., 2020): is the sentence that is right likelier than the one that is wrong?"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bert_jax.config import knobs
from bert_jax.data.labelled import rows
from bert_jax.data.text import tfds_text
from bert_jax.errors import ConfigError, DataError
from bert_jax.evaluation.metrics import EXAMPLES, which, wilson
from bert_jax.interop import runs
from bert_jax.suites import lines
from bert_jax.suites.base import Detailed, Progress, Result, SuiteOptions
from bert_jax.suites.left_to_right import scorer

EXAMPLE = "files:blimp, a folder of PARADIGM.jsonl files, or tfds:blimp"
SENTENCES = ("sentence_good", "sentence_bad")
GROUPS = {
    "field": "field",
    "term": "linguistics_term",
    "paradigm": "UID",
}  # key of the result -> of a row


class Pair(NamedTuple):
    """Two sentences, and what the difference between them belongs to."""

    where: str  # FILE:LINE, for messages
    good: str
    bad: str
    groups: dict[str, str]


def blimp(run: runs.Run, ask: SuiteOptions) -> Result:
    """The share of pairs told apart: of all, by field, by linguistic term and by paradigm. Equal scores are wrong."""
    return blimp_each(run, ask)[0]


def blimp_each(run: runs.Run, ask: SuiteOptions) -> Detailed:
    """The same, and which pairs are told apart."""
    if not ask.source:
        raise ConfigError("suite blimp needs --source", f"--source={EXAMPLE}")
    score = scorer(run, ask, "blimp")
    pairs = list(_pairs(ask))
    texts = [p.good for p in pairs] + [p.bad for p in pairs]
    encoded = run.tokenizer.encode_batch(texts)
    for pair, text, ids in zip(pairs * 2, texts, encoded, strict=True):
        if not ids:  # it would score 0, more than any sentence
            raise DataError(
                f"{pair.where}: no token in {text[:80]!r}", "repair or leave out the pair"
            )
    scores = score(encoded, Progress("blimp: tokens"))
    totals = [float(one.sum()) for one in scores]
    good, bad = totals[: len(pairs)], totals[len(pairs) :]
    right = [a > b for a, b in zip(good, bad, strict=True)]
    if ties := sum(a == b for a, b in zip(good, bad, strict=True)):
        print(
            f"blimp: {ties:,} of {len(pairs):,} pairs have equal scores and count as wrong",
            file=sys.stderr,
        )
    low, high = wilson(sum(right), len(right))
    name = "accuracy_word_l2r" if ask.within_word else "accuracy"
    found: Result = {"pairs": len(pairs), "ties": ties, name: sum(right) / len(right)}
    found |= {f"{name}_low": low, f"{name}_high": high}
    for group in GROUPS:
        marks: dict[str, list[bool]] = {}
        for pair, hit in zip(pairs, right, strict=True):
            marks.setdefault(pair.groups[group], []).append(hit)
        found[group] = {key: sum(hits) / len(hits) for key, hits in sorted(marks.items()) if key}
    each = {f"{name}.sum": np.array(right, np.float64), f"{name}.count": np.ones(len(right))}
    return found, each | {EXAMPLES: which(f"{len(text)}:{text}".encode() for text in texts)}


def _pairs(ask: SuiteOptions) -> Iterator[Pair]:
    for paradigm, found in _paradigms(ask.source):
        first = next(found, None)
        if first is None:
            raise DataError(
                f"{paradigm} of {ask.source} holds no pairs", f"for example --source={EXAMPLE}"
            )
        for where, row in itertools.islice(itertools.chain([first], found), ask.limit or None):
            groups = {key: row.get(field) or "" for key, field in GROUPS.items()}
            good, bad = (row[name] for name in SENTENCES)
            yield Pair(where, good, bad, groups | {"paradigm": row.get("UID") or paradigm})


def _paradigms(source: str) -> Iterator[tuple[str, Iterator[tuple[str, dict[str, str]]]]]:
    """The rows of each paradigm, and where each is."""
    scheme, _, name = source.partition(":")
    if scheme != "tfds":
        for path in lines.find(source, "blimp", EXAMPLE):
            yield path.name.partition(".")[0], lines.objects(path, SENTENCES)
        return
    names = (
        [name]
        if "/" in name
        else [
            f"{name}/{one}"
            for one in sorted(tfds_text.builder(name, "", "--source").builder_configs)
        ]
    )
    for one in names:
        found = rows.read(knobs.Task(source=f"tfds:{one}"), "train", lambda line: None)
        yield (
            one.partition("/")[2],
            ((row.where, lines.checked(row.where, row.fields, SENTENCES)) for row in found),
        )
