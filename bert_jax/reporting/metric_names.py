"""Names of metrics for readers: titles, which are shares, their baselines, which way is better."""

from __future__ import annotations

import math
import re

from bert_jax.config.knobs import OBJECTIVES

# The evaluation's own reference for a metric: the value that reading no context reaches.
BASELINES = {
    "mlm_loss": ("unigram_loss", "the unigram"),
    "mlm_accuracy": ("unigram_accuracy", "the most frequent token"),
    "causal_lm_loss": ("unigram_loss", "the unigram"),
    "causal_lm_accuracy": ("unigram_accuracy", "the most frequent token"),
    "nsp_accuracy": ("majority_accuracy", "the majority"),
    "sop_accuracy": ("majority_accuracy", "the majority"),
    "replaced_accuracy": ("majority_accuracy", "the majority"),
    "replaced_loss": ("base_rate_loss", "the base rate"),
    "accuracy": ("majority_accuracy", "the majority"),
}
CHANCE = {"nsp_loss": math.log(2), "sop_loss": math.log(2)}
PLAIN = {
    "exact": "Exact match",
    "grad_norm": "Gradient norm",
    "data_wait": "Waiting for data",
    "mfu": "Model FLOPs utilisation",
    "model_flops_per_second": "Model FLOP/s",
    "step_seconds": "Seconds per update",
    "skipped_in_row": "Skipped updates in a row",
    "examples_per_row": "Examples in a row",
    "asked_fraction": "Masking rate asked for",
    "expected_fraction": "Masking rate before rounding",
    "predicted_fraction": "Predicted, of selected tokens",
    "masked_fraction": "Selected, of eligible tokens",
    "mask_token_fraction": "Made [MASK], of selected tokens",
    "random_fraction": "Made random, of selected tokens",
    "kept_fraction": "Kept, of selected tokens",
    "quota_fraction": "Quota, of eligible tokens",
    "predict_quota_fraction": "Quota of predictions, of selected tokens",
    "shortfall_fraction": "Quota that no unit fills",
    "predict_shortfall_fraction": "Quota of predictions that no unit fills",
    "distinct_fraction": "Tokens selected in one view alone",
    **{f"asked_decile_{i}": f"Asked for, tenth {i + 1} of the drawn rates" for i in range(10)},
    "causal_fraction": "Causal examples",
    "replaced_fraction": "Replaced, of judged tokens",
    "weight_fraction": "Weight of the tokens selected",
    "mcc": "Matthews correlation",
    "mse": "Mean squared error",
    "pearson": "Pearson correlation",
    "spearman": "Spearman correlation",
    "has_answer_exact": "Exact match, with an answer",
    "has_answer_f1": "F1, with an answer",
    "no_answer_exact": "Exact match, without an answer",
    "no_answer_f1": "F1, without an answer",
    "best_exact": "Exact match at the best threshold",
    "best_exact_threshold": "Best threshold for exact match",
    "best_f1": "F1 at the best threshold",
    "best_f1_threshold": "Best threshold for F1",
}
# What a metric means; an entry of an ending holds for all metrics that no longer one fits.
MEANINGS = {
    "loss": "What training makes smaller: how improbable the right answers are to the model, in "
    "nats; several objectives are added by their weights.",
    "mlm_loss": "Masked language modelling: how improbable the hidden tokens are to the model, "
    "the mean of -log p over all that it has to predict, in nats.",
    "mlm_accuracy": "Share of the hidden tokens that are the model's first guess.",
    "causal_lm_loss": "Reading from left to right: the mean of -log p of each next token, in nats.",
    "causal_lm_accuracy": "Share of next tokens that are the model's first guess.",
    "nsp_loss": "Next sentence prediction: how improbable the right answer is to the question "
    "whether the second text follows the first, in nats; guessing gives 0.693.",
    "nsp_accuracy": "Share of pairs of texts of which the model says rightly whether the second "
    "follows the first.",
    "sop_loss": "Sentence order prediction: how improbable the right order of two texts is, in "
    "nats; guessing gives 0.693.",
    "sop_accuracy": "Share of pairs of texts whose order the model gets right.",
    "diffusion_loss": "Masked diffusion: a bound on -log p of a token of the text, in nats; with "
    "enough masks drawn the text is at least so probable.",
    "nats_per_token": "The mean of -log p of a token of the model's own vocabulary: models of "
    "different vocabularies do not compare by it.",
    "nats_per_word": "-log p of the words, by the number of words, which are what stands between "
    "white space, and each Chinese character: models of any vocabulary compare by it.",
    "nats_per_character": "-log p of the words, by the number of their characters: models of any "
    "vocabulary compare by it.",
    "word_accuracy": "Share of the masked words of which every token is the model's first guess.",
    "unknown_words": "Words that are [UNK] in the model's vocabulary, which is easier to predict.",
    "pll": "Pseudo-log-likelihood of a text, on average: each token is masked alone, and its "
    "log p given all others is added.",
    "pseudo_perplexity": "exp of the mean of -log p of a token, each masked alone.",
    "diffusion_accuracy": "Share of the hidden tokens that are the model's first guess, at rates "
    "drawn anew.",
    "replaced_loss": "Replaced token detection: how improbable the right answer is, for each "
    "token, to the question whether it is the original, in nats.",
    "replaced_accuracy": "Share of tokens of which the model says rightly whether they are the "
    "original; most are, so compare it with the majority.",
    "replaced_precision": "Share of the tokens taken for replaced ones that are.",
    "replaced_recall": "Share of the replaced tokens that are found.",
    "replaced_fraction": "Share of the tokens that are not the original; one that was drawn and "
    "happens to be it is an original.",
    "regress_loss": "The mean of the squared distance from the right number.",
    "mse": "The mean of the squared distance from the right number.",
    "pearson": "Correlation of predicted and right numbers; 1 where they lie on a rising line.",
    "spearman": "Correlation of the ranks of predicted and right numbers; 1 where their order is "
    "the same.",
    "mcc": "Correlation of predicted and right classes; 0 where nothing is learnt, 1 where all is "
    "right, whatever the sizes of the classes.",
    "macro_f1": "The mean of the classes' F1, each class counting the same.",
    "f1": "Harmonic mean of precision (what is predicted is right) and recall (what is there is "
    "found); of answers, of the words they share with the right one.",
    "precision": "Share of the predicted entities that are right, in type and in every word.",
    "class_precision": "Share of what is taken for the class that is of it.",
    "class_recall": "Share of the class that is found.",
    "recall": "Share of the entities in the text that are found, in type and in every word.",
    "exact": "Share of answers that are a right one once case, punctuation and articles are "
    "dropped.",
    "threshold": "How much surer of no answer than of an answer the model must be to give none.",
    "accuracy": "Share of predictions that are right; of minimal pairs, those whose good sentence "
    "is the likelier one: two that are equally likely are wrong.",
    "pipeline_accuracy": "Share of choices in which no option is likelier than the right one. "
    "Equally likely ones are right, as in BabyLM's own pipeline.",
    "_loss": "The mean of -log p of the right answers, in nats.",
    "learning_rate": "The size of an update, as the schedule has it at this step.",
    "grad_norm": "Length of the gradient before it is clipped, over all parameters; peaks mean "
    "batches that would move the model far.",
    "skipped_in_row": "How many updates before this step were not made, one after the other.",
    "examples_per_row": "How many examples packing puts into a row of the batch.",
    "masked_fraction": "Share of the tokens that may be masked (not [CLS], [SEP], padding) that "
    "were selected.",
    "quota_fraction": "Share of the tokens that may be masked that the rate asks for, in whole "
    "tokens of each example.",
    "asked_fraction": "The masking rate as rounded to whole tokens in each example.",
    "expected_fraction": "The masking rate, of at least one token in each example, before a draw "
    "rounds it to whole tokens.",
    "mask_token_fraction": "Share of the selected tokens that became [MASK].",
    "random_fraction": "Share of the selected tokens that became another token, drawn at random.",
    "kept_fraction": "Share of the selected tokens that the model read unchanged.",
    "predicted_fraction": "Share of the selected tokens that the model had to predict.",
    "predict_quota_fraction": "Share of the selected tokens that the prediction rate asks for.",
    "shortfall_fraction": "Share of the quota that stayed empty, as the next unit was too large.",
    "distinct_fraction": "Share of the selected tokens that no other view of the example selects.",
    "asked_decile": "Tokens to mask in this tenth of the drawn rates, as a share of what the law "
    "expects there.",
    "causal_fraction": "Share of the examples that were read from left to right.",
    "weight_fraction": "Share of the units' weights that the selected ones have.",
    "tokens_per_second": "Tokens of text trained on in a second, without padding, compilation and "
    "evaluations.",
    "step_seconds": "Time of an update, without compilation and evaluations.",
    "data_wait": "Share of the time in which the devices waited for the next batch.",
    "mfu": "The model's floating-point operations a second, as a share of what the devices can do "
    "by their data sheets.",
    "model_flops_per_second": "Floating-point operations a second that the model needs, with "
    "nothing that is computed twice.",
}
SHOUTED = {
    *("mlm", "lm", "nsp", "sop", "mfu", "f1", "mcc", "pll", "pos", "ner"),
    *("mnli", "qnli", "mrpc", "rte"),
}
WRITTEN = {
    "blimp": "BLiMP",
    "babylm": "BabyLM",
    "ewok": "EWoK",
    "sst2": "SST-2",
    "stsb": "STS-B",
    "spearman": "Spearman",
    "pearson": "Pearson",
    "squad": "SQuAD",
    "squad2": "SQuAD 2.0",
    "conll2003": "CoNLL-2003",
}
# Beside an evaluation's results.
COUNTS = (
    *("_low", "_high", "character_error"),
    *("examples", "predictions", "seconds", "replaced_fraction"),
)
SHARES = ("accuracy", "fraction", "data_wait", "mfu", "f1", "exact", "precision", "recall")
NATS = ("nats_per_token", "nats_per_word", "nats_per_character")
UNITS = {  # by the ending of a metric's name
    **{f"{name}_loss": row.unit for name, row in OBJECTIVES.items()},
    "_loss": "nats",
    "tokens_per_second": "tokens/s",
    "flops_per_second": "FLOP/s",
    **dict.fromkeys(NATS, "nats"),
    "seconds": "s",
    "bytes": "bytes",
}
LOWER = ("loss", "mse", "perplexity", *NATS)  # is better
CORRECTED = "_word_l2r"  # ends the name of a score by the within-word correction


def is_share(name: str) -> bool:
    """Return whether a metric lies between 0 and 1 and is written in per cent."""
    return name.removesuffix(CORRECTED).endswith(SHARES)


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
    return name.removesuffix(CORRECTED).endswith(LOWER)


def unit(name: str) -> str:
    """Return the unit of a metric; empty for a share or a plain number."""
    name = name.removesuffix(CORRECTED)
    return next((unit for ending, unit in UNITS.items() if name.endswith(ending)), "")


def axis_title(name: str, words: str = "") -> str:
    """Write a metric's name, or other words, with its unit; shares have theirs at the ticks."""
    words = words or pretty(name)
    return f"{words} ({unit(name)})" if unit(name) else words


def meaning(name: str) -> str:
    """Say what a metric means; empty for one that is not known."""
    short = re.sub(r"_\d+$", "", name.rpartition("/")[2]).removesuffix(CORRECTED)
    fits = [ending for ending in MEANINGS if short.endswith(ending)]
    return MEANINGS[max(fits, key=len)] if fits else ""


def pretty(name: str) -> str:
    """Write a metric's name as a title."""
    words = name.replace("/", " ").replace("_", " ").split(" ")
    text = PLAIN.get(
        name,
        " ".join(word.upper() if word in SHOUTED else WRITTEN.get(word, word) for word in words),
    )
    return text[:1].upper() + text[1:]
