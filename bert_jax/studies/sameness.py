"""Check that the runs of a study were trained on the same data, and that it is unchanged.

Cells are compared with each other. If the data changed between two of them, its effect would look
like an effect of what the study varies.
"""

import contextlib
import dataclasses
import json
from collections.abc import Sequence

from bert_jax.config.knobs import Config
from bert_jax.data import corpus as corpora
from bert_jax.data import examples
from bert_jax.errors import ConfigError, DataError
from bert_jax.studies.cell_result import Result
from bert_jax.studies.folder import StudyFolder
from bert_jax.studies.spec import Cell

FINGERPRINT = 12  # characters of it that are shown


def name_text(config: Config) -> str:
    """Return the source and path of the text or labelled data that a config trains on."""
    corpus = config.corpus
    return config.task.source or f"{corpus.source} {corpus.path}".strip()


def list_texts(found: Sequence[Result]) -> list[str]:
    """List the texts of a study's cells, each with the fingerprint of the data trained on."""
    texts: dict[str, str] = {}
    for result in found:
        corpus, _ = result.data.get("", ("", ""))
        name = name_text(result.entry.config)
        texts[name] = texts.get(name) or corpus[:FINGERPRINT]
    return [f"{name} ({data})" if data else name for name, data in texts.items()]


def check_data(place: StudyFolder, found: Sequence[Result], coming: Sequence[Cell] = ()) -> None:
    """Refuse a study whose runs name the same source but were trained on different data.

    If the source is on this machine, its present data is compared too. For cells from tables this
    is done only if a cell of `coming` will train on the source.
    """
    coming_keys = {_make_data_key(cell.config) for cell in coming}
    known: dict[str, tuple[str, list[str]]] = {}
    compared: set[str] = set()  # keys of sources whose present data was looked at
    for result in found:
        cell = result.entry
        config = result.entry.config
        for name, fingerprints in result.data.items():
            if name and name not in cell.evaluations:
                continue
            key = _make_data_key(config)
            if name:
                key = json.dumps(cell.evaluations[name], sort_keys=True)
            elif key not in compared and (key in coming_keys or not result.taken):
                compared.add(key)
                if _has_changed(config, *fingerprints, trains=key in coming_keys):
                    hint = "the files changed, or Python, tokenizers or sentencex was upgraded: "
                    hint += "undo that, or study the changed data in another --workdir"
                    if result.taken:  # tables next to a study.py count in every workdir
                        hint += ", by a copy of study.py without tables beside it"
                    raise ConfigError(
                        f"cell {cell.id} was trained on other data than {name_text(config)} holds "
                        "now",
                        hint,
                    )
            first, data = known.setdefault(key, (cell.id, [*fingerprints]))
            if data != [*fingerprints]:
                raise ConfigError(
                    f"{place.cell(first)} and {place.cell(cell.id)} were trained on different "
                    f"data, and both name {name or name_text(config)}",
                    "remove the folder of the run with the wrong data, and rows of tables that "
                    "hold it: the same command repeats it",
                )


def _make_data_key(config: Config) -> str:
    """Return a key that is equal for configs which name the same data."""
    corpus = dataclasses.replace(config.corpus, cache="", workers=0)
    named = [dataclasses.asdict(part) for part in (corpus, config.tokenizer, config.task)]
    splits = [settings.split for settings in config.evals.values() if config.task.source]
    labels = {name: settings.labels for name, settings in config.objectives.items()}
    return json.dumps([named, splits, labels if config.task.source else {}], sort_keys=True)


def _has_changed(config: Config, data: str, vocabulary: str, *, trains: bool) -> bool:
    """Tell whether the data of a config is on this machine and has changed since training.

    `data` and `vocabulary` are the fingerprints recorded when the run was trained. If a further run
    `trains` on text, its fingerprint must be the same, with the versions of libraries.
    """
    settings = config.corpus
    with contextlib.suppress(DataError):
        path = config.tokenizer.path
        if path and corpora.load_vocabulary(config.tokenizer).hash != vocabulary:
            return True
        if config.task.source:
            local = config.task.source.startswith("files:")
            return local and examples.hash_training_data(config) != data
        if trains:
            return corpora.fingerprint_corpus(config, corpora.find_cache(settings)) != data
        if settings.source == "files" and (kept := corpora.find_prepared(settings, data)):
            now = corpora.digest_text(settings, corpora.find_cache(settings))
            return kept.manifest.text != now
    return False
