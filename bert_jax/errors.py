"""Errors that a user can act on: a line with the problem and its values, a hint, an exit code."""

import difflib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

# Status codes that only a call to another machine returns, and the libraries of collectives.
NETWORK = re.compile(
    r"^(UNAVAILABLE|DEADLINE_EXCEEDED|ABORTED|CANCELLED)\b|gloo|nccl|coordination service|barrier",
    re.IGNORECASE,
)
EXHAUSTED = "RESOURCE_EXHAUSTED"  # in the message of jax when a device has no memory left


class UserError(Exception):
    """The base class of expected errors; `cli.main` prints one and exits with its `code`."""

    code = 2

    def __init__(self, message: str, hint: str = ""):
        super().__init__(message)
        self.hint = hint
        if hint:
            self.add_note(f"hint: {hint}")  # for Python, whose traceback has no line of ours


class ConfigError(UserError):
    """A flag, config or workdir that cannot be used."""


def need(holds: bool, message: str, hint: str) -> None:
    """Raise a ConfigError unless `holds` is true."""
    if not holds:
        raise ConfigError(message, hint)


class HeadError(ConfigError):
    """A model that lacks the head, or the classes, that a request needs."""


class DataError(UserError):
    """A corpus, task file or row that cannot be used."""

    code = 3


class MissingError(DataError):
    """Data that does not exist, as opposed to data that is damaged."""


class CheckpointError(UserError):
    """A checkpoint that cannot be written, read or trusted."""

    code = 4


class DivergedError(UserError):
    """Training has produced numbers with which it must not continue."""

    code = 5


class Stopped(UserError):
    """The work was interrupted after everything was saved; the same command continues it."""

    code = 75


class PeerLost(Stopped):
    """In a run of several processes, another process has ended or cannot be reached."""

    def __init__(self, hint: str = "the same command continues"):
        super().__init__("another process of this run has ended, or the link to it is cut", hint)

    @staticmethod
    def explains(error: BaseException) -> bool:
        """Tell whether an error of jax or Orbax comes from the network between processes."""
        return NETWORK.search(str(error)) is not None


class IncompleteError(UserError):
    """A part of the work has failed; the rest is done."""

    code = 1


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or the error's repr if it has no message."""
    return (str(error).strip().splitlines() or [repr(error)])[0]


def suggest(word: str, options: Iterable[Any]) -> str:
    """Write the hint for an unknown word: the nearest of the known options, and a list of them."""
    words = [str(option) for option in options]
    close = difflib.get_close_matches(word, words, n=1, cutoff=0.5)
    listing = f"one of: {', '.join(words)}"
    return f"did you mean {close[0]!r}? {listing}" if close else listing


def suggest_path(path: str | os.PathLike) -> str:
    """Write the hint for a path that does not exist: the most similar name there, or ""."""
    given = Path(os.path.expanduser(path))
    names = os.listdir(given.parent) if given.parent.is_dir() else []
    close = difflib.get_close_matches(given.name, names, n=1, cutoff=0.6)
    return f"did you mean {str(given.parent / close[0])!r}?" if close else ""
