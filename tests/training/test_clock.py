"""Where time goes, by a clock that tests turn; FLOPs against a count by hand."""

import contextlib
import json
from unittest import mock

import jax
import numpy as np
import pytest

from bert_jax.training import clock, stop
from bert_jax.training.clock import Clock
from bert_jax.training.runs import Runs
from tests import tiny

CONFIG = tiny.config(batch_size=4, sequence_length=32)
BATCH = tiny.batch(4, 32)


@pytest.fixture
def now(monkeypatch) -> list[float]:
    """The time, which passes when it is told to."""
    time = [100.0]
    monkeypatch.setattr(clock.time, "perf_counter", lambda: time[0])
    return time


def pass_updates(one: Clock, now: list[float], count: int, compiling: float = 0.0) -> None:
    for _ in range(count):
        with one.measure("data"):
            now[0] += 1.0
        now[0] += compiling
        one.tick(BATCH)
        now[0] += 3.0
        one.end_update()


@pytest.mark.parametrize("parts", [1, 2])
def test_clock_tells_time_apart(now, monkeypatch, parts):
    """A process has all rows of a batch, or half of them."""
    one = Clock(tiny.config(batch_size=4 * parts, sequence_length=32), tiny.VOCAB, runs=3)
    now[0] += 2  # before the first batch
    with contextlib.suppress(stop.Interrupted), one.measure("evaluation"):  # owed, and cut off
        now[0] += 6
        raise stop.Interrupted
    pass_updates(one, now, 1, compiling=50)
    pass_updates(one, now, clock.WARM - 1)
    assert "step_seconds" not in one.values()
    for bucket, seconds in (("evaluation", 7.0), ("saving", 4.0)):
        with one.measure(bucket):
            now[0] += seconds
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    pass_updates(one, now, 5)
    found = one.values()
    spent = {"compile": 52.0, "data": clock.WARM + 5.0, "evaluation": 13.0, "saving": 4.0}
    assert {name: found[f"{name}_seconds"] for name in clock.BUCKETS} == spent
    assert (found["step_seconds"], found["data_wait"]) == (4.0, 0.25)
    tokens, flops = clock.count_work(CONFIG, tiny.VOCAB, BATCH)
    assert found["tokens_per_second"] == pytest.approx(parts * tokens / 4)
    assert found["model_flops_per_second"] == pytest.approx(parts * 3 * flops / 4)
    assert "mfu" not in found
    monkeypatch.setattr(clock, "find_peak_flops", lambda kind: 1e9)
    share = found["model_flops_per_second"] / (1e9 * jax.device_count())
    assert one.values()["mfu"] == pytest.approx(share)


@pytest.mark.parametrize(
    ("saves", "seconds"), [([], 3.0), ([clock.WARM], 3.1), ([20], 3.0), ([*range(21)], 4.0)]
)
def test_speed_is_that_of_updates_that_are_done(now, saves, seconds):
    """The host fetches a batch while the device works; before a save it waits for the device."""

    def wait(end: float) -> list[None]:
        now[0] = max(now[0], end)
        return [None]

    found: list[dict[str, float]] = []
    together = Runs.__new__(Runs)
    together.config = tiny.config(logging__every=20)
    together.clock = Clock(CONFIG, tiny.VOCAB)
    together.program = mock.Mock(fetch_metrics=wait)
    run = mock.Mock(failed=None, log_window=lambda step, speed: found.append(speed))
    run.save_state = lambda *_: now.__setitem__(0, now[0] + 7)
    together._runs = [run]
    together._pending = None
    end = 0.0
    for step in range(1, 22):
        now[0] += 1
        end = max(end, now[0]) + 3
        together.record_update(step, end, BATCH)
        if step in saves:
            together.save_runs({}, step)
    assert found[0]["step_seconds"] == pytest.approx(seconds)
    tokens, _ = clock.count_work(CONFIG, tiny.VOCAB, BATCH)
    assert found[0]["tokens_per_second"] == pytest.approx(tokens / seconds)


def test_clock_goes_on_where_the_checkpoint_has_it(now, monkeypatch):
    """Updates after the checkpoint are as if they never were; memory is the most of any attempt."""
    first = Clock(CONFIG, tiny.VOCAB)
    pass_updates(first, now, 3)
    with first.measure("saving"):
        now[0] += 2
    monkeypatch.setattr(clock, "measure_memory", lambda: {"host_memory_bytes": 7.0})
    saved = json.loads(json.dumps(first.state()))
    pass_updates(first, now, 5)
    second = Clock(CONFIG, tiny.VOCAB, saved=saved)
    pass_updates(second, now, 2)
    monkeypatch.setattr(clock, "measure_memory", lambda: {"host_memory_bytes": 5.0})
    found = second.values()
    spent = {"data": 5.0, "saving": 2.0, "evaluation": 0.0}
    assert {name: found[f"{name}_seconds"] for name in spent} == spent
    assert found["host_memory_bytes"] == 7.0


def test_work_counts_real_tokens_by_hand():
    config = tiny.config(batch_size=4, sequence_length=48)
    batch = tiny.batch(4, 48, seed=1, examples=3)
    width = config.model.hidden
    mlp = config.model.mlp
    head = width * width + width * tiny.VOCAB
    products = 0.0
    for ids in batch["segment_ids"]:
        for example in (1, 2, 3):
            n = np.count_nonzero(ids == example)
            layer = n * (4 * width * width + 2 * width * mlp) + 2 * n * n * width
            products += config.model.layers * layer
            products += config.masking.rate * n * head + width * width
    tokens, flops = clock.count_work(config, tiny.VOCAB, batch)
    assert tokens == np.count_nonzero(batch["segment_ids"])
    # A product is two operations, and twice as much goes backwards.
    assert flops == pytest.approx(6 * products)


def test_peak_tells_kinds_apart():
    """An A10G has less than an A10."""
    peaks = {"NVIDIA H100 80GB HBM3": 989e12, "NVIDIA H100 PCIe": 756e12, "NVIDIA A10G": None}
    peaks |= {"TPU v5 lite": 197e12, "TPU v5": 459e12, "NVIDIA L4": 121e12}
    assert {kind: clock.find_peak_flops(kind) for kind in peaks} == peaks
