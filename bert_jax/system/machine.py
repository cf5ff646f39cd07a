"""Facts of this machine: versions, processor, memory, disks, devices, and the commit of the code that runs."""

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

from bert_jax.system import allocator


def versions(packages: tuple[str, ...]) -> dict[str, str | None]:
    """Installed versions; None where a package is absent."""
    found: dict[str, str | None] = dict.fromkeys(packages)
    for package in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def cache_folder() -> Path:
    """Where prepared corpora are when a config does not say."""
    return Path(os.environ.get("BERT_JAX_DATA") or "~/.cache/bert_jax").expanduser()


def machine() -> dict[str, Any]:
    """Cores, memory and free disk, as far as this process may use them."""
    cache = cache_folder().absolute()
    existing = next(p for p in (cache, *cache.parents) if p.is_dir())
    return {
        "system": platform.platform(),
        "processor": cpuinfo("model name"),
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "memory_bytes": memory(),
        "allocator": allocator.retain() or "keeps its memory while training",
        "cache": str(cache),
        "cache_free_bytes": shutil.disk_usage(existing).free,
        "workdir": str(Path.cwd()),
        "workdir_free_bytes": shutil.disk_usage(Path.cwd()).free,
    }


def cpuinfo(key: str) -> str:
    """What the system tells of the processor, such as its model name or flags; where it does not, its kind."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith(key)),
        platform.processor(),
    )


def memory() -> int:
    """Bytes of memory, or the container's limit where that is smaller."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in (
        Path("/sys/fs/cgroup/memory.max"),
        Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
    ):
        if limit.is_file() and (text := limit.read_text().strip()).isdecimal():
            return min(physical, int(text))
    return physical


def git_commit() -> str:
    """The commit of the code that runs, with a plus if it is changed; empty outside a checkout."""
    here = Path(__file__).parent
    try:
        ask = [
            "git",
            "-C",
            str(here),
            "describe",
            "--always",
            "--abbrev=12",
            "--dirty=+",
            "--exclude=*",
        ]
        return subprocess.run(
            ask, capture_output=True, text=True, timeout=10, check=True
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):  # no git, or an installed copy
        return ""


def devices() -> dict[str, Any]:
    """The JAX backend, its devices, and a small matrix product checked and timed on the first."""
    try:
        import jax

        found = jax.devices()
    except (
        ImportError,
        RuntimeError,
    ) as error:  # RuntimeError: a backend that was asked for does not start
        return {
            "error": f"{type(error).__name__}: {error}",
            "backend": None,
            "count": 0,
            "kinds": [],
        }
    kinds = sorted({d.device_kind for d in found})
    return {
        "backend": jax.default_backend(),
        "count": len(found),
        "kinds": kinds,
        "matmul": matmul(),
    }


def matmul(size: int = 512) -> dict[str, Any]:
    """Multiplies small whole numbers, which float32 has to get exactly right, and times it."""
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
