"""Corpus source `hub`: the parquet files of data sets on the Hugging Face hub, each at one commit.

`corpus.path` is OWNER/NAME, or OWNER/NAME:FOLDER for the files below a folder, which is how the hub
keeps configurations. Several data sets are separated by commas, and so are their commits in
`corpus.revision`. The commit is a part of the text's identity. A branch, a tag or no revision
stands for the commit that it named when the data set was first prepared in this cache, which
remembers it. A file is fetched when it is first read, into the hub's own cache (HF_HOME).
"""

import contextlib
import functools
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from bert_jax.config import knobs
from bert_jax.data import files
from bert_jax.data.sentences import Item, Text
from bert_jax.errors import DataError, MissingError, first_line
from bert_jax.system import disk, folder_locks, jsons

logger = logging.getLogger(__name__)
COMMIT = re.compile(r"[0-9a-f]{40}")
MEMORY = "hub-commits.json"  # in the cache: the commit that each data set was first prepared from
PART = re.compile(r"(.+?)-\d+-of-\d+(?:-\w+)?")  # of a split, such as train-00000-of-00041
# The word for a split in a name, with no letter beside it.
SPLIT = re.compile(
    r"(?<![^\W\d_])(partial-)?(train|validation|valid|val|dev|testing|test|evaluation|eval)"
    r"(?![^\W\d_])"
)
HINT = (
    "check corpus.path and corpus.revision; what is private or behind a gate needs `hf auth login` "
    "and its terms accepted on the hub; a commit as revision needs no network once it is prepared"
)


class Dataset(NamedTuple):
    """A data set of `corpus.path`."""

    repository: str
    folder: str  # that its files are below; empty is anywhere
    revision: str  # a commit, branch or tag; empty is the newest commit


def identify(settings: knobs.Corpus, cache: Path) -> Any:
    """Return repository, folder, split and commit of each data set.

    The hub is asked for a commit only if the cache does not know it.
    """
    named = []
    for dataset in _read_path(settings, cache):
        commit = dataset.revision
        if not COMMIT.fullmatch(commit):
            commit, _ = _list_files(dataset.repository, commit)
            commit = _remember_commit(cache, f"{dataset.repository}@{dataset.revision}", commit)
            logger.info(f"{dataset.repository}: commit {commit} from now on, by {cache / MEMORY}")
        named.append([dataset.repository, dataset.folder, settings.split, commit])
    return named[0] if len(named) == 1 else named


def list_items(settings: knobs.Corpus, cache: Path) -> tuple[list[Item], list[str]]:
    """Return an Item, a piece of work for one process, for each parquet file of the split.

    The second list, notes of what is left out, is always empty.
    """
    found = []
    for dataset in _read_path(settings, cache):
        repository = dataset.repository
        commit, sizes = _list_files(repository, dataset.revision)
        chosen = _choose_files(dataset, settings.split, sizes)
        total = sum(chosen.values()) / 1e9
        logger.info(f"{repository}: commit {commit}, {len(chosen)} files, {total:.1f} GB")
        for name, size in chosen.items():
            found.append(Item(f"{repository}/{name}", 2 * size, (repository, name, commit)))
    return found, []


def read_texts(item: Item, settings: knobs.Corpus) -> Iterator[Text]:
    """Download a file, unless the hub's cache has it, and yield its documents."""
    import huggingface_hub

    repository, name, commit = item.spec
    with _explain_errors(item.name):
        path = huggingface_hub.hf_hub_download(
            repository, name, repo_type="dataset", revision=commit
        )
    yield from files.read_file(path, settings.text_field)


def _read_path(settings: knobs.Corpus, cache: Path) -> list[Dataset]:
    """Return the data sets that `corpus.path` names, each at the commit that the cache remembers.

    A revision that the cache does not remember stays as it is.
    """
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
    """Return {"OWNER/NAME@REVISION": commit} of the revisions that this cache has prepared before.

    The result is empty if the file is missing or damaged.
    """
    with contextlib.suppress(DataError):
        return jsons.read(cache / MEMORY, DataError, dict[str, str])
    return {}


def _remember_commit(cache: Path, revision: str, commit: str) -> str:
    """Return the commit that a revision stands for in this cache, which is `commit` if it is new.

    Another process may have asked the hub at the same time, and remembered another commit.
    """
    cache.mkdir(parents=True, exist_ok=True)
    with folder_locks.wait_for_lock((cache / MEMORY).with_suffix(".lock")):
        commits = {revision: commit} | _read_commits(cache)
        disk.write(cache / MEMORY, json.dumps(commits, indent=1, sort_keys=True) + "\n")
    return commits[revision]


@functools.lru_cache(maxsize=8)
def _list_files(repository: str, revision: str) -> tuple[str, dict[str, int]]:
    """Ask the hub for the commit that a revision names, and for {name: bytes} of its files."""
    import huggingface_hub

    with _explain_errors(f"{repository}, revision {revision or 'newest'}"):
        info = huggingface_hub.HfApi().dataset_info(
            repository, revision=revision or None, files_metadata=True
        )
    found = {file.rfilename: file.size or 0 for file in info.siblings or ()}
    return str(info.sha), dict(sorted(found.items()))


@contextlib.contextmanager
def _explain_errors(what: str) -> Iterator[None]:
    """Turn an error of the hub's library into an error with a hint, unless the disk is full."""
    from huggingface_hub import errors

    absent = (errors.RepositoryNotFoundError, errors.RevisionNotFoundError)
    try:
        yield
    except (*absent, errors.GatedRepoError, errors.HFValidationError) as error:
        problem = "is behind a gate" if isinstance(error, errors.GatedRepoError) else "is not there"
        raise DataError(f"{what}: on the hub it {problem}", HINT) from error
    except Exception as error:  # of whichever HTTP client the library has
        if disk.is_full(error):
            raise
        raise MissingError(f"{what} cannot be fetched: {first_line(error)[:200]}", HINT) from error


def _choose_files(dataset: Dataset, split: str, sizes: dict[str, int]) -> dict[str, int]:
    """Return {name: bytes} of the parquet files of a data set that belong to a split."""
    name = ":".join(filter(None, dataset[:2]))
    tables = {file: size for file, size in sizes.items() if file.endswith(".parquet")}
    below = f"{dataset.folder}/" if dataset.folder else ""
    own = {file: size for file, size in tables.items() if file.startswith(below)}
    folders = sorted({file.rpartition("/")[0] for file in tables} - {""})
    hint = f"OWNER/NAME:FOLDER; there are {', '.join(folders[:20])}"
    if not tables:
        hint = "--config.corpus.revision=refs/convert/parquet has those that the hub makes"
    if not own:
        raise DataError(f"{name} holds no parquet files", hint)
    chosen = {file: size for file, size in own.items() if _split_of(file) == split}
    if not chosen:
        known = ", ".join(sorted(set(map(_split_of, own))))
        raise DataError(f"{name} has no split {split!r}", f"config.corpus.split: one of {known}")
    if not below and len({file.rpartition("/")[0] for file in chosen}) > 1:
        raise DataError(f"{name} holds several texts, each in a folder", hint)
    return chosen


def _split_of(name: str) -> str:
    """Return the split that a file's name contains, or else the nearest folder's; or `train`.

    For example `test` for en/test-00000-of-00041.parquet, en/my_test.parquet and test/en/0.parquet.
    The NAME of NAME-00000-of-00041.parquet is a split as it stands, such as `train_sft`, if it
    contains the name of a split. It is one, too, if no folder has the name of a split.
    """
    path = PurePosixPath(name)
    parted = PART.fullmatch(path.stem)
    whole = parted.group(1) if parted else ""
    if SPLIT.search(whole.lower()):
        return whole
    parts = (path.stem, *(folder.name for folder in path.parents))
    told = filter(None, (SPLIT.search(part.lower()) for part in parts))
    return next((word.group() for word in told), whole or "train")
