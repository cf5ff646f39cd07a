"""Each file of frozen numbers has the rows that the net knows, and no others."""

import pytest

from tests.net import golden, make


@pytest.mark.parametrize("part", make.ROWS_OF)
def test_every_row_is_frozen(part):
    assert list(golden.read(part)) == make.ROWS_OF[part]
