"""Batches and the masks made of them have the frozen digests."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.net import batch_rows, golden, inside

pytestmark = pytest.mark.usefixtures("inputs")
FROZEN = {part: golden.read(part) for part in ("batches", "masks")}
NESTED = ("nsp", "sop", "words", "spans", "pmi", "frequency_weights", "byte_pairs")
NESTED += ("packed_documents", "packed_pairs", "static_copies")


def differences(frozen: dict[str, str], found: dict[str, str]) -> list[str]:
    """Return for each array that differs the first batch where it does."""
    lines = [f"{name}: missing or new" for name in sorted(frozen.keys() ^ found.keys())]
    for name in sorted(frozen.keys() & found.keys()):
        pairs = zip(frozen[name].split(), found[name].split(), strict=True)
        first = next((step for step, (old, new) in enumerate(pairs) if old != new), None)
        lines += [] if first is None else [f"{name}: differs from batch {first} on"]
    return lines


def test_a_difference_is_found():
    found = differences({"a": "1 2", "b": "3", "d": "5"}, {"a": "1 4", "c": "3", "d": "5"})
    missing = ["b: missing or new", "c: missing or new"]
    assert found == [*missing, "a: differs from batch 1 on"]


@pytest.mark.parametrize("name", batch_rows.SETTINGS)
def test_batches_have_the_frozen_digests(name):
    assert differences(FROZEN["batches"][name], batch_rows.measure_batches(name)) == []


@pytest.mark.parametrize("name", [*batch_rows.MASKED, *batch_rows.RULES])
def test_masks_have_the_frozen_digests(name):
    assert differences(FROZEN["masks"][name], batch_rows.measure_masks(name)) == []


@pytest.mark.parametrize("name", NESTED)
def test_masks_spare_specials_and_are_nested_by_rate(name):
    """Special tokens are those that the tokenizer's files name; nothing else is left out."""
    row = batch_rows.SETTINGS[name]
    special = read_special(row.knobs.get("tokenizer.path", "models/bert"))
    lower, ordinary = [np.zeros(1)] * batch_rows.BATCHES, 0
    for rate in batch_rows.RATES:
        batches, masks = batch_rows.corrupt_setting(name, rate)
        for number, (batch, mask) in enumerate(zip(batches, masks, strict=True)):
            untouched = np.isin(batch["tokens"], special)
            assert not mask["predicted"][untouched].any()
            assert (mask["inputs"] == batch["tokens"])[mask["predicted"] == 0].all()
            assert (mask["predicted"] >= lower[number]).all()
            lower[number], ordinary = mask["predicted"], ordinary + (~untouched).sum()
    assert sum(mask.sum() for mask in lower) == ordinary / len(batch_rows.RATES)  # at 100 %


def read_special(folder: str) -> list[int]:
    """Return the ids of padding, starts and ends of a frozen model's vocabulary."""
    names, path = {"[PAD]", "[CLS]", "[SEP]", "<pad>", "<s>", "</s>"}, Path(folder)
    if (path / "vocab.txt").exists():
        pieces = list(enumerate((path / "vocab.txt").read_text().splitlines()))
    else:
        vocabulary = json.loads((path / "tokenizer.json").read_text())["model"]["vocab"]
        pieces = [(number, piece) for piece, number in vocabulary.items()]
    found = [number for number, piece in pieces if piece in names]
    assert len(found) == 3
    return found


def test_packed_example_is_the_example_alone():
    """It has the same tokens and masks in a row of its own as next to others."""
    row = batch_rows.SETTINGS["packed_pairs"]
    packed, alone = (split_examples(batch_rows.open_row(row, packing=most)) for most in (4, 1))
    shared = packed.keys() & alone.keys()
    assert len(shared) > 50
    for key in shared:
        np.testing.assert_array_equal(packed[key], alone[key])


def split_examples(stream: inside.Stream) -> dict[tuple[int, int], np.ndarray]:
    """Return tokens, inputs and predictions of each example by number and epoch."""
    found = {}
    for batch, mask in zip(*batch_rows.corrupt_batches(stream), strict=True):
        arrays = np.stack([batch["tokens"], mask["inputs"], mask["predicted"]])
        for line, number in np.ndindex(batch["example_ids"].shape):
            own = batch["segment_ids"][line] == number + 1
            if own.any():  # a row may have room for more
                key = batch["example_ids"][line, number], batch["copies"][line, number]
                found[key] = arrays[:, line, own]
    return found
