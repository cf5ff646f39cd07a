"""Positions by formula against their papers."""

import numpy as np

from bert_jax.models import positions


def test_slopes_are_the_published_ones():
    """Of 8 and 16 heads as in the paper's examples, of 3 and 12 by the published code."""
    whole = [-1, -2, -3, -4, -5, -6, -7, -8]
    others = {3: [-4, -8, -2], 12: [*whole, -0.5, -1.5, -2.5, -3.5]}
    for heads, powers in (others | {8: whole, 16: [-0.5 * i for i in range(1, 17)]}).items():
        np.testing.assert_allclose(positions.make_slopes(heads), np.exp2(powers), rtol=1e-6)
