"""Suite `cross_rate`: loss and accuracy of the MLM head at many masking rates, on nested masks.

On a corpus the masks are those of the pre-training evaluation. On a `--source` they are whole
words, the same ones for every vocabulary (`passages.py`): each token of a masked word is [MASK],
and its nats are added, so models of different vocabularies compare by nats a word and a character.
Two things remain that a vocabulary decides: a model sees how many tokens a masked word has, and a
word that is [UNK] to it is easier to predict; `unknown_words` counts those.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from bert_jax.evaluation.metrics import EXAMPLES
from bert_jax.interop import runs
from bert_jax.suites import Detailed, Passages, Result, hidden, passages
from bert_jax.suites.base import Progress, standard_error
from bert_jax.suites.corpus import choose_config, make_evaluator

RATES = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
METRICS = {  # of a source -> what is summed over passages, and what that is divided by
    "mlm_loss": ("nats", "tokens"),
    "mlm_accuracy": ("right_tokens", "tokens"),
    "nats_per_word": ("nats", "words"),
    "nats_per_character": ("nats", "characters"),
    "word_accuracy": ("right_words", "words"),
}
SUMS = ("nats", "tokens", "right_tokens", "words", "right_words", "characters", "unknown_words")


def score(run: runs.TrainedModel, options: Passages) -> Detailed:
    """Return MLM loss and accuracy at many masking rates; of a source also by word and character.

    The masks of a lower rate are part of those of a higher one. On a corpus, those at the rate of
    the pre-training evaluation are its masks, and the unigram baseline stands beside. For a source
    the metrics of each passage are returned too, as `RATE/METRIC`.
    """
    return _score_texts(run, options) if options.source else (_score_corpus(run, options), {})


def _score_corpus(run: runs.TrainedModel, options: Passages) -> Result:
    config = choose_config(run, options)
    words = dataclasses.replace(config.objectives["mlm"], generator=config.generator_share)
    config = dataclasses.replace(config, objectives={"mlm": words})
    scorer, params = make_evaluator(run, options, config, rate=max(RATES))
    masks = [scorer.at(rate) for rate in RATES]
    results = scorer.sweep(params, masks, Progress("cross_rate"))
    return {
        f"{rate:g}": {name: value for name, value in metrics.items() if name != "examples"}
        for rate, metrics in zip(RATES, results, strict=True)
    }


def _score_texts(run: runs.TrainedModel, options: Passages) -> Detailed:
    texts = passages.load(run, options)
    rows = [
        hidden.Row(text.ids, text.passage.masked(rate)[text.words])
        for rate in RATES
        for text in texts
    ]
    sums = _sum_metrics(run, options, texts, rows)
    documents = np.array([text.passage.document for text in texts])
    result: Result = {}
    arrays = {EXAMPLES: passages.identity(texts, RATES)}
    for at, rate in enumerate(f"{rate:g}" for rate in RATES):
        part = {name: values[at] for name, values in sums.items()}
        found = {name: float(part[a].sum() / part[b].sum()) for name, (a, b) in METRICS.items()}
        error = standard_error(part["nats"], part["characters"], documents)
        found |= {"nats_per_character_error": error, "mlm_predictions": int(part["tokens"].sum())}
        counts = ("words", "characters", "unknown_words")
        result[rate] = found | {name: int(part[name].sum()) for name in counts}
        for name, (a, b) in METRICS.items():
            arrays |= {f"{rate}/{name}.sum": part[a], f"{rate}/{name}.count": part[b]}
    return result, arrays


def _sum_metrics(
    run: runs.TrainedModel,
    options: Passages,
    texts: list[passages.Encoded],
    rows: list[hidden.Row],
) -> dict[str, np.ndarray]:
    """Return SUMS by name: float64 [rates, passages] each."""
    sums = {name: np.zeros((len(RATES), len(texts))) for name in SUMS}
    progress = Progress("cross_rate: tokens")
    for number, nats, right in hidden.score_hidden(run, rows, options.batch_size, progress):
        at = divmod(number, len(texts))
        text, row = texts[at[1]], rows[number]
        words, masked = text.words[row.hidden], text.passage.masked(RATES[at[0]])
        unknown = words[row.ids[row.hidden] == run.tokenizer.special.unk]
        sums["nats"][at] = nats.sum()
        sums["tokens"][at] = len(nats)
        sums["right_tokens"][at] = right.sum()
        sums["words"][at] = masked.sum()
        sums["characters"][at] = text.passage.lengths[masked].sum()
        sums["right_words"][at] = len(np.unique(words)) - len(np.unique(words[~right]))
        sums["unknown_words"][at] = len(np.unique(unknown))
    return sums
