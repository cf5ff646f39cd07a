"""Facts about this machine: versions, processor, memory, disks, devices, the commit of the code."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil

from bert_jax.system import allocator

CGROUP_LIMITS = (  # of a container's memory: cgroups version 2 and 1
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def versions(packages: tuple[str, ...]) -> dict[str, str | None]:
    """Return the installed versions of packages; None for one that is absent."""
    installed: dict[str, str | None] = dict.fromkeys(packages)
    for package in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            installed[package] = importlib.metadata.version(package)
    return installed


def cache_folder() -> Path:
    """Return the folder of prepared corpora where a config does not name one."""
    return Path(os.environ.get("BERT_JAX_DATA") or "~/.cache/bert_jax").expanduser()


def machine() -> dict[str, Any]:
    """Describe the host, its allocator and its free disk space."""
    cache = cache_folder().absolute()
    existing = next(p for p in (cache, *cache.parents) if p.is_dir())
    return {
        **host(),
        "allocator": allocator.find_obstacle() or "keeps its memory while training",
        "cache": str(cache),
        "cache_free_bytes": shutil.disk_usage(existing).free,
        "workdir": str(Path.cwd()),
        "workdir_free_bytes": shutil.disk_usage(Path.cwd()).free,
    }


def host() -> dict[str, Any]:
    """Describe the system, the processor, and the cores and memory that this process may use."""
    return {
        "system": platform.platform(),
        "processor": cpuinfo("model name"),
        "cores": cores(),
        "memory_bytes": memory(),
    }


def cores() -> int:
    """Count the cores that this process may use."""
    process = psutil.Process()
    may_use = process.cpu_affinity() if hasattr(process, "cpu_affinity") else None
    return len(may_use) if may_use else psutil.cpu_count() or 1


def cpuinfo(key: str) -> str:
    """Return a line of /proc/cpuinfo, such as "model name", or the processor where it has none."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    values = (line.partition(":")[2].strip() for line in lines if line.startswith(key))
    return next(values, platform.processor())


def memory() -> int:
    """Return the bytes of memory, or the container's limit where that is smaller."""
    physical = psutil.virtual_memory().total
    for limit in CGROUP_LIMITS:
        if limit.is_file() and (text := limit.read_text().strip()).isdecimal():
            return min(physical, int(text))
    return physical


def git_commit() -> str:
    """Return the commit of the code, with a plus if it is modified; empty outside a checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "describe"]
    command += ["--always", "--abbrev=12", "--dirty=+", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):  # no git, or an installed copy
        return ""
    return done.stdout.strip()


def devices() -> dict[str, Any]:
    """Describe the JAX backend and its devices; check and time a small matmul on one of them."""
    try:
        import jax

        devices = jax.devices()
    except (ImportError, RuntimeError) as error:  # RuntimeError: JAX_PLATFORMS that cannot start
        problem = f"{type(error).__name__}: {error}"
        return {"error": problem, "backend": None, "count": 0, "kinds": []}
    return {
        "backend": jax.default_backend(),
        "count": len(devices),
        "kinds": sorted({device.device_kind for device in devices}),
        "matmul": matmul(),
    }


def matmul(size: int = 512) -> dict[str, Any]:
    """Time a matmul of small whole numbers, and check it: float32 must get it exactly right."""
    import jax
    import numpy as np

    rng = np.random.default_rng(0)
    a, b = (rng.integers(-8, 8, (size, size)).astype(np.float32) for _ in range(2))
    multiply = jax.jit(lambda x, y: jax.numpy.matmul(x, y, precision="highest"))
    on_device = jax.device_put(a), jax.device_put(b)
    correct = bool(np.array_equal(multiply(*on_device), a @ b))
    times = []
    for _ in range(10):
        start = time.perf_counter()
        multiply(*on_device).block_until_ready()
        times.append(time.perf_counter() - start)
    return {"size": size, "correct": correct, "gigaflops": round(2 * size**3 / min(times) / 1e9, 1)}
