"""Reading times: what their file must hold, and the variance that surprisals explain."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bert_jax.errors import DataError
from bert_jax.suites import reading
from tests.texts import ROOT

DATA = ROOT / "tests" / "golden" / "babylm" / "full_eval" / "reading"


@pytest.mark.fault(12)
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("prev_length", "length_before", "no column 'prev_length'"),
        (",1,", ",one,", "could not convert string to float: 'one'"),
    ],
)
def test_reading_load_names_a_damaged_row(tmp_path, old, new, said):
    text = (DATA / reading.FILE).read_text()
    (tmp_path / reading.FILE).write_text(text.replace(old, new, 1))
    with pytest.raises(DataError, match=rf"data\.csv:2: {said}"):
        reading.load_words(tmp_path)


def test_explain_variance_is_a_partial_correlation():
    rng = np.random.default_rng(0)
    controls = [*rng.normal(size=(2, 80))]
    surprisal = rng.normal(size=80) + controls[0]
    times = 3 + 2 * controls[1] - controls[0] * controls[1] + surprisal + rng.normal(size=80)
    times[7] = controls[1][9] = np.nan
    kept = np.isfinite(times + controls[1])
    a, b = (values[kept] for values in controls)
    basis = np.linalg.qr(np.stack([np.ones(78), a, b, a * b], 1))[0]
    rest = [v - basis @ (basis.T @ v) for v in (times[kept], surprisal[kept])]
    wanted = np.corrcoef(*rest)[0, 1] ** 2
    assert reading.explain_variance(times, controls, surprisal) == pytest.approx(wanted)
    few = [values[:5] for values in (times, *controls, surprisal)]
    assert math.isnan(reading.explain_variance(few[0], few[1:3], few[3]))
