"""Check that the data a study names exists, before its first cell is trained and in a dry run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from bert_jax.config import knobs
from bert_jax.data import files, task_files
from bert_jax.errors import ConfigError, DataError, UserError
from bert_jax.studies.definition import finetunings
from bert_jax.studies.spec import Study, Suite


def check(study: Study, configs: Iterable[knobs.Config]) -> None:
    """Refuse cells whose local corpus, vocabulary or labelled data does not exist.

    Data that is not on this machine, such as that of TFDS, is not checked.
    """
    cells = list(configs)
    if not cells:
        return
    for config in {(c.corpus, c.tokenizer.path, c.task.source): c for c in cells}.values():
        _check_config(config)
    for name, config in finetunings(study, cells):
        try:
            _check_config(config)
        except UserError as error:
            raise type(error)(f"evaluation {name!r}: {error}", error.hint) from error
    for name, evaluation in study.evaluations.items():
        options = dict(evaluation.ask) if isinstance(evaluation, Suite) else {}
        source = str(options.get("source", ""))
        scheme, _, path = source.partition(":")
        plain = not set("{*?[=") & set(path)  # neither a pattern nor files by split
        if scheme == "files" and plain and not Path(path).expanduser().exists():
            raise DataError(
                f"evaluation {name!r}: source {source!r} does not exist",
                "files:FILE, FOLDER or PATTERN",
            )


def _check_config(config: knobs.Config) -> None:
    if config.task.source:
        splits = ("train", *dict.fromkeys(settings.split for settings in config.evals.values()))
        task_files.check_files(config.task, splits)
    elif config.corpus.source == "files":
        files.find_files(config.corpus)
    path = config.tokenizer.path
    if path and not Path(path).expanduser().exists():
        raise ConfigError(
            f"config.tokenizer.path = {path!r} does not exist",
            "a vocab.txt, tokenizer.json or folder",
        )
