"""The labelled data of a suite, whatever the checkpoint was trained on."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_jax.config import changed, default, knobs, overrides, put, resolve, set_values
from bert_jax.data import examples, tasks
from bert_jax.data.examples import Example
from bert_jax.errors import ConfigError
from bert_jax.interop import runs
from bert_jax.suites import Frozen, Labelled
from bert_jax.system import log


def find_task(
    run: runs.TrainedModel,
    options: Labelled,
    task: str | Mapping[str, Any] = "",
    config: knobs.Config | None = None,
) -> knobs.Config:
    """Return a config whose task, objective and length are those of the data.

    It is the config, else the task (a row of `data/tasks.py`, or knobs by path), else the run's
    own; with the source and the knobs of the task from the command line.
    """
    suite = options.suite
    name = "--suite=sst2" if suite == "task" else "--task=sst2"
    settings = tasks.list_knobs(task) if task and isinstance(task, str) else task
    if config is not None and not config.task.source:
        raise ConfigError(
            f"suite {suite} needs labelled data, and config.task.source is empty",
            f"name a task: {name}",
        )
    read = ("task", "objectives", *(("evals", "sequence_length") if config is not None else ()))
    for path, _ in options.changes:
        if path.partition(".")[0] not in read:
            raise ConfigError(
                f"config.{path} means nothing to suite {suite}",
                f"leave it out: it reads {', '.join(read)}",
            )
    if config is None and settings:
        tree = default()
        put(tree, ["pairs"], "none")
        set_values(
            tree, {**settings, **({"task.source": options.source} if options.source else {})}
        )
        overrides(tree, options.changes)
        config = resolve(tree)
    elif config is None:
        if not run.config.task.source:
            example = f"{name} --source=files:FOLDER, or --config=FILE.py"
            raise ConfigError(
                f"suite {suite} needs a task, and {run.folder} was not trained on one", example
            )
        config = changed(run.config, options.changes)
    if options.source:
        config = dataclasses.replace(
            config, task=dataclasses.replace(config.task, source=options.source)
        )
    return dataclasses.replace(config, sequence_length=min(config.sequence_length, run.longest))


def find_frozen_task(run: runs.TrainedModel, options: Frozen, usual: str = "") -> knobs.Config:
    """Return the config of the task on which the vectors of a model are measured."""
    if options.config is not None and options.task:
        raise ConfigError(
            f"--task={options.task} beside a --config, which has a task of its own",
            "leave one of them out",
        )
    return find_task(run, options, options.task or usual, options.config)


def main_split(config: knobs.Config, options: Labelled) -> str:
    """Return the split to score: --split, else that of the task's evaluation."""
    return options.split or config.evals.get("validation", knobs.Eval()).split


def whole(task: knobs.Task, split: str) -> knobs.Task:
    """Take all rows of a single file as the split, since nothing is trained on the rest of it."""
    scheme, _, path = task.source.partition(":")
    if scheme == "files" and Path(path).expanduser().is_file():
        return dataclasses.replace(task, source=f"files:{split}={path}")
    return task


def kind_of(config: knobs.Config) -> str:
    """Return the objective of a task."""
    return next(iter(config.objectives))


def load(config: knobs.Config, split: str) -> list[Example]:
    """Load the examples of a split."""
    kind = kind_of(config)
    labels = config.objectives[kind].labels
    return examples.load_examples(config.task, kind, labels, split, log.line)
