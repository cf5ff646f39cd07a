"""The stream of batches against its promises.

What a row holds is compared with the original in test_fidelity.py and frozen in tests/net.
"""

import threading

import jax
import numpy as np
import pytest

from bert_jax import sharding
from bert_jax.batch import HOST_KEYS, Batch
from bert_jax.data import pairs, pipeline
from bert_jax.data.pipeline import TextStream
from bert_jax.errors import DataError
from tests.corpora import same, source

MODES = pytest.mark.parametrize("mode", ["nsp", "sop", "none"])


def read_epoch(s: TextStream, epoch: int) -> Batch:
    """All rows of an epoch in their order."""
    first, count = epoch * s.rows_per_epoch, s.rows_per_epoch
    steps = range(first // s.batch_size, (first + count) // s.batch_size + 1)
    batches = [s.batch(step) for step in steps]
    joined = {key: np.concatenate([batch[key] for batch in batches]) for key in HOST_KEYS}
    return {key: value[first % s.batch_size :][:count] for key, value in joined.items()}


@MODES
@pytest.mark.parametrize("dupe_factor", [0, 1, 3])
def test_epoch_reads_its_plan_once(tmp_path, mode, dupe_factor):
    """Later plans of pairs have a few examples more or fewer, left out or read twice."""
    s = source(tmp_path, pairs=mode, masking__dupe_factor=dupe_factor)
    count, orders = s.examples_per_epoch, set()
    for epoch in range(5):
        rows, copy = read_epoch(s, epoch), epoch % dupe_factor if dupe_factor else epoch
        ids = rows["example_ids"][:, 0]
        assert (rows["copies"] == copy).all()
        size = len(s._plan(copy if mode != "none" else 0))
        assert len(np.unique(ids)) == min(size, count)
        assert ids.max() < size
        assert np.bincount(ids).max() <= -(-count // size)
        orders.add(tuple(ids[:20].tolist()))
    assert len(orders) == 5


@pytest.mark.parametrize("size", [7, 8, 1000])
def test_batch_cuts_one_stream_at_any_size(tmp_path, size):
    one, other = source(tmp_path, batch_size=1), source(tmp_path, batch_size=size)
    steps = max(1, 400 // size)
    whole = [other.batch(step) for step in range(steps)]
    for index in np.random.default_rng(0).integers(0, steps * size, 40).tolist():
        single, row = one.batch(index), index % size
        found = {key: value[row : row + 1] for key, value in whole[index // size].items()}
        assert same(found, single)


@pytest.mark.fault(8)
@pytest.mark.parametrize("axes", [(1, 8, 1), (1, 2, 4)], ids=["data", "fsdp"])
def test_batch_loses_no_row_when_hosts_change(axes, tmp_path, monkeypatch):
    """One, two, one, four, two hosts with eight devices make the rows of their own devices."""
    s = source(tmp_path, batch_size=16)
    mesh = jax.make_mesh(axes, sharding.AXES, axis_types=(jax.sharding.AxisType.Auto,) * 3)
    devices, here = mesh.devices.ravel(), list[jax.Device]()

    def of_this_host(self: jax.NamedSharding, shape: tuple[int, ...]) -> dict:
        indices = self.devices_indices_map(shape)
        return {device: index for device, index in indices.items() if device in here}

    monkeypatch.setattr(jax.NamedSharding, "addressable_devices_indices_map", of_this_host)
    count = s.rows_per_epoch
    seen: list[int] = []
    for step in range(-(-count // 16)):
        hosts, parts = (1, 2, 1, 4, 2)[step % 5], {}
        for host in range(hosts):
            here[:] = devices[host * 8 // hosts : (host + 1) * 8 // hosts]
            rows = sharding.local_rows(16, mesh)  # hosts that share rows make the same rows
            parts[rows.start, rows.stop] = s.batch(step, rows)
        ordered = [parts[place] for place in sorted(parts)]
        whole = {key: np.concatenate([part[key] for part in ordered]) for key in HOST_KEYS}
        assert same(whole, s.batch(step))
        seen += whole["example_ids"][:, 0].tolist()
    assert sorted(seen[:count]) == list(range(count))


def test_batch_needs_no_earlier_call(tmp_path, monkeypatch):
    """In any order of calls; a late step makes the first plan and its own."""
    one, steps = source(tmp_path / "a"), [40, 3, 7, 3, 0, 100]
    forward = {step: one.batch(step) for step in sorted(steps)}
    two, made = source(tmp_path / "b"), list[int]()
    plan_split = pairs.plan_split
    monkeypatch.setattr(pairs, "plan_split", lambda *a: made.append(a[-1]) or plan_split(*a))
    assert all(same(two.batch(step), forward[step]) for step in steps)
    for mode, late in (("nsp", [0, 10**6 * 8 // one.rows_per_epoch]), ("none", [0])):
        made.clear()
        s = source(tmp_path, pairs=mode)
        s.batch(10**6)
        s.batch(10**6)
        assert made == late
    assert not list(tmp_path.rglob("*.*"))  # no file is written


@MODES
def test_evaluation_batch_covers_the_plan_in_order(tmp_path, mode):
    s = source(tmp_path, seed=4, split="validation", pairs=mode, masking__dupe_factor=0)
    count = s.examples_per_epoch
    whole = s.evaluation_batch(0, count)
    assert np.array_equal(whole["example_ids"][:, 0], np.arange(count))
    for size in (7, count + 3):
        batches = [s.evaluation_batch(index, size) for index in range(-(-count // size))]
        assert all(len(batch["tokens"]) == size for batch in batches)
        rows = {key: np.concatenate([batch[key] for batch in batches]) for key in HOST_KEYS}
        assert same({key: value[:count] for key, value in rows.items()}, whole)
        spare = {key: value[count:] for key, value in rows.items()}
        assert (spare["segment_ids"] == 0).all()
        assert (spare["unit_ids"] == -1).all()
        assert (spare["labels"] == -1).all()
    assert (s.batch(count * 3)["copies"] == 0).all()


CHANGES = (
    "pairs=sop pairs=none sequence_length=48 batch_size=9 data_seed=1 masking.dupe_factor=1 "
    "masking.unit=word masking.max_unit=3 masking.span_mean=2.0 masking.span_max=8 "
    "examples.short_probability=0.2 examples.random_next_probability=0.4 examples.truncate=front"
)


def test_fingerprint_changes_with_the_stream_only(tmp_path):
    def fingerprint(*changes: str) -> str:
        pairs_of = (change.replace(".", "__", 1).split("=") for change in changes)
        return source(tmp_path, **dict(pairs_of)).fingerprint

    found = {fingerprint(change) for change in CHANGES.split()}
    assert len(found | {fingerprint()}) == 14
    assert fingerprint("masking.rate=0.4", "steps=7", "logging.every=3") == fingerprint()
    assert fingerprint("pairs=none", "examples.truncate=front") == fingerprint("pairs=none")


def has_thread() -> bool:
    return any(thread.name.startswith("prefetch") for thread in threading.enumerate())


@pytest.mark.parametrize("stop", [5, 6, 25])
def test_prefetch_keeps_the_order(stop):
    found = pipeline.prefetch(lambda step: {"step": step}, 5, stop)
    assert [batch["step"] for batch in found] == [*range(5, stop)]
    assert not has_thread()


def test_prefetch_passes_errors_on_in_their_turn():
    def fail(step: int) -> Batch:
        if step == 2:
            raise DataError("shard 3 is gone", "look for it")
        return {"step": step}

    batches = pipeline.prefetch(fail, 0, 10)
    assert [next(batches)["step"] for _ in range(2)] == [0, 1]
    with pytest.raises(DataError, match="shard 3"):
        next(batches)
    assert not has_thread()
