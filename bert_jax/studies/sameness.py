"""Check that the runs of a study were trained on the same data, and that the data is unchanged.

Cells are compared with each other, so a corpus that changed between two of them would look like an
effect of what the study varies.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import Any

from bert_jax.config.knobs import Config
from bert_jax.data import corpus as corpora
from bert_jax.data import examples
from bert_jax.errors import ConfigError, DataError
from bert_jax.studies.folder import StudyFolder
from bert_jax.studies.report.collect import Result

FINGERPRINT = 12  # characters of it that are shown


def name_text(config: Config) -> str:
    """Return the source and path of the text, or of the labelled data, that a config trains on."""
    corpus = config.corpus
    return config.task.source or f"{corpus.source} {corpus.path}".strip()


def list_texts(found: Sequence[Result]) -> list[str]:
    """Name every text of a study's cells, with the fingerprint of what was trained on."""
    texts: dict[str, str] = {}
    for result in found:
        corpus, _ = result.data.get("", ("", ""))
        name = name_text(result.entry.config)
        texts[name] = texts.get(name) or corpus[:FINGERPRINT]
    return [f"{name} ({data})" if data else name for name, data in texts.items()]


def check_alike(place: StudyFolder, found: Sequence[Result]) -> None:
    """Refuse a study whose runs name one source but were trained on different data."""
    known: dict[str, tuple[str, Sequence[str]]] = {}
    for result in found:
        for name, key in _name_data(result):
            first, data = known.setdefault(key, (result.entry.id, result.data[name]))
            if [*data] != [*result.data[name]]:
                text = name or name_text(result.entry.config)
                raise ConfigError(
                    f"{place.cell(first)} and {place.cell(result.entry.id)} were trained on "
                    f"different data, and both name {text}",
                    "remove the folder of the run with the wrong data, and rows of tables that "
                    "hold it: the same command repeats it",
                )


def check_unchanged(place: StudyFolder, found: Sequence[Result]) -> None:
    """Refuse a study whose data has changed since its runs were trained, if the data is here."""
    checked: set[str] = set()
    for result in found:
        for name, key in _name_data(result):
            if name or result.taken or key in checked:
                continue
            checked.add(key)
            if source := _find_changed(result.entry.config, *result.data[""]):
                raise ConfigError(
                    f"{place.cell(result.entry.id)} was trained on other data than {source} holds "
                    "now",
                    "put the files back, or study the changed data in another --workdir",
                )


def _name_data(result: Result) -> Iterator[tuple[str, str]]:
    """Yield the runs of a cell whose data is known, each with a key of the data that it names."""
    config = result.entry.config
    for name in result.data:
        if not name:
            yield name, _name_of_config(config)
        elif name in result.entry.evaluations:
            yield name, json.dumps(result.entry.evaluations[name], sort_keys=True)


def _name_of_config(config: Config) -> str:
    """Return a key of the data that a config names: runs with the same key have the same data."""
    kind = next(iter(config.objectives))
    named: list[Any]
    if config.task.source:
        split = config.evals["validation"].split if "validation" in config.evals else ""
        labels = config.objectives[kind].labels
        named = [dataclasses.asdict(config.task), kind, labels, split]
    else:
        corpus = dataclasses.replace(config.corpus, cache="", workers=0)
        named = [dataclasses.asdict(corpus), dataclasses.asdict(config.tokenizer)]
    return json.dumps(named, sort_keys=True)


def _find_changed(config: Config, data: str, vocabulary: str) -> str:
    """Return the source of a run's data that has changed; empty if none, or if it is not here."""
    task, settings, tokenizer = config.task, config.corpus, config.tokenizer
    with contextlib.suppress(DataError):
        if tokenizer.path and corpora.load_vocabulary(tokenizer).hash != vocabulary:
            return tokenizer.path
    with contextlib.suppress(DataError):
        if task.source.startswith("files:"):
            return task.source if examples.hash_training_data(config) != data else ""
        if task.source or settings.source != "files":
            return ""
        if kept := corpora.find_prepared(settings, data):
            now = corpora.digest_text(settings, corpora.find_cache(settings))
            return settings.path if kept.manifest.get("text", now) != now else ""
    return ""
