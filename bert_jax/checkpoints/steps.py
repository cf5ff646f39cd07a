"""The saved steps of a run: which there are, which is the best, and which can be trusted."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bert_jax.checkpoints import manifest
from bert_jax.errors import CheckpointError

logger = logging.getLogger(__name__)

SMALL = 1 << 20  # bytes of a file that is hashed before anything is read
Metrics = dict[int, float | None]


def list_steps(folder: Path) -> list[int]:
    """List the saved steps, oldest first; a save that was killed leaves no step."""
    names = (path.name for path in folder.glob("[0-9]*/"))
    return sorted(int(name) for name in names if name.isdecimal())


def read_metrics(folder: Path) -> tuple[Metrics, list[int]]:
    """Read the metric of each step, None for a step without; list the damaged manifests apart."""
    metrics: Metrics = {}
    damaged = []
    for step in list_steps(folder):
        try:
            metrics[step] = manifest.read_manifest(folder / str(step))["metric"]
        except CheckpointError:
            damaged.append(step)
    return metrics, damaged


def sort_best_first(metrics: Metrics) -> list[int]:
    """Sort steps: the lowest metric first, then steps without a metric; of equals the latest."""
    return sorted(metrics, key=lambda step: (metrics[step] is None, metrics[step] or 0.0, -step))


def list_metrics(run: Path) -> list[tuple[int, float | None]]:
    """List the steps of a run with their metrics, the best first, without damaged manifests."""
    metrics, _ = read_metrics(run / "checkpoints")
    return [(step, metrics[step]) for step in sort_best_first(metrics)]


def choose_step(
    folder: Path,
    step: int | None,
    groups: tuple[str, ...],
    read: Callable[[Path], Any],
    best_first: bool = False,
) -> tuple[int, Any] | None:
    """Return the newest step, the best or `step`, and what `read` makes of its sound folder.

    A damaged step costs a warning, and the next one is tried. None means that there is no step; it
    is an error if all steps, or `step`, are damaged. Only the groups of files are verified.
    """
    folder = folder.absolute()
    saved = list_steps(folder)
    if step is not None and step not in saved:
        known = ", ".join(map(str, saved)) or "none"
        raise CheckpointError(
            f"no finished checkpoint of step {step} in {folder}", f"steps there: {known}"
        )
    candidates = saved[::-1] if step is None else [step]
    if step is None and best_first:
        metrics, damaged = read_metrics(folder)
        candidates = damaged[::-1] + sort_best_first(metrics)  # any damaged step may be the best
    problems = []
    for place, candidate in enumerate(candidates, 1):
        problem, value = _read_verified(folder / str(candidate), groups, read)
        if not problem:
            return candidate, value
        problems.append(problem)
        if place < len(candidates):
            logger.warning(
                f"checkpoint corrupt: {problem}; falling back to step {candidates[place]}"
            )
    if problems:
        raise CheckpointError(
            f"checkpoint corrupt: {problems[0]}",
            "restore the folder from a copy, or name another step; "
            "to start anew, use another workdir",
        )
    return None


def _read_verified(
    folder: Path, groups: tuple[str, ...], read: Callable[[Path], Any]
) -> tuple[str, Any]:
    """Read a step while its large files are hashed; return a problem, or "" and what was read."""
    if problem := manifest.find_problem(folder, groups, most=SMALL):
        return problem, None
    with ThreadPoolExecutor(1) as pool:
        hashing = pool.submit(manifest.find_problem, folder, groups)
        try:
            value = read(folder)
        except Exception:  # whatever Orbax makes of damaged files
            if not hashing.result():
                raise
            value = None
        return hashing.result(), value
