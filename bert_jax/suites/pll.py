"""Pseudo-log-likelihood and pseudo-perplexity of texts (Salazar et al., 2020).

A `--source` is also scored in nats a word and a character, which compare models of different
vocabularies. Words are those of `passages.py`; characters are all but white space.
"""

from __future__ import annotations

import logging
import math

from bert_jax.data import hashing
from bert_jax.errors import ConfigError, DataError
from bert_jax.evaluation import samples
from bert_jax.interop import runs
from bert_jax.suites import Detailed, Result, Texts, corpus, lines, passages
from bert_jax.suites.base import Progress, score_both_ways
from bert_jax.suites.token_scores import check_within_word, is_causal, make_scorer

logger = logging.getLogger(__name__)

SENTENCES = 200  # of the checkpoint's own validation split, unless --limit says otherwise
EXAMPLE = "files:texts.txt"
_ORDER = 0x504C4C  # keeps the order's hashes apart from those of other orders


def score(run: runs.TrainedModel, options: Texts) -> Detailed:
    """Return the mean pseudo-log-likelihood of texts, and the pseudo-perplexity over all tokens.

    For a causal model these are the log-likelihood and the perplexity; for a hybrid one, too, as
    `left_to_right`.
    """
    check_within_word(run, options.within_word)
    return score_both_ways(run, lambda run: (_score_texts(run, options), {}))


def _score_texts(run: runs.TrainedModel, options: Texts) -> Result:
    score = make_scorer(run, options, options.within_word)
    written: list[str] = []
    if options.source:
        written, texts = _read_files(run, options)
    else:
        texts = _draw_sentences(run, options)
    scores = score(texts, Progress("pll: tokens"))
    total = math.fsum(float(tokens.sum()) for tokens in scores)
    count = sum(map(len, scores))
    suffix = "_word_l2r" if options.within_word and not is_causal(run) else ""
    likelihood, perplexity = f"pll{suffix}", f"pseudo_perplexity{suffix}"
    if is_causal(run):
        likelihood, perplexity = "log_likelihood", "perplexity"
    result: Result = {
        "texts": len(texts),
        "tokens": count,
        likelihood: total / len(texts),
        perplexity: math.exp(-total / count),
    }
    if words := [length for text in written for length in passages.word_lengths(text)]:
        result |= {f"nats_per_word{suffix}": -total / len(words), "words": len(words)}
        result |= {f"nats_per_character{suffix}": -total / sum(words), "characters": sum(words)}
    return result


def _read_files(run: runs.TrainedModel, options: Texts) -> tuple[list[str], list[list[int]]]:
    """Return the texts that have tokens, and their tokens."""
    paths = lines.find_files(options.source, "pll", EXAMPLE, lines.TEXTS)
    texts = [text for path in paths for text in lines.read_texts(path)][: options.limit or None]
    encoded = run.tokenizer.encode_batch(texts)
    kept = [(text, ids) for text, ids in zip(texts, encoded, strict=True) if ids]
    if not kept:
        raise DataError(
            f"{options.source} holds no text", f"a text a line, for example --source={EXAMPLE}"
        )
    return [text for text, _ in kept], [ids for _, ids in kept]


def _draw_sentences(run: runs.TrainedModel, options: Texts) -> list[list[int]]:
    """Draw sentences of the validation split by a hash of their number."""
    if options.config is None and "foreign" in run.meta and not options.changes:
        raise ConfigError(
            f"suite pll needs a --source: {run.meta['foreign']} names no text",
            f"--source={EXAMPLE}",
        )
    prepared = corpus.prepare_text(run, options, corpus.choose_config(run, options))
    split = prepared.splits["validation"]
    total = len(split.sentence_ends)
    if not total:
        raise DataError("the validation split is empty", f"name texts: --source={EXAMPLE}")
    count = min(options.limit or SENTENCES, total)
    logger.info(
        f"pll: {count:,} of {total:,} sentences of the validation split, the same ones each time"
    )
    return [ids for _, ids in samples.draw(split, count, hashing.make_key(_ORDER))]
