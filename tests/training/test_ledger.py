"""The ledger accepts what the config says and stops all else, each known bug planted once."""

import contextlib
import functools
from collections.abc import Iterable, Iterator

import pytest
from scipy.stats import binom

from bert_jax.config.knobs import Masking
from bert_jax.errors import DivergedError
from bert_jax.training.ledger import Ledger
from tests import tiny
from tests.masking import by_hand

make_batch = functools.cache(tiny.batch)


def count_batches(settings: Masking, longest_unit: int = 1) -> Iterator[dict]:
    """Yield the counts of four batches of 256 rows."""
    for seed in range(4):
        batch = make_batch(256, 64, seed=seed, longest_unit=longest_unit)
        yield tiny.mask(batch, settings, seed)[1]


def add_all(ledger: Ledger, rows: Iterable[dict], rate: float = 0.15) -> Ledger:
    for step, row in enumerate(rows):
        ledger.add(row, rate, 256, step)
    return ledger


def make_skipping(**settings) -> Masking:
    return Masking(unit="word", overflow="skip", max_unit=512, **settings)


@pytest.mark.parametrize("rate", [0.05, 0.8])
@pytest.mark.parametrize("unit", ["token", "word"])
@pytest.mark.parametrize("count", ["eligible", "all"])
@pytest.mark.parametrize("rounding", ["unbiased", "nearest"])
def test_ledger_passes_what_is_configured(rate, unit, count, rounding):
    settings = Masking(rate=rate, unit=unit, count=count, max_unit=5, rounding=rounding)
    rows = count_batches(settings, 1 if unit == "token" else 5)
    assert add_all(Ledger(settings), rows, rate).totals["examples"] == 4 * 256


@pytest.mark.parametrize("rate", [0.02, 0.15, 0.8])
@pytest.mark.parametrize("prediction", [None, 0.02])
def test_ledger_passes_skipped_words(rate, prediction):
    settings = make_skipping(rate=rate, prediction_rate=prediction)
    totals = add_all(Ledger(settings), count_batches(settings, 5), rate).totals
    assert 0 < totals["quota"] - totals["masked"] <= totals["shortfall"]


@pytest.mark.parametrize("fault", [1, -1])
def test_ledger_finds_one_token_beyond_skipping(fault):
    settings = make_skipping(rate=0.15)
    row = tiny.mask(tiny.batch(64, 256, longest_unit=5), settings)[1]
    quota = row["quota_fraction"][0]
    short = row["shortfall_fraction"][0]
    assert quota - row["masked_fraction"][0] <= short < 0.02 * quota
    planted = quota + 1 if fault > 0 else quota - short - 1
    wrong = {**row, "masked_fraction": (planted, row["masked_fraction"][1])}
    with pytest.raises(DivergedError, match="tokens selected"):
        Ledger(settings).add(wrong, 0.15, 256, 1)


def test_ledger_finds_a_run_that_does_not_skip():
    fair = tiny.mask(tiny.batch(256, 64, longest_unit=5), Masking(unit="word", rate=0.15))[1]
    short = {"shortfall_fraction": (0.0, 1.0), "predict_shortfall_fraction": (0.0, 1.0)}
    with pytest.raises(DivergedError, match="tokens selected"):
        Ledger(make_skipping(rate=0.15)).add({**fair, **short}, 0.15, 256, 1)


@pytest.mark.parametrize(("slots", "fits"), [(8, False), (26, True)])
def test_ledger_finds_a_cap_on_prediction_slots(slots, fits):
    settings = Masking(rate=0.4)
    row = tiny.mask(tiny.batch(256, 64), settings, slots=slots)[1]
    refused = pytest.raises(DivergedError, match="tokens predicted")
    with contextlib.nullcontext() if fits else refused:
        Ledger(settings).add(row, 0.4, 256, 1)


def test_ledger_accounts_for_a_prediction_rate():
    settings = Masking(rate=0.4, prediction_rate=0.2)
    totals = add_all(Ledger(settings), count_batches(settings), 0.4).totals
    assert totals["predicted"] == totals["predict_quota"] < 0.6 * totals["masked"]


def test_ledger_allows_static_masks_to_repeat():
    """The same 64 examples 3,000 times: two sigma of theirs would be a hundred of fresh draws."""
    settings = Masking(dupe_factor=1)

    def find_deviation(row: dict) -> float:
        total, n = row["kept_fraction"]
        return abs(total - 0.1 * n) / (0.09 * n) ** 0.5

    rows = (tiny.mask(tiny.batch(64, 64, s), settings, s)[1] for s in range(40))
    row = next(row for row in rows if find_deviation(row) > 1.5)
    add_all(Ledger(settings, distinct=64), [row] * 3_000)
    with pytest.raises(DivergedError, match="tokens 'kept' sum"):
        add_all(Ledger(Masking()), [row] * 3_000)


@pytest.mark.parametrize("rate", [0.15, 0.9])
def test_ledger_counts_specials_that_count(rate):
    """Many separators a row, as full sentences of short documents have them."""
    settings = Masking(rate=rate, count="all")
    ledger = Ledger(settings)
    for seed in range(4):
        b = tiny.batch(64, 64, seed)
        b["unit_ids"][:, 2::3] = -1
        ledger.add(tiny.mask(b, settings, seed)[1], rate, 64, seed)


def select_specials(row: dict) -> dict:
    """Select [CLS] and [SEP] like any other: 15 % of two more tokens an example."""
    total, count = row["masked_fraction"]
    return {"masked_fraction": (total + 0.15 * 512, count)}


def skew_split(row: dict) -> dict:
    n = row["random_fraction"][1]
    return {"random_fraction": (0.02 * n, n), "kept_fraction": (0.18 * n, n)}


@pytest.mark.parametrize(
    ("change", "said"), [(select_specials, "tokens selected"), (skew_split, "tokens 'random' sum")]
)
def test_ledger_finds_planted_bugs(change, said):
    rows = [{**row, **change(row)} for row in count_batches(Masking())]
    with pytest.raises(DivergedError, match=said):
        add_all(Ledger(Masking()), rows)


@pytest.mark.parametrize("share", [0.001, 0.01, 0.1, 0.5])
def test_ledger_seldom_stops_few_counts(share):
    """By the exact distribution of the tokens that are kept of n selected tokens."""
    ledger = Ledger(Masking(replace=(1 - share, 0.0, share)))
    for n in (1, 3, 10, 30, 100, 300):
        ledger.totals["masked"] = n
        (check,) = (check for check in ledger.list_checks() if "'kept'" in check.what)
        stopped = [kept for kept in range(n + 1) if not check._replace(realised=kept).holds]
        assert binom.pmf(stopped, n, share).sum() < 2e-7


def test_ledger_finds_quotas_of_another_rate():
    row = next(count_batches(Masking(rate=0.329)))  # a nominal 40 % drawn with replacement
    with pytest.raises(DivergedError, match="quotas sum to"):
        Ledger(Masking(rate=0.4)).add(row, 0.4, 256, 1)


def test_ledger_finds_quotas_that_always_round_down():
    """By 0.3 of 9.3 tokens an example: within what a rounding to the nearest may be off."""
    row = tiny.mask(by_hand.equal_rows(2_000, 64), Masking())[1]
    assert row["expected_fraction"][0] == pytest.approx(2_000 * 9.3)
    Ledger(Masking()).add(row, 0.15, 2_000, 1)
    down = {"asked_fraction": (2_000 * 9.0, row["asked_fraction"][1])}
    with pytest.raises(DivergedError, match="quotas sum to 18000, and 18600 are expected"):
        Ledger(Masking()).add(row | down, 0.15, 2_000, 1)


@pytest.mark.parametrize("rounding", ["unbiased", "nearest"])
def test_ledger_expects_one_token_of_the_shortest(rounding):
    settings = Masking(rounding=rounding)
    row = tiny.mask(by_hand.equal_rows(2_000, 3), settings)[1]
    assert row["asked_fraction"][0] == 2_000
    Ledger(settings).add(row, 0.15, 2_000, 1)
