"""Training rows give the frozen numbers: with the tests' compiler flags, and with a user's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.net import golden
from tests.net.rows import ROWS
from tests.net.train_rows import Numbers, measure

FROZEN = golden.read("training")
# Every row is trained in the slow suite with the flags of users; these rows in the quick suite too.
FEW = ("nsp", "bfloat16")  # with the flags of users
QUICK = (  # with the flags of the tests, which round a little otherwise
    *("nsp", "rate_100", "predict_more", "spans", "static_copies", "phases", "beta"),
    *("causal", "hybrid", "replaced_generator", "packing", "accumulation", "lamb", "layer_decay"),
    *("modernbert", "classify", "span"),
)


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Numbers]:
    return measure(tmp_path_factory.mktemp("rows"), list(QUICK))


@pytest.fixture(scope="module")
def few_with_flags_of_users(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Numbers]:
    return measure(tmp_path_factory.mktemp("rows"), list(FEW), users_flags=True)


@pytest.fixture(scope="module")
def all_with_flags_of_users(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Numbers]:
    return measure(tmp_path_factory.mktemp("rows"), list(ROWS), users_flags=True)


def differences(name: str, found: dict[str, Numbers]) -> list[str]:
    return golden.find_differences(FROZEN[name], found[name], ROWS[name].tolerance)


def test_every_row_is_frozen():
    assert sorted(FROZEN) == sorted(ROWS)


@pytest.mark.parametrize("name", QUICK)
def test_row_gives_the_frozen_numbers(numbers, name):
    assert differences(name, numbers) == []


@pytest.mark.parametrize("name", FEW)
def test_row_is_the_same_with_a_users_flags(few_with_flags_of_users, name):
    assert differences(name, few_with_flags_of_users) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_every_row_is_the_same_with_a_users_flags(all_with_flags_of_users, name):
    assert differences(name, all_with_flags_of_users) == []


def test_a_difference_is_found(tmp_path: Path):
    """A number, a missing name and a new one are each told apart."""
    frozen = {"a": [1.0, 2.0], "b": [0.5]}
    assert golden.find_differences(frozen, frozen, 2e-5) == []
    found = {"a": [1.0, 2.0001], "c": [0.5]}
    assert golden.find_differences(frozen, found, 2e-5) == [
        "/a[1]: 2.0 became 2.0001",
        "/b: missing",
        "/c: not frozen",
    ]
    assert golden.find_differences([2e-3], [2.01e-3], 2e-5) != []  # such as a learning rate
