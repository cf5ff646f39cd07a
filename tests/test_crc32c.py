"""The checksum, against RFC 3720 and another implementation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboardX import crc32c as theirs

from bert_jax.interop import crc32c

ROW = 4 * crc32c.LANES


def of(data: bytes) -> int:
    return crc32c.crc32c(np.frombuffer(data, np.uint8))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
    ],
)
def test_published_values(data, expected):
    assert of(data) == expected


@settings(max_examples=15)  # the other one takes its time
@given(st.integers(0, 3), st.integers(-5, 5), st.integers(0, 99))
def test_rows_and_rests_are_one_sum(rows, more, seed):
    data = np.random.default_rng(seed).bytes(max(rows * ROW + more, 0))
    assert of(data) == theirs.crc32c(data)


@given(st.binary(max_size=20))
def test_the_stored_form_is_tensorflows(data):
    assert crc32c.masked(of(data)) == (((of(data) >> 15) | (of(data) << 17)) + 0xA282EAD8) % 2**32
