"""Whether the runs of a study were trained on the same text and data, and whether these are what they were.

Cells are compared with each other, so a text that was changed between two of them would look like what is studied.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bert_jax.config import recorded
from bert_jax.config.knobs import Config
from bert_jax.data.labelled import examples
from bert_jax.data.text import prepare
from bert_jax.errors import ConfigError, DataError
from bert_jax.studies.folder import Place
from bert_jax.system import jsons

RECORD = {"corpus": str, "tokenizer": str}  # what is relied on of environment.json


class Trained(NamedTuple):
    """A run that has begun: what it was trained on."""

    folder: Path
    config: Config
    data: str  # fingerprints
    vocabulary: str


def check(place: Place) -> None:
    """Refuse a study whose runs name one text and have learned from several, or whose files hold another by now."""
    known: dict[str, Trained] = {}
    for run in _runs(place):
        first = known.setdefault(_named(run.config), run)
        if (first.data, first.vocabulary) != (run.data, run.vocabulary):
            source = (
                run.config.task.source
                or f"{run.config.corpus.source} {run.config.corpus.path}".strip()
            )
            raise ConfigError(
                f"{first.folder} and {run.folder} were trained on different data, and both name {source}",
                "remove the folder of what was trained on the wrong one: the same command makes it again",
            )
    for run in known.values():
        if source := _changed(run):
            raise ConfigError(
                f"{run.folder} was trained on something else than {source} holds now",
                "put the files back; a study of what is there now needs another --workdir",
            )


def _runs(place: Place) -> Iterator[Trained]:
    """Yield every run of a study that has begun, fine-tunings too."""
    for cell in place.cells():
        folder = place.cell(cell.id)
        for one in [folder, *sorted((folder / "finetune").glob("*"))]:
            with contextlib.suppress(
                DataError
            ):  # not begun, or its record is damaged, which the report says
                said = jsons.read(one / "environment.json", DataError, RECORD)
                config = recorded(jsons.read(one / "config.json", DataError))
                yield Trained(one, config, said["corpus"], said["tokenizer"])


def _named(config: Config) -> str:
    """Return what a config says of its data: runs that say the same have the same."""
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
    """Return what holds something else now; empty where nothing does, or where it is not here to be compared."""
    task, settings, tokenizer = run.config.task, run.config.corpus, run.config.tokenizer
    with contextlib.suppress(DataError):
        if tokenizer.path and prepare.given_tokenizer(tokenizer).hash != run.vocabulary:
            return tokenizer.path
    with contextlib.suppress(DataError):
        if task.source.startswith("files:"):
            return task.source if examples.trained_on(run.config) != run.data else ""
        if (
            not task.source
            and settings.source == "files"
            and (kept := prepare.kept(settings, run.data))
        ):
            now = prepare.text_digest(settings, prepare.cache_folder(settings))
            return settings.path if kept.manifest.get("text", now) != now else ""
    return ""
