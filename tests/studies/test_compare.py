"""Differences from a baseline: intervals by hand, the bootstrap over examples, and holes."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from bert_jax.evaluation import metrics
from bert_jax.studies.folder import StudyFolder
from bert_jax.studies.report import compare
from bert_jax.studies.report.view import View
from tests import study_workdir
from tests.studies.views import LOSS, halves_by_hand, list_values, read_view


@pytest.mark.parametrize("pooled", [10_000, 100])
def test_resamples_have_the_error_of_a_ratio(pooled, monkeypatch):
    """By the delta method: the root of the summed squared residuals over the summed counts."""
    monkeypatch.setattr(compare, "POOLED", pooled)  # more examples are drawn in groups
    rng = np.random.default_rng(2)
    counts = rng.integers(1, 20, 400).astype(float)
    sums = counts * rng.normal(5, 2, 400)
    residuals = sums - counts * sums.sum() / counts.sum()
    analytic = math.sqrt((residuals**2).sum()) / counts.sum()
    found = compare.resample_examples({"a": (sums, counts, b"")})["a"].values
    assert found.std() == pytest.approx(analytic, rel=0.04 if pooled > 400 else 0.15)
    assert found.mean() == pytest.approx(sums.sum() / counts.sum(), abs=analytic / 10)


def test_resamples_are_alike_for_all_cells():
    """What two arms share cancels in each resample, however much the examples differ."""
    rng = np.random.default_rng(4)
    counts = rng.integers(1, 9, 200).astype(float)
    base = counts * rng.normal(0, 10, 200)
    cells = {"a": (base + 0.25 * counts, counts, b"x"), "b": (base, counts, b"x")}
    found = compare.resample_examples(cells)
    assert np.allclose(found["a"].values - found["b"].values, 0.25)
    assert found["b"].values.std() > 0.1


def build(folder: Path, state=study_workdir.finish, seeds=(0, 1, 2)) -> StudyFolder:
    study = study_workdir.masking_rate((0.15, 0.4), study_workdir.ONE_SIZE, seeds)
    return study_workdir.build(folder, study, state, examples=20, lines=4)


def compare_rates(view: View, metric: str = LOSS) -> list[compare.Difference]:
    """Compare the rates of a study with 15 %."""
    families = view.families("masking.rate")
    return compare.compare_families(view.resample(metric), families, "15 %", metric)


def test_differences_pair_seeds_and_other_axes(view):
    """Seeds move the loss by 0.05 and cells by 0.008, as the workdir is built: only these count."""
    losses = list_values(view)
    found = {(one.family, one.point): one for one in compare_rates(view)}
    rates, sizes = ("15 %", "20 %", "80 %"), ("2 x 64", "2 x 128")
    assert list(found) == [(size, rate) for size in sizes for rate in rates[1:]]
    examples = stats.norm.isf((1 - math.sqrt(0.95)) / 2)  # of two errors, each on its own
    for size in sizes:
        values = np.array([[losses[size, rate, seed] for seed in range(4)] for rate in rates])
        for i, half in enumerate(halves_by_hand(values, 0.05), 1):
            one = found[size, rates[i]]
            assert one.mean == pytest.approx((values[i] - values[0]).mean())
            half = math.hypot(half, examples * one.examples_error)
            halves = one.high - one.mean, one.mean - one.low
            assert halves == pytest.approx((half, half))
            assert (one.pairs, one.holes, one.examples, one.points) == (4, 0, 300, 3)
            assert 0.5 < one.spread / study_workdir.OWN_DEVIATION < 2
            assert one.examples_error > 0


@pytest.mark.fault(24)
def test_differences_leave_out_pairs_with_a_hole(tmp_path):
    """The mean is of whole pairs, even if the seed of a hole was a bad one for both arms."""
    lost = {2: "failed", 3: "diverged", 4: "trained", 5: "untouched"}  # by seed

    def hole(cell):
        return lost.get(cell.seed, "done") if cell.labels["masking.rate"] == "40 %" else "done"

    view = read_view(build(tmp_path, hole, range(8)))
    (one,) = compare_rates(view)
    assert (one.pairs, one.holes) == (4, 4)
    losses, size = list_values(view), "2 x 64"
    kept = [losses[size, "40 %", seed] - losses[size, "15 %", seed] for seed in (0, 1, 6, 7)]
    assert one.mean == pytest.approx(np.mean(kept))


@pytest.mark.parametrize("change", ["other", "unnamed", "fewer"])
def test_differences_resample_only_equal_examples(change, tmp_path):
    """Equal counts are no sign of equal examples: of pairs of sentences each counts one."""
    place = build(tmp_path)
    odd = next(cell for cell in place.read_cells() if cell.labels["masking.rate"] == "40 %")
    each = dict(place.read_arrays(odd, "blimp"))
    identity = each.pop("examples")
    if change == "other":
        each["examples"] = metrics.digest([b"others"])
    elif change == "fewer":
        each = {name: values[:-1] for name, values in each.items()} | {"examples": identity}
    with place.arrays_path(odd.id, "blimp").open("wb") as file:
        np.savez(file, **each)
    (one,) = compare_rates(read_view(place), "blimp/accuracy")
    assert (one.pairs, one.examples) == (3, 0)
    assert math.isfinite(one.low)
