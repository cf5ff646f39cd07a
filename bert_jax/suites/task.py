"""The suites of a fine-tuned checkpoint: its own task, a named task, or all tasks of GLUE."""

import dataclasses
from typing import Any

import jax
import numpy as np

from bert_jax.config import knobs
from bert_jax.data import examples, tasks
from bert_jax.errors import ConfigError, DataError, HeadError, MissingError, need
from bert_jax.evaluation import submission, task_evaluator
from bert_jax.interop import runs
from bert_jax.interop.initial import UNNAMED
from bert_jax.suites import Detailed, Options, Result, labelled, need_head
from bert_jax.suites.base import Progress
from bert_jax.suites.forward import place_params
from bert_jax.system import log, opening

GLUE = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli", "ax")


def score(run: runs.TrainedModel, options: Options) -> Detailed:
    """Score the task that the suite stands for, or every task of GLUE for the suite `glue`.

    For the suite `task` this is the task of --config, or else the checkpoint's own task.
    """
    if options.suite == "glue":
        return _score_glue(run, options), {}
    if options.suite == "task":
        config = labelled.find_task(run, options, config=options.config)
        return _score_task(run, options, config), {}
    return _score_named(run, options, options.suite), {}


def _score_glue(run: runs.TrainedModel, options: Options) -> Result:
    """Score each task of GLUE whose classes the head has and whose files can be read.

    With --submission these are only the tasks that the model was trained on. The result is
    {task: metrics}.
    """
    names = _list_submitted(run) if options.submission else GLUE
    result: Result = {}
    left_out: list[str] = []
    damaged: list[DataError] = []
    for name in names:
        try:
            result[name] = _score_named(run, options, name)
        except (HeadError, MissingError) as error:
            left_out.append(f"{name}: {error}")
        except DataError as error:
            damaged.append(error)
            log.log_line(f"warning: left out {name}: {error}")
    if damaged and not result:
        raise damaged[0]
    if not result:
        raise ConfigError(
            f"no task of GLUE fits {run.folder}; {left_out[0]}",
            "fine-tune with configs/finetune.py:TASK",
        )
    for line in left_out:
        log.log_line(f"left out {line}")
    return result


def _list_submitted(run: runs.TrainedModel) -> tuple[str, ...]:
    """List the tasks whose files a model may write.

    These are the task that it was trained on, and ax after mnli.
    """
    own = run.config.task.name
    need(
        own in GLUE,
        f"{run.folder} names no task of GLUE that it was trained on, and a file for each task "
        "whose classes it has would be wrong",
        "--suite=TASK writes the file of one task",
    )
    return ("mnli", "ax") if own == "mnli" else (own,)


def _score_named(run: runs.TrainedModel, options: Options, name: str) -> Result:
    """Score the task of a row of `data/tasks.py`."""
    need_head(run, tasks.TASKS[name].kind, name)
    own = run.config.task.source and run.config.task.name == name and not options.source
    return _score_task(run, options, labelled.find_task(run, options, "" if own else name))


def _score_task(run: runs.TrainedModel, options: Options, config: knobs.Config) -> Result:
    """Score the split of --split, or else the split of each of the task's evaluations.

    The result is {metric: value}. The metrics of evaluations other than `validation` begin with the
    name of the evaluation, as in "NAME/accuracy".
    """
    kind = labelled.find_kind(config)
    need_head(run, kind, config.task.name or "task")
    need(
        not (options.submission and options.limit),
        "--limit leaves out rows that a server asks for",
        "leave it out, or --submission",
    )
    if config.task == run.config.task and not options.source:
        _check_data(run)
    config, head = _arrange_head(config, run)
    splits = _choose_splits(config, options)
    if options.submission:  # before the evaluation, whose scores an error would lose
        folder = opening.expand_home(options.submission)
        labels = config.objectives[kind].labels
        for split in splits.values():
            submission.check_submission(config.task.name, split, labels, folder)
    params, mesh = place_params({"encoder": run.params["encoder"], kind: head})
    size = options.batch_size or knobs.EVALUATED
    result: Result = {}
    for name, split in splits.items():
        trained = options.source in ("", run.config.task.source)
        data = config if trained else labelled.take_whole_file(config, split)
        held_out = labelled.load_examples(data, split, options.limit)
        scorer = task_evaluator.TaskEvaluator(config, run.tokenizer, held_out, size, mesh)
        scores, predictions = scorer.evaluate(params, Progress(f"{split}: batches"))
        if options.submission:
            written = submission.write_submission(
                config.task.name, split, held_out, predictions, labels, folder
            )
            log.log_line("wrote " + ", ".join(str(path) for path in written))
        if len(scores) == 1:
            log.log_line(f"{split}: no labels, so there is nothing to score")
        prefix = "" if name == "validation" else f"{name}/"
        result |= {f"{prefix}{key}": value for key, value in scores.items()}
    return result


def _check_data(run: runs.TrainedModel) -> None:
    """Refuse to score a run on its own task if the data changed since its training."""
    saved = run.meta.get("corpus")
    if saved is None:
        return
    try:
        same = examples.hash_training_data(run.config) == saved
    except MissingError as error:
        log.log_line(f"warning: {error}: what the data were when it was trained cannot be compared")
        return
    source = run.config.task.source
    need(
        same,
        f"{run.folder} was trained on other data than {source} holds now",
        f"put the files back; to score it on what is there now, --source={source}",
    )


def _choose_splits(config: knobs.Config, options: Options) -> dict[str, str]:
    """Return the evaluations to make, as {evaluation: split}."""
    if options.split:
        return {"validation": options.split}
    if options.submission:
        row = tasks.TASKS.get(config.task.name)
        if row is None or row.submission is None:
            raise ConfigError(
                f"no server takes {config.task.name or 'this task'}", "leave --submission out"
            )
        public = "validation" if row.kind == "span" else "test"  # SQuAD's test set is not
        return {split: split for split in row.submission.files if split.startswith(public)}
    splits = {name: evaluation.split for name, evaluation in config.evals.items()}
    return splits or {"validation": labelled.choose_split(config, options)}


def _arrange_head(config: knobs.Config, run: runs.TrainedModel) -> tuple[knobs.Config, Any]:
    """Return a task's config with the model's encoder, and the head's parameters for the task.

    The classes of the head are put in the task's order, because F1 is computed for the second of
    two classes. Names that differ only in upper and lower case are the same class.
    """
    kind = labelled.find_kind(config)
    head, task = run.params[kind], config.task
    ours = run.config.objectives[kind].labels
    theirs = config.objectives[kind].labels or ours
    places = {label.casefold(): place for place, label in enumerate(ours)}
    wanted = [label.casefold() for label in theirs]
    if ours == theirs:
        pass
    elif len(ours) == len(theirs) and sorted(places) == sorted(wanted):
        order = np.array([places[label] for label in wanted])
        logits = jax.tree.map(lambda values: np.asarray(values)[..., order], head["logits"])
        head = {**head, "logits": logits}
    elif len(ours) == len(theirs) and all(UNNAMED.fullmatch(label) for label in ours):
        log.log_line(
            f"{run.folder} does not name its classes: taken as {', '.join(theirs)}, in this order"
        )
    else:
        raise HeadError(
            f"{run.folder} knows the classes {', '.join(ours)}, "
            f"and {task.name or 'the task'} has {', '.join(theirs)}",
            "evaluate a checkpoint that was fine-tuned on this task",
        )
    objective = dataclasses.replace(config.objectives[kind], labels=theirs)
    return dataclasses.replace(config, model=run.config.model, objectives={kind: objective}), head
