"""Suite `nelbo`: the negative log-likelihood of a text, or an upper bound on it, in nats.

A left-to-right model gives the exact value. A masked model, whatever its objective was, gives the
bound of masked diffusion. For the bound, an example is read several times with different numbers of
masked tokens, spread over 1 to all of them. The cross-entropies are weighted as
`objectives/diffusion.py` says. Both values are over the same tokens, so they can be compared. A
hybrid model has both: its bound, and its likelihood under `left_to_right`.

The text is the validation split, or a `--source`, where each passage (`texts.py`) is an example.
With a source, nats per word and per character also compare models of different vocabularies.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from bert_jax.config import knobs
from bert_jax.evaluation.metrics import EXAMPLES
from bert_jax.interop import runs
from bert_jax.suites import Detailed, Options, Result, pretrain, texts
from bert_jax.suites.base import (
    Progress,
    compute_perplexity,
    compute_standard_error,
    score_both_ways,
)
from bert_jax.suites.token_scores import TokenScorer, is_causal
from bert_jax.system import log

DRAWS = 8  # of an example


def score(run: runs.TrainedModel, options: Options) -> Detailed:
    """Return nats per token with their standard error over documents, and nats of each example."""
    if options.draws and is_causal(run):  # a study asks the same of masked and causal models
        log.log_line("warning: nelbo: --draws does nothing, because a causal model masks nothing")
    score_text = _score_texts if options.source else _score_corpus

    def score_run(run: runs.TrainedModel) -> Detailed:
        if is_causal(run):
            return score_text(run, dataclasses.replace(options, draws=1))  # nothing is masked
        return score_text(run, dataclasses.replace(options, draws=options.draws or DRAWS))

    return score_both_ways(run, score_run)


def _score_corpus(run: runs.TrainedModel, options: Options) -> Detailed:
    causal, draws = is_causal(run), options.draws
    name = "causal_lm" if causal else "diffusion"
    config = pretrain.choose_config(run, options)
    objective = knobs.Objective(
        weight=1.0,
        end=not causal,
        shift=config.shifted,
        generator=config.generator_share,
    )
    config = dataclasses.replace(config, objectives={name: objective})
    scorer, params = pretrain.make_evaluator(
        run, options, config, rate=1.0, replace=(1.0, 0.0, 0.0), unit="token"
    )
    masks = None if causal else scorer.draw_inputs(draws)
    _, arrays = scorer.evaluate_examples(params, Progress("nelbo"), masks)
    nats, tokens = (arrays[f"{name}_loss.{part}"] / draws for part in ("sum", "count"))
    result, each = _summarize_nats(nats, tokens, scorer.source.number_documents(), draws)
    return result, each | {EXAMPLES: arrays[EXAMPLES]}


def _score_texts(run: runs.TrainedModel, options: Options) -> Detailed:
    passages = texts.load_passages(run, options)
    progress = Progress("nelbo: tokens")
    scorer = TokenScorer(run, options)
    if scorer.causal:
        scores = scorer([one.ids.tolist() for one in passages], progress)
        nats = -np.array([tokens.sum() for tokens in scores])
    else:
        nats = _bound_passages(scorer, passages, options.draws, progress)
    tokens = np.array([len(one.ids) for one in passages], np.float64)
    words = np.array([len(one.lengths) for one in passages], np.float64)
    characters = np.array([one.lengths.sum() for one in passages], np.float64)
    documents = np.array([one.document for one in passages])
    result, each = _summarize_nats(nats, tokens, documents, options.draws)
    unk = run.tokenizer.special.unk
    unknown = [np.unique(one.words[one.ids == unk]) for one in passages]
    result |= {
        "nats_per_word": float(nats.sum() / words.sum()),
        "nats_per_character": float(nats.sum() / characters.sum()),
        "nats_per_character_error": compute_standard_error(nats, characters, documents),
        "words": int(words.sum()),
        "characters": int(characters.sum()),
        "unknown_words": sum(map(len, unknown)),
    }
    each |= {"nats_per_word.sum": nats, "nats_per_word.count": words}
    each |= {"nats_per_character.sum": nats, "nats_per_character.count": characters}
    return result, each | {EXAMPLES: texts.digest_passages(passages)}


def _bound_passages(
    scorer: TokenScorer, passages: Sequence[texts.Passage], draws: int, progress: Progress
) -> np.ndarray:
    """Return the bound of each passage in nats, float64 [N].

    Suppose that k of n tokens are masked, and that every k from 1 to n is equally likely. Then n /
    k times the sum of their cross-entropies is the bound on average. The draws divide 1 to n into
    equal parts and take one k from each part. Which k is taken depends on a hash of the text, so
    the bound of a single passage is unbiased too.
    """
    rows = []
    weights = []
    owners = []
    for number, one in enumerate(passages):
        count, shift = len(one.ids), texts.draw_shift(one.text)
        for draw in range(draws if count else 0):
            masked = 1 + int((draw + shift) / draws * count)
            rows.append((one.ids, texts.shuffle_parts(one.text, count, draw) < masked))
            weights.append(count / masked / draws)
            owners.append(number)
    found = scorer.score_masked(rows, progress)
    bounds = np.zeros(len(passages))
    for owner, weight, (nats, _) in zip(owners, weights, found, strict=True):
        bounds[owner] += weight * nats.sum()
    return bounds


def _summarize_nats(
    nats: np.ndarray, tokens: np.ndarray, documents: np.ndarray, draws: int
) -> tuple[Result, dict[str, np.ndarray]]:
    """Return the metrics of all examples together, and the nats and tokens of each example."""
    mean = float(np.sum(nats) / np.sum(tokens))
    result = {
        "nats_per_token": mean,
        "perplexity": compute_perplexity(mean),
        "standard_error": compute_standard_error(nats, tokens, documents),
        "tokens": int(tokens.sum()),
        "examples": len(tokens),
        "draws": draws,
    }
    return result, {"nats_per_token.sum": nats, "nats_per_token.count": tokens}
