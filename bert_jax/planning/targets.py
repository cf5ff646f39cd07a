"""The devices that a config can be planned for, on this machine or not.

The compilers for TPUs and NVIDIA GPUs do not need a device: `jax.experimental.topologies` describes
the devices, and a program is compiled for the description. Nominal figures are the makers'. The
network figure of a device counts one direction and all its links.
"""

import contextlib
import dataclasses
import importlib.util
import math
import os
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from bert_jax.errors import ConfigError, first_line, suggest
from bert_jax.system import extras

GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Chip:
    """Nominal figures of one device."""

    name: str
    kind: str  # a key of devices.TABLE
    memory_bytes: int
    flops: float | None = None  # a second, dense, in bfloat16
    network: float | None = None  # bytes a second to the other devices
    gpu: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # differences from an H100


H200 = {"memory_bandwidth": 4_800_000_000_000}
A100 = {
    "core_count": 108,
    "fpus_per_core": 64,
    "shared_memory_per_core": 167_936,
    "shared_memory_per_block_optin": 166_912,
    "memory_bandwidth": 2_039_000_000_000,
    "l2_cache_size": 41_943_040,
    "clock_rate_ghz": 1.41,
    "cuda_compute_capability": "{ major: 8 }",
}
CHIPS = {
    "v5e": Chip("TPU v5e", "tpu", int(15.75 * GIB), 197e12, 4 * 45e9),
    "v5p": Chip("TPU v5p", "tpu", int(95.74 * GIB), 459e12, 6 * 90e9),
    "h100": Chip("H100 SXM 80 GB", "cuda", 85_520_809_984, 989e12, 450e9),
    "h200": Chip("H200 SXM 141 GB", "cuda", 150_754_820_096, 989e12, 450e9, H200),
    "a100": Chip("A100 SXM 80 GB", "cuda", 85_097_971_712, 312e12, 300e9, A100),
}
ELSEWHERE = (  # described by the compiler of an accelerator
    *("v5e:2x4", "v5e:4x4", "v5e:16x16", "v5p:2x2x1"),
    *("h100x8", "h200x8", "a100x8"),
)
TARGETS = (*ELSEWHERE, "cpu:8", "here")  # what --target takes
TPU_CORES = {"v5e": ("v5litepod", 1), "v5p": ("v5p", 2)}  # how a slice is named, cores of a chip
COMPILERS = {  # kind -> the extra, the package and the modules of its compiler
    "tpu": ("tpu", "jax[tpu]", ("libtpu",)),
    "cuda": ("cuda", "jax[cuda12]", ("jax_cuda13_plugin", "jax_cuda12_plugin")),
}
H100 = {  # as XLA describes one
    "threads_per_block_limit": 1024,
    "threads_per_warp": 32,
    "shared_memory_per_block": 49_152,
    "shared_memory_per_core": 233_472,
    "threads_per_core_limit": 2048,
    "core_count": 132,
    "fpus_per_core": 128,
    "block_dim_limit_x": 2_147_483_647,
    "block_dim_limit_y": 65_535,
    "block_dim_limit_z": 65_535,
    "memory_bandwidth": 3_352_320_000_000,
    "l2_cache_size": 52_428_800,
    "clock_rate_ghz": 1.98,
    "shared_memory_per_block_optin": 232_448,
    "registers_per_core_limit": 65_536,
    "registers_per_block_limit": 65_536,
    "cuda_compute_capability": "{ major: 9 }",
}


@dataclasses.dataclass(frozen=True)
class Target:
    """Devices to compile an update for."""

    name: str
    chip: Chip
    devices: tuple[Any, ...]

    @contextlib.contextmanager
    def chosen(self) -> Iterator[None]:
        """Make code inside the block see the target's devices as the devices of this machine."""
        from bert_jax.config import devices

        with devices.trace_for(self.chip.kind, self.devices):
            yield


def find_target(name: str) -> Target:
    """Return the target of a name; refuse a target whose compiler is not installed."""
    if name not in TARGETS:
        raise ConfigError(f"no target {name!r}", suggest(name, TARGETS))
    chip = re.split(r"[:x]", name)[0]
    if name in ELSEWHERE:
        _check_compiler(name, *COMPILERS[CHIPS[chip].kind])
    _prepare_process(name)
    if name not in ELSEWHERE:
        return _find_here(name)
    from jax.experimental import topologies

    try:
        if CHIPS[chip].kind == "tpu":
            topology = topologies.get_topology_desc(platform="tpu", topology_name=name)
        else:
            count = name.rpartition("x")[2]
            topology = topologies.get_topology_desc(
                "plan", platform="cuda", topology=f"1x1x{count}", target_config=describe_gpu(chip)
            )
    except Exception as error:  # whatever a compiler's plugin raises: there is no common type
        raise ConfigError(
            f"target {name}: its compiler cannot describe the devices ({first_line(error)[:200]})",
            "versions are in pyproject.toml; --target=cpu:8 needs no such compiler",
        ) from error
    return Target(name, CHIPS[chip], tuple(topology.devices))


def describe_gpu(chip: str) -> str:
    """Describe a GPU for XLA's compiler, as a text protocol buffer."""
    figures = {**H100, "device_memory_size": CHIPS[chip].memory_bytes, **CHIPS[chip].gpu}
    lines = "\n".join(
        f"  {name} {value}" if str(value).startswith("{") else f"  {name}: {value}"
        for name, value in figures.items()
    )
    return (
        f"gpu_device_info {{\n{lines}\n}}\n"
        'platform_name: "CUDA"\n'
        "dnn_version_info { major: 9 minor: 8 }\n"
        "runtime_version { major: 12 minor: 8 }\n"
        f'device_description_str: "{CHIPS[chip].name}"\n'
    )


def _prepare_process(name: str) -> None:
    """Set jax's options for a target before jax looks for devices.

    For cpu:N jax gets N devices that share the CPU. For a TPU, environment variables tell its
    compiler which devices there would be.
    """
    import jax

    if name == "here":
        return
    jax.config.update("jax_platforms", "cpu")
    chip, _, shape = name.partition(":")
    if chip == "cpu" and "host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        jax.config.update("jax_num_cpu_devices", int(shape))
    if chip in TPU_CORES:
        prefix, cores = TPU_CORES[chip]
        count = math.prod(int(side) for side in shape.split("x"))
        os.environ |= {
            "TPU_SKIP_MDS_QUERY": "1",
            "TPU_ACCELERATOR_TYPE": f"{prefix}-{count * cores}",
            "TPU_WORKER_HOSTNAMES": "localhost",
            "TPU_WORKER_ID": "0",
            "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        }


def _find_here(name: str) -> Target:
    """Return the devices of this process as a target."""
    import jax

    from bert_jax.config import devices
    from bert_jax.training import clock, memory

    present = tuple(jax.devices())
    if name != "here" and (len(present) != int(name[4:]) or present[0].platform != "cpu"):
        raise ConfigError(
            f"target {name}: this process has {len(present)} {present[0].platform} devices already",
            "plan in a process of its own",
        )
    kind = present[0].device_kind
    chip = Chip(kind, devices.find_kind(), memory.device_bytes(), clock.find_peak_flops(kind))
    return Target(name, chip, present)


def _check_compiler(name: str, extra: str, package: str, modules: tuple[str, ...]) -> None:
    """Refuse a target whose compiler is not installed; the hint says how to install it."""
    fake = "or --target=cpu:8, which compiles for fake devices"
    if sys.version_info < (3, 12):
        raise ConfigError(
            f"target {name} needs Python 3.12 or newer, and this is 3.{sys.version_info[1]}",
            "make venv VENV=.venv-3.13 PYTHON=python3.13, then the same command of "
            f".venv-3.13/bin/bert-jax; {fake}",
        )
    if not any(importlib.util.find_spec(module) for module in modules):
        raise ConfigError(
            f"target {name} needs a compiler that is not installed",
            f"{extras.write_install_command(extra, package)}; {fake}",
        )
