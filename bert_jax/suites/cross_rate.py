"""Suite `cross_rate`: loss and accuracy of the MLM head at many masking rates.

The tokens masked at a lower rate are also masked at every higher rate. On a corpus the masks are
those of the pre-training evaluation. On a `--source` whole words are masked, the same words for
every vocabulary (`texts.py`). Each token of a masked word is [MASK], and the losses of its tokens
are added. So models of different vocabularies compare by nats per word and per character. Two
things still depend on the vocabulary. A model sees how many tokens a masked word has, and a word
that is [UNK] is easier to predict (`unknown_words` counts such words).
"""

import dataclasses

import numpy as np

from bert_jax.evaluation.metrics import EXAMPLES
from bert_jax.interop import runs
from bert_jax.suites import Detailed, Options, Result, pretrain, texts
from bert_jax.suites.base import Progress, compute_standard_error
from bert_jax.suites.token_scores import TokenScorer

RATES = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
METRICS = {  # of a source -> what is summed over passages, and what that is divided by
    "mlm_loss": ("nats", "tokens"),
    "mlm_accuracy": ("right_tokens", "tokens"),
    "nats_per_word": ("nats", "words"),
    "nats_per_character": ("nats", "characters"),
    "word_accuracy": ("right_words", "words"),
}


def score(run: runs.TrainedModel, options: Options) -> Detailed:
    """Return MLM loss and accuracy at many masking rates, as {rate: metrics}.

    The masks of a lower rate are part of the masks of a higher rate. On a corpus, the masks at the
    rate of the pre-training evaluation are the masks of that evaluation, and the unigram baseline
    is returned too. For a source there are also metrics by word and character. The metrics of each
    passage are then returned too, as `RATE/METRIC`.
    """
    return _score_texts(run, options) if options.source else (_score_corpus(run, options), {})


def _score_corpus(run: runs.TrainedModel, options: Options) -> Result:
    config = pretrain.choose_config(run, options)
    words = dataclasses.replace(config.objectives["mlm"], generator=config.generator_share)
    config = dataclasses.replace(config, objectives={"mlm": words})
    scorer, params = pretrain.make_evaluator(run, options, config, rate=max(RATES))
    masks = [scorer.make_inputs(rate) for rate in RATES]
    results = scorer.evaluate_masks(params, masks, Progress("cross_rate"))
    for metrics in results:
        del metrics["examples"]
    return {f"{rate:g}": metrics for rate, metrics in zip(RATES, results, strict=True)}


def _score_texts(run: runs.TrainedModel, options: Options) -> Detailed:
    passages = texts.load_passages(run, options)
    chosen = [one.choose_masked(rate) for rate in RATES for one in passages]  # words
    masked = [
        words[one.words] for words, one in zip(chosen, passages * len(RATES), strict=True)
    ]  # tokens
    rows = [(one.ids, tokens) for one, tokens in zip(passages * len(RATES), masked, strict=True)]
    found = TokenScorer(run, options).score_masked(rows, Progress("cross_rate: tokens"))
    documents = np.array([one.document for one in passages])
    unknown = run.tokenizer.special.unk
    result: Result = {}
    arrays = {EXAMPLES: texts.digest_passages(passages, RATES)}
    for number, rate in enumerate(RATES):
        each = slice(number * len(passages), (number + 1) * len(passages))
        rows_of_rate = zip(passages, chosen[each], masked[each], found[each], strict=True)
        counts = [_count_words(*row, unknown) for row in rows_of_rate]
        sums = {name: np.array([one[name] for one in counts], np.float64) for name in counts[0]}
        key = f"{rate:g}"
        result[key] = {
            name: float(sums[a].sum() / sums[b].sum()) for name, (a, b) in METRICS.items()
        }
        error = compute_standard_error(sums["nats"], sums["characters"], documents)
        result[key] |= {
            "nats_per_character_error": error,
            "mlm_predictions": int(sums["tokens"].sum()),
            **{name: int(sums[name].sum()) for name in ("words", "characters", "unknown_words")},
        }
        for name, (a, b) in METRICS.items():
            arrays |= {f"{key}/{name}.sum": sums[a], f"{key}/{name}.count": sums[b]}
    return result, arrays


def _count_words(
    passage: texts.Passage,
    chosen: np.ndarray,
    masked: np.ndarray,
    found: tuple[np.ndarray, np.ndarray],
    unknown: int,
) -> dict[str, float]:
    """Return sums over the masked words of a passage: nats, and numbers of tokens and words.

    `chosen` says which words are masked, and `masked` which tokens. `found` has the nats of each
    masked token, and whether it is the likeliest. `unknown` is the id of [UNK].
    """
    nats, right = found
    words = passage.words[masked]  # of each masked token
    return {
        "nats": nats.sum(),
        "tokens": len(nats),
        "right_tokens": right.sum(),
        "words": chosen.sum(),
        "characters": passage.lengths[chosen].sum(),
        "right_words": len(np.unique(words)) - len(np.unique(words[~right])),
        "unknown_words": len(np.unique(words[passage.ids[masked] == unknown])),
    }
