"""Paired differences: closed forms, the bootstrap against analytic errors, coverage, and what a hole may not do."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from bert_jax import statistics
from bert_jax.studies import collect, compare
from tests import study_workdir

SMALL = {"rates": (0.15, 0.4), "sizes": {"2 x 64": study_workdir.SIZES["2 x 64"]}}


def resampled(sums: np.ndarray, counts: np.ndarray, draws: int = 4_000) -> np.ndarray:
    """[cells, draws] of cells that share their examples."""
    arrays = {f"{i}": (row, counts) for i, row in enumerate(sums)}
    return np.stack([one.values for one in compare.replicates(arrays, draws).values()])


# --- closed forms ---------------------------------------------------------------------------------------------------


def test_three_pairs_by_hand():
    """Differences 1, 2, 3: mean 2, standard error 1 / sqrt(3), and t = 4.302653 with two degrees of freedom."""
    found = statistics.paired([11.0, 22.0, 33.0], [10.0, 20.0, 30.0])
    assert (found.n, found.mean) == (3, 2.0)
    assert found.error == pytest.approx(1 / math.sqrt(3))
    assert found.high - 2 == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)
    assert found.low == pytest.approx(4 - found.high)
    assert found.unpaired == pytest.approx(math.sqrt(121 / 3 + 100 / 3))


def test_the_interval_is_scipys_paired_one():
    rng = np.random.default_rng(0)
    a, b = rng.normal(1, 2, 7), rng.normal(0, 1, 7)
    found, theirs = statistics.paired(a, b), stats.ttest_rel(a, b).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx(tuple(theirs))


def test_one_pair_has_no_interval():
    found = statistics.paired([2.0], [1.5])
    assert (found.mean, found.low, found.high) == (0.5, -math.inf, math.inf)
    assert math.isnan(found.error)
    with pytest.raises(ValueError, match="no pairs"):
        statistics.paired([1.0, 2.0], [1.0])


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9, 0.99])
def test_pairing_helps_by_the_root_of_what_is_not_shared(correlation):
    """With equal variances the ratio of standard errors is sqrt(1 - correlation)."""
    rng = np.random.default_rng(1)
    common, own = rng.normal(size=20_000), rng.normal(size=(2, 20_000))
    a, b = math.sqrt(correlation) * common + math.sqrt(1 - correlation) * own
    found = statistics.paired(a, b)
    assert found.error / found.unpaired == pytest.approx(math.sqrt(1 - correlation), rel=0.03)


# --- bootstrap ------------------------------------------------------------------------------------------------------


def test_of_examples_alone_the_error_is_that_of_a_ratio():
    """By the delta method: the root of the summed squared residuals over the summed counts."""
    rng = np.random.default_rng(2)
    counts = rng.integers(1, 20, 400).astype(float)
    sums = counts * rng.normal(5, 2, 400)
    residuals = sums - counts * sums.sum() / counts.sum()
    analytic = math.sqrt((residuals**2).sum()) / counts.sum()
    found = resampled(sums[None], counts)[0]
    assert found.std() == pytest.approx(analytic, rel=0.04)
    assert found.mean() == pytest.approx(sums.sum() / counts.sum(), abs=analytic / 10)


@pytest.mark.parametrize("seeds", [2, 3, 5, 9])
def test_of_seeds_alone_the_error_is_that_of_a_mean(seeds):
    """Without a correction it would be less by (n - 1) / n: a third of the variance of three seeds."""
    values = np.random.default_rng(seeds).normal(0, 1, seeds)
    found = compare.two_level(np.repeat(values[:, None], 40_000, axis=1))
    assert found.std() == pytest.approx(values.std(ddof=1) / math.sqrt(seeds), rel=0.02)
    assert found.mean() == pytest.approx(values.mean(), abs=0.02)


def test_both_levels_add_up():
    """Differences a seed + an example: the variances of the two means are added."""
    rng = np.random.default_rng(3)
    seeds, examples = rng.normal(0, 0.05, 6), rng.normal(0, 1, 300)
    drawn = compare.two_level(resampled(seeds[:, None] + examples[None], np.ones(300), draws=20_000))
    analytic = seeds.var(ddof=1) / 6 + examples.var() / 300
    assert drawn.var() == pytest.approx(analytic, rel=0.05)


def test_all_cells_are_seen_on_the_same_resample():
    """What is common to two arms cancels in every single resample, however much the examples differ."""
    rng = np.random.default_rng(4)
    counts = rng.integers(1, 9, 200).astype(float)
    base = counts * rng.normal(0, 10, 200)
    known = compare.replicates({"a": (base + 0.25 * counts, counts), "b": (base, counts)}, 500)
    assert np.allclose(known["a"].values - known["b"].values, 0.25)
    assert known["b"].values.std() > 0.1


def test_other_examples_are_another_group():
    ones = np.ones(50)
    known = compare.replicates({"a": (ones, ones), "b": (ones, ones), "c": (ones, 2 * ones)}, 10)
    assert known["a"].group == known["b"].group != known["c"].group
    assert np.allclose(known["c"].values, 0.5)


def test_many_examples_are_pooled_without_changing_the_error(monkeypatch):
    rng = np.random.default_rng(5)
    sums = rng.normal(0, 1, 5_000)
    monkeypatch.setattr(compare, "POOLED", 700)
    found = resampled(sums[None], np.ones(5_000), draws=3_000)[0]
    assert found.std() == pytest.approx(sums.std() / math.sqrt(5_000), rel=0.1)
    assert found.mean() == pytest.approx(sums.mean(), abs=found.std() / 10)


def test_weights_are_those_of_draws_with_replacement():
    weights = np.concatenate(list(compare._weights(30, 5_000, seed=0)))
    assert weights.shape == (5_000, 30)
    assert np.all(weights.sum(axis=1) == 30)
    assert weights.var() == pytest.approx(29 / 30, rel=0.05)  # binomial(30, 1/30)
    again = np.concatenate(list(compare._weights(30, 5_000, seed=0)))
    assert np.array_equal(weights, again)


@pytest.mark.parametrize(("seeds", "spread"), [(3, 0.0), (3, 0.5), (8, 0.5)])
def test_intervals_cover_what_they_say(seeds, spread):
    """Of 400 experiments with seeds and examples drawn anew: the t interval covers what these examples give on average,
    the other what all examples give, whichever of the two matter."""
    rng = np.random.default_rng(6)
    size, truth, covered = 40, 0.3, np.zeros((400, 2), bool)
    weights = np.concatenate(list(compare._weights(size, 400, seed=0))) / size
    for number in range(400):
        examples = rng.normal(0, spread, size)
        found = truth + rng.normal(0, 0.1, seeds)[:, None] + examples
        interval = statistics.paired(found.mean(axis=1), np.zeros(seeds))
        half = compare.resampled_half(compare.two_level(found @ weights.T, seed=number).std(), interval)
        covered[number] = interval.low <= truth + examples.mean() <= interval.high, abs(interval.mean - truth) <= half
    assert covered.mean(axis=0) == pytest.approx([0.95, 0.95], abs=0.03)


def test_the_second_interval_lies_between_students_and_the_normal_one():
    seeds = statistics.paired([1.0, 2.0, 3.0], [0.0, 0.0, 0.0])
    assert compare.resampled_half(seeds.error, seeds) == pytest.approx(seeds.high - seeds.mean)  # examples add nothing
    assert compare.resampled_half(100 * seeds.error, seeds) == pytest.approx(1.96 * 100 * seeds.error, rel=1e-3)
    alone = statistics.paired([1.0], [0.0])
    assert compare.resampled_half(0.5, alone) == pytest.approx(0.98, rel=1e-3)


# --- from a workdir -------------------------------------------------------------------------------------------------


def compared(place, metric: str = "validation/mlm_loss", baseline: str = "15 %") -> dict[tuple, compare.Difference]:
    found = collect.results(place)
    families = collect.families(place.read_study(), found, "masking.rate")
    listed = compare.differences(place, families, baseline, [metric], draws=500)
    return {(one.family, one.point): one for one in listed}


def test_pairs_share_their_seed_and_the_other_axes(tmp_path):
    """Seeds move the loss by 0.05 and cells by 0.008 (as the workdir is built): pairs see only the latter."""
    study = study_workdir.masking_rate(rates=(0.15, 0.2, 0.4), seeds=range(6))
    place = study_workdir.build(tmp_path, study, examples=50, lines=4)
    cells = {(c.entry.labels["size"], c.entry.labels["masking.rate"], c.entry.seed): c for c in collect.results(place)}
    found = compared(place)
    assert found.keys() == {(size, rate) for size in ("2 x 64", "2 x 128") for rate in ("20 %", "40 %")}
    for (size, rate), one in found.items():
        arm, base = (
            np.array([cells[size, label, seed].metrics["validation/mlm_loss"] for seed in range(6)])
            for label in (rate, "15 %")
        )
        assert one.mean == pytest.approx(np.mean(arm - base))
        assert one.error == pytest.approx(np.std(arm - base, ddof=1) / math.sqrt(6))
        assert one.unpaired == pytest.approx(math.sqrt((arm.var(ddof=1) + base.var(ddof=1)) / 6))
        assert (one.pairs, one.holes, one.examples) == (6, 0, 50)
        assert one.ratio < 0.6
        assert one.resampled_low < one.mean < one.resampled_high
        assert one.resampled_error > one.error / 2
    assert compared(place) == found  # the same numbers from the same files


def test_what_the_same_examples_are_worth_is_the_error_they_share(tmp_path):
    """By the delta method, of the mean over seeds: what examples do to both arms leaves the difference."""
    place = study_workdir.build(tmp_path, study_workdir.masking_rate(**SMALL), examples=200, lines=4)
    found = compared(place)["2 x 64", "40 %"]
    rows = {"15 %": [], "40 %": []}
    for entry in place.cells():
        each = place.read_each(entry, "validation")
        sums, counts = each["mlm_loss.sum"], each["mlm_loss.count"]
        rows[entry.labels["masking.rate"]].append((sums - counts * sums.sum() / counts.sum()) / counts.sum())
    base, arm = (np.mean(rows[label], axis=0) for label in ("15 %", "40 %"))
    apart = math.sqrt((arm**2).sum() + (base**2).sum())
    assert found.examples_error == pytest.approx(math.sqrt(((arm - base) ** 2).sum()), rel=0.15)
    assert found.examples_unpaired == pytest.approx(apart, rel=0.15)
    assert found.examples_error < found.examples_unpaired


@pytest.mark.parametrize("state", ["failed", "diverged", "trained", "untouched"])
def test_a_hole_takes_its_pair_along(state, tmp_path):
    """The mean is of whole pairs: that the seed of the hole was a bad one for both arms does not enter it."""
    study = study_workdir.masking_rate(**SMALL, seeds=(0, 1, 2, 3))

    def hole(cell):
        return state if (cell.labels["masking.rate"], cell.seed) == ("40 %", 2) else "done"

    whole = compared(study_workdir.build(tmp_path / "whole", study, examples=20, lines=4))["2 x 64", "40 %"]
    place = study_workdir.build(tmp_path / "holed", study, hole, examples=20, lines=4)
    one = compared(place)["2 x 64", "40 %"]
    assert (whole.pairs, whole.holes, one.pairs, one.holes) == (4, 0, 3, 1)
    cells = {(c.entry.labels["masking.rate"], c.entry.seed): c for c in collect.results(place)}
    kept = [
        cells["40 %", seed].metrics["validation/mlm_loss"] - cells["15 %", seed].metrics["validation/mlm_loss"]
        for seed in (0, 1, 3)
    ]
    assert one.mean == pytest.approx(np.mean(kept))
    assert one.mean != pytest.approx(whole.mean, abs=1e-9)


def test_without_values_of_each_example_only_seeds_speak(tmp_path):
    place = study_workdir.build(tmp_path, study_workdir.masking_rate(**SMALL), examples=20, lines=4)
    one = compared(place, "pos/accuracy")["2 x 64", "40 %"]
    assert (one.pairs, one.examples) == (3, 0)
    assert math.isfinite(one.low)
    assert math.isnan(one.resampled_low)


def test_cells_with_other_examples_are_not_resampled_together(tmp_path):
    place = study_workdir.build(tmp_path, study_workdir.masking_rate(**SMALL), examples=20, lines=4)
    odd = next(c.entry for c in collect.results(place) if c.entry.labels["masking.rate"] == "40 %")
    each = place.read_each(odd, "validation")
    with place.each(odd.id, "validation").open("wb") as file:
        np.savez(file, **{name: values[:-1] for name, values in each.items()})
    one = compared(place)["2 x 64", "40 %"]
    assert (one.pairs, one.examples) == (3, 0)
    assert math.isfinite(one.low)


def test_a_study_without_its_baseline_has_no_differences(tmp_path):
    place = study_workdir.build(tmp_path, study_workdir.masking_rate(**SMALL), lambda cell: "untouched", lines=4)
    assert [one.pairs for one in compared(place).values()] == [0]
    assert compared(place, baseline="99 %") == {}
