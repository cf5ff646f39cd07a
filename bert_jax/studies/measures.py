"""Which metrics an evaluation of a study finds: a comparison by any other would never be made."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase

from bert_jax.config import knobs, suggest
from bert_jax.data import tasks
from bert_jax.errors import ConfigError
from bert_jax.studies.spec import Finetune, Study, Suite

TASK = (
    "examples",
    "loss",
    "accuracy_low",
    "accuracy_high",
    "majority_accuracy",
)  # beside a task's own
READING = ("mlm", "causal_lm")  # objectives over tokens; the others are over pairs
LAYERS = ("majority", "embeddings/*", "layer_*")
FOUND = {  # suite -> its metrics, a star for any text; a test holds them to what the suites find
    "nsp": (
        "nsp_loss",
        "nsp_accuracy",
        "nsp_accuracy_low",
        "nsp_accuracy_high",
        "majority_accuracy",
        "examples",
    ),
    "cross_rate": tuple(
        f"0.*/{name}"
        for name in (
            "mlm_loss",
            "mlm_accuracy",
            "mlm_predictions",
            "unigram_loss",
            "unigram_accuracy",
        )
    ),
    "pll": ("pseudo_perplexity*", "pll*", "perplexity", "log_likelihood", "texts", "tokens"),
    "blimp": ("accuracy*", "field/*", "term/*", "paradigm/*", "pairs", "ties"),
    "sts": ("*/spearman", "*/pearson", "pairs"),
    "probe": (
        *(
            f"{part}/{name}"
            for part in LAYERS
            for name in dict.fromkeys(sum(knobs.METRICS.values(), ()))
        ),
        *("train", "scored"),
    ),
}


def found(evaluation: Suite | Finetune, objectives: Collection[str]) -> Sequence[str]:
    """List the metrics of an evaluation, a star for any text; objectives are those of the cells."""
    if isinstance(evaluation, Finetune):
        changed = tasks.settings(evaluation.task) | dict(evaluation.changes)
        return (
            *(changed.get("task.metrics") or knobs.METRICS[tasks.TASKS[evaluation.task].kind]),
            *TASK,
        )
    if evaluation.name != "pretrain":
        return FOUND[evaluation.name]
    names: list[str] = []
    for one in objectives:
        names += [f"{one}_loss", f"{one}_accuracy"]
        names += (
            [f"{one}_predictions", "unigram_loss", "unigram_accuracy"]
            if one in READING
            else [f"{one}_accuracy_low", f"{one}_accuracy_high", "majority_accuracy"]
        )
    return list(dict.fromkeys([*names, "examples"]))


def check(study: Study, objectives: Collection[str]) -> None:
    """Refuse a comparison by a metric that its evaluation does not find."""
    for comparison in study.comparisons:
        for metric in comparison.metrics:
            name, _, rest = metric.partition("/")
            known = found(study.evaluations[name], objectives)
            if not any(fnmatchcase(rest, one) for one in known):
                raise ConfigError(
                    f"evaluation {name!r} finds no metric {rest!r}", suggest(rest, known)
                )
