"""Numbers as text."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.reporting import formats


@pytest.mark.parametrize(
    ("value", "percent", "text"),
    [
        (0, False, "0"),
        (1234567, False, "1,234,567"),
        (4.354, False, "4.354"),
        (1e-4, False, "0.0001"),
        (12.3, False, "12.30"),
        (-0.5, False, "-0.500"),
        (0.123, True, "12.3 %"),
        (0.0004, True, "0.040 %"),
    ],
)
def test_numbers_are_written_as_people_do(value, percent, text):
    assert formats.number(value, percent).replace(formats.SPACE, " ") == text


@given(st.floats(1, 1e14))
def test_large_numbers_are_no_powers_of_ten(value):
    rounded = formats.rounded(value, 2)
    for text in (formats.number(value), formats.exact(value), rounded):
        assert re.fullmatch(r"\d{1,3}(,\d{3})*(\.\d+)?", text)
    assert float(rounded.replace(",", "")) == pytest.approx(value, rel=0.05)


@given(st.floats(-1e300, 1e300, allow_nan=False))
def test_exact_numbers_have_six_digits(value):
    assert float(formats.exact(value).replace(",", "")) == pytest.approx(value, rel=1e-5)
    share = formats.exact(value, True).removesuffix(f"{formats.SPACE}%")
    assert float(share) == pytest.approx(100 * value, rel=1e-5)
