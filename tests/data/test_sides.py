"""Copies are dropped before the split, and the split follows the text alone."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.config import knobs
from bert_jax.data import files, spool
from bert_jax.data.sentences import Item, Text
from bert_jax.data.sides import DROPPED, TRAIN, VALIDATION, choose_sides, find_first


def choose(tmp_path, texts: list[str], **options):
    """Read rows, and choose their sides."""
    tmp_path.mkdir(exist_ok=True)
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    settings = knobs.Corpus(source="files", path=str(file), **options)
    items, _ = files.list_items(settings, tmp_path)
    done = spool.read_task(0, items, settings, None, tmp_path)
    records = np.concatenate([spool.read_records(tmp_path, p["name"]) for p in done["parts"]])
    sides, _, counts = choose_sides(records, settings)
    return sides, counts


@given(st.lists(st.integers(0, 9), max_size=40))
def test_the_first_of_equal_values_is_found(values):
    found = find_first(np.array(values, np.uint64))
    assert found.tolist() == [value not in values[:i] for i, value in enumerate(values)]


@pytest.mark.fault(14)
def test_copies_are_dropped_before_the_split(tmp_path):
    texts = [f"Document {i % 60}.\nSame." for i in range(100)] + ["", "Document  0. Same."]
    sides, counts = choose(tmp_path / "a", texts, validation_fraction=0.3)
    assert counts == {"documents": 102, "empty": 1, "duplicates": 41}
    assert (sides[60:] == DROPPED).all()
    assert {*sides[:60].tolist()} == {TRAIN, VALIDATION}
    options = {"validation_fraction": 0.3, "deduplicate": False}
    kept, counts = choose(tmp_path / "b", texts, **options)
    assert counts["duplicates"] == 0
    assert (kept[:60] == sides[:60]).all()
    assert (kept[60:100] == sides[:40]).all()  # copies lie on the same side


def test_the_split_follows_the_text_alone(tmp_path):
    texts = [f"Document {i}." for i in range(2000)]
    sides, _ = choose(tmp_path / "a", texts, validation_fraction=0.1)
    assert abs((sides == VALIDATION).mean() - 0.1) < 4 * math.sqrt(0.1 * 0.9 / 2000)
    backwards, _ = choose(tmp_path / "b", texts[::-1], validation_fraction=0.1)
    assert (backwards == sides[::-1]).all()


@pytest.mark.parametrize(
    ("count", "fraction", "expected"), [(1, 0.5, 0), (2, 1e-6, 1), (9, 1e-6, 1), (9, 0.0, 0)]
)
def test_few_documents_leave_one_on_each_side(tmp_path, count, fraction, expected):
    texts = [f"Document {i}." for i in range(count)]
    sides, _ = choose(tmp_path, texts, validation_fraction=fraction)
    assert (sides == VALIDATION).sum() == expected


def test_texts_of_a_document_share_its_side():
    """Also if the first text of a document is dropped."""
    records = np.zeros(6, spool.RECORD)
    records["digest"] = [2**63, 1, 2**63, 1, 2**62, 9]
    records["sentences"] = 1
    records["starts"] = [True, False, True, False, True, False]
    settings = knobs.Corpus(validation_fraction=0.3)
    sides, starts, counts = choose_sides(records, settings)
    assert sides.tolist() == [TRAIN, TRAIN, DROPPED, DROPPED, VALIDATION, VALIDATION]
    assert starts.tolist() == [True, False, False, False, True, False]
    assert counts["duplicates"] == 2


def test_texts_of_a_document_stay_in_one_part(tmp_path, monkeypatch):
    monkeypatch.setattr(spool, "PART", 10)
    texts = [Text(f"Text {i} of {j}.", "", i == 0) for j in range(4) for i in range(3)]
    monkeypatch.setattr(files, "read_texts", lambda *_: iter(texts))
    done = spool.read_task(0, [Item("x", 1, "")], knobs.Corpus(source="files"), None, tmp_path)
    assert spool.read_done(tmp_path, 0) == done
    assert spool.read_done(tmp_path, 1) is None
    names = [part["name"] for part in done["parts"]]
    assert [len(spool.read_records(tmp_path, name)) for name in names] == [3] * 4
    found = [line for name in names for line in spool.read_sentences(tmp_path, name)]
    assert found == [f" {text.text}" for text in texts]
