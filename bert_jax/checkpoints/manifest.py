"""The manifest of a step folder, written last: the size and sha256 of every file in it.

A step without a manifest was never finished. Names in a manifest are relative and stay inside the
step's folder.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bert_jax.errors import CheckpointError
from bert_jax.system import disk, fault_points, jsons, opening
from bert_jax.system.jsons import Maybe

logger = logging.getLogger(__name__)

NAME = "manifest.json"
UNFINISHED = "*.orbax-checkpoint-tmp*"  # Orbax's names of folders it has not committed
SIZE = range(2**63)
ARRAY = {"shape": [SIZE], "dtype": str}
SCHEMA = {  # of a manifest
    "digest": str,
    "step": SIZE,
    "metric": Maybe(float),
    "files": {str: {"bytes": SIZE, "sha256": str}},
    "arrays": {str: {str: ARRAY}},
}


def choose(
    folder: Path, requested: int | None, corrupt: set[int], best_first: bool = False
) -> int | None:
    """Choose the newest step (or best, or `requested`) whose files are all as they were written.

    Steps that are not are added to `corrupt`, with a warning, and the next one is tried.
    """
    steps = finished(folder)
    if requested is not None:
        if requested not in steps:
            known = ", ".join(map(str, steps)) or "none"
            raise CheckpointError(
                f"no finished checkpoint of step {requested} in {folder}", f"steps there: {known}"
            )
        candidates = [requested]
    else:
        uncommitted = [path.name for path in sorted(folder.glob(UNFINISHED))]
        for name in [*uncommitted, *sorted(set(step_folders(folder)) - set(steps))]:
            logger.warning(
                f"skipping {folder / str(name)}: it has no {NAME}, so its save was not finished"
            )
        candidates = ranked(folder, steps) if best_first else steps[::-1]
    first = ""
    for place, step in enumerate(candidates):
        problem = _problem(folder / str(step))
        if not problem:
            return step
        corrupt.add(step)
        first = first or problem
        if place + 1 < len(candidates):
            logger.warning(
                f"checkpoint corrupt: {problem}; falling back to step {candidates[place + 1]}"
            )
    if candidates:
        raise CheckpointError(
            f"checkpoint corrupt: {first}",
            "restore the folder from a copy, or name another step; "
            "to start anew, use another workdir",
        )
    return None


def _problem(folder: Path) -> str:
    """Return the first file that is not as the manifest states, and why; empty if all are."""
    try:
        files = load(folder)["files"]
    except CheckpointError as error:
        return str(error)
    with ThreadPoolExecutor(4) as pool:  # hashing releases Python's lock
        for problem in pool.map(lambda item: _file_problem(folder, *item), files.items()):
            if problem:
                return problem
    return ""


def _file_problem(folder: Path, name: str, expected: dict[str, Any]) -> str:
    path = folder / name
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
        return f"{folder / NAME} (names {jsons.show(name)}, outside the folder)"
    try:
        size = path.stat().st_size
        if size != expected["bytes"]:
            return f"{path} ({size} bytes, {expected['bytes']} were written)"
        return "" if _sha256(path) == expected["sha256"] else f"{path} (its sha256 differs)"
    except OSError as error:
        return f"{path} ({error.strerror})"
    except CheckpointError as error:  # not a regular file
        return str(error)


def load(folder: Path) -> dict[str, Any]:
    """Load the manifest of a step folder, once it is checked itself."""
    path = folder / NAME
    try:
        manifest = jsons.parse(opening.read(path, CheckpointError, jsons.LIMIT), SCHEMA)
    except jsons.Malformed as error:
        raise CheckpointError(f"{path} ({error})") from error
    digest = manifest.pop("digest")
    if digest != _digest(manifest):
        raise CheckpointError(f"{path} (its digest differs)")
    return manifest


def write(folder: Path, entry: dict[str, Any]) -> None:
    """Flush and hash every file, then write the manifest so that it is whole or absent."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.name != NAME:
            _sync(path)
        if path.is_file() and path.name != NAME:
            files[path.relative_to(folder).as_posix()] = {
                "bytes": path.stat().st_size,
                "sha256": _sha256(path),
            }
    manifest = {**entry, "files": files}
    fault_points.point("manifest-ready", entry["step"])
    disk.write(folder / NAME, json.dumps({**manifest, "digest": _digest(manifest)}, indent=1))
    for changed in (folder, folder.parent):
        _sync(changed)


def _digest(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _sha256(path: Path) -> str:
    with opening.regular(path, CheckpointError) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def step_folders(folder: Path) -> list[int]:
    """Return the steps that have a folder, finished or not, oldest first."""
    if not folder.is_dir():
        return []
    return sorted(
        int(p.name) for p in folder.iterdir() if re.fullmatch(r"0|[1-9]\d*", p.name) and p.is_dir()
    )


def finished(folder: Path) -> list[int]:
    """Return the steps that have a manifest, oldest first."""
    return [step for step in step_folders(folder) if (folder / str(step) / NAME).is_file()]


def ranked(folder: Path, steps: list[int]) -> list[int]:
    """Sort steps, the best first: by the lowest metric, the later of equals first.

    Steps without a metric come last, the latest first. Steps whose manifest cannot be read come
    before all others: any of them may be the best, so a caller that wants the best has to meet them
    and warn.
    """

    def place(step: int) -> tuple[int, float, int]:
        manifest = readable(folder / str(step))
        metric = manifest and manifest["metric"]
        return (0 if manifest is None else 2 if metric is None else 1, metric or 0.0, -step)

    return sorted(steps, key=place)


def best(folder: Path, steps: list[int]) -> int | None:
    """Return the best step whose manifest can be read."""
    return next(
        (step for step in ranked(folder, steps) if readable(folder / str(step)) is not None), None
    )


def kept(run: Path) -> list[tuple[int, float | None]]:
    """Return the steps of a run's folder whose manifest can be read, and their metrics.

    The first is the one that a reader of the run gets, unless its files are damaged.
    """
    folder = run / "checkpoints"
    known = ((step, readable(folder / str(step))) for step in ranked(folder, finished(folder)))
    return [(step, manifest["metric"]) for step, manifest in known if manifest is not None]


def readable(folder: Path) -> dict[str, Any] | None:
    """Return the manifest of a step folder, or None where it is missing or damaged."""
    try:
        return load(folder)
    except CheckpointError:
        return None
