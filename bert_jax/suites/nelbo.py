"""Suite `nelbo`: the negative log-likelihood of a text, or a bound on it, in nats.

For a left-to-right model it is exact. For a masked model, whatever it was trained with, it is the
bound of masked diffusion. Each example is read under several draws of how many of its tokens are
masked, spread over all numbers from one to all. Its cross-entropies are weighted as
`objectives/diffusion.py` says. Both are over the same tokens, so the numbers compare. A hybrid
model has both: its bound, and as `left_to_right` its likelihood.

The text is the validation split, or a `--source`, of which each passage (`passages.py`) is an
example. There nats a word and a character compare models of different vocabularies, too.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from bert_jax.config import knobs
from bert_jax.evaluation.metrics import EXAMPLES
from bert_jax.interop import runs
from bert_jax.suites import Bound, Detailed, Result, hidden, need_head, passages
from bert_jax.suites.base import Progress, score_both_ways, standard_error
from bert_jax.suites.corpus import choose_config, make_evaluator
from bert_jax.suites.token_scores import CausalScorer, is_causal

DRAWS = 8  # of an example
MASKS: dict[str, Any] = {"replace": (1.0, 0.0, 0.0), "unit": "token"}


def score(run: runs.TrainedModel, options: Bound) -> Detailed:
    """Return nats a token with their standard error over documents, and nats by example."""
    score_text = _score_texts if options.source else _score_corpus
    return score_both_ways(run, lambda run: score_text(run, options))


def _count_draws(run: runs.TrainedModel, options: Bound) -> int:
    """Return the number of draws of an example; 1 for a causal model, which masks nothing."""
    if is_causal(run):
        return 1
    need_head(run, "mlm", "nelbo")
    return options.draws or DRAWS


def _score_corpus(run: runs.TrainedModel, options: Bound) -> Detailed:
    draws = _count_draws(run, options)
    name, end = "diffusion", True
    if is_causal(run):
        name, end = "causal_lm", False
    config = choose_config(run, options)
    shift = any(objective.shift for objective in config.objectives.values())
    objective = knobs.Objective(weight=1.0, end=end, shift=shift, generator=config.generator_share)
    config = dataclasses.replace(config, objectives={name: objective})
    scorer, params = make_evaluator(run, options, config, rate=1.0, **MASKS)
    masks = scorer.draws(draws) if name == "diffusion" else None
    _, arrays = scorer.detailed(params, Progress("nelbo"), masks)
    nats, tokens = (arrays[f"{name}_loss.{part}"] / draws for part in ("sum", "count"))
    result, each = _result(nats, tokens, scorer.source.number_documents(), draws)
    return result, each | {EXAMPLES: arrays[EXAMPLES]}


def _score_texts(run: runs.TrainedModel, options: Bound) -> Detailed:
    draws, texts = _count_draws(run, options), passages.load(run, options)
    if is_causal(run):
        score = CausalScorer(run, options)
        scores = score([text.ids.tolist() for text in texts], Progress("nelbo: tokens"))
        nats = -np.array([tokens.sum() for tokens in scores])
    else:
        nats = _bounds(run, options, texts, draws)
    counts = [
        (len(text.ids), len(text.passage.lengths), text.passage.lengths.sum()) for text in texts
    ]
    tokens, words, characters = np.array(counts, np.float64).T
    documents = np.array([text.passage.document for text in texts])
    result, each = _result(nats, tokens, documents, draws)
    unk = run.tokenizer.special.unk
    unknown = [text.words[text.ids == unk] for text in texts if unk in text.ids]
    result |= {
        "nats_per_word": float(nats.sum() / words.sum()),
        "nats_per_character": float(nats.sum() / characters.sum()),
        "nats_per_character_error": standard_error(nats, characters, documents),
        "words": int(words.sum()),
        "characters": int(characters.sum()),
        "unknown_words": sum(len(np.unique(numbers)) for numbers in unknown),
    }
    each |= {"nats_per_word.sum": nats, "nats_per_word.count": words}
    each |= {"nats_per_character.sum": nats, "nats_per_character.count": characters}
    return result, each | {EXAMPLES: passages.identity(texts)}


def _bounds(
    run: runs.TrainedModel, options: Bound, texts: list[passages.Encoded], draws: int
) -> np.ndarray:
    """Return the bound of each passage in nats, float64 [N].

    If k of n tokens are masked, with every k from 1 to n as likely, n / k times the sum of their
    cross-entropies is the bound on average. The draws divide 1 to n into equal parts and take one k
    from each. Its place in the part follows from the text, so single passages are unbiased too.
    """
    rows, weights, owners = [], [], []
    for number, text in enumerate(texts):
        count, shift = len(text.ids), passages.shift(text.passage.text)
        for draw in range(draws if count else 0):
            masked = 1 + int((draw + shift) / draws * count)
            rows.append(
                hidden.Row(text.ids, passages.shuffled(text.passage.text, count, draw) < masked)
            )
            weights.append(count / masked / draws)
            owners.append(number)
    bounds = np.zeros(len(texts))
    progress = Progress("nelbo: tokens")
    for row, nats, _ in hidden.score_hidden(run, rows, options.batch_size, progress):
        bounds[owners[row]] += weights[row] * nats.sum()
    return bounds


def _result(
    nats: np.ndarray, tokens: np.ndarray, documents: np.ndarray, draws: int
) -> tuple[Result, dict[str, np.ndarray]]:
    """Return the metrics by token, and the sums and counts that they are made of."""
    mean = float(np.sum(nats) / np.sum(tokens))
    result = {
        "nats_per_token": mean,
        "perplexity": math.exp(mean),
        "standard_error": standard_error(nats, tokens, documents),
        "tokens": int(tokens.sum()),
        "examples": len(tokens),
        "draws": draws,
    }
    return result, {"nats_per_token.sum": nats, "nats_per_token.count": tokens}
