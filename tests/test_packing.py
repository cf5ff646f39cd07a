"""Packed rows: every example once, as it is by itself, in rows that leave little empty; and the
same loss.
"""

from __future__ import annotations

import itertools
import json
import math
import pickle
import time
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax import train
from bert_jax.batch import Batch
from bert_jax.config import knobs, quotas
from bert_jax.data.batches import packing
from bert_jax.data.batches.pipeline import Source
from tests import corpora, texts, toy
from tests.corpora import same, source
from tests.test_step import advance, flat

MODES = ("nsp", "sop", "none")


# --- which lengths share a row --------------------------------------------------------------------


def one_by_one(sizes: list[int], length: int, most: int) -> int:
    """Rows that best fit needs when it places one example after the other, the longest first."""
    rows: list[tuple[int, int]] = []  # tokens and examples left
    for n in sorted(sizes, reverse=True):
        fitting = [row for row in rows if row[0] >= n and row[1]]
        best = min(fitting, default=(length, most))
        if fitting:
            rows.remove(best)
        rows.append((best[0] - n, best[1] - 1))
    return len(rows)


@given(st.lists(st.integers(1, 24), min_size=1, max_size=80), st.integers(1, 6))
def test_every_example_has_a_place_and_rows_are_as_full_as_best_fit_makes_them(sizes, most):
    found = packing.shapes(np.bincount(sizes, minlength=25), 24, most)
    held = Counter(n for rows, lengths in found for n in lengths for _ in range(rows))
    assert held == Counter(sizes)
    assert all(rows > 0 and sum(lengths) <= 24 and len(lengths) <= most for rows, lengths in found)
    count = sum(rows for rows, _ in found)
    assert count <= 1.1 * one_by_one(sizes, 24, most) + 1
    table = packing.assign(found, np.array(sizes), most)
    assert table.shape == (count, most)
    assert sorted(table[table >= 0].tolist()) == list(range(len(sizes)))
    for row in table:
        mine = row[row >= 0]
        assert sum(sizes[i] for i in mine) <= 24
        assert (row[: len(mine)] >= 0).all()  # the slots that are used come first


def test_halves_and_quarters_leave_nothing_empty():
    found = packing.shapes(np.bincount([64] * 10 + [32] * 20), 128, 4)
    assert sum(rows for rows, _ in found) == (10 * 64 + 20 * 32) // 128
    assert packing.shapes(np.bincount([128] * 3), 128, 4) == [(3, (128,))]


def test_examples_of_a_length_keep_their_order():
    sizes = np.array([5, 3, 5, 3, 5])
    table = packing.assign([(1, (5, 5)), (1, (5, 3, 3))], sizes, 3)
    assert table.tolist() == [[0, 2, -1], [4, 1, 3]]


def test_a_million_examples_are_planned_in_seconds():
    sizes = np.minimum(np.random.default_rng(0).geometric(0.02, 1_000_000) + 4, 512)
    began = time.process_time()
    found = packing.shapes(np.bincount(sizes, minlength=513), 512, 16)
    table = packing.assign(found, sizes, 16)
    assert time.process_time() - began < 5
    assert sizes.sum() / (len(table) * 512) > 0.99


# --- prediction slots -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "masking", [{}, {"rate": 0.4}, {"rate": 0.15, "unit": "word"}, {"prediction_rate": 0.05}]
)
def test_slots_are_as_many_as_the_worst_row_needs(masking):
    settings, length = knobs.Masking(**masking), 20
    rate = settings.rate if settings.prediction_rate is None else settings.prediction_rate
    more = 0 if settings.unit == "token" else settings.max_unit - 1
    need = [min(math.ceil(n * Fraction(str(rate))) + more, n) for n in range(length + 1)]
    for most in (1, 2, 3, 4):
        rows = itertools.chain.from_iterable(
            itertools.combinations_with_replacement(range(3, length + 1), k)
            for k in range(1, most + 1)
        )
        worst = max(sum(need[n] for n in row) for row in rows if sum(row) <= length)
        assert quotas.slots(settings, length, most) == max(1, worst)


# --- rows of a corpus -----------------------------------------------------------------------------


def alone(s, epoch: int, start: int) -> dict[int, Batch]:
    """Every example of an epoch that begins at a place of the stream, by its id."""
    found = {}
    for index in range(start, start + s.count(epoch)):
        batch = s.batch(index // s.batch_size)
        row = index % s.batch_size
        found[int(batch["example_ids"][row, 0])] = {key: value[row] for key, value in batch.items()}
    return found


def by_hand(unit: str, epoch: int) -> dict[int, Batch]:
    """Every document of the corpus of `source`, in pieces of at most 30 tokens, by its number."""
    found = {}
    for seed in range(3):  # of a shard
        first = corpora.FIRST
        for document in map(sum, corpora.random_documents(12, seed)):
            text, first = list(range(first, first + document)), first + document
            for at in range(0, document, 30):
                piece = text[at : at + 30]
                units, size = [-1], len(piece) + 2
                for column, token in enumerate(piece, 1):
                    inside = unit == "word" and column > 1 and token % 3 == 1
                    units.append(units[-1] if inside else column)
                example = {
                    "tokens": [corpora.SPECIAL.cls, *piece, corpora.SPECIAL.sep],
                    "type_ids": [0] * size,
                    "positions": list(range(size)),
                    "segment_ids": [1] * size,
                    "unit_ids": [*units, -1],
                    "labels": [-1],
                    "copies": [epoch],
                }
                found[len(found)] = {key: np.array(value) for key, value in example.items()}
    return found


@pytest.mark.parametrize("unit", ["token", "word"])
@pytest.mark.parametrize("mode", MODES)
def test_a_packed_row_holds_examples_as_they_are_alone(tmp_path, mode, unit):
    settings = {"pairs": mode, "masking__unit": unit}
    plain, packed = source(tmp_path, **settings), source(tmp_path, packing=4, **settings)
    start, begun = 0, 0
    for epoch in range(2):
        # Without pairs the rows of a plain source are filled across documents.
        wanted = by_hand(unit, epoch) if mode == "none" else alone(plain, epoch, begun)
        begun += len(wanted)
        rows = packed.packer.count(epoch)
        seen = []
        for index in range(start, start + rows):
            batch = packed.batch(index // 8)
            row = {key: value[index % 8] for key, value in batch.items()}
            ids = row["segment_ids"]
            count = ids.max()
            assert (
                ids == np.sort(ids[ids > 0]).tolist() + [0] * (ids == 0).sum()
            ).all()  # padding comes last
            for slot in range(count):
                mine = np.flatnonzero(ids == slot + 1)
                one = wanted[int(row["example_ids"][slot])]
                size = len(mine)
                assert mine.tolist() == list(
                    range(row["cls_positions"][slot], row["cls_positions"][slot] + size)
                )
                for key in ("tokens", "type_ids", "positions"):
                    assert row[key][mine].tolist() == one[key][:size].tolist()
                assert not one["segment_ids"][size:].any()
                units = one["unit_ids"][:size]
                assert (
                    row["unit_ids"][mine].tolist()
                    == np.where(units >= 0, units + mine[0], -1).tolist()
                )
                assert (row["labels"][slot], row["copies"][slot]) == (
                    one["labels"][0],
                    one["copies"][0],
                )
                seen.append(int(row["example_ids"][slot]))
            assert (row["labels"][count:] == -1).all()
            assert (row["unit_ids"][ids == 0] == -1).all()
        assert sorted(seen) == sorted(wanted)
        start += rows
    assert rows < len(wanted)


def test_packer_keeps_documents_apart(tmp_path):
    """Without pairs an example is a whole document, or a piece of one that is longer than a row."""
    length, documents = 32, [[9, 4], [30], [31], [6, 7, 50, 1], [3], [200], [2, 2]]
    settings = {"pairs": "none", "packing": 4, "sequence_length": length, "batch_size": 8}
    s = Source(
        corpora.prepared(tmp_path, [corpora.shard(documents)]), "train", corpora.config(**settings)
    )
    found = []
    for index in range(s.rows(0)):
        batch = {key: value[index % 8] for key, value in s.batch(index // 8).items()}
        for segment in range(1, batch["segment_ids"].max() + 1):
            tokens = batch["tokens"][batch["segment_ids"] == segment].tolist()
            assert (tokens[0], tokens[-1]) == (corpora.SPECIAL.cls, corpora.SPECIAL.sep)
            found.append([token - corpora.FIRST for token in tokens[1:-1]])
    wanted, token = [], 0
    for size in map(sum, documents):
        text, token = list(range(token, token + size)), token + size
        wanted += [text[at : at + length - 2] for at in range(0, size, length - 2)]
    assert sorted(found) == wanted


def test_packer_leaves_less_padding_than_full_rows(tmp_path):
    """Without pairs too: sentences leave the end of a row empty, packed pieces fill the row."""
    documents = corpora.random_documents(300, seed=3, sentences=12, tokens=14)
    held = corpora.prepared(tmp_path, [corpora.shard(documents)])
    shape = {"pairs": "none", "sequence_length": 64}
    full, packed = (Source(held, "train", corpora.config(packing=most, **shape)) for most in (1, 4))
    tokens = sum(map(sum, documents))
    assert tokens / (full.rows(0) * 64) < 0.85
    assert tokens / (packed.rows(0) * 64) > 0.92
    assert packed.packer.efficiency()[0] > 1.1


def test_rows_come_in_another_order_and_company_every_epoch(tmp_path):
    s = source(tmp_path, pairs="none", packing=3)
    first, second = (
        s.packer.rows(epoch, epoch, np.arange(s.packer.count(epoch))) for epoch in (0, 1)
    )
    assert first.shape == second.shape
    assert sorted(first[first >= 0]) == sorted(second[second >= 0])
    assert not np.array_equal(first, second)


def test_batches_are_a_function_of_the_step_in_any_process(tmp_path):
    one = source(tmp_path, packing=4, on_disk=True)
    steps = [5, 0, 17, 3, 200]
    wanted = [one.batch(step) for step in steps]
    fresh = source(tmp_path, packing=4, on_disk=True)
    assert all(same(fresh.batch(step), batch) for step, batch in zip(steps, wanted, strict=True))
    other = pickle.loads(pickle.dumps(one))
    assert all(same(other.batch(step), batch) for step, batch in zip(steps, wanted, strict=True))
    for part in (slice(0, 3), slice(3, 8)):
        batch = one.batch(17, part)
        assert all(np.array_equal(batch[key], wanted[2][key][part]) for key in batch)


def test_how_many_rows_there_are_is_counted_once_and_again_where_that_is_lost(
    tmp_path, monkeypatch
):
    count = source(tmp_path, packing=4, on_disk=True).packer.count(3)
    (file,) = Path(tmp_path, "plans").glob("*.rows")
    with monkeypatch.context() as patch:
        patch.setattr(packing, "shapes", lambda *_: pytest.fail("counted again"))
        assert source(tmp_path, packing=4, on_disk=True).packer.count(3) == count
    file.write_text("{")
    assert source(tmp_path, packing=4, on_disk=True).packer.count(3) == count
    assert source(tmp_path, packing=2, on_disk=True).packer.count(3) >= count
    assert len(list(Path(tmp_path, "plans").glob("*.rows"))) == 2


def test_packing_is_told_apart_and_evaluation_is_never_packed(tmp_path):
    plain, packed = source(tmp_path), source(tmp_path, packing=4)
    assert plain.fingerprint != packed.fingerprint == source(tmp_path, packing=4).fingerprint
    held_out = [source(tmp_path, seed=1, split="validation", packing=most) for most in (1, 4)]
    assert same(*(one.evaluation_batch(0, 8) for one in held_out))


def test_the_efficiency_is_that_of_the_rows(tmp_path):
    s = source(tmp_path, packing=4)
    rows = s.packer.rows(0, 0, np.arange(s.packer.count(0)))
    batch = np.concatenate([s.batch(step)["segment_ids"] for step in range(len(rows) // 8)])
    each, real, before = s.packer.efficiency()
    assert each == (rows >= 0).sum() / len(rows)
    assert real == pytest.approx((batch > 0).mean(), abs=0.03)
    assert before < real


# --- the same loss --------------------------------------------------------------------------------


def packed_and_plain(rows: int, length: int) -> tuple[Batch, Batch, int]:
    """The same examples in packed rows, and each in a row of its own."""
    packed = toy.batch(rows, length, seed=5, examples=3)
    plain = toy.batch(3 * rows, length, seed=6)
    for key, value in plain.items():
        value[...] = -1 if key in ("unit_ids", "labels") else 0
    for row, slot in itertools.product(range(rows), range(3)):
        at = 3 * row + slot
        mine = packed["segment_ids"][row] == slot + 1
        size = mine.sum()
        for key in ("tokens", "type_ids", "positions"):
            plain[key][at, :size] = packed[key][row, mine]
        plain["segment_ids"][at, :size] = 1
        units = packed["unit_ids"][row, mine]
        plain["unit_ids"][at, :size] = np.where(units >= 0, units - np.argmax(mine), -1)
        for key in ("example_ids", "copies", "labels"):
            plain[key][at, 0] = packed[key][row, slot]
    return packed, plain, 3 * rows


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        pytest.param({"model__position": "rotary", "model__norm": "pre"}, marks=pytest.mark.slow),
        pytest.param(
            {
                "model__position": "rotary",
                "model__rotary_base_near": 50,
                "model__window": 3,
                "model__global_every": 2,
                "model__norm": "pre",
                "model__first_norm": "false",
                "model__biases": "false",
                "model__type_vocab": 0,
                "model__pooling": "mean",
                "model__pooler": "transform",
            },
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {
                "model__position": "relative",
                "model__position_buckets": 6,
                "model__max_positions": 12,
                "model__layer_weights": "true",
                "model__attention_gate": "true",
                "model__window": 6,
                "model__global_every": 2,
            },
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"model__first_position": 2, "model__type_vocab": 1, "model__pooler": "relu"},
            marks=pytest.mark.slow,
        ),
        pytest.param({"pairs": "none"}, marks=pytest.mark.slow),
    ],
)
def test_packed_and_alone_have_the_same_loss_and_gradients(overrides):
    packed, plain, count = packed_and_plain(4, 48)
    if overrides.get("pairs") == "none":
        overrides = overrides | {"objectives__nsp__weight": None}
        packed["labels"][:], plain["labels"][:] = -1, -1
    shape = {
        "sequence_length": 48,
        "optim__clip_norm": 0,
        "model__dropout": 0,
        "model__attention_dropout": 0,
    }
    both = (
        toy.config(batch_size=4, packing=3, **shape, **overrides),
        toy.config(batch_size=count, **shape, **overrides),
    )
    (one,), state1 = advance(both[0], [packed], devices=1)
    (other,), state2 = advance(both[1], [plain], devices=1)
    for key in other:
        assert one[key] == pytest.approx(other[key], rel=1e-5, abs=1e-7), key
    assert one["examples_per_row"] == 3
    first, second = (flat(s["optimizer"].mu) for s in (state1, state2))
    for key in first:  # first moments: sums of gradients
        a, b = np.asarray(first[key]), np.asarray(second[key])
        np.testing.assert_allclose(b, a, atol=1e-5 * max(np.abs(a).max(), 1e-3), err_msg=key)


@pytest.mark.slow
def test_a_packed_run_trains_keeps_its_ledger_and_goes_on(tmp_path, capfd, one_device):
    base = texts.config_file(tmp_path)
    knobs_ = {
        "steps": 10,
        "packing": 4,
        "sequence_length": 64,
        "masking__dupe_factor": 1,
        "logging__every": 5,
    }
    config = texts.configure(base, **knobs_)
    train.run(config, tmp_path / "run", command=[])
    said = capfd.readouterr().err
    assert "packing: " in said
    assert "real, " in said
    rows = [
        json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    ]
    each = [row["train/examples_per_row"] for row in rows if "train/examples_per_row" in row]
    assert each
    assert all(1 < one <= 4 for one in each)


def test_examples_have_the_lengths_that_rows_are_planned_with(tmp_path):
    for mode, most in itertools.product(MODES, (1, 4)):
        s = source(tmp_path, pairs=mode, packing=most)
        sizes = packing.lengths(s._plans.records(0))
        batch = s.evaluation_batch(0, s.count(0))
        assert (batch["segment_ids"] > 0).sum(axis=1).tolist() == sizes.tolist()
        assert corpora.SPECIAL.sep in batch["tokens"]
