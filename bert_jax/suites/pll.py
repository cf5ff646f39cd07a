"""Suite `pll`: pseudo-log-likelihood and pseudo-perplexity of texts (Salazar et al., 2020).

The texts of a `--source` are also scored in nats per word and per character, which compare models
of different vocabularies. Words are defined in `texts.py`; white space is not counted as
characters.
"""

import itertools
import logging
import math

from bert_jax.data import hashing
from bert_jax.errors import DataError, need
from bert_jax.evaluation import samples
from bert_jax.interop import runs
from bert_jax.suites import Detailed, Options, Result, pretrain, texts
from bert_jax.suites.base import Progress, compute_perplexity, score_both_ways
from bert_jax.suites.token_scores import TokenScorer, check_within_word

logger = logging.getLogger(__name__)

SENTENCES = 200  # of the checkpoint's own validation split, unless --limit says otherwise
EXAMPLE = "files:texts.txt"
_ORDER = 0x504C4C  # keeps the order's hashes apart from those of other orders


def score(run: runs.TrainedModel, options: Options) -> Detailed:
    """Return the mean pseudo-log-likelihood of texts, and the pseudo-perplexity of all tokens.

    For a causal model these are the log-likelihood and the perplexity. A hybrid model is also
    scored from left to right; these metrics have the key `left_to_right`.
    """
    check_within_word(run, options.within_word)
    return score_both_ways(run, lambda run: (_score_texts(run, options), {}))


def _score_texts(run: runs.TrainedModel, options: Options) -> Result:
    scorer = TokenScorer(run, options, options.within_word)
    lengths: list[int] = []  # characters of each word of a source
    if options.source:
        read = _read_files(run, options)
        lengths = [length for text, _ in read for length in texts.count_characters(text)]
        encoded = [ids for _, ids in read]
    else:
        encoded = _draw_sentences(run, options)
    scores = scorer(encoded, Progress("pll: tokens"))
    total = math.fsum(float(tokens.sum()) for tokens in scores)
    count = sum(map(len, scores))
    suffix = "_word_l2r" if options.within_word and not scorer.causal else ""
    likelihood = f"pll{suffix}"
    perplexity = f"pseudo_perplexity{suffix}"
    if scorer.causal:
        likelihood, perplexity = "log_likelihood", "perplexity"
    result: Result = {
        "texts": len(encoded),
        "tokens": count,
        likelihood: total / len(encoded),
        perplexity: compute_perplexity(-total / count),
    }
    if lengths:
        result |= {f"nats_per_word{suffix}": -total / len(lengths), "words": len(lengths)}
        characters = sum(lengths)
        result |= {f"nats_per_character{suffix}": -total / characters, "characters": characters}
    return result


def _read_files(run: runs.TrainedModel, options: Options) -> list[tuple[str, list[int]]]:
    """Read (text, token ids) of each text of a source; leave out texts without tokens."""
    files = texts.find_files(options.source, "pll", EXAMPLE, texts.TEXTS)
    every = itertools.chain.from_iterable(map(texts.read_texts, files))
    written = list(itertools.islice(every, options.limit or None))
    encoded = run.tokenizer.encode_batch(written)
    kept = [(text, ids) for text, ids in zip(written, encoded, strict=True) if ids]
    if not kept:
        raise DataError(
            f"{options.source} holds no text", f"a text a line, for example --source={EXAMPLE}"
        )
    return kept


def _draw_sentences(run: runs.TrainedModel, options: Options) -> list[list[int]]:
    """Return the token ids of random sentences of the validation split.

    The same validation split always gives the same sentences.
    """
    need(
        options.config is not None or "foreign" not in run.meta or bool(options.changes),
        f"suite pll needs a --source: {run.meta.get('foreign')} names no text",
        f"--source={EXAMPLE}",
    )
    corpus = pretrain.prepare_text(run, options, pretrain.choose_config(run, options))
    split = corpus.splits["validation"]
    total = len(split.sentence_ends)
    if not total:
        raise DataError("the validation split is empty", f"name texts: --source={EXAMPLE}")
    count = min(options.limit or SENTENCES, total)
    logger.info(
        f"pll: {count:,} of {total:,} sentences of the validation split, the same ones each time"
    )
    return [ids for _, ids in samples.draw_samples(split, count, hashing.make_key(_ORDER))]
