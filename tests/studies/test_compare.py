"""Differences from a baseline: the bootstrap over examples; test_document.py has intervals."""

import math

import numpy as np
import pytest

from bert_jax.evaluation import metrics
from bert_jax.studies.report import compare
from tests import study_workdir
from tests.studies.views import read_view


def resample(cells: dict[str, tuple[np.ndarray, np.ndarray, bytes]]) -> dict[str, np.ndarray]:
    """Resample the examples of cells, and return the draws of each."""
    return {name: one.values for name, one in compare.resample_examples(cells).items()}


@pytest.mark.parametrize("pooled", [10_000, 100])
def test_resamples_have_the_error_of_a_ratio(pooled, monkeypatch):
    """By the delta method: the root of the summed squared residuals over the summed counts."""
    monkeypatch.setattr(compare, "POOLED", pooled)  # more examples are drawn in groups
    rng = np.random.default_rng(2)
    counts = rng.integers(1, 20, 400).astype(float)
    sums = counts * rng.normal(5, 2, 400)
    residuals = sums - counts * sums.sum() / counts.sum()
    analytic = math.sqrt((residuals**2).sum()) / counts.sum()
    found = resample({"a": (sums, counts, b"")})["a"]
    assert found.std() == pytest.approx(analytic, rel=0.04 if pooled > 400 else 0.15)
    assert found.mean() == pytest.approx(sums.sum() / counts.sum(), abs=analytic / 10)


def test_resamples_are_alike_for_all_cells():
    """What two arms share cancels in each resample, however much the examples differ."""
    rng = np.random.default_rng(4)
    counts = rng.integers(1, 9, 200).astype(float)
    base = counts * rng.normal(0, 10, 200)
    found = resample({"a": (base + 0.25 * counts, counts, b"x"), "b": (base, counts, b"x")})
    assert np.allclose(found["a"] - found["b"], 0.25)
    assert found["b"].std() > 0.1


@pytest.mark.parametrize("change", ["other", "unnamed", "fewer"])
def test_differences_resample_only_equal_examples(change, tmp_path):
    """Equal counts are no sign of equal examples: of pairs of sentences each counts one."""
    sizes = {"2 x 64": study_workdir.SIZES["2 x 64"]}
    study = study_workdir.masking_rate((0.15, 0.4), sizes)
    place = study_workdir.build(tmp_path, study, examples=20, lines=4)
    odd = next(cell for cell in place.read_cells() if cell.labels["masking.rate"] == "40 %")
    each = dict(place.read_arrays(odd, "blimp"))
    identity = each.pop("examples")
    if change == "other":
        each["examples"] = metrics.digest([b"others"])
    elif change == "fewer":
        each = {name: values[:-1] for name, values in each.items()} | {"examples": identity}
    with place.arrays_path(odd.id, "blimp").open("wb") as file:
        np.savez(file, **each)
    view = read_view(place)
    families = view.families("masking.rate")
    (one,) = compare.compare_families(view.examples, families, "15 %", "blimp/accuracy")
    assert (one.pairs, one.examples) == (3, 0)
    assert math.isfinite(one.low)
