"""Atomic writes, outputs that users name, and the error of a full disk."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
from collections.abc import Iterator
from io import BufferedWriter
from pathlib import Path

from bert_jax.errors import CheckpointError, ConfigError, UserError

NUMBERS = (errno.ENOSPC, errno.EDQUOT)
# What libraries say whose errors have no number; numpy says the last.
MESSAGES = ("No space left", "quota exceeded", "requested and")
HINT = (
    "free some space, then run the same command again: it goes on, and what is finished is intact"
)
ELSEWHERE = "choose another --output"


class DiskFull(CheckpointError):
    """No space is left for a write."""


def is_full(error: BaseException | None) -> bool:
    """Tell whether an error, or its cause, is a disk without space."""
    while error is not None:
        if isinstance(error, DiskFull) or getattr(error, "errno", None) in NUMBERS:
            return True
        if any(words in str(error) for words in MESSAGES):
            return True
        error = error.__cause__
    return False


def full(place: Path | str, needed: int | None = None, what: str = "") -> DiskFull:
    """Make the error of a full disk.

    Args:
      place: the file or folder that was written.
      needed: bytes that the write needs; by default more than there are.
      what: what was to be written, which is the place by default.
    """
    folder = Path(place).absolute()
    while not folder.is_dir():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    amount = f"more than {free:,}"
    if needed is not None and needed > free:
        amount = f"{needed:,}"
    return DiskFull(
        f"disk full: {what or place} needs {amount} bytes and {free:,} are free in {folder}", HINT
    )


@contextlib.contextmanager
def reporting_full_disk(place: Path | str, needed: int | None = None) -> Iterator[None]:
    """Turn the error of a full disk into the user's error; any other error passes."""
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise full(place, needed) from error
        raise


@contextlib.contextmanager
def output(path: Path, kind: type[UserError], hint: str) -> Iterator[None]:
    """Turn an OSError into the user's error, which names the output `path`.

    `kind` and `hint` are used if the disk is not full.
    """
    try:
        with reporting_full_disk(path):
            yield
    except OSError as error:
        raise kind(f"cannot write '{path}': {error.strerror}", hint) from error


@contextlib.contextmanager
def replacing(path: Path, needed: int | None = None) -> Iterator[BufferedWriter]:
    """Yield a draft that replaces `path` in one move when the block ends without an error.

    A reader, or a kill, finds the old file or the new one.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
    try:
        with reporting_full_disk(path, needed):
            with draft.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())  # a rename may reach the disk before the data does
            draft.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


def write(path: Path, content: str | bytes) -> None:
    """Replace a file in one move."""
    data = content.encode() if isinstance(content, str) else content
    with replacing(path, len(data)) as file:
        file.write(data)


def check_output(path: Path) -> None:
    """Refuse an output that cannot be written, before anything costly starts; make its folder."""
    with output(path, ConfigError, ELSEWHERE):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise ConfigError(f"cannot write '{path}': it is a folder, not a file", ELSEWHERE)
        existed = path.exists()
        path.open("ab").close()
        if not existed:
            path.resolve().unlink()  # a link that leads to no file yet stays


def write_output(path: Path, content: str | bytes) -> None:
    """Write a file that a user named; a link stays, and its target is replaced in one move.

    Devices such as /dev/null are written into: a rename would put a file in their place, for every
    program of the machine. /dev/shm is a folder of files as any other.
    """
    check_output(path)
    data = content.encode() if isinstance(content, str) else content
    with output(path, ConfigError, ELSEWHERE):
        is_stream = path.is_relative_to("/dev") and not path.is_relative_to("/dev/shm")
        if is_stream or (path.exists() and not path.is_file()):
            sys.stdout.flush()  # earlier lines come first
            with path.open("ab") as file:
                file.write(data)
        else:
            write(path.resolve(), data)
