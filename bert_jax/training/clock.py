"""Where the time and memory of a run go, and what share of the machine's arithmetic it uses."""

from __future__ import annotations

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

WARM = 10  # steps left out of the rates: compilation, caches, the loader's first batches
BUCKETS = ("compile", "data", "evaluation", "saving")  # what is left of the time is stepping
MEMORY = ("host_memory_bytes", "device_memory_bytes")  # the most that was held at once

PEAKS = {  # nominal FLOP/s of a device, dense products in bfloat16 (V100: float16), by words of its kind's name
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
    "TPU v3": 61.5e12,  # of a core, which is a device
}


def peak(kind: str) -> float | None:
    """Nominal FLOP/s of a device of this kind; None where no table has it, as of processors."""
    return next((rate for name, rate in PEAKS.items() if re.search(rf"\b{name}\b", kind)), None)


class Clock:
    """Wall time by what it was spent on, and the rates of the updates since the warm-up."""

    def __init__(
        self,
        config: knobs.Config,
        vocab_size: int,
        runs: int = 1,
        nominal: float | None = None,
        saved: Mapping[str, Any] | None = None,
    ):
        """Start the clock.

        Args:
          config: of the runs.
          vocab_size: of the model.
          runs: trained by each update.
          nominal: what all devices could do, in FLOP/s.
          saved: `state` of an earlier attempt, from its checkpoint.
        """
        self._config, self._vocab_size, self._runs, self._nominal = (
            config,
            vocab_size,
            runs,
            nominal,
        )
        self._spent = dict.fromkeys(BUCKETS, 0.0)
        earlier = saved or {"seconds": {}, "most": {}}
        self._before = dict.fromkeys(BUCKETS, 0.0) | dict(earlier["seconds"])
        self._most: dict[str, float] = dict(earlier["most"])  # of MEMORY
        self._began = time.perf_counter()
        self._count = 0
        self._tokens = self._flops = self._waited = self._left_out = 0.0

    @contextlib.contextmanager
    def on(self, bucket: str) -> Iterator[None]:
        """Time spent on one of BUCKETS."""
        began = time.perf_counter()
        yield
        taken = time.perf_counter() - began
        self._spent[bucket] += taken
        if bucket == "data":
            self._waited += taken
        else:
            self._left_out += taken

    def tick(self, batch: Batch) -> None:
        """One update was dispatched."""
        self._count += 1
        tokens, flops = work(self._config, self._vocab_size, batch)
        processes = jax.process_count()
        self._tokens, self._flops = (
            self._tokens + processes * tokens,
            self._flops + processes * flops,
        )
        if self._count == 1:  # the first call returns when it is compiled
            self._spent["compile"] += time.perf_counter() - self._began - self._waited
        if self._count == WARM:
            self._tokens = self._flops = self._waited = self._left_out = 0.0
            self._began = time.perf_counter()

    def values(self) -> dict[str, float]:
        """Rates since the warm-up; seconds by bucket, over all attempts of the run; the most memory of any of them."""
        out = {
            f"{name}_seconds": self._before[name] + seconds for name, seconds in self._spent.items()
        }
        wall = time.perf_counter() - self._began - self._left_out
        if self._count > WARM and wall > 0:
            rate = self._runs * self._flops / wall
            out |= {
                "step_seconds": wall / (self._count - WARM),
                "tokens_per_second": self._tokens / wall,
                "data_wait": self._waited / wall,
                "model_flops_per_second": rate,
            }
            out |= {"mfu": rate / self._nominal} if self._nominal else {}
        return out | self._peaks()

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps: seconds by bucket and the most memory, over all attempts."""
        seconds = {name: self._before[name] + spent for name, spent in self._spent.items()}
        return {"seconds": seconds, "most": self._peaks()}

    def _peaks(self) -> dict[str, float]:
        now = memory()
        return {
            name: max(each[name] for each in (self._most, now) if name in each)
            for name in self._most | now
        }


def memory() -> dict[str, float]:
    """The most bytes this process has held, and any of its devices, where the device says so."""
    unit = 1 if sys.platform == "darwin" else 1024
    found = {"host_memory_bytes": float(unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)}
    stats = [device.memory_stats() or {} for device in jax.local_devices()]
    most = [one["peak_bytes_in_use"] for one in stats if "peak_bytes_in_use" in one]
    return found | ({"device_memory_bytes": float(max(most))} if most else {})


def work(config: knobs.Config, vocab_size: int, batch: Batch) -> tuple[int, float]:
    """Real tokens of a batch, and the FLOPs that an update needs for them: nothing is counted of padding."""
    ids = batch["segment_ids"]
    slots = range(1, batch["cls_positions"].shape[1] + 1)
    sizes = np.stack([np.count_nonzero(ids == slot, axis=1) for slot in slots])  # [S, B]
    tokens, examples = int(sizes.sum()), int(np.count_nonzero(sizes))
    return tokens, costs.flops(
        config, vocab_size, tokens, costs.pairs(config.model, sizes), examples
    )
