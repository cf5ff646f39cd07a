"""Corpus source `hub`: the parquet files of data sets on the Hugging Face hub, each at one commit.

`corpus.path` is OWNER/NAME, or OWNER/NAME:FOLDER for the files below a folder, which is how the hub
keeps configurations. Several data sets are separated by commas, and so are their commits in
`corpus.revision`. The commit is part of what names the text. A branch, a tag or no revision stands
for the commit that it named when the data set was first prepared in this cache, which remembers it.
A file is fetched when it is first read, into the hub's own cache (HF_HOME).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from bert_jax.config import knobs
from bert_jax.data import files
from bert_jax.data.sentences import Item, Text
from bert_jax.errors import DataError, MissingError, first_line
from bert_jax.system import disk, jsons

logger = logging.getLogger(__name__)
COMMIT = re.compile(r"[0-9a-f]{40}")
MEMORY = "hub-commits.json"  # in the cache: the commit that each data set was first prepared from
PART = re.compile(r"(.+?)-\d+-of-\d+(?:-\w+)?")  # of a split, such as train-00000-of-00041
SPLIT = re.compile(r"(partial-)?(train|validation|valid|val|dev|test|eval)")
PIN = "--config.corpus.revision=COMMIT names the text without asking the hub"
AGAIN = "the same command goes on where there is a network; what was fetched is kept"
SHOWN = 20  # folders that a message lists


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A data set of `corpus.path`."""

    repository: str
    folder: str  # that its files are below; empty is anywhere
    revision: str  # a commit, branch or tag; empty is the newest commit

    @property
    def name(self) -> str:
        """The data set as `corpus.path` has it."""
        return f"{self.repository}:{self.folder}" if self.folder else self.repository


@dataclasses.dataclass(frozen=True)
class Listing:
    """The files of a data set at a commit."""

    commit: str
    files: tuple[tuple[str, int], ...]  # name, bytes


def identify(settings: knobs.Corpus, cache: Path) -> Any:
    """Return data sets, split and commits; a commit that is known needs no network."""
    named = []
    for dataset in _read_path(settings, cache):
        commit = dataset.revision
        if not COMMIT.fullmatch(commit):
            commit = _list_files(dataset.repository, commit).commit
            _remember_commit(cache, dataset, commit)
        named.append([dataset.repository, dataset.folder, settings.split, commit])
    return named[0] if len(named) == 1 else named


def list_items(settings: knobs.Corpus, cache: Path) -> tuple[list[Item], list[str]]:
    """Return the files of the split, each an item."""
    found = []
    for dataset in _read_path(settings, cache):
        repository = dataset.repository
        listing = _list_files(repository, dataset.revision)
        chosen = _choose_files(dataset, settings.split, listing)
        size = sum(size for _, size in chosen) / 1e9
        logger.info(f"{repository}: commit {listing.commit}, {len(chosen)} files, {size:.1f} GB")
        found += [
            Item(f"{repository}/{name}", 2 * size, (repository, name, listing.commit))
            for name, size in chosen
        ]
    return found, []


def read_texts(item: Item, settings: knobs.Corpus) -> Iterator[Text]:
    """Fetch a file, unless it is there, and yield its documents."""
    import huggingface_hub

    repository, name, commit = item.spec
    with _explain_errors(item.name, AGAIN):
        path = huggingface_hub.hf_hub_download(
            repository, name, repo_type="dataset", revision=commit
        )
    yield from files.read_file(path, settings.text_field)


def _read_path(settings: knobs.Corpus, cache: Path) -> list[Dataset]:
    """Return the data sets of `corpus.path`, each at the commit that the cache remembers."""
    paths = settings.path.split(",")
    revisions = settings.revision.split(",") if settings.revision else [""] * len(paths)
    if len(revisions) != len(paths):
        raise DataError(
            f"config.corpus.revision names {len(revisions)} revisions for {len(paths)} datasets",
            "one for each, in the same order, separated by commas; an empty one is the newest",
        )
    commits = _read_commits(cache)
    found = []
    for path, revision in zip(paths, map(str.strip, revisions), strict=True):
        repository, _, folder = path.strip().partition(":")
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
            raise DataError(
                f"config.corpus.path: {path!r} names no dataset of the hub",
                "OWNER/NAME or OWNER/NAME:FOLDER, such as wikimedia/wikipedia:20231101.en",
            )
        revision = commits.get(f"{repository}@{revision}", revision)
        found.append(Dataset(repository, folder.strip("/"), revision))
    return found


def _read_commits(cache: Path) -> dict[str, str]:
    """Return the commits of data sets that were prepared before; none if the file is damaged."""
    with contextlib.suppress(DataError):
        return jsons.read(cache / MEMORY, DataError, {str: str})
    return {}


def _remember_commit(cache: Path, dataset: Dataset, commit: str) -> None:
    """Keep the commit of a revision, so that what was prepared needs no network."""
    commits = _read_commits(cache) | {f"{dataset.repository}@{dataset.revision}": commit}
    logger.info(
        f"{dataset.repository}: commit {commit} from now on, by {cache / MEMORY}; "
        "config.corpus.revision names another"
    )
    cache.mkdir(parents=True, exist_ok=True)
    disk.write(cache / MEMORY, json.dumps(commits, indent=1, sort_keys=True) + "\n")


@functools.lru_cache(maxsize=8)
def _list_files(repository: str, revision: str) -> Listing:
    """Ask the hub for the files of a revision."""
    import huggingface_hub

    what = f"{repository}, revision {revision}" if revision else repository
    with _explain_errors(what, AGAIN if COMMIT.fullmatch(revision) else PIN):
        info = huggingface_hub.HfApi().dataset_info(
            repository, revision=revision or None, files_metadata=True
        )
    found = [(file.rfilename, file.size or 0) for file in info.siblings or ()]
    return Listing(str(info.sha), tuple(sorted(found)))


@contextlib.contextmanager
def _explain_errors(what: str, hint: str) -> Iterator[None]:
    """Turn what the hub's library raises into the user's error; `hint` is for a missing network."""
    from huggingface_hub import errors

    absent = (
        errors.RepositoryNotFoundError,
        errors.RevisionNotFoundError,
        errors.HFValidationError,
    )
    unreachable = (
        errors.HfHubHTTPError,
        errors.LocalEntryNotFoundError,
        ConnectionError,
        TimeoutError,
    )
    try:
        yield
    except errors.GatedRepoError as error:
        raise DataError(
            f"{what} is behind a gate", "accept its terms on the hub, then `hf auth login`"
        ) from error
    except absent as error:
        raise DataError(
            f"{what}: the hub has no such dataset or revision",
            "corpus.path and corpus.revision; a private dataset needs `hf auth login`",
        ) from error
    except Exception as error:  # of whichever kind the hub's library has
        library = type(error).__module__.startswith(("http", "hf_xet"))  # any HTTP client's
        if isinstance(error, unreachable) or library:
            problem = first_line(error)[:200]
            raise MissingError(f"{what} cannot be fetched: {problem}", hint) from error
        if isinstance(error, OSError) and error.filename and not disk.is_full(error):
            raise DataError(
                f"{error.filename}: {error.strerror}",
                "the hub's files are kept in $HF_HOME, else ~/.cache/huggingface",
            ) from error
        raise


def _choose_files(dataset: Dataset, split: str, listing: Listing) -> list[tuple[str, int]]:
    """Return the parquet files of a data set's folder and split."""
    name = dataset.name
    tables = [file for file in listing.files if file[0].endswith(".parquet")]
    if not tables:
        raise DataError(
            f"{name} holds no parquet files",
            "--config.corpus.revision=refs/convert/parquet has those that the hub makes of it",
        )
    below = f"{dataset.folder}/" if dataset.folder else ""
    own = [file for file in tables if file[0].startswith(below)]
    if not own:
        raise DataError(f"{name} holds no parquet files", _list_folders(tables))
    chosen = [file for file in own if _split_of(file[0]) == split]
    if not chosen:
        known = ", ".join(sorted({_split_of(file) for file, _ in own}))
        raise DataError(f"{name} has no split {split!r}", f"config.corpus.split: one of {known}")
    if not below and len({_folder_of(file) for file, _ in chosen}) > 1:
        raise DataError(f"{name} holds several texts, each in a folder", _list_folders(chosen))
    return chosen


def _list_folders(tables: list[tuple[str, int]]) -> str:
    """Return the hint that lists the folders of a data set."""
    folders = sorted({_folder_of(name) for name, _ in tables} - {""})
    more = f" and {len(folders) - SHOWN} more" if len(folders) > SHOWN else ""
    return f"OWNER/NAME:FOLDER; there are {', '.join(folders[:SHOWN])}{more}"


def _folder_of(name: str) -> str:
    return name.rpartition("/")[0]


def _split_of(name: str) -> str:
    """Return the split that a file's name tells, or its folder's; else `train`.

    For example `train` for en/train-00000-of-00041.parquet and for en/train/0000.parquet.
    """
    path = PurePosixPath(name)
    if parted := PART.fullmatch(path.stem):
        return parted.group(1)
    told = (part for part in (path.stem, path.parent.name) if SPLIT.fullmatch(part))
    return next(told, "train")
