"""Corpus source `hub`: the parquet files of datasets on the Hugging Face hub, each at one commit.

`corpus.path` is OWNER/NAME, or OWNER/NAME:FOLDER for the files below a folder, which is how the hub
keeps configurations; several datasets are separated by commas, and so are their commits in
`corpus.revision`. The commit is part of what names the text; without `corpus.revision` it is the
newest. A file is fetched when it is first read, into the hub's own cache (HF_HOME); one that was
cut short is never read.
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
from bert_jax.errors import DataError, MissingError, first_line
from bert_jax.system import disk

logger = logging.getLogger(__name__)
COMMIT = re.compile(r"[0-9a-f]{40}")
PART = re.compile(r"(.+?)-\d+-of-\d+(?:-\w+)?")  # of a split, such as train-00000-of-00041
SPLIT = re.compile(r"(partial-)?(train|validation|valid|val|dev|test|eval)")
PIN = "--config.corpus.revision=COMMIT names the text without asking the hub"
AGAIN = "the same command goes on where there is a network; what was fetched is kept"
SHOWN = 20  # folders that a message lists


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A dataset of `corpus.path`."""

    repository: str
    folder: str  # that its files are below; empty is anywhere
    revision: str  # a commit, branch or tag; empty is the newest commit

    @property
    def name(self) -> str:
        """The dataset as `corpus.path` has it."""
        return f"{self.repository}:{self.folder}" if self.folder else self.repository


@dataclasses.dataclass(frozen=True)
class Listing:
    """The files of a dataset at a commit."""

    commit: str
    files: tuple[tuple[str, int], ...]  # name, bytes


def identity(settings: knobs.Corpus, cache: Any) -> Any:
    """Return datasets, split and commits; a commit that is given needs no network."""
    named = []
    for dataset in _datasets(settings):
        commit = dataset.revision
        if not COMMIT.fullmatch(commit):
            commit = _listing(dataset.repository, commit).commit
        named.append([dataset.repository, dataset.folder, settings.split, commit])
    return named[0] if len(named) == 1 else named


def items(settings: knobs.Corpus) -> tuple[list[Item], list[str]]:
    """Return the files of the split, each an item."""
    found = []
    for dataset in _datasets(settings):
        repository, listing = dataset.repository, _listing(dataset.repository, dataset.revision)
        files = _of_split(dataset, settings.split, listing)
        pinned = dataset.revision == listing.commit
        advice = "" if pinned else "; config.corpus.revision pins it, whatever becomes the newest"
        size = sum(size for _, size in files) / 1e9
        logger.info(
            f"{repository}: commit {listing.commit}, {len(files)} files, {size:.1f} GB{advice}"
        )
        found += [
            Item(f"{repository}/{name}", 2 * size, (repository, name, listing.commit))
            for name, size in files
        ]
    return found, []


def read(item: Item, settings: knobs.Corpus, tally: Tally) -> Iterator[Chunk]:
    """Fetch a file, unless it is there, and yield its documents."""
    import huggingface_hub

    repository, name, commit = item.spec
    with _told(item.name, AGAIN):
        path = huggingface_hub.hf_hub_download(
            repository, name, repo_type="dataset", revision=commit
        )
    whole = Item(item.name, item.weight, (path, "parquet", 0, None))
    yield from readers.read(whole, settings, tally)


def _datasets(settings: knobs.Corpus) -> list[Dataset]:
    paths = settings.path.split(",")
    revisions = settings.revision.split(",") if settings.revision else [""] * len(paths)
    if len(revisions) != len(paths):
        raise DataError(
            f"config.corpus.revision names {len(revisions)} revisions for {len(paths)} datasets",
            "one for each, in the same order, separated by commas; an empty one is the newest",
        )
    found = []
    for path, revision in zip(paths, revisions, strict=True):
        repository, _, folder = path.strip().partition(":")
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
            raise DataError(
                f"config.corpus.path: {path!r} names no dataset of the hub",
                "OWNER/NAME or OWNER/NAME:FOLDER, such as wikimedia/wikipedia:20231101.en",
            )
        found.append(Dataset(repository, folder.strip("/"), revision.strip()))
    return found


@functools.lru_cache(maxsize=8)
def _listing(repository: str, revision: str) -> Listing:
    import huggingface_hub

    what = f"{repository}, revision {revision}" if revision else repository
    with _told(what, AGAIN if COMMIT.fullmatch(revision) else PIN):
        info = huggingface_hub.HfApi().dataset_info(
            repository, revision=revision or None, files_metadata=True
        )
    files = [(file.rfilename, file.size or 0) for file in info.siblings or ()]
    return Listing(str(info.sha), tuple(sorted(files)))


@contextlib.contextmanager
def _told(what: str, hint: str) -> Iterator[None]:
    """Turn what the hub's library raises into the user's error; `hint` is for a missing network."""
    from huggingface_hub import errors

    try:
        yield
    except errors.GatedRepoError as error:
        raise DataError(
            f"{what} is behind a gate", "accept its terms on the hub, then `hf auth login`"
        ) from error
    except (
        errors.RepositoryNotFoundError,
        errors.RevisionNotFoundError,
        errors.HFValidationError,
    ) as error:
        raise DataError(
            f"{what}: the hub has no such dataset or revision",
            "corpus.path and corpus.revision; a private dataset needs `hf auth login`",
        ) from error
    except Exception as error:  # of whichever HTTP client the library uses; others go on
        known = (
            errors.HfHubHTTPError,
            errors.LocalEntryNotFoundError,
            ConnectionError,
            TimeoutError,
        )
        library = type(error).__module__.startswith(("http", "hf_xet"))
        if not isinstance(error, known) and not library:
            if isinstance(error, OSError) and error.filename and not disk.is_full(error):
                raise DataError(
                    f"{error.filename}: {error.strerror}",
                    "the hub's files are kept in $HF_HOME, else ~/.cache/huggingface",
                ) from error
            raise
        problem = first_line(error)[:200]
        raise MissingError(f"{what} cannot be fetched: {problem}", hint) from error


def _of_split(dataset: Dataset, split: str, listing: Listing) -> list[tuple[str, int]]:
    """Return the parquet files of a dataset's folder and split."""
    name, tables = dataset.name, [file for file in listing.files if file[0].endswith(".parquet")]
    if not tables:
        raise DataError(
            f"{name} holds no parquet files",
            "--config.corpus.revision=refs/convert/parquet has those that the hub makes of it",
        )
    below = f"{dataset.folder}/" if dataset.folder else ""
    own = [file for file in tables if file[0].startswith(below)]
    if not own:
        raise DataError(f"{name} holds no parquet files", _hint(tables))
    chosen = [file for file in own if _split_of(file[0]) == split]
    if not chosen:
        known = ", ".join(sorted({_split_of(file) for file, _ in own}))
        raise DataError(f"{name} has no split {split!r}", f"config.corpus.split: one of {known}")
    if not below and len({_folder(file) for file, _ in chosen}) > 1:
        raise DataError(f"{name} holds several texts, each in a folder", _hint(chosen))
    return chosen


def _hint(files: list[tuple[str, int]]) -> str:
    folders = sorted({_folder(name) for name, _ in files} - {""})
    more = f" and {len(folders) - SHOWN} more" if len(folders) > SHOWN else ""
    return f"OWNER/NAME:FOLDER; there are {', '.join(folders[:SHOWN])}{more}"


def _folder(name: str) -> str:
    return name.rpartition("/")[0]


def _split_of(name: str) -> str:
    """Return the split that a file's name tells, or its folder's.

    That is `train` for en/train-00000-of-00041.parquet, for en/train/0000.parquet, and for files
    whose names tell none.
    """
    path = PurePosixPath(name)
    if parted := PART.fullmatch(path.stem):
        return parted.group(1)
    told = (part for part in (path.stem, path.parent.name) if SPLIT.fullmatch(part))
    return next(told, "train")
