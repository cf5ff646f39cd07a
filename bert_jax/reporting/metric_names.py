"""Names of metrics for readers: titles, which are shares, their baselines, which way is better."""

from __future__ import annotations

import math

from bert_jax.config.knobs import OBJECTIVES

# The evaluation's own reference for a metric: the value that reading no context reaches.
BASELINES = {
    "mlm_loss": ("unigram_loss", "the unigram"),
    "mlm_accuracy": ("unigram_accuracy", "the most frequent token"),
    "causal_lm_loss": ("unigram_loss", "the unigram"),
    "causal_lm_accuracy": ("unigram_accuracy", "the most frequent token"),
    "nsp_accuracy": ("majority_accuracy", "the majority"),
    "sop_accuracy": ("majority_accuracy", "the majority"),
    "accuracy": ("majority_accuracy", "the majority"),
}
CHANCE = {"nsp_loss": math.log(2), "sop_loss": math.log(2)}
PLAIN = {
    "exact": "Exact match",
    "grad_norm": "Gradient norm",
    "data_wait": "Waiting for data",
    "mfu": "Model FLOPs utilisation",
}
SHOUTED = {
    *("mlm", "lm", "nsp", "sop", "mfu", "f1", "mcc", "pll", "pos", "ner"),
    *("mnli", "qnli", "mrpc", "rte"),
}
WRITTEN = {
    "blimp": "BLiMP",
    "sst2": "SST-2",
    "squad": "SQuAD",
    "squad2": "SQuAD 2.0",
    "conll2003": "CoNLL-2003",
}
COUNTS = ("_low", "_high", "examples", "predictions", "seconds")  # beside an evaluation's results
SHARES = ("accuracy", "fraction", "data_wait", "mfu", "f1", "exact", "precision", "recall")
UNITS = {  # by the ending of a metric's name
    **{f"{name}_loss": row.unit for name, row in OBJECTIVES.items()},
    "_loss": "nats",
    "tokens_per_second": "tokens/s",
    "flops_per_second": "FLOP/s",
    "nats_per_token": "nats",
    "seconds": "s",
    "bytes": "bytes",
    "skipped": "updates",
    "spikes": "updates",
}
LOWER = ("loss", "mse", "perplexity", "nats_per_token")  # is better


def is_share(name: str) -> bool:
    """Return whether a metric lies between 0 and 1 and is written in per cent."""
    return name.endswith(SHARES)


def is_result(name: str) -> bool:
    """Return whether a metric of an evaluation is a result: no baseline, interval or count."""
    references = tuple(reference for reference, _ in BASELINES.values())
    return not name.endswith((*references, *COUNTS))


def baselines(name: str) -> tuple[list[str], str]:
    """Return the metrics of which the first that is there is a metric's baseline, and its words."""
    reference, words = BASELINES.get(name, ("", ""))
    own = f"{name.rpartition('_')[0]}_{reference}"  # where an evaluation reads in two ways
    return ([own, reference] if reference else []), words


def lower_is_better(name: str) -> bool:
    """Return whether lower values of a metric are better."""
    return name.endswith(LOWER)


def unit(name: str) -> str:
    """Return the unit of a metric; empty for a share or a plain number."""
    return next((unit for ending, unit in UNITS.items() if name.endswith(ending)), "")


def axis_title(name: str, words: str = "") -> str:
    """Write a metric's name, or other words, with its unit; shares have theirs at the ticks."""
    words = words or pretty(name)
    return f"{words} ({unit(name)})" if unit(name) else words


def pretty(name: str) -> str:
    """Write a metric's name as a title."""
    words = name.replace("/", " ").replace("_", " ").split(" ")
    text = PLAIN.get(
        name,
        " ".join(word.upper() if word in SHOUTED else WRITTEN.get(word, word) for word in words),
    )
    return text[:1].upper() + text[1:]
