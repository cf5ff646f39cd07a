"""Processes of a study's workers, and what a study has found."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Any

from bert_jax.studies.folder import StudyFolder


def list_workers(workdir: Path) -> list[int]:
    """List workers of the present launcher, and of those before it that are still saving."""
    pids = [int(one.name) for one in Path("/proc").glob("[0-9]*")]
    wanted = {"bert_jax.study", "work", f"--workdir={workdir}"}
    return [pid for pid in pids if wanted <= set(_read_words(pid))]


def _read_words(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    except OSError:
        return []


def kill(pid: int) -> None:
    """Kill a process that may have ended meanwhile."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def read_metrics(workdir: Path) -> dict[str, dict[str, Any]]:
    """Read the metrics of every evaluation of every cell."""
    place = StudyFolder(workdir)
    return {
        cell.id: {name: place.read_result(cell, name).metrics for name in cell.evaluations}
        for cell in place.cells()
    }
