"""The saved steps of a run: what is in them, which of them are sound, and which is the best.

    20/params/ rest/ meta/   the parameters, the other arrays, plain JSON, all written by Orbax
    20/manifest.json         size and sha256 of those files, the metric that ranks the step, and
                             entries of meta/ that evaluations after the save replace

Each group of files, such as `params`, is verified separately: to read the parameters, only the
files of `params` are hashed.
"""

import hashlib
import json
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bert_jax.errors import CheckpointError
from bert_jax.system import disk

logger = logging.getLogger(__name__)

MANIFEST = "manifest.json"
LARGE = 1 << 20  # bytes of a file of arrays that takes long to hash
Metrics = dict[int, float | None]


def list_steps(folder: Path) -> list[int]:
    """List the saved steps, oldest first; a save that was killed leaves no step."""
    names = [path.name for path in folder.glob("[0-9]*/")]
    return sorted(int(name) for name in names if name.isdecimal())


# --- the manifest of a step -----------------------------------------------------------------------


def write_manifest(folder: Path, step: int, metric: float | None) -> None:
    """Flush and hash every file of a step, then write the manifest."""
    files = {}
    for path in sorted(folder.glob("*/**/*")):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
            name = path.relative_to(folder).as_posix()
            files[name] = {"bytes": path.stat().st_size, "sha256": _hash_file(path)}
    _write(folder, {"step": step, "metric": metric, "files": files})


def write_evaluations(folder: Path, metric: float | None, changed: dict[str, Any]) -> None:
    """Add to the manifest of a step the results of evaluations that ran after its save.

    These are the metric, unless it is None, and entries that replace those of the step's record.
    """
    manifest = {**read_manifest(folder), "changed": changed}
    if metric is not None:
        manifest["metric"] = metric
    _write(folder, manifest)


def forget_metric(folder: Path) -> None:
    """Remove the metric that ranks a step from its manifest."""
    _write(folder, {**read_manifest(folder), "metric": None})


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of a step; refuse a manifest that was changed."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
        digest = manifest.pop("digest")
    except OSError as error:
        raise CheckpointError(f"{path} ({error.strerror})") from error
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{path} (not the manifest of a checkpoint)") from error
    if digest != _hash_manifest(manifest):
        raise CheckpointError(f"{path} (its digest differs)")
    return manifest


def is_lost(folder: Path) -> bool:
    """Tell whether the manifest of a step is absent or changed, not only unreadable for now."""
    try:
        read_manifest(folder)
    except CheckpointError as error:
        cause = error.__cause__
        return isinstance(cause, FileNotFoundError) or not isinstance(cause, OSError)
    return False


def read_record(folder: Path) -> dict[str, Any]:
    """Read the JSON record of a step, with what evaluations after its save have changed."""
    record: dict[str, Any] = json.loads((folder / "meta" / "metadata").read_bytes())
    return record | read_manifest(folder).get("changed", {})


def find_problem(folder: Path, groups: tuple[str, ...], large: bool = False) -> str:
    """Describe the first file of `groups` that differs from the manifest; "" if there is none.

    The sizes of all files are compared. Contents are compared of small files, or with `large` of
    large files only.
    """
    try:
        files = read_manifest(folder)["files"]
    except CheckpointError as error:
        return str(error)

    def check_file(name: str) -> str:
        path = folder / name
        written = files[name]["bytes"]
        try:
            size = path.stat().st_size
            if size != written:
                return f"{path} ({size} bytes, {written} were written)"
            if (written >= LARGE) == large and _hash_file(path) != files[name]["sha256"]:
                return f"{path} (its sha256 differs)"
        except OSError as error:
            return f"{path} ({error.strerror})"
        return ""

    names = [name for name in files if name.split("/")[0] in groups]
    with ThreadPoolExecutor(4) as pool:  # hashing releases Python's lock
        return next(filter(None, pool.map(check_file, names)), "")


def _write(folder: Path, manifest: dict[str, Any]) -> None:
    whole = {**manifest, "digest": _hash_manifest(manifest)}
    disk.write(folder / MANIFEST, json.dumps(whole, indent=1))


def _hash_manifest(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# --- which step -----------------------------------------------------------------------------------


def read_metrics(folder: Path) -> tuple[Metrics, list[int]]:
    """Return {step: metric} and the list of damaged steps; a step without a metric has None.

    A step is damaged here if its manifest cannot be read.
    """
    metrics: Metrics = {}
    damaged = []
    for step in list_steps(folder):
        try:
            metrics[step] = read_manifest(folder / str(step))["metric"]
        except CheckpointError:
            damaged.append(step)
    return metrics, damaged


def sort_best_first(metrics: Metrics) -> list[int]:
    """Sort steps by their metric, the lowest first; steps without a metric come last.

    Of steps with equal metrics, or without a metric, the latest comes first.
    """
    return sorted(metrics, key=lambda step: (metrics[step] is None, metrics[step] or 0.0, -step))


def list_metrics(run: Path) -> list[tuple[int, float | None]]:
    """List the pairs (step, metric) of a run, the best first.

    Steps with a damaged manifest are left out.
    """
    metrics, _ = read_metrics(run / "checkpoints")
    return [(step, metrics[step]) for step in sort_best_first(metrics)]


def choose_step(
    folder: Path,
    step: int | None,
    groups: tuple[str, ...],
    best_first: bool = False,
    read: Callable[[Path], Any] = lambda source: None,
) -> tuple[int, Any] | None:
    """Choose `step`, or the newest sound step, or with `best_first` the best sound step.

    Only the files of `groups` are verified. If they are damaged, a warning is logged and the next
    candidate is tried. If no candidate is sound, a CheckpointError is raised. The result is None if
    no step was saved, else the step and what `read` returns of its folder. `read` runs while the
    large files are verified: its result or error counts only if they are sound.
    """
    folder = folder.absolute()
    candidates = list_steps(folder)[::-1]
    if step is not None:
        if step not in candidates:
            known = ", ".join(map(str, reversed(candidates))) or "none"
            raise CheckpointError(
                f"no finished checkpoint of step {step} in {folder}", f"steps there: {known}"
            )
        candidates = [step]
    elif best_first:
        metrics, damaged = read_metrics(folder)
        candidates = damaged[::-1] + sort_best_first(metrics)  # any damaged step may be the best
    problems: list[str] = []
    with ThreadPoolExecutor(1) as reader:
        for candidate in candidates:
            if problems:
                logger.warning(
                    f"checkpoint corrupt: {problems[-1]}; falling back to step {candidate}"
                )
            source = folder / str(candidate)
            problem = find_problem(source, groups)
            if not problem:
                content = reader.submit(read, source)
                problem = find_problem(source, groups, large=True)
                if not problem:
                    return candidate, content.result()
            problems.append(problem)
    if problems:
        raise CheckpointError(
            f"checkpoint corrupt: {problems[0]}",
            "restore the folder from a copy, or name another step; "
            "to start anew, use another workdir",
        )
    return None
