"""Corpus source `hub`: the parquet files of a dataset on the Hugging Face hub, at one commit.

`corpus.path` is OWNER/NAME, or OWNER/NAME:CONFIG for one of its configurations. The commit is part
of what names the text; without `corpus.revision` it is the newest. A file is fetched when it is
first read, into the hub's own cache (HF_HOME); one that was cut short is never read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from bert_jax.config import knobs
from bert_jax.data.text import readers
from bert_jax.data.text.sentences import Chunk, Item, Tally
from bert_jax.errors import DataError, MissingError

logger = logging.getLogger(__name__)
COMMIT = re.compile(r"[0-9a-f]{40}")
PIN = "--config.corpus.revision=COMMIT names the text without asking the hub"


@dataclasses.dataclass(frozen=True)
class Listing:
    """The files of a dataset at a commit."""

    commit: str
    files: tuple[tuple[str, int], ...]  # name, bytes


def identity(settings: knobs.Corpus, cache: Any) -> Any:
    """Return the dataset, the split and the commit; a commit that is given needs no network."""
    repository, config = _parts(settings)
    commit = settings.revision
    if not COMMIT.fullmatch(commit):
        commit = _listing(repository, settings.revision).commit
    return [repository, config, settings.split, commit]


def items(settings: knobs.Corpus) -> tuple[list[Item], list[str]]:
    """Return the files of the split, each an item."""
    repository, config = _parts(settings)
    listing = _listing(repository, settings.revision)
    logger.info(f"{repository}: commit {listing.commit}")
    files = _of_split(settings.path, config, settings.split, listing)
    return [Item(name, 2 * size, (repository, name, listing.commit)) for name, size in files], []


def read(item: Item, settings: knobs.Corpus, tally: Tally) -> Iterator[Chunk]:
    """Fetch a file, unless it is there, and yield its documents."""
    import huggingface_hub

    repository, name, commit = item.spec
    with _told(f"{repository}, {name}"):
        path = huggingface_hub.hf_hub_download(
            repository, name, repo_type="dataset", revision=commit
        )
    whole = Item(item.name, item.weight, (path, "parquet", 0, None))
    yield from readers.read(whole, settings, tally)


def _parts(settings: knobs.Corpus) -> tuple[str, str]:
    repository, _, config = settings.path.partition(":")
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        raise DataError(
            f"config.corpus.path = {settings.path!r} names no dataset of the hub",
            "OWNER/NAME or OWNER/NAME:CONFIG, such as wikimedia/wikipedia:20231101.en",
        )
    return repository, config.strip("/")


@functools.lru_cache(maxsize=2)
def _listing(repository: str, revision: str) -> Listing:
    import huggingface_hub

    with _told(repository):
        info = huggingface_hub.HfApi().dataset_info(
            repository, revision=revision or None, files_metadata=True
        )
    files = [(file.rfilename, file.size or 0) for file in info.siblings or ()]
    return Listing(str(info.sha), tuple(sorted(files)))


@contextlib.contextmanager
def _told(what: str) -> Iterator[None]:
    """Turn what the hub's library raises into the user's error."""
    from huggingface_hub import errors

    try:
        yield
    except errors.GatedRepoError as error:
        hint = "accept its terms on the hub, then `hf auth login`"
        raise DataError(f"{what} is behind a gate", hint) from error
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:
        raise DataError(
            f"{what}: the hub has no such dataset or revision",
            "corpus.path and corpus.revision; a private dataset needs `hf auth login`",
        ) from error
    except Exception as error:  # of whichever HTTP client the library uses; others go on
        known = (
            errors.HfHubHTTPError,
            errors.OfflineModeIsEnabled,
            errors.LocalEntryNotFoundError,
        )
        if not isinstance(error, known) and not type(error).__module__.startswith("http"):
            raise
        problem = (str(error).strip().splitlines() or [repr(error)])[0][:200]
        raise MissingError(f"{what} cannot be fetched: {problem}", PIN) from error


def _of_split(path: str, config: str, split: str, listing: Listing) -> list[tuple[str, int]]:
    """Return the parquet files of a configuration and split."""
    tables = [(name, size) for name, size in listing.files if name.endswith(".parquet")]
    own = [(name, size) for name, size in tables if not config or name.startswith(f"{config}/")]
    if not own:
        folders = sorted({name.rpartition("/")[0] for name, _ in tables} - {""})
        known = ", ".join(folders[:20]) or "none: the hub has no parquet files of it"
        raise DataError(f"{path} holds no parquet files", f"OWNER/NAME:CONFIG; there are {known}")
    chosen = [(name, size) for name, size in own if _split_of(name) == split]
    if not chosen:
        known = ", ".join(sorted({_split_of(name) for name, _ in own}))
        raise DataError(f"{path} has no split {split!r}", f"config.corpus.split: one of {known}")
    return chosen


def _split_of(name: str) -> str:
    """Return the split that a file's name tells, such as `train` of data/train-00000-of-00041."""
    stem = PurePosixPath(name).stem
    parted = re.fullmatch(r"(.+?)-\d+-of-\d+(?:-\w+)?", stem)
    return parted.group(1) if parted else stem
