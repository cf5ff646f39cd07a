"""Suite `nsp`: next sentence prediction, on the pairs of a corpus or of a file."""

import dataclasses

from bert_jax.config import knobs
from bert_jax.errors import DataError, need
from bert_jax.evaluation.task_evaluator import TaskEvaluator
from bert_jax.interop import runs
from bert_jax.suites import Detailed, Options, Result, labelled, pretrain
from bert_jax.suites.base import Progress
from bert_jax.suites.forward import place_params

LABELS = ("is_next", "not_next")  # in the order of the head
METRICS = ("loss", "accuracy", "accuracy_low", "accuracy_high")
PAIRS = {  # how a file of pairs is read, unless --config.task.KNOB changes it
    "objectives": {"classify": {"weight": None, "labels": LABELS}},
    "task.text_pair": "text_pair",
    "checkpoints.best": "accuracy",
}


def score(run: runs.TrainedModel, options: Options) -> Detailed:
    """Return the loss, the accuracy with its interval, and the share of the commoner label."""
    if options.source:
        return _score_file(run, options), {}
    config = pretrain.choose_config(run, options)
    need(
        "nsp" in config.objectives,
        f"a corpus with pairs = {config.pairs!r} has no next sentences",
        "--config.pairs=nsp",
    )
    config = dataclasses.replace(config, objectives={"nsp": config.objectives["nsp"]})
    scorer, params = pretrain.make_evaluator(run, options, config)
    return scorer(params, Progress("nsp")), {}


def _score_file(run: runs.TrainedModel, options: Options) -> Result:
    """Score a file with the columns text, text_pair and label, as a task of two classes."""
    config = labelled.find_task(run, options, PAIRS, config=options.config)
    split = labelled.choose_split(config, options)
    pairs = labelled.load_examples(
        labelled.take_whole_file(config, split), split, options.limit, known=True
    )
    kind = labelled.find_kind(config)
    if not pairs or kind != "classify" or len(config.objectives[kind].labels) != 2:
        raise DataError(
            f"{config.task.source} holds no pairs labelled {' or '.join(LABELS)}",
            "see --config.task.values",
        )
    task = dataclasses.replace(config.task, metrics=())
    config = dataclasses.replace(config, model=run.config.model, task=task)
    params, mesh = place_params({"encoder": run.params["encoder"], kind: run.params["nsp"]})
    size = options.batch_size or knobs.EVALUATED
    scorer = TaskEvaluator(config, run.tokenizer, pairs, size, mesh)
    found = scorer(params, Progress("nsp: batches"))
    named = {f"nsp_{name}": found[name] for name in METRICS}
    return {"examples": len(pairs), **named, "majority_accuracy": found["majority_accuracy"]}
