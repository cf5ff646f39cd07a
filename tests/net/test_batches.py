"""Batches and the masks made of them have the frozen digests."""

from __future__ import annotations

import numpy as np
import pytest

from tests.net import batch_rows, golden, inside

FROZEN = {part: golden.read(part) for part in ("batches", "masks")}


@pytest.fixture(scope="module", autouse=True)
def inputs(tmp_path_factory: pytest.TempPathFactory):
    with batch_rows.inputs(tmp_path_factory.mktemp("batches") / "inputs"):
        yield


def differences(frozen: dict[str, str], found: dict[str, str]) -> list[str]:
    """Return for each array that differs the first batch where it does."""
    lines = [f"{name}: missing or new" for name in sorted(frozen.keys() ^ found.keys())]
    for name in sorted(frozen.keys() & found.keys()):
        pairs = zip(frozen[name].split(), found[name].split(), strict=True)
        first = next((step for step, (old, new) in enumerate(pairs) if old != new), None)
        lines += [] if first is None else [f"{name}: differs from batch {first} on"]
    return lines


def test_every_setting_is_frozen():
    assert list(FROZEN["batches"]) == list(batch_rows.SETTINGS)
    assert list(FROZEN["masks"]) == [*batch_rows.MASKED, *batch_rows.RULES]


@pytest.mark.parametrize("name", batch_rows.SETTINGS)
def test_batches_have_the_frozen_digests(name):
    assert differences(FROZEN["batches"][name], batch_rows.measure_batches(name)) == []


@pytest.mark.parametrize("name", [*batch_rows.MASKED, *batch_rows.RULES])
def test_masks_have_the_frozen_digests(name):
    assert differences(FROZEN["masks"][name], batch_rows.measure_masks(name)) == []


def test_digest_tells_values_and_shapes_apart():
    array = np.arange(6, dtype=np.int32)
    assert inside.digest(array) == inside.digest(array.astype(np.uint16))
    assert inside.digest(array) != inside.digest(array.reshape(2, 3))
    assert inside.digest(array) != inside.digest(array + 1)
    assert differences({"a": "1 2", "b": "3"}, {"a": "1 4", "c": "3"}) == [
        "b: missing or new",
        "c: missing or new",
        "a: differs from batch 1 on",
    ]
