"""Check that the runs of a study were trained on the same data, and that the data is unchanged.

Cells are compared with each other, so a corpus that changed between two of them would look like an
effect of what the study varies.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from bert_jax.config import recorded
from bert_jax.config.knobs import Config
from bert_jax.data import corpus as corpora
from bert_jax.data import examples
from bert_jax.errors import ConfigError, DataError
from bert_jax.studies.folder import StudyFolder
from bert_jax.system import jsons

FINGERPRINT = 12  # characters of it that are shown
RECORD = {"corpus": str, "tokenizer": str}  # the part of environment.json that is read here


def name_text(config: Config) -> str:
    """Return the source and path of the text, or of the labelled data, that a config trains on."""
    corpus = config.corpus
    return config.task.source or f"{corpus.source} {corpus.path}".strip()


def list_texts(place: StudyFolder) -> list[str]:
    """Name every text of a study's cells, with the fingerprint of what was trained on."""
    found: dict[str, str] = {}
    for cell in place.cells():
        name = name_text(cell.config)
        if not found.setdefault(name, ""):
            # An error means a run that has not begun, or a damaged record, which the report shows.
            with contextlib.suppress(DataError):
                path = place.cell(cell.id) / "environment.json"
                found[name] = jsons.read(path, DataError, RECORD)["corpus"][:FINGERPRINT]
    known = [f"{name} ({data})" if data else name for name, data in found.items()]
    return known or place.read_study().get("texts", [])  # the second of a table without cells


class Trained(NamedTuple):
    """A run that has begun, and the fingerprints of its data."""

    folder: Path
    config: Config
    data: str
    vocabulary: str


def check(place: StudyFolder) -> None:
    """Refuse a study whose runs name one source but were trained on different or changed data."""
    for run in check_alike(place):
        if source := _changed(run):
            raise ConfigError(
                f"{run.folder} was trained on other data than {source} holds now",
                "put the files back, or study the changed data in another --workdir",
            )


def check_alike(place: StudyFolder) -> Collection[Trained]:
    """Refuse different data under one name, whatever is there now; return one run of each name."""
    known: dict[str, Trained] = {}
    for run in _runs(place):
        first = known.setdefault(_named(run.config), run)
        if (first.data, first.vocabulary) != (run.data, run.vocabulary):
            raise ConfigError(
                f"{first.folder} and {run.folder} were trained on different data, "
                f"and both name {name_text(run.config)}",
                "remove the folder of the run with the wrong data, and records that hold it: the "
                "same command repeats it",
            )
    return known.values()


def _runs(place: StudyFolder) -> Iterator[Trained]:
    """Yield every run of a study that has begun, including fine-tunings."""
    for cell in place.cells():
        cell_folder = place.cell(cell.id)
        for folder in [cell_folder, *sorted((cell_folder / "finetune").glob("*"))]:
            # An error means a run that has not begun, or a damaged record, which the report shows.
            with contextlib.suppress(DataError):
                environment = jsons.read(folder / "environment.json", DataError, RECORD)
                config = cell.config  # a cell of records has no config.json
                if folder != cell_folder or (folder / "config.json").exists():
                    config = recorded(jsons.read(folder / "config.json", DataError))
                yield Trained(folder, config, environment["corpus"], environment["tokenizer"])


def _named(config: Config) -> str:
    """Return a key of the data that a config names: runs with the same key have the same data."""
    kind = next(iter(config.objectives))
    if config.task.source:
        split = config.evals["validation"].split if "validation" in config.evals else ""
        labels = config.objectives[kind].labels
        return json.dumps([dataclasses.asdict(config.task), kind, labels, split], sort_keys=True)
    corpus = dataclasses.replace(config.corpus, cache="", workers=0)
    return json.dumps(
        [dataclasses.asdict(corpus), dataclasses.asdict(config.tokenizer)], sort_keys=True
    )


def _changed(run: Trained) -> str:
    """Return the source of a run's data that has changed; empty if none, or if it is not here."""
    task, settings, tokenizer = run.config.task, run.config.corpus, run.config.tokenizer
    with contextlib.suppress(DataError):
        if tokenizer.path and corpora.load_vocabulary(tokenizer).hash != run.vocabulary:
            return tokenizer.path
    with contextlib.suppress(DataError):
        if task.source.startswith("files:"):
            return task.source if examples.hash_training_data(run.config) != run.data else ""
        if task.source or settings.source != "files":
            return ""
        if kept := corpora.find_prepared(settings, run.data):
            now = corpora.digest_text(settings, corpora.find_cache(settings))
            return settings.path if kept.manifest.get("text", now) != now else ""
    return ""
