"""The ledger accepts what the config says and stops what it does not, each known bug planted once."""

from __future__ import annotations

import pytest

from bert_jax.errors import DivergedError
from bert_jax.knobs import Masking
from bert_jax.ledger import Ledger
from tests import toy


def counts(settings: Masking, batches: int = 4, longest_unit: int = 1):
    for seed in range(batches):
        yield toy.mask(toy.batch(256, 64, seed=seed, longest_unit=longest_unit), settings, seed)[1]


@pytest.mark.parametrize("rate", [0.05, 0.15, 0.4, 0.8])
@pytest.mark.parametrize("unit", ["token", "word"])
@pytest.mark.parametrize("count", ["eligible", "all"])
def test_what_is_configured_passes(rate, unit, count):
    settings = Masking(rate=rate, unit=unit, count=count, max_unit=5)
    ledger = Ledger(settings)
    for step, row in enumerate(counts(settings, longest_unit=1 if unit == "token" else 5)):
        ledger.add(row, rate, 256, step)
    assert ledger.totals["examples"] == 4 * 256


def run_bug(settings: Masking, change) -> None:
    ledger = Ledger(settings)
    for step, row in enumerate(counts(settings)):
        ledger.add({**row, **change(row)}, settings.rate, 256, step)


def test_a_cap_on_predictions_is_found():
    def cap(row):
        return {"masked_fraction": (row["masked_fraction"][0] * 0.6, row["masked_fraction"][1])}

    with pytest.raises(DivergedError, match="tokens selected"):
        run_bug(Masking(rate=0.4), cap)


def test_selecting_special_tokens_too_is_found():
    def more(row):  # [CLS] and [SEP] selected like any other: 15 % of two more tokens an example
        return {"masked_fraction": (row["masked_fraction"][0] + 0.15 * 512, row["masked_fraction"][1])}

    with pytest.raises(DivergedError, match="tokens selected"):
        run_bug(Masking(), more)


def test_a_split_of_80_2_18_is_found():
    def skew(row):
        n = row["random_fraction"][1]
        return {"random_fraction": (0.02 * n, n), "kept_fraction": (0.18 * n, n)}

    with pytest.raises(DivergedError, match="share 'random'"):
        run_bug(Masking(), skew)


def test_quotas_of_another_rate_are_found():
    ledger = Ledger(Masking(rate=0.4))
    row = next(counts(Masking(rate=0.329)))  # what sampling with replacement makes of a nominal 40 %
    with pytest.raises(DivergedError, match="quotas sum to"):
        ledger.add(row, 0.4, 256, 1)


def test_totals_continue_over_a_resume():
    settings = Masking()
    rows = list(counts(settings))
    whole, first = Ledger(settings), Ledger(settings)
    for step, row in enumerate(rows):
        whole.add(row, 0.15, 256, step)
    for row in rows[:2]:
        first.add(row, 0.15, 256, 0)
    second = Ledger(settings, first.totals)
    for row in rows[2:]:
        second.add(row, 0.15, 256, 2)
    assert second.totals == whole.totals
