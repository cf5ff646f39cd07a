"""Batches against rows put together one by one from the plan, and the stream against what an epoch
promises.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax import sharding
from bert_jax.batch import HOST_KEYS, Batch
from bert_jax.config import data_knobs, knobs
from bert_jax.data import units
from bert_jax.data.batches import pairs, pipeline
from bert_jax.data.batches.pipeline import Source
from bert_jax.data.text import pmi
from bert_jax.errors import DataError, Stopped
from tests import corpora
from tests.corpora import same, shards, source

ROOT = Path(__file__).resolve().parents[1]
S = corpora.SPECIAL
MODES = ("nsp", "sop", "none")
LOOK = knobs.Loader(prefetch=3, threads=2)


def epoch_of(s: Source, epoch: int, start: int) -> np.ndarray:
    """Example ids of an epoch that begins at a place of the stream."""
    count, size = s.count(epoch), s.batch_size
    ids = np.concatenate(
        [s.batch(i)["example_ids"] for i in range(start // size, (start + count) // size + 1)]
    )
    return ids[start % size :][:count, 0]


# --- what a row holds -----------------------------------------------------------------------------


def row_of(
    shard: Any, example: np.void, mode: str, length: int
) -> tuple[list[int], list[int], list[bool]]:
    """Tokens, type ids and what is text, put together as the original does."""
    text = shard.tokens.tolist()
    a = text[int(example["a_start"]) :][: int(example["a_length"])]
    if mode == "none":
        ends = {int(shard.sentence_ends[end - 1]) for end in shard.document_ends}
        body = []
        for offset, token in enumerate(a, int(example["a_start"])):
            if offset in ends and offset != example["a_start"]:
                body.append(S.sep)
            body.append(token)
        tokens, types = [S.cls, *body, S.sep], [0] * (len(body) + 2)
    else:
        b = text[int(example["b_start"]) :][: int(example["b_length"])]
        tokens, types = [S.cls, *a, S.sep], [0] * (len(a) + 2)
        if b:
            tokens, types = [*tokens, *b, S.sep], types + [1] * (len(b) + 1)
    padding = length - len(tokens)
    assert padding >= 0
    return (
        tokens + [S.pad] * padding,
        types + [0] * padding,
        [t >= corpora.FIRST for t in tokens] + [False] * padding,
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("unit", list(data_knobs.UNITS))
def test_rows_hold_what_the_plan_says(tmp_path: Path, mode: str, unit: str) -> None:
    s = source(tmp_path, pairs=mode, masking__unit=unit)
    cfg = corpora.config(sequence_length=32)
    made = [pairs.plan(shard, mode, cfg.examples, 32, 0, 0, i) for i, shard in enumerate(shards())]
    where = [
        (shard, example) for shard, plan in zip(shards(), made, strict=True) for example in plan
    ]
    assert s.count(0) == len(where)
    prepared = corpora.prepared(tmp_path, shards())
    continuation = prepared.tokenizer.continuation
    more = [pmi.collocations(prepared, knobs.Masking())] if unit == "pmi" else []
    seen = 0
    for step in range(len(where) // 8):
        batch = s.batch(step)
        assert {key: (value.shape, value.dtype) for key, value in batch.items()} == {
            key: ((8, 32) if key in HOST_KEYS[:5] else (8, 1), np.dtype(np.int32))
            for key in HOST_KEYS
        }
        for row in range(8):
            shard, example = where[batch["example_ids"][row, 0]]
            tokens, types, text = row_of(shard, example, mode, 32)
            size = len(tokens) - tokens.count(S.pad)
            assert batch["tokens"][row].tolist() == tokens
            assert batch["type_ids"][row].tolist() == types
            assert batch["positions"][row].tolist() == list(range(size)) + [0] * (32 - size)
            assert batch["segment_ids"][row].tolist() == [1] * size + [0] * (32 - size)
            assert batch["labels"][row, 0] == example["label"]
            assert batch["copies"][row, 0] == 0
            assert batch["cls_positions"][row, 0] == 0
            assert ((batch["unit_ids"][row] >= 0) == np.array(text)).all()
            rows = units.Rows(
                *(np.array([x]) for x in (tokens, text)),
                continuation,
                knobs.Masking(unit=unit),
                batch["example_ids"][row : row + 1],
                np.zeros((1, 1), int),
                0,
                *more,
            )
            alone = getattr(units, unit)(rows)
            assert np.array_equal(batch["unit_ids"][row], alone[0])
            seen += batch["unit_ids"][row].max() >= 0
    assert seen


@settings(max_examples=25)
@given(
    documents=st.lists(
        st.lists(st.integers(1, 40), min_size=1, max_size=5), min_size=1, max_size=12
    ),
    length=st.integers(8, 40),
)
def test_full_sentences_use_every_token_once(
    documents: list[list[int]], length: int, tmp_path_factory: Any
) -> None:
    shard = corpora.shard(documents)
    folder = tmp_path_factory.mktemp("corpus")
    s = Source(
        corpora.prepared(folder, [shard]),
        "train",
        corpora.config(pairs="none", sequence_length=length),
        0,
    )
    batch = s.evaluation_batch(0, s.count(0))
    rows = [[t for t in row.tolist() if t != S.pad] for row in batch["tokens"]]
    assert [t for row in rows for t in row if t >= corpora.FIRST] == shard.tokens.tolist()
    inside = sum(row.count(S.sep) - 1 for row in rows)
    ends = {int(shard.sentence_ends[end - 1]) for end in shard.document_ends[:-1]}
    starts = {row[1] - corpora.FIRST for row in rows}
    assert inside == len(
        ends - starts
    )  # a separator between two documents, unless a row ends there


# --- the stream -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dupe_factor", [0, 1, 3])
def test_every_epoch_covers_its_plan_once(tmp_path: Path, mode: str, dupe_factor: int) -> None:
    s = source(tmp_path, pairs=mode, masking__dupe_factor=dupe_factor)
    start, orders = 0, []
    for epoch in range(5):
        count = s.count(epoch)
        ids = epoch_of(s, epoch, start)
        assert np.array_equal(np.sort(ids), np.arange(count))
        orders.append(ids[:20].tolist())
        start += count
    assert len({tuple(o) for o in orders}) == 5  # an order of its own each


@pytest.mark.parametrize("size", [1, 7, 8, 200, 1000])
def test_batches_cut_one_stream(tmp_path: Path, size: int) -> None:
    """Also when a batch holds several epochs, the stream is the same one."""
    one, other = source(tmp_path, batch_size=1), source(tmp_path, batch_size=size)
    steps = max(1, 400 // size)
    whole = [other.batch(i) for i in range(steps)]
    for index in np.random.default_rng(0).integers(0, steps * size, 40).tolist():
        single = one.batch(index)
        for key in HOST_KEYS:
            assert np.array_equal(whole[index // size][key][index % size], single[key][0])


def test_a_batch_across_epochs_knows_the_copy_of_each_row(tmp_path: Path) -> None:
    s = source(tmp_path, batch_size=64)
    ends = np.cumsum([s.count(epoch) for epoch in range(6)])
    for step in range(ends[-1] // 64):
        epochs = np.searchsorted(ends, step * 64 + np.arange(64), side="right")
        assert np.array_equal(s.batch(step)["copies"][:, 0], epochs)
    assert len(set(np.diff(ends))) > 1  # epochs of different lengths, or this shows little


@pytest.mark.parametrize("mode", MODES)
def test_static_copies_come_again_in_another_order(tmp_path: Path, mode: str) -> None:
    s = source(tmp_path, pairs=mode, masking__dupe_factor=2, batch_size=1)
    sizes = [s.count(epoch) for epoch in range(6)]
    assert sizes[:2] * 3 == sizes
    starts = np.concatenate([[0], np.cumsum(sizes)])

    def rows(epoch: int) -> dict[int, tuple]:
        batches = [s.batch(int(step)) for step in range(starts[epoch], starts[epoch + 1])]
        return {
            int(b["example_ids"][0, 0]): tuple(b[k].tobytes() for k in HOST_KEYS) for b in batches
        }

    first, second, third = rows(0), rows(1), rows(2)
    assert first == third
    assert list(first) != list(third)
    assert first != second
    assert {b[HOST_KEYS.index("copies")] for b in second.values()} == {np.int32(1).tobytes()}


def test_dynamic_copies_differ(tmp_path: Path) -> None:
    s = source(tmp_path)
    assert not np.array_equal(s._plans.records(0)[:20], s._plans.records(1)[:20])


@given(st.slices(8))
def test_rows_of_a_batch_are_a_slice_of_it(tmp_path_factory: Any, rows: slice) -> None:
    s = source(tmp_path_factory.getbasetemp() / "slices")
    whole, part = s.batch(5), s.batch(5, rows)
    assert same({key: value[rows] for key, value in whole.items()}, part)


@pytest.mark.fault(12)
@pytest.mark.parametrize(
    "axes", [(1, 8, 1, 1), (1, 2, 4, 1), (1, 4, 1, 2)], ids=["data", "fsdp", "tensor"]
)
def test_no_example_is_lost_or_repeated_when_the_number_of_hosts_changes(
    axes, tmp_path, monkeypatch
) -> None:
    """One, two, one, four, two hosts with eight devices in all; each makes the rows of its own
    devices alone.
    """
    s = source(tmp_path, batch_size=16)
    mesh = jax.make_mesh(axes, sharding.AXES, axis_types=(jax.sharding.AxisType.Auto,) * 4)
    devices = mesh.devices.ravel()
    here: list[jax.Device] = []

    def of_this_host(self: jax.NamedSharding, shape: tuple[int, ...]) -> dict:
        return {
            device: index
            for device, index in self.devices_indices_map(shape).items()
            if device in here
        }

    monkeypatch.setattr(jax.NamedSharding, "addressable_devices_indices_map", of_this_host)
    count = s.count(0)
    seen: list[int] = []
    for step in range(-(-count // 16)):
        hosts = (1, 2, 1, 4, 2)[step % 5]
        parts = {}
        for host in range(hosts):
            here[:] = devices[host * 8 // hosts : (host + 1) * 8 // hosts]
            rows = sharding.local_rows(16, mesh)
            parts[rows.start, rows.stop] = s.batch(
                step, rows
            )  # hosts that share rows make the same ones
        whole = {
            key: np.concatenate([parts[place][key] for place in sorted(parts)]) for key in HOST_KEYS
        }
        assert same(whole, s.batch(step))
        seen += whole["example_ids"][:, 0].tolist()
    assert sorted(seen[:count]) == list(range(count))


def test_any_order_of_calls_gives_the_same_batches(tmp_path: Path) -> None:
    one, two = source(tmp_path / "a"), source(tmp_path / "b")
    steps = [40, 3, 7, 3, 0, 100]
    forward = {step: one.batch(step) for step in sorted(steps)}
    assert all(same(two.batch(step), forward[step]) for step in steps)


def test_data_seed_changes_everything_and_seed_nothing(tmp_path: Path) -> None:
    s = source(tmp_path)
    other = source(tmp_path, data_seed=1)
    assert not np.array_equal(s.batch(3)["tokens"], other.batch(3)["tokens"])
    cfg = corpora.config(seed=9, batch_size=8, sequence_length=32)
    assert same(s.batch(3), Source(corpora.prepared(tmp_path, shards()), "train", cfg).batch(3))


@pytest.mark.parametrize("mode", MODES)
def test_evaluation_covers_the_plan_in_order_whatever_the_size(tmp_path: Path, mode: str) -> None:
    s = source(tmp_path, seed=4, split="validation", pairs=mode, masking__dupe_factor=0)
    count = s.count(0)
    assert s.count(3) == count  # evaluation never moves on
    whole = s.evaluation_batch(0, count)
    assert np.array_equal(whole["example_ids"][:, 0], np.arange(count))
    for size in (1, 7, 64, count, count + 3):
        batches = [s.evaluation_batch(i, size) for i in range(-(-count // size))]
        rows = {key: np.concatenate([b[key] for b in batches]) for key in HOST_KEYS}
        assert all(len(b["tokens"]) == size for b in batches)
        assert same({key: value[:count] for key, value in rows.items()}, whole)
        spare = {key: value[count:] for key, value in rows.items()}
        assert len(spare["tokens"]) < size
        assert (spare["segment_ids"] == 0).all()
        assert (spare["unit_ids"] == -1).all()
        assert (spare["labels"] == -1).all()
    assert (s.batch(count * 3)["copies"] == 0).all()


def test_evaluation_follows_its_seed_and_not_the_data_seed(tmp_path: Path) -> None:
    def whole(**settings: Any) -> Batch:
        return source(tmp_path, split="validation", **settings).evaluation_batch(0, 8)

    assert same(whole(seed=4), whole(seed=4, data_seed=8, masking__dupe_factor=5))
    assert not same(whole(seed=4), whole(seed=5))


def test_splits_are_apart(tmp_path: Path) -> None:
    assert not same(
        source(tmp_path, seed=0).evaluation_batch(0, 8),
        source(tmp_path, 0, "validation").evaluation_batch(0, 8),
    )


def test_a_split_without_text_is_a_data_error(tmp_path: Path) -> None:
    prepared = corpora.prepared(tmp_path, shards(), validation=[], other=[corpora.shard([])])
    for split in ("validation", "other", "missing"):
        with pytest.raises(DataError, match=split):
            Source(prepared, split, corpora.config())


CHANGES = [
    {"pairs": "sop"},
    {"pairs": "none"},
    {"sequence_length": 48},
    {"batch_size": 9},
    {"data_seed": 1},
    {"masking__dupe_factor": 1},
    {"masking__unit": "word"},
    {"masking__max_unit": 3},
    {"masking__span_mean": 2.0},
    {"masking__span_max": 8},
    {"examples__short_probability": 0.2},
    {"examples__random_next_probability": 0.4},
    {"examples__truncate": "front"},
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda c: next(iter(c)))
def test_the_fingerprint_changes_with_the_stream(tmp_path: Path, change: dict[str, Any]) -> None:
    assert source(tmp_path, **change).fingerprint != source(tmp_path).fingerprint


def test_the_fingerprint_stays_where_the_stream_does(tmp_path: Path) -> None:
    base = source(tmp_path).fingerprint
    assert (
        base
        == source(tmp_path, masking__rate=0.4, seed=None, steps=7, loader__workers=3).fingerprint
    )
    one, two = (
        source(tmp_path, pairs="none"),
        source(tmp_path, pairs="none", examples__truncate="front"),
    )
    assert one.fingerprint == two.fingerprint


def test_threads_share_a_source(tmp_path: Path) -> None:
    expected = [source(tmp_path / "a").batch(step) for step in range(40)]
    s = source(tmp_path / "b")
    found: dict[int, Batch] = {}

    def work(first: int) -> None:
        for step in range(39 - first, -1, -4):
            found[step] = s.batch(step)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(same(found[step], expected[step]) for step in range(40))


# --- other processes ------------------------------------------------------------------------------


def child(code: str, *arguments: object) -> subprocess.Popen:
    header = (
        "import sys, json, time, hashlib\nfrom pathlib import Path\n"
        "from bert_jax.batch import HOST_KEYS\nfrom tests import corpora\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", header + code, *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


def answer(process: subprocess.Popen) -> Any:
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return json.loads(out)


def test_a_fresh_process_makes_the_same_batches_and_races_do_no_harm(tmp_path: Path) -> None:
    code = (
        "s = corpora.source(Path(sys.argv[1]), on_disk=True, masking__unit='span')\n"
        "batches = [s.batch(i) for i in (70, 0, 31)]\n"
        "print(json.dumps([hashlib.sha256(b''.join(b[k].tobytes() for k in "
        "HOST_KEYS)).hexdigest() for b in batches]))"
    )
    source(tmp_path, on_disk=True)  # the shards are there, the plans are not
    processes = [child(code, tmp_path) for _ in range(3)]
    answers = [answer(process) for process in processes]
    assert answers[0] == answers[1] == answers[2]
    s = source(tmp_path / "here", masking__unit="span")
    batches = [s.batch(step) for step in (70, 0, 31)]
    digests = [
        hashlib.sha256(b"".join(b[k].tobytes() for k in HOST_KEYS)).hexdigest() for b in batches
    ]
    assert answers[0] == digests


COSTS = (  # calls of functions and bytes allocated: unlike times, the same on a busy machine
    "import tracemalloc\n"
    "c = corpora.config(batch_size=8, sequence_length=32, masking__dupe_factor=sys.argv[3])\n"
    "p = corpora.prepared(Path(sys.argv[1]), [corpora.shard(corpora.random_documents(600, 0))], "
    "True)\n"
    "s = corpora.Source(p, 'train', c)\n"
    "calls = []; tracemalloc.start(); sys.setprofile(lambda *_: calls.append(0))\n"
    "s.batch(int(sys.argv[2]))\n"
    "sys.setprofile(None); peak = tracemalloc.get_traced_memory()[1]\n"
    "print(json.dumps([len(calls), peak, len(s._plans._table)]))"
)


def assert_costs_as_little(folder: Path, late: int, dupe_factor: int) -> None:
    """A late batch takes as many calls and bytes as the first one."""
    calls, peak, _ = answer(child(COSTS, folder, late, dupe_factor))
    first_calls, first_peak, _ = answer(child(COSTS, folder, 0, dupe_factor))
    assert calls < 1.2 * first_calls
    assert peak < 1.2 * first_peak + 2**16


@pytest.mark.slow
@pytest.mark.parametrize("dupe_factor", [0, 3])
def test_a_late_step_costs_a_fresh_process_no_more_than_the_first(
    tmp_path: Path, dupe_factor: int
) -> None:
    late = 10**6 if dupe_factor else 10**5  # to 10**6 without copies: the slow test below
    for step in (late, 0):  # makes the plans
        answer(child(COSTS, tmp_path, step, dupe_factor))
    assert_costs_as_little(tmp_path, late, dupe_factor)


def test_a_pickled_source_names_files_and_carries_no_tokens(tmp_path: Path) -> None:
    big = corpora.shard([[10] * 5000] * 4)
    prepared = corpora.prepared(tmp_path, [big], on_disk=True)
    prepared.tokenizer.continuation = np.zeros(50, bool)
    s = Source(
        prepared,
        "train",
        corpora.config(pairs="none", masking__unit="token", sequence_length=32, batch_size=4),
    )
    batch = s.batch(3)
    content = pickle.dumps(s)
    assert len(content) < 10_000
    assert same(pickle.loads(content).batch(3), batch)


def test_no_jax_on_the_data_side() -> None:
    code = (
        "import sys, bert_jax.data.batches.pipeline; "
        "sys.exit(any(m in sys.modules for m in ('jax', 'flax', 'grain', 'torch')))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


# --- prefetching ----------------------------------------------------------------------------------


def grain_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if "grain-prefetch" in thread.name]


def wait_until(holds: Any, seconds: float = 10) -> bool:
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.02)
    return holds()


@pytest.mark.parametrize(("prefetch", "threads"), [(0, 1), (1, 1), (4, 1), (4, 3), (2, 5)])
def test_prefetching_keeps_the_order(tmp_path: Path, prefetch: int, threads: int) -> None:
    s = source(tmp_path)
    rows = slice(2, 6)
    found = list(
        pipeline.prefetch(s, 5, 25, knobs.Loader(prefetch=prefetch, threads=threads), rows)
    )
    assert len(found) == 20
    assert all(same(batch, s.batch(step, rows)) for step, batch in enumerate(found, 5))
    assert wait_until(lambda: not grain_threads())


def test_nothing_to_prefetch(tmp_path: Path) -> None:
    assert list(pipeline.prefetch(source(tmp_path), 7, 7, LOOK)) == []


def test_closing_early_leaves_no_thread(tmp_path: Path) -> None:
    batches = pipeline.prefetch(source(tmp_path), 0, 10**6, LOOK)
    next(batches)
    assert grain_threads()
    batches.close()  # type: ignore[attr-defined]
    assert wait_until(lambda: not grain_threads())


def test_an_error_in_a_thread_arrives_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    s = source(tmp_path)

    def fail(step: int, rows: slice) -> Batch:
        raise DataError("shard 3 is gone", "look for it")

    monkeypatch.setattr(s, "batch", fail)
    with pytest.raises(DataError, match="shard 3"):
        next(pipeline.prefetch(s, 0, 10, LOOK))
    assert wait_until(lambda: not grain_threads())


@pytest.mark.fault(37)
@pytest.mark.timeout(120)
def test_processes_give_the_same_batches_and_a_dead_one_stops_the_run(tmp_path: Path) -> None:
    s = source(tmp_path, on_disk=True)
    batches = pipeline.prefetch(s, 3, 10**6, knobs.Loader(prefetch=2, workers=2))
    for step in range(3, 30):
        batch = next(batches)
        assert same(batch, s.batch(step))
        assert all(type(array) is np.ndarray for array in batch.values())
    workers = multiprocessing.active_children()
    assert len(workers) == 2
    assert workers[0].pid
    os.kill(workers[0].pid, signal.SIGKILL)
    with pytest.raises(Stopped, match="ended before step") as error:
        list(batches)
    assert error.value.code == 75
    assert wait_until(lambda: not multiprocessing.active_children())


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_millionth_batch_of_dynamic_plans(tmp_path: Path) -> None:
    for step in (10**6, 0):  # makes the plans
        process = child(COSTS, tmp_path, step, 0)
        out, _ = process.communicate(timeout=500)
        assert process.returncode == 0
    assert json.loads(out)[2] > 500  # epochs that a search through them would show
    assert_costs_as_little(tmp_path, 10**6, 0)
