"""Opening of users' files: what cannot be read is the caller's kind of error, with a hint."""

from __future__ import annotations

import os
import re
import stat
from io import BufferedReader
from pathlib import Path

from bert_jax.errors import ConfigError, UserError

HINT = "give the path of a file that you may read"
STORE = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")  # gs://bucket, which pathlib makes gs:/bucket


def check(path: Path | str, kind: type[UserError], hint: str = "") -> None:
    """Refuse a path that is no file, for libraries that open by name."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError as error:
        raise kind(f"{path} does not exist", hint or HINT) from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in a name
        raise kind(f"{path} cannot be read: {error}", hint or HINT) from error
    if stat.S_ISDIR(mode):
        raise kind(f"{path} is a folder, not a file", hint or HINT)
    if not stat.S_ISREG(mode):
        raise kind(f"{path} is not a file", hint or HINT)


def regular(path: Path | str, kind: type[UserError], hint: str = "") -> BufferedReader:
    """Open a file for reading its bytes."""
    check(path, kind, hint)
    try:
        return open(path, "rb")
    except OSError as error:
        raise kind(f"{path} cannot be read: {error.strerror}", hint or HINT) from error


def read(path: Path | str, kind: type[UserError], limit: int, hint: str = "") -> bytes:
    """Read the bytes of a file that has at most `limit` of them."""
    with regular(path, kind, hint) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            problem = f"{path} has {size:,} bytes, and at most {limit:,} are read"
            raise kind(problem, hint or "is it damaged?")
        return file.read()


def inside(root: Path, file: Path, kind: type[UserError]) -> Path:
    """Return a file of a folder if its links end in that folder, or in the blobs of its hub cache.

    A hub snapshot consists of links to ../../blobs/HASH, so links are followed and their ends
    compared. Any other link out of the folder would let whoever packed it choose which of the
    user's files is read.
    """
    check(file, kind)
    home = root.resolve()
    target = file.resolve()
    blobs = [parent.parent / "blobs" for parent in home.parents if parent.name == "snapshots"]
    if not any(target.is_relative_to(allowed) for allowed in (home, *blobs)):
        raise kind(
            f"{file} is a link to {target}, outside its folder", "give the path of the file itself"
        )
    return file


def local(path: Path | str, what: str) -> None:
    """Refuse a path in an object store, or of bytes that are not UTF-8."""
    text = os.fspath(path)
    if not text:
        return
    if (scheme := STORE.match(text)) and not os.path.exists(text):
        raise ConfigError(
            f"{what} = {text} is in an object store ({scheme[1]}), which is no file system",
            "mount the bucket as a folder (gcsfuse, mount-s3, rclone mount) and give that, "
            "or copy from there",
        )
    try:
        os.path.abspath(text).encode()
    except UnicodeEncodeError as error:
        shown = os.fsencode(os.path.abspath(text)).decode(errors="backslashreplace")
        raise ConfigError(
            f"{what} = {shown} is not UTF-8", "rename it: checkpoints and reports name it"
        ) from error
