"""The labelled data that a suite scores, whatever data the checkpoint was trained on."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from bert_jax.config import change_knobs, default, knobs, overrides, put, resolve, set_values
from bert_jax.data import examples, tasks
from bert_jax.data.examples import Example
from bert_jax.errors import need
from bert_jax.interop import runs
from bert_jax.suites import Options
from bert_jax.system import log, opening


def find_task(
    run: runs.TrainedModel,
    options: Options,
    task: str | Mapping[str, Any] = "",
    config: knobs.Config | None = None,
) -> knobs.Config:
    """Return the config to score with, whose task, objective and length fit the data.

    This is `config` if it is given. Without it, `task` changes the default config: it is the name
    of a row of `data/tasks.py`, or {path of a knob: value}. Without both, it is the config of the
    run. The command line may then change the source and knobs of the task.
    """
    suite = options.suite
    name = "--suite=sst2" if suite == "task" else "--task=sst2"
    read: tuple[str, ...] = ("task", "objectives")
    if config is not None:
        need(
            bool(config.kind and (options.source or config.task.source)),
            f"suite {suite} needs labelled data, and config.task.source is empty",
            f"name a task: {name}",
        )
        read = (*read, "evals", "sequence_length")
    for path, _ in options.changes:
        need(
            path.partition(".")[0] in read,
            f"config.{path} means nothing to suite {suite}",
            f"leave it out: it reads {', '.join(read)}",
        )
    if config is None and task:
        settings = tasks.list_knobs(task) if isinstance(task, str) else dict(task)
        if options.source:
            settings["task.source"] = options.source
        tree = default()
        put(tree, ["pairs"], "none")
        set_values(tree, settings)
        overrides(tree, options.changes)
        config = resolve(tree)
    elif config is None:
        need(
            bool(run.config.task.source),
            f"suite {suite} needs a task, and {run.folder} was not trained on one",
            f"{name} --source=files:FOLDER, or --config=FILE.py",
        )
        config = change_knobs(run.config, options.changes)
    source = options.source or config.task.source
    return dataclasses.replace(
        config,
        task=dataclasses.replace(config.task, source=source),
        sequence_length=min(config.sequence_length, run.longest),
    )


def find_frozen_task(run: runs.TrainedModel, options: Options, usual: str = "") -> knobs.Config:
    """Return the config of the task that measures a model's vectors, by default task `usual`."""
    need(
        options.config is None or not options.task,
        f"--task={options.task} beside a --config, which has a task of its own",
        "leave one of them out",
    )
    return find_task(run, options, options.task or usual, options.config)


def choose_split(config: knobs.Config, options: Options) -> str:
    """Return the split to score: the --split flag, or the split of the task's evaluation."""
    return options.split or config.evals.get("validation", knobs.Eval()).split


def take_whole_file(config: knobs.Config, split: str) -> knobs.Config:
    """Change a config whose source is a single file, so that all rows of the file are the split.

    No row has to be kept for training, because nothing is trained on the file.
    """
    scheme, _, path = config.task.source.partition(":")
    if scheme != "files" or not opening.expand_home(path).is_file():
        return config
    task = dataclasses.replace(config.task, source=f"files:{split}={path}")
    return dataclasses.replace(config, task=task)


def find_kind(config: knobs.Config) -> str:
    """Return the kind of a task, which is the name of its objective."""
    return next(iter(config.objectives))


def load_examples(
    config: knobs.Config, split: str, limit: int = 0, *, known: bool = False
) -> list[Example]:
    """Load the first `limit` examples of a split; with `known`, only examples that have a label."""
    kind = find_kind(config)
    labels = config.objectives[kind].labels
    found = examples.load_examples(config.task, kind, labels, split, log.log_line)
    return [one for one in found if one.label is not None or not known][: limit or None]
