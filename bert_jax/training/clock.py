"""Time and memory of a run, and the share of the peak FLOP/s that it reaches."""

import contextlib
import re
import resource
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

from bert_jax.batch import Batch
from bert_jax.config import costs, knobs

WARM = 10  # steps left out of the rates: compilation, caches, the first batches of the loader
BUCKETS = ("compile", "data", "evaluation", "saving")  # the rest of the time goes to updates

# Words in the name of a kind of device -> nominal FLOP/s of one, for dense matmuls in bfloat16
# (V100: float16). The first entry that fits counts.
PEAKS = {
    "GH200": 989e12,
    "H200": 989e12,
    "H100 PCIe": 756e12,
    "H100 NVL": 835e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "L4": 121e12,
    "A10": 125e12,
    "V100": 125e12,
    "TPU v6 lite": 918e12,
    "TPU v5 lite": 197e12,
    "TPU v5": 459e12,
    "TPU v4": 275e12,
    "TPU v3": 61.5e12,  # of a core, which jax counts as a device
}


def find_peak_flops(kind: str) -> float | None:
    """Return the nominal FLOP/s of a kind of device; None for a kind that PEAKS lacks."""
    return next((rate for name, rate in PEAKS.items() if re.search(rf"\b{name}\b", kind)), None)


class Clock:
    """The time that runs spend on each activity, and the speed of updates after the warm-up."""

    def __init__(
        self,
        config: knobs.Config,
        vocab_size: int,
        runs: int = 1,
        saved: Mapping[str, Any] | None = None,
    ):
        """Start the clock; `saved` is the result of `state` from an earlier attempt."""
        self._config = config
        self._vocab_size = vocab_size
        self._runs = runs
        earlier = saved or {"seconds": {}, "most": {}}
        self._seconds = dict.fromkeys(BUCKETS, 0.0) | dict(earlier["seconds"])
        self._most: dict[str, float] = dict(earlier["most"])
        self._began = time.perf_counter()
        self._count = 0
        self._tokens = self._flops = self._waited = self._left_out = 0.0

    @contextlib.contextmanager
    def measure(self, bucket: str) -> Iterator[None]:
        """Add the time that the block takes to the activity `bucket`, one of BUCKETS."""
        began = time.perf_counter()
        try:
            yield
        finally:  # a stop signal may cut an evaluation off
            taken = time.perf_counter() - began
            self._seconds[bucket] += taken
            if bucket == "data":
                self._waited += taken
            else:
                self._left_out += taken

    def tick(self, batch: Batch) -> None:
        """Count an update that was dispatched with this batch, or with this process's part of it.

        The parts of processes may overlap, up to the whole batch in each (`sharding.local_rows`).
        """
        self._count += 1
        tokens, flops = count_work(self._config, self._vocab_size, batch)
        parts = self._config.batch_size / len(batch["tokens"])
        self._tokens += parts * tokens
        self._flops += parts * flops
        if self._count == 1:  # the first call returns once the update is compiled
            other = self._waited + self._left_out
            self._seconds["compile"] += time.perf_counter() - self._began - other

    def end_update(self) -> None:
        """Note that the update counted last is done; after the warm-up the rates begin anew."""
        if self._count == WARM:
            self._tokens = self._flops = self._waited = self._left_out = 0.0
            self._began = time.perf_counter()

    def values(self) -> dict[str, float]:
        """Return {metric: value}: speeds since the warm-up, and seconds and peak memory.

        The update counted last is done. Seconds and memory are taken over all attempts.
        """
        state = self.state()
        out = {f"{name}_seconds": seconds for name, seconds in state["seconds"].items()}
        wall = time.perf_counter() - self._began - self._left_out
        if self._count > WARM and wall > 0:
            rate = self._runs * self._flops / wall
            out["step_seconds"] = wall / (self._count - WARM)
            out["tokens_per_second"] = self._tokens / wall
            out["data_wait"] = self._waited / wall
            out["model_flops_per_second"] = rate
            if nominal := find_peak_flops(jax.devices()[0].device_kind):
                out["mfu"] = rate / (nominal * jax.device_count())
        return out | state["most"]

    def state(self) -> dict[str, Any]:
        """Return the record for a checkpoint: seconds by activity, and peak memory in bytes."""
        for name, size in measure_memory().items():
            self._most[name] = max(size, self._most.get(name, 0.0))
        return {"seconds": dict(self._seconds), "most": dict(self._most)}


def measure_memory() -> dict[str, float]:
    """Return {name: bytes}: the peak memory of this process, and its devices' largest peak.

    `device_memory_bytes` is missing if no device reports its memory.
    """
    unit = 1 if sys.platform == "darwin" else 1024
    held = {"host_memory_bytes": unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}
    for device in jax.local_devices():
        most = (device.memory_stats() or {}).get("peak_bytes_in_use")
        if most is not None:
            held["device_memory_bytes"] = max(most, held.get("device_memory_bytes", 0))
    return {name: float(size) for name, size in held.items()}


def count_work(config: knobs.Config, vocab_size: int, batch: Batch) -> tuple[int, float]:
    """Count the real tokens of a batch, and the FLOPs that an update needs for these tokens."""
    examples = np.arange(1, batch["cls_positions"].shape[1] + 1)
    sizes = np.stack([np.count_nonzero(batch["segment_ids"] == n, axis=1) for n in examples])
    tokens = int(sizes.sum())
    pairs = costs.count_pairs(config.model, sizes, costs.causal_share(config))
    return tokens, costs.count_flops(
        config, vocab_size, tokens, pairs, int(np.count_nonzero(sizes))
    )
