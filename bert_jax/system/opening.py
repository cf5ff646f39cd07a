"""Open paths that users give; errors have the class that the caller chooses, and a hint."""

import os
import re
from io import BufferedReader
from pathlib import Path

from bert_jax.errors import ConfigError, UserError

HINT = "give the path of a file that you may read"
STORE = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+")  # gs://bucket, which pathlib makes gs:/bucket


def expand_home(path: str | os.PathLike) -> Path:
    """Convert a path that may begin with ~; of a user who does not exist it stays as it is."""
    return Path(os.path.expanduser(path))


def check_file(path: Path | str, kind: type[UserError], hint: str = "") -> None:
    """Refuse a path that is not a file, before a library opens it by its name."""
    file = Path(path)
    if not file.exists():
        raise kind(f"{path} does not exist", hint or HINT)
    if not file.is_file():
        what = "a folder, not a file" if file.is_dir() else "not a file"
        raise kind(f"{path} is {what}", hint or HINT)


def open_regular(path: Path | str, kind: type[UserError], hint: str = "") -> BufferedReader:
    """Open a file for reading bytes; refuse a path that is not a file."""
    check_file(path, kind, hint)
    try:
        return open(path, "rb")
    except OSError as error:
        raise kind(f"{path} cannot be read: {error.strerror}", hint or HINT) from error


def read_file(path: Path | str, kind: type[UserError], limit: int, hint: str = "") -> bytes:
    """Read the bytes of a file; refuse a file of more than `limit` bytes."""
    with open_regular(path, kind, hint) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            problem = f"{path} has {size:,} bytes, and at most {limit:,} are read"
            raise kind(problem, hint or "is it damaged?")
        return file.read()


def check_inside(root: Path, file: Path, kind: type[UserError]) -> Path:
    """Return a file of a folder; refuse a link that leads outside the folder.

    Otherwise whoever packed the folder could choose which of the user's files is read. Links to
    ../../blobs/HASH are allowed, because the hub's cache consists of them.
    """
    check_file(file, kind)
    home = root.resolve()
    blobs = [parent.parent / "blobs" for parent in home.parents if parent.name == "snapshots"]
    target = file.resolve()
    if not any(target.is_relative_to(allowed) for allowed in (home, *blobs)):
        raise kind(
            f"{file} is a link to {target}, outside its folder", "give the path of the file itself"
        )
    return file


def check_local(path: Path | str, what: str) -> None:
    """Refuse a path in an object store, and the URL of a file."""
    text = os.fspath(path)
    scheme = STORE.match(text)
    if not scheme or os.path.exists(text):
        return
    rest = text[scheme.end() :]
    if scheme[1].lower() == "file":
        raise ConfigError(f"{what} = {scheme[1]}:///{rest} is a URL", f"give the path: /{rest}")
    raise ConfigError(
        f"{what} = {scheme[1]}://{rest} is in an object store ({scheme[1]}), "
        "which is no file system",
        "mount the bucket as a folder (gcsfuse, rclone mount) and give that, or copy from there",
    )
