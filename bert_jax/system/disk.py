"""Atomic writes, outputs that users name, and the error a user gets when a disk is full."""

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

FULL = (errno.ENOSPC, errno.EDQUOT)
FULL_MESSAGES = (  # of libraries whose errors have no number; the last is numpy's
    "No space left",
    "quota exceeded",
    "requested and",
)
HINT = (
    "free some space, then run the same command again: it goes on, and what is finished is intact"
)
ELSEWHERE = "choose another --output"


class DiskFull(CheckpointError):
    """No space is left for a write."""


def is_full(error: BaseException | None) -> bool:
    """Tell whether an error, or what caused it, is a disk without space."""
    while error is not None:
        if isinstance(error, DiskFull) or any(words in str(error) for words in FULL_MESSAGES):
            return True
        if getattr(error, "errno", None) in FULL:
            return True
        error = error.__cause__
    return False


def full(place: Path | str, needed: int | None = None, what: str = "") -> DiskFull:
    """Return the error of a full disk, with the bytes that a write needs and those that are free.

    `what` describes what was to be written, which is the place by default. Without `needed`, the
    write needs more than is free.
    """
    folder = Path(place).absolute()
    while not folder.is_dir():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    known = needed is not None and needed > free
    amount = f"{needed:,} bytes" if known else f"more than {free:,} bytes"
    subject = what or str(place)
    return DiskFull(f"disk full: {subject} needs {amount} and {free:,} are free in {folder}", HINT)


def check_space(folder: Path, needed: int, what: str) -> None:
    """Refuse to start a write that cannot fit."""
    if shutil.disk_usage(folder).free < needed:
        raise full(folder, needed, what)


@contextlib.contextmanager
def reporting_full_disk(
    place: Path | str, needed: int | None = None, what: str = ""
) -> Iterator[None]:
    """Turn the error of a full disk into the user's error; any other error passes."""
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise full(error.filename or place, needed, what) from error
        raise


@contextlib.contextmanager
def output(path: Path, kind: type[UserError], hint: str, name: str | None = None) -> Iterator[None]:
    """Turn an OSError of writing an output into the user's error, which names the output.

    `kind` and `hint` are those of the error where the disk is not full.
    """
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise full(path) from error
        raise kind(f"cannot write {name or path}: {error.strerror}", hint) from error


@contextlib.contextmanager
def replacing(path: Path, needed: int | None = None) -> Iterator[BufferedWriter]:
    """Yield a draft, which replaces `path` in one move when the block ends without an error.

    A reader, or a kill, finds the old file or the new one. The draft is removed if anything fails.
    If the disk is full, the error names the bytes that are `needed`.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
    try:
        with draft.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # a rename may reach the disk before the data does
        draft.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        if isinstance(error, OSError) and is_full(error):
            raise full(path, needed) from error
        raise


def write(path: Path, content: str | bytes) -> None:
    """Replace a file in one move: a reader, or a kill, finds the old one or the new one."""
    data = content.encode() if isinstance(content, str) else content
    with replacing(path, len(data)) as file:
        file.write(data)


def check_output(path: Path, hint: str = ELSEWHERE) -> None:
    """Refuse an output that cannot be written, before anything costly starts; make its folder."""
    with output(path, ConfigError, hint, repr(str(path))):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise ConfigError(f"cannot write {str(path)!r}: it is a folder, not a file", hint)
        existed = path.exists()
        path.open("ab").close()
        if not existed:
            os.unlink(os.path.realpath(path))  # a link that leads to no file yet stays


def write_output(path: Path, content: str | bytes, hint: str = ELSEWHERE) -> None:
    """Write a file that a user named; a link stays, and its target is replaced in one move.

    Devices such as /dev/null and /dev/stdout are written into: a rename would replace them by a
    file, for every program of the machine. /dev/shm is a folder of files as any other.
    """
    check_output(path, hint)
    data = content.encode() if isinstance(content, str) else content
    with output(path, ConfigError, hint, repr(str(path))):
        is_stream = path.is_relative_to("/dev") and not path.is_relative_to("/dev/shm")
        if is_stream or (path.exists() and not path.is_file()):
            sys.stdout.flush()  # what was printed before stands before it
            with path.open("ab") as file:
                file.write(data)
        else:
            write(path.resolve(), data)
