"""Where time goes, by a clock that tests turn; FLOPs against a count by hand."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import numpy as np
import pytest

from bert_jax.config import costs
from bert_jax.masking import quotas
from bert_jax.training import clock
from bert_jax.training.clock import Clock
from tests import toy


@pytest.fixture
def now(monkeypatch) -> list[float]:
    """The time, which passes when it is told to."""
    time = [100.0]
    monkeypatch.setattr(clock.time, "perf_counter", lambda: time[0])
    return time


CONFIG = toy.config(batch_size=4, sequence_length=32)
BATCH = toy.batch(4, 32)


def pass_updates(
    one: Clock, now: list[float], count: int, waiting: float = 1.0, stepping: float = 3.0
) -> None:
    for _ in range(count):
        with one.on("data"):
            now[0] += waiting
        now[0] += stepping
        one.tick(BATCH)


def test_time_is_told_apart(now):
    one = Clock(CONFIG, toy.VOCAB)
    now[0] += 2  # before the first batch
    pass_updates(one, now, 1, stepping=50)
    pass_updates(one, now, clock.WARM - 1)
    assert "step_seconds" not in one.values()
    for bucket, seconds in (("evaluation", 7.0), ("saving", 4.0)):
        with one.on(bucket):
            now[0] += seconds
    pass_updates(one, now, 5)
    found = one.values()
    spent = {name: found[f"{name}_seconds"] for name in clock.BUCKETS}
    assert spent == {"compile": 52.0, "data": clock.WARM + 5.0, "evaluation": 7.0, "saving": 4.0}
    assert found["step_seconds"] == 4.0
    assert found["data_wait"] == 0.25
    tokens, flops = clock.work(CONFIG, toy.VOCAB, BATCH)
    assert tokens == np.count_nonzero(BATCH["segment_ids"])
    assert found["tokens_per_second"] == pytest.approx(tokens / 4)
    assert found["model_flops_per_second"] == pytest.approx(flops / 4)
    assert "mfu" not in found


def test_the_share_of_what_devices_could_do_counts_all_runs_and_processes(now, monkeypatch):
    monkeypatch.setattr(clock.jax, "process_count", lambda: 4)
    one = Clock(CONFIG, toy.VOCAB, runs=3, nominal=1e9)
    for _ in range(clock.WARM + 1):
        now[0] += 2
        one.tick(BATCH)
    flops = clock.work(CONFIG, toy.VOCAB, BATCH)[1]
    assert one.values()["mfu"] == pytest.approx(3 * 4 * flops / 2 / 1e9)


def test_an_account_goes_on_where_the_checkpoint_has_it(now):
    first = Clock(CONFIG, toy.VOCAB)
    pass_updates(first, now, 3)
    with first.on("saving"):
        now[0] += 2
    saved = json.loads(json.dumps(first.state()))
    pass_updates(first, now, 5)  # after the checkpoint: as if they never were
    second = Clock(CONFIG, toy.VOCAB, saved=saved)
    pass_updates(second, now, 2)
    found = second.values()
    seconds = {name: found[f"{name}_seconds"] for name in ("data", "saving", "evaluation")}
    assert seconds == {"data": 5.0, "saving": 2.0, "evaluation": 0.0}
    assert second.state()["seconds"] == {"compile": found["compile_seconds"], **seconds}


def test_the_most_memory_of_any_attempt_is_told(now, monkeypatch):
    most = {"host_memory_bytes": 7e15, "device_memory_bytes": 5.0}
    one = Clock(CONFIG, toy.VOCAB, saved={"seconds": {}, "most": most})
    monkeypatch.setattr(
        clock, "memory", lambda: {"host_memory_bytes": 1.0, "device_memory_bytes": 9.0}
    )
    assert {name: one.values()[name] for name in clock.MEMORY} == {
        "host_memory_bytes": 7e15,
        "device_memory_bytes": 9.0,
    }
    monkeypatch.setattr(clock, "memory", lambda: {"host_memory_bytes": 8e15})
    assert {name: one.values()[name] for name in clock.MEMORY} == {
        "host_memory_bytes": 8e15,
        "device_memory_bytes": 5.0,
    }


def test_memory_grows_by_what_is_held(monkeypatch):
    before = clock.memory()
    assert before.keys() == {"host_memory_bytes"}  # a processor does not say what its device holds
    held = np.ones(1 << 28, np.uint8)
    now = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    assert now > held.nbytes
    del held
    assert clock.memory()["host_memory_bytes"] >= max(
        0.99 * now, before["host_memory_bytes"]
    )  # the most, not the last

    class Device:
        def __init__(self, stats):
            self.memory_stats = lambda: stats

    devices = [
        Device({"peak_bytes_in_use": 3, "bytes_in_use": 9}),
        Device({"peak_bytes_in_use": 4}),
        Device(None),
    ]
    monkeypatch.setattr(clock.jax, "local_devices", lambda: devices)
    assert clock.memory()["device_memory_bytes"] == 4.0


@pytest.mark.parametrize("examples", [1, 3])
def test_work_is_that_of_real_tokens_alone(examples):
    config, batch = (
        toy.config(batch_size=4, sequence_length=48),
        toy.batch(4, 48, seed=1, examples=examples),
    )
    width, mlp, layers = config.model.hidden, config.model.mlp, config.model.layers
    products = 0.0
    for ids in batch["segment_ids"]:
        for slot in range(1, examples + 1):
            n = np.count_nonzero(ids == slot)
            products += layers * (n * (4 * width * width + 2 * width * mlp) + 2 * n * n * width)
            products += (
                config.masking.rate * n * (width * width + width * toy.VOCAB) + width * width
            )
    tokens, flops = clock.work(config, toy.VOCAB, batch)
    assert tokens == np.count_nonzero(batch["segment_ids"])
    assert flops == pytest.approx(
        6 * products
    )  # a product is two operations, and twice as much goes backwards


def test_full_rows_need_what_an_update_computes():
    slots = quotas.count_slots(CONFIG.masking, 32)
    batch = {**BATCH, "segment_ids": np.ones((4, 32), np.int32)}
    computed = costs.flops_per_step(CONFIG, toy.VOCAB)
    spare = (
        6
        * 4
        * (slots - CONFIG.masking.rate * 32)
        * (CONFIG.model.hidden**2 + CONFIG.model.hidden * toy.VOCAB)
    )
    assert clock.work(CONFIG, toy.VOCAB, batch)[1] == pytest.approx(computed - spare)


@pytest.mark.parametrize(
    ("kind", "rate"),
    [
        ("NVIDIA H200", 989e12),
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA H100 NVL", 835e12),
        ("NVIDIA GH200 480GB", 989e12),
        ("NVIDIA A10", 125e12),
        ("NVIDIA A10G", None),  # less than an A10
        ("NVIDIA RTX A1000", None),
        ("NVIDIA L40", None),
        ("NVIDIA L40S", 362e12),
        ("NVIDIA L4", 121e12),
        ("TPU v5 lite", 197e12),
        ("TPU v5", 459e12),
        ("cpu", None),
    ],
)
def test_kinds_are_told_apart(kind, rate):
    assert clock.peak(kind) == rate
