"""Where the metrics of a run go beside metrics.jsonl: a file for each tracker.

To add one, write a module here, and a row with its name in `TRACKERS` of config/run_knobs.py. The
module has `check()`, which refuses what cannot work before the data is prepared, `begin(place)`,
and the HINT of their errors. What may be slow or away is a `sending.Client`.
"""

from __future__ import annotations

import contextlib
import importlib
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, Protocol

from bert_jax.config.run_knobs import TRACKERS
from bert_jax.errors import ConfigError, UserError, first_line
from bert_jax.system import extras


class Place(NamedTuple):
    """The run that is tracked, and how far it is."""

    workdir: Path
    start: int  # the step that it goes on from
    config: Mapping[str, Any]
    lines: Sequence[Mapping[str, Any]]  # of metrics.jsonl, up to that step

    def record(self, name: str) -> Path:
        """Return the file of the run that says which tracked run of a tracker it is."""
        return self.workdir / "trackers" / f"{name}.json"


class Tracker(Protocol):
    """A tracked run that takes metrics; what goes wrong in a tracker never ends training."""

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Take the finite numbers of a line."""

    def close(self, finished: bool) -> None:
        """Bring everything to the tracker; `finished` says that training came to its end."""


def check(names: Iterable[str]) -> None:
    """Refuse trackers whose package is missing, or that have no account or server."""
    for name in names:
        with _beginning(name) as module:
            module.check()


def begin(names: Iterable[str], place: Place) -> list[Tracker]:
    """Open the trackers of a run; each continues what the run's folder says that it has."""
    trackers: list[Tracker] = []
    with contextlib.ExitStack() as opened:
        for name in names:
            with _beginning(name, place.record(name)) as module:
                tracker = module.begin(place)
            trackers.append(tracker)
            opened.callback(tracker.close, False)
        opened.pop_all()
    return trackers


@contextlib.contextmanager
def _beginning(name: str, record: Path | None = None) -> Iterator[ModuleType]:
    """Yield the module of a tracker; turn what its package raises into the user's error.

    `record` names the tracked run that is to be continued, if it exists.
    """
    extras.need(TRACKERS[name], name, f"tracker {name}")
    hint = "--config.logging.trackers= logs to metrics.jsonl alone"
    try:
        module = importlib.import_module(f"bert_jax.training.trackers.{name}")
        hint = f"{module.HINT}; {hint}"
        if record and record.exists():
            hint += f"; without {record} another tracked run begins"
        yield module
    except UserError:
        raise
    except Exception as error:  # of whichever kind the package has
        raise ConfigError(f"tracker {name} cannot begin: {short(error)}", hint) from error


def short(error: BaseException) -> str:
    """Return an error of a package in one short line."""
    return textwrap.shorten(first_line(error), 200)
