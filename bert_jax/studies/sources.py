"""Whether the data that a study names is there: asked before the first of its cells is trained, and in a dry run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from bert_jax.config import knobs
from bert_jax.data.labelled import rows
from bert_jax.data.text import files
from bert_jax.errors import ConfigError, DataError, UserError
from bert_jax.studies.definition import finetunings
from bert_jax.studies.spec import Study, Suite


def check(study: Study, configs: Iterable[knobs.Config]) -> None:
    """Refuse a study whose text, vocabulary or labelled data is not there; what is elsewhere is not asked for."""
    several = list(configs)
    for config in {(c.corpus, c.tokenizer.path, c.task.source): c for c in several}.values():
        _check_config(config)
    for name, config in finetunings(study, several):
        try:
            _check_config(config)
        except UserError as error:
            raise type(error)(f"evaluation {name!r}: {error}", error.hint) from error
    for name, one in study.evaluations.items():
        source = str(dict(one.ask).get("source", "")) if isinstance(one, Suite) else ""
        scheme, _, place = source.partition(":")
        plain = not set("{*?[=") & set(place)  # a pattern, or files of splits
        if scheme == "files" and plain and not Path(place).expanduser().exists():
            raise DataError(
                f"evaluation {name!r}: source {source!r} does not exist",
                "files:FILE, FOLDER or PATTERN",
            )


def _check_config(config: knobs.Config) -> None:
    if config.task.source:
        splits = ("train", *dict.fromkeys(one.split for one in config.evals.values()))
        rows.check(config.task, splits)
    elif config.corpus.source == "files":
        files.find(config.corpus)
    path = config.tokenizer.path
    if path and not Path(path).expanduser().exists():
        raise ConfigError(
            f"config.tokenizer.path = {path!r} does not exist",
            "a vocab.txt, tokenizer.json or folder",
        )
