"""Suite `blimp`: minimal pairs (Warstadt et al., 2020); the good sentence should be likelier."""

import itertools
import logging
from collections.abc import Iterator
from typing import Any

import numpy as np

from bert_jax.config import knobs
from bert_jax.data import tfds
from bert_jax.data.rows import read_rows
from bert_jax.errors import DataError
from bert_jax.evaluation.metrics import EXAMPLES, digest, find_wilson_interval
from bert_jax.interop import runs
from bert_jax.suites import SUITES, Detailed, Options, Result, texts
from bert_jax.suites.base import score_both_ways
from bert_jax.suites.choices import Choice, average_groups, credit_choices, score_options
from bert_jax.suites.token_scores import TokenScorer, check_within_word

logger = logging.getLogger(__name__)

EXAMPLE = SUITES["blimp"].needs_source
SENTENCES = ("sentence_good", "sentence_bad")
# Key of the result -> key of a row.
GROUPS = {"field": "field", "term": "linguistics_term", "paradigm": "UID"}


def score(run: runs.TrainedModel, options: Options) -> Detailed:
    """Return the accuracy on all pairs, and by field, linguistic term and paradigm.

    A pair whose sentences have equal scores counts half (`choices.py`). A hybrid model is also
    scored from left to right; these accuracies have the key `left_to_right`.
    """
    check_within_word(run, options.within_word)
    return score_both_ways(run, lambda run: _score_pairs(run, options))


def _score_pairs(run: runs.TrainedModel, options: Options) -> Detailed:
    scorer = TokenScorer(run, options, options.within_word)
    pairs = list(_read_pairs(options))
    credits, ties = credit_choices(score_options(scorer, pairs, "blimp"))
    if ties:
        logger.info(f"blimp: {ties:,} of {len(pairs):,} pairs have equal scores: half right")
    hits = float(credits.sum())
    low, high = find_wilson_interval(hits, len(pairs))
    name = "accuracy_word_l2r" if options.within_word and not scorer.causal else "accuracy"
    result: Result = {"pairs": len(pairs), "ties": ties, name: hits / len(pairs)}
    result |= {f"{name}_low": low, f"{name}_high": high}
    sentences = [pair.options[side] for side in range(2) for pair in pairs]
    return result | average_groups(pairs, credits), {
        f"{name}.sum": credits,
        f"{name}.count": np.ones(len(pairs)),
        EXAMPLES: digest(f"{len(text)}:{text}".encode() for text in sentences),
    }


def _read_pairs(options: Options) -> Iterator[Choice]:
    """Yield the pairs of each paradigm, the first `limit` of them."""
    for paradigm, located in _find_paradigms(options.source):
        rows = list(itertools.islice(located, options.limit or None))
        if not rows:
            raise DataError(
                f"{paradigm} of {options.source} holds no pairs", f"for example --source={EXAMPLE}"
            )
        for where, row in rows:
            groups = {key: row.get(field) or "" for key, field in GROUPS.items()}
            groups["paradigm"] = groups["paradigm"] or paradigm
            sentences = tuple(row[name] for name in SENTENCES)
            yield Choice(where, sentences, sentences, groups)


def _find_paradigms(source: str) -> Iterator[tuple[str, Iterator[tuple[str, dict[str, Any]]]]]:
    """Yield (paradigm, rows); each row is FILE:LINE and its fields, as {field: value}."""
    scheme, _, name = source.partition(":")
    if scheme != "tfds":
        for path in texts.find_files(source, "blimp", EXAMPLE):
            yield path.name.partition(".")[0], texts.read_objects(path, SENTENCES)
        return
    configs = tfds.builder(name, "", "--source").builder_configs
    names = [name]
    if configs and "/" not in name:
        names = [f"{name}/{config}" for config in sorted(configs)]
    for full_name in names:
        table = read_rows(knobs.Task(source=f"tfds:{full_name}"), "train")
        checked = (texts.check_fields(row.where, row.fields, SENTENCES) for row in table)
        located = zip((row.where for row in table), checked, strict=True)
        yield full_name.partition("/")[2] or name, located
