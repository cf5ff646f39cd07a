"""The ledger accepts what the config says and stops all else, each known bug planted once."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

from bert_jax.config.knobs import Masking
from bert_jax.errors import DivergedError
from bert_jax.training.ledger import Ledger
from tests import toy


def counts(settings: Masking, batches: int = 4, longest_unit: int = 1):
    for seed in range(batches):
        yield toy.mask(toy.batch(256, 64, seed=seed, longest_unit=longest_unit), settings, seed)[1]


@pytest.mark.parametrize("rate", [0.05, 0.15, 0.4, 0.8])
@pytest.mark.parametrize("unit", ["token", "word"])
@pytest.mark.parametrize("count", ["eligible", "all"])
@pytest.mark.parametrize("rounding", ["unbiased", "nearest"])
def test_what_is_configured_passes(rate, unit, count, rounding):
    settings = Masking(rate=rate, unit=unit, count=count, max_unit=5, rounding=rounding)
    ledger = Ledger(settings)
    for step, row in enumerate(counts(settings, longest_unit=1 if unit == "token" else 5)):
        ledger.add(row, rate, 256, step)
    assert ledger.totals["examples"] == 4 * 256


# --- words that are skipped -----------------------------------------------------------------------


def skipping(**settings) -> Masking:
    return Masking(unit="word", overflow="skip", max_unit=512, **settings)


@pytest.mark.parametrize("rate", [0.02, 0.15, 0.4, 0.8])
@pytest.mark.parametrize("prediction", [None, 0.02])
@pytest.mark.parametrize("count", ["eligible", "all"])
def test_skipped_words_pass(rate, prediction, count):
    settings = skipping(rate=rate, prediction_rate=prediction, count=count)
    ledger = Ledger(settings)
    for step, row in enumerate(counts(settings, longest_unit=5)):
        ledger.add(row, rate, 256, step)
    assert 0 < ledger.totals["quota"] - ledger.totals["masked"] <= ledger.totals["shortfall"]


@pytest.mark.parametrize("fault", [1, -1])
def test_a_single_token_more_or_less_than_skipping_allows_is_found(fault):
    settings = skipping(rate=0.15)
    row = toy.mask(toy.batch(64, 256, longest_unit=5), settings)[1]
    quota, short = row["quota_fraction"][0], row["shortfall_fraction"][0]
    assert (
        quota - row["masked_fraction"][0] <= short < 0.02 * quota
    )  # long texts have a word for every gap
    planted = quota + 1 if fault > 0 else quota - short - 1
    with pytest.raises(DivergedError, match="tokens selected"):
        Ledger(settings).add(
            {**row, "masked_fraction": (planted, row["masked_fraction"][1])}, 0.15, 256, 1
        )


def test_the_fair_rule_is_not_skipping():
    """A run that is said to skip and does not."""
    fair = toy.mask(toy.batch(256, 64, longest_unit=5), Masking(unit="word", rate=0.15))[1]
    short = {"shortfall_fraction": (0.0, 1.0), "predict_shortfall_fraction": (0.0, 1.0)}
    with pytest.raises(DivergedError, match="tokens selected"):
        Ledger(skipping(rate=0.15)).add({**fair, **short}, 0.15, 256, 1)


def test_a_cap_on_the_slots_of_skipped_words_is_found():
    settings = skipping(rate=0.4)
    row = toy.mask(toy.batch(256, 64, longest_unit=5), settings, slots=20)[1]
    with pytest.raises(DivergedError, match="tokens predicted"):
        Ledger(settings).add(row, 0.4, 256, 1)


# --- bugs -----------------------------------------------------------------------------------------


def run_bug(settings: Masking, change) -> None:
    ledger = Ledger(settings)
    for step, row in enumerate(counts(settings)):
        ledger.add({**row, **change(row)}, settings.rate, 256, step)


@pytest.mark.parametrize(("slots", "fits"), [(8, False), (26, True)])
def test_a_cap_on_prediction_slots_is_found(slots, fits):
    settings = Masking(rate=0.4)
    row = toy.mask(toy.batch(256, 64), settings, slots=slots)[1]
    with (
        contextlib.nullcontext() if fits else pytest.raises(DivergedError, match="tokens predicted")
    ):
        Ledger(settings).add(row, 0.4, 256, 1)


def test_a_prediction_rate_of_its_own_is_accounted_for():
    settings = Masking(rate=0.4, prediction_rate=0.2)
    ledger = Ledger(settings)
    for step, row in enumerate(counts(settings)):
        ledger.add(row, 0.4, 256, step)
    assert (
        ledger.totals["predicted"] == ledger.totals["predict_quota"] < 0.6 * ledger.totals["masked"]
    )


def test_static_masks_repeat_their_draws_and_are_allowed_to():
    """The same 64 examples 3,000 times: a deviation of two sigma of theirs would be a hundred of
    fresh draws.
    """
    settings = Masking(dupe_factor=1)
    row = next(
        r
        for r in (toy.mask(toy.batch(64, 64, s), settings, s)[1] for s in range(40))
        if _deviation(r) > 1.5
    )
    static, dynamic = Ledger(settings, distinct=64), Ledger(Masking())
    for step in range(3_000):
        static.add(row, 0.15, 64, step)
    with pytest.raises(DivergedError, match="tokens 'kept' sum"):
        _repeat(dynamic, row)


def _deviation(row) -> float:
    n = row["kept_fraction"][1]
    return abs(row["kept_fraction"][0] - 0.1 * n) / (0.09 * n) ** 0.5


def _repeat(ledger: Ledger, row) -> None:
    for step in range(3_000):
        ledger.add(row, 0.15, 64, step)


@pytest.mark.parametrize("rate", [0.15, 0.9])
def test_specials_that_count_are_counted_as_they_are(rate):
    """Many separators a row, as full sentences of short documents have them."""
    settings = Masking(rate=rate, count="all")
    ledger = Ledger(settings)
    for seed in range(4):
        b = toy.batch(64, 64, seed)
        b["unit_ids"][:, 2::3] = -1
        ledger.add(toy.mask(b, settings, seed)[1], rate, 64, seed)


def test_selecting_special_tokens_too_is_found():
    def more(row):  # [CLS] and [SEP] selected like any other: 15 % of two more tokens an example
        return {
            "masked_fraction": (row["masked_fraction"][0] + 0.15 * 512, row["masked_fraction"][1])
        }

    with pytest.raises(DivergedError, match="tokens selected"):
        run_bug(Masking(), more)


def test_a_split_of_80_2_18_is_found():
    def skew(row):
        n = row["random_fraction"][1]
        return {"random_fraction": (0.02 * n, n), "kept_fraction": (0.18 * n, n)}

    with pytest.raises(DivergedError, match="tokens 'random' sum"):
        run_bug(Masking(), skew)


def test_quotas_of_another_rate_are_found():
    ledger = Ledger(Masking(rate=0.4))
    row = next(
        counts(Masking(rate=0.329))
    )  # what sampling with replacement makes of a nominal 40 %
    with pytest.raises(DivergedError, match="quotas sum to"):
        ledger.add(row, 0.4, 256, 1)


def long_rows(count: int = 2_000, length: int = 64):
    """Rows of the same length, with 62 tokens that may be masked: 15 % are 9.3."""
    b = toy.batch(1, length)
    b["segment_ids"][:], b["positions"][:] = 1, np.arange(length)
    b["unit_ids"][:] = np.arange(length)
    b["unit_ids"][:, [0, -1]] = -1
    b = {key: np.repeat(value, count, axis=0) for key, value in b.items()}
    return b | {"example_ids": np.arange(count, dtype=np.int32)[:, None]}


def test_the_ledger_finds_quotas_that_always_round_down():
    """By 0.3 tokens an example: within what a rounding to the nearest may be off."""
    settings = Masking()
    row = toy.mask(long_rows(), settings)[1]
    assert row["expected_fraction"][0] == pytest.approx(2_000 * 9.3)
    Ledger(settings).add(row, 0.15, 2_000, 1)
    down = {"asked_fraction": (2_000 * 9.0, row["asked_fraction"][1])}
    with pytest.raises(DivergedError, match="quotas sum to 18000, and 18600 are expected"):
        Ledger(settings).add(row | down, 0.15, 2_000, 1)


def test_the_ledger_expects_a_token_of_the_shortest():
    """One token in each example: 15 % of it is expected to be one, by either rounding."""
    for rounding in ("unbiased", "nearest"):
        settings = Masking(rounding=rounding)
        row = toy.mask(long_rows(length=3), settings)[1]
        assert row["asked_fraction"][0] == 2_000
        assert row.get("expected_fraction", (2_000, 0))[0] == 2_000
        Ledger(settings).add(row, 0.15, 2_000, 1)


def test_totals_continue_over_a_resume():
    settings = Masking()
    rows = list(counts(settings))
    whole, first = Ledger(settings), Ledger(settings)
    for step, row in enumerate(rows):
        whole.add(row, 0.15, 256, step)
    for row in rows[:2]:
        first.add(row, 0.15, 256, 0)
    second = Ledger(settings, totals=first.totals)
    for row in rows[2:]:
        second.add(row, 0.15, 256, 2)
    assert second.totals == whole.totals
