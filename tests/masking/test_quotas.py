"""Quotas against Python's whole numbers and fractions; slots against the rows that need most."""

import itertools
import math
from fractions import Fraction

import pytest

from bert_jax.config.knobs import Masking
from bert_jax.masking import quotas
from tests.masking.by_hand import LAWS, PHASES


@pytest.mark.parametrize("rate", [0.05, 0.15, 0.15000001, 0.3, 0.4, 0.5, 0.8, 1.0])
def test_quotas_nearest_are_pythons_rounding(rate):
    whole, chance = quotas.selection_quotas(Masking(rounding="nearest"), rate, 512)
    assert whole.tolist() == [0] + [max(1, round(n * rate)) for n in range(1, 513)]
    assert not chance.any()


@pytest.mark.parametrize("rate", [0.05, 0.15, 0.29, 0.4, 0.7, 1.0])
def test_quotas_unbiased_have_the_exact_mean(rate):
    """The product of fractions, but for 2**-33, and whole if the product is whole."""
    whole, chance = quotas.selection_quotas(Masking(), rate, 512)
    for n in range(1, 513):
        exact = max(Fraction(1), n * Fraction(str(rate)))
        assert abs(int(whole[n]) + Fraction(int(chance[n]), 2**32) - exact) <= Fraction(1, 2**33)
        assert exact.denominator > 1 or (whole[n], chance[n]) == (exact, 0)


@pytest.mark.parametrize("examples", [1, 2, 3])
@pytest.mark.parametrize(
    "settings", [Masking(rate=0.15), Masking(rate=0.4, unit="word", max_unit=3)]
)
def test_count_slots_is_the_most_of_all_divisions(settings, examples):
    """Every division of 14 tokens, of at least 3 an example, tried."""
    most = []
    for sizes in itertools.product(range(3, 15), repeat=examples):
        if sum(sizes) <= 14:
            needed = [math.ceil(n * settings.rate - 1e-9) for n in sizes]
            overhang = 0 if settings.unit == "token" else 2
            slots = [min(n, max(1, q) + overhang) for n, q in zip(sizes, needed, strict=True)]
            most.append(sum(slots))
    assert quotas.count_slots(settings, 14, examples) == max(most)


def test_count_slots_covers_the_highest_rate():
    assert quotas.count_slots(PHASES, 128) == math.ceil(0.45 * 128)
    skipping = Masking(rate=0.2, unit="word", overflow="skip", max_unit=512)
    assert quotas.count_slots(skipping, 64) == math.ceil(0.2 * 64)
    uniform = LAWS["uniform"]
    assert quotas.count_slots(uniform, 128) == 65  # float32 may round 64 up
    views = Masking(rate=0.2, prediction_rate=0.6, unit="word", max_unit=5)
    assert quotas.count_slots(views, 40) == 8 + 2 * 4  # and what the view before has left
