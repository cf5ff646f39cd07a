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
from bert_jax.suites.base import SuiteOptions
from bert_jax.system import log


def task_of(
    run: runs.TrainedModel, options: SuiteOptions, suite: str, usual: str | Mapping[str, Any] = ""
) -> knobs.Config:
    """Return a config whose task, objective and length are those of the data.

    It is that of --config, else the named row of `data/tasks.py`, else the suite's usual task (a
    row's name, or knobs by path), else the run's own; with the source and the knobs of the task
    from the command line.
    """
    config, row = options.config, options.task or usual
    name = "--suite=sst2" if suite == "task" else "--task=sst2"
    settings = tasks.list_knobs(row) if row and isinstance(row, str) else row
    if config is not None and options.task:
        raise ConfigError(
            f"--task={options.task} beside a --config, which has a task of its own",
            "leave one of them out",
        )
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


def main_split(config: knobs.Config, options: SuiteOptions) -> str:
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
