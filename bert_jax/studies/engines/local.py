"""The local engine: processes that share the cores or devices of this machine.

On two cores, two processes with one core each make 1.28 times as many updates as one process with
two cores (measured with tiny models).
"""

import importlib.util
import itertools
import math
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_jax.errors import ConfigError
from bert_jax.studies.engines.base import start_worker
from bert_jax.studies.folder import StudyFolder
from bert_jax.system import machine
from bert_jax.system.counts import format_count

GPU_PLUGINS = ("jax_cuda12_plugin", "jax_cuda13_plugin")
GPU_NAME = re.compile(r"\d+|(GPU|MIG)-.+")  # in CUDA_VISIBLE_DEVICES
DEVICE_FILES = ("nvidia[0-9]*", "accel[0-9]*", "vfio/[0-9]*")
FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION"  # variable: the share that jax allocates of a GPU
MEMORY = 0.9  # share of a GPU's memory that processes which share the GPU may take together


class Local:
    """Runs at most `jobs` processes at a time.

    By default there is a process for each core or, on a machine with accelerators, one process.
    """

    processes = 1

    def __init__(self, place: StudyFolder, jobs: int, options: Mapping[str, str]) -> None:
        for name in options:
            raise ConfigError(f"engine local has no option {name!r}", "it has none")
        self._place = place
        self._devices = find_accelerators()
        self._cores = machine.list_cores()
        self._jobs = jobs or (1 if self._devices else len(self._cores))
        self.most = self.parallel = self._jobs
        self._slots: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, groups: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
        """Start a process for each group, each with its own share of the cores and GPUs."""
        for group in groups:
            busy = {slot for slot, process in self._slots.items() if process.poll() is None}
            slot = min({*range(self._jobs)} - busy)
            cores = share_out(self._cores, self._jobs, slot) if self._jobs > 1 else []
            log = self._place.log(group)
            variables = self._choose_devices(slot)
            self._slots[slot] = start_worker(self._place.workdir, group, log, variables, cores)
            yield self._slots[slot]

    def poll(self, worker: subprocess.Popen[bytes]) -> int | None:
        """Return the exit code of a process; None while it runs."""
        return worker.poll()

    def stop(self, workers: Sequence[subprocess.Popen[bytes]]) -> None:
        """Ask processes to save and end."""
        for process in workers:
            process.terminate()

    def describe(self) -> str:
        """Say how many processes share the cores or devices."""
        units = format_count(len(self._cores), "core")
        if self._devices:
            units = format_count(len(self._devices), "device")
        jobs = f"{self._jobs} processes at a time" if self._jobs > 1 else "one process"
        return f"{jobs} on {units}"

    def _choose_devices(self, slot: int) -> dict[str, str]:
        """Return the environment variables that limit a process to some GPUs or some GPU memory.

        `slot` is the number of the process among those that run at the same time.
        """
        if self._jobs == 1 or not self._devices or self._devices != find_gpus():
            return {}
        variables = {"CUDA_VISIBLE_DEVICES": ",".join(share_out(self._devices, self._jobs, slot))}
        together = math.ceil(self._jobs / len(self._devices))
        if together > 1 and FRACTION not in os.environ:
            variables[FRACTION] = f"{MEMORY / together:.3f}"
        return variables


def find_accelerators() -> list[str]:
    """Return the accelerators that jax would use, without importing jax, which takes seconds."""
    if os.environ.get("JAX_PLATFORMS", "").startswith("cpu"):
        return []
    tpus = []
    if importlib.util.find_spec("libtpu"):
        tpus = sorted(str(p) for pattern in DEVICE_FILES[1:] for p in Path("/dev").glob(pattern))
    return tpus or find_gpus()


def find_gpus() -> list[str]:
    """Return the indices of the GPUs of this machine that jax can use."""
    on_cpu = os.environ.get("JAX_PLATFORMS", "").startswith("cpu")
    if on_cpu or not any(map(importlib.util.find_spec, GPU_PLUGINS)):
        return []
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        # CUDA ignores all names from the first on that names no GPU, such as -1.
        names = (name.strip() for name in visible.split(","))
        return [*itertools.takewhile(GPU_NAME.fullmatch, names)]
    files = Path("/dev").glob(DEVICE_FILES[0])
    return sorted((file.name.removeprefix("nvidia") for file in files), key=int)


def share_out(items: Sequence[Any], jobs: int, slot: int) -> list[Any]:
    """Return the items that belong to job number `slot` of `jobs` jobs.

    A job gets neighbouring items, and the numbers of items differ by one at most. If there are too
    few items, jobs share them.

        share_out([0, 1, 2, 3, 4], 2, 0) == [0, 1]
        share_out([0, 1, 2, 3, 4], 2, 1) == [2, 3, 4]
        share_out([0, 1], 3, 2) == [0]
    """
    if jobs >= len(items):
        return [items[slot % len(items)]]
    return list(items[slot * len(items) // jobs : (slot + 1) * len(items) // jobs])
