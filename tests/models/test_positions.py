"""Positions by formula against their papers."""

import numpy as np
import pytest

from bert_jax.models import positions


@pytest.mark.parametrize(
    ("heads", "powers"),
    [
        (8, [-1, -2, -3, -4, -5, -6, -7, -8]),  # the paper's examples
        (16, [-0.5 * i for i in range(1, 17)]),
        (3, [-4, -8, -2]),
        (12, [-1, -2, -3, -4, -5, -6, -7, -8, -0.5, -1.5, -2.5, -3.5]),  # by the published code
    ],
)
def test_slopes_are_the_published_ones(heads, powers):
    np.testing.assert_allclose(positions.make_slopes(heads), 2.0 ** np.array(powers), rtol=1e-6)
