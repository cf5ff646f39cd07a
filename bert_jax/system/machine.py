"""Facts about this machine: versions, processor, memory, disks, devices, the commit of the code."""

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

from bert_jax.system import allocator, extras, opening

# Packages whose versions stand in the records of a run and of a study.
RECORDED = ("bert-jax", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "tokenizers", "numpy")
CGROUP_LIMITS = (  # of a container's memory: cgroups version 2 and 1
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def list_versions(packages: tuple[str, ...]) -> dict[str, str | None]:
    """Return {package: installed version}; None for a package that is not installed."""
    installed: dict[str, str | None] = dict.fromkeys(packages)
    for package in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            installed[package] = importlib.metadata.version(package)
    return installed


def cache_folder() -> Path:
    """Return the folder of prepared corpora, unless a config names another."""
    return opening.expand_home(os.environ.get("BERT_JAX_DATA") or "~/.cache/bert_jax")


def describe_machine() -> dict[str, Any]:
    """Describe the host, the setting of its allocator, and the free disk space."""
    cache = cache_folder().absolute()
    existing = next(folder for folder in (cache, *cache.parents) if folder.is_dir())
    return {
        **describe_host(),
        "allocator": allocator.find_obstacle() or "keeps its memory while training",
        "cache": str(cache),
        "cache_free_bytes": shutil.disk_usage(existing).free,
        "workdir": str(Path.cwd()),
        "workdir_free_bytes": shutil.disk_usage(Path.cwd()).free,
    }


def describe_host() -> dict[str, Any]:
    """Describe the system, the processor, and the cores and memory that this process may use."""
    return {
        "system": platform.platform(),
        "processor": read_cpuinfo("model name"),
        "cores": count_cores(),
        "memory_bytes": count_memory(),
    }


def count_cores() -> int:
    """Count the cores that this process may use."""
    return len(list_cores())


def list_cores() -> list[int]:
    """List the numbers of the cores that this process may use."""
    process = psutil.Process()
    if hasattr(process, "cpu_affinity"):  # not on macOS
        return sorted(process.cpu_affinity())
    return list(range(psutil.cpu_count() or 1))


def read_cpuinfo(key: str) -> str:
    """Return a value of /proc/cpuinfo, such as "model name"; without that file, the processor."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(key):
                return line.partition(":")[2].strip()
    return platform.processor()


def count_memory() -> int:
    """Return the bytes of the machine's memory, or of the container's if that is less."""
    physical = psutil.virtual_memory().total
    for limit in CGROUP_LIMITS:
        if limit.is_file() and (text := limit.read_text().strip()).isdecimal():
            return min(physical, int(text))
    return physical


def git_commit() -> str:
    """Return the commit of the code, with a plus if files are modified; "" outside a checkout."""
    if not (extras.CHECKOUT / "pyproject.toml").is_file():
        return ""  # or an installed copy would tell of a repository that it lies in
    command = ["git", "-C", str(Path(__file__).parent), "describe"]
    command += ["--always", "--abbrev=12", "--dirty=+", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):  # no git
        return ""
    return done.stdout.strip()


def describe_devices() -> dict[str, Any]:
    """Describe the JAX backend and its devices; check and time a small matmul on one of them."""
    try:
        import jax

        found = jax.devices()
    except (ImportError, RuntimeError) as error:  # RuntimeError: JAX_PLATFORMS that cannot start
        problem = f"{type(error).__name__}: {error}"
        return {"error": problem, "backend": None, "count": 0, "kinds": []}
    return {
        "backend": jax.default_backend(),
        "count": len(found),
        "kinds": sorted({device.device_kind for device in found}),
        "matmul": check_matmul(),
    }


def check_matmul(size: int = 512) -> dict[str, Any]:
    """Time a matmul of small whole numbers, and check that its result is exact.

    Returns {"size": …, "correct": …, "gigaflops": …}.
    """
    import jax
    import numpy as np

    rng = np.random.default_rng(0)
    a = rng.integers(-8, 8, (size, size)).astype(np.float32)
    b = rng.integers(-8, 8, (size, size)).astype(np.float32)
    multiply = jax.jit(lambda x, y: jax.numpy.matmul(x, y, precision="highest"))
    product = multiply(a, b)
    start = time.perf_counter()
    for _ in range(10):
        product = multiply(a, b).block_until_ready()
    seconds = (time.perf_counter() - start) / 10
    correct = bool(np.array_equal(product, a @ b))
    return {"size": size, "correct": correct, "gigaflops": round(2 * size**3 / seconds / 1e9, 1)}
