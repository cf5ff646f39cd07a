"""Paired differences: closed forms, the bootstrap against analytic errors, coverage, and what a
hole may not do.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from bert_jax.evaluation import metrics
from bert_jax.studies.report import collect, compare, intervals
from tests import study_workdir

SMALL = {"rates": (0.15, 0.4), "sizes": {"2 x 64": study_workdir.SIZES["2 x 64"]}}


def resampled(sums: np.ndarray, counts: np.ndarray, draws: int = 4_000) -> np.ndarray:
    """[cells, draws] of cells that share their examples."""
    arrays = {f"{i}": (row, counts, b"") for i, row in enumerate(sums)}
    return np.stack([one.values for one in compare.replicates(arrays, draws).values()])


# --- closed forms ---------------------------------------------------------------------------------


def test_three_pairs_by_hand():
    """Differences 1, 2, 3: mean 2, standard error 1 / sqrt(3), and t = 4.302653 with two degrees of
    freedom.
    """
    found = intervals.paired([11.0, 22.0, 33.0], [10.0, 20.0, 30.0])
    assert (found.n, found.mean) == (3, 2.0)
    assert found.error == pytest.approx(1 / math.sqrt(3))
    assert found.high - 2 == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)
    assert found.low == pytest.approx(4 - found.high)
    assert found.unpaired == pytest.approx(math.sqrt(121 / 3 + 100 / 3))


def test_the_interval_is_scipys_paired_one():
    rng = np.random.default_rng(0)
    a, b = rng.normal(1, 2, 7), rng.normal(0, 1, 7)
    found, theirs = intervals.paired(a, b), stats.ttest_rel(a, b).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx(tuple(theirs))


def test_one_pair_has_no_interval():
    found = intervals.paired([2.0], [1.5])
    assert (found.mean, found.low, found.high) == (0.5, -math.inf, math.inf)
    assert math.isnan(found.error)
    with pytest.raises(ValueError, match="no pairs"):
        intervals.paired([1.0, 2.0], [1.0])


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9, 0.99])
def test_pairing_helps_by_the_root_of_what_is_not_shared(correlation):
    """With equal variances the ratio of standard errors is sqrt(1 - correlation)."""
    rng = np.random.default_rng(1)
    common, own = rng.normal(size=20_000), rng.normal(size=(2, 20_000))
    a, b = math.sqrt(correlation) * common + math.sqrt(1 - correlation) * own
    found = intervals.paired(a, b)
    assert found.error / found.unpaired == pytest.approx(math.sqrt(1 - correlation), rel=0.03)


# --- bootstrap ------------------------------------------------------------------------------------


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


def test_all_cells_are_seen_on_the_same_resample():
    """What is common to two arms cancels in every single resample, however much the examples
    differ.
    """
    rng = np.random.default_rng(4)
    counts = rng.integers(1, 9, 200).astype(float)
    base = counts * rng.normal(0, 10, 200)
    known = compare.replicates(
        {"a": (base + 0.25 * counts, counts, b"x"), "b": (base, counts, b"x")}, 500
    )
    assert np.allclose(known["a"].values - known["b"].values, 0.25)
    assert known["b"].values.std() > 0.1


def test_replicates_of_other_examples_are_another_group():
    """Examples of equal counts are no equal examples."""
    ones = np.ones(50)
    cells = {
        "a": (ones, ones, b"x"),
        "b": (ones, ones, b"x"),
        "c": (ones, 2 * ones, b"x"),
        "d": (ones, ones, b"y"),
    }
    known = compare.replicates(cells, 10)
    assert known["a"].group == known["b"].group
    assert len({one.group for one in known.values()}) == 3
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


@pytest.mark.parametrize("ratio", [0.0, 0.3, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("seeds", [2, 3, 5, 8])
def test_interval_over_seeds_and_examples_covers_what_it_says(seeds, ratio):
    """Simulate 6,000 experiments with seeds and examples drawn anew, by the ratio of the two
    errors.
    """
    rng = np.random.default_rng([seeds, int(10 * ratio)])
    trials, size, truth = 6_000, 100, 0.3
    own = rng.normal(0, 1, (trials, seeds))
    examples = rng.normal(
        0, ratio * math.sqrt(size / seeds), (trials, size)
    )  # the errors of the means: ratio to 1
    means = truth + own.mean(axis=1) + examples.mean(axis=1)
    students = own.std(axis=1, ddof=1) / math.sqrt(seeds) * stats.t.ppf(0.975, seeds - 1)
    halves = intervals.with_examples(students, examples.std(axis=1) / math.sqrt(size))
    assert np.mean(abs(means - truth) <= halves) >= 0.94
    assert np.all(halves >= students)


def test_p_value_is_the_level_at_which_the_interval_reaches_zero():
    rng = np.random.default_rng(7)
    a, b = rng.normal(1, 1, 5), rng.normal(0, 1, 5)
    assert intervals.p_value(intervals.paired(a, b)) == pytest.approx(stats.ttest_rel(a, b).pvalue)
    seeds = intervals.paired([1.0, 2.0, 3.0], [0.0, 0.0, 0.0])
    edge = seeds._replace(mean=float(intervals.with_examples(seeds.high - seeds.mean, 0.5)))
    assert intervals.p_value(edge, 0.5) == pytest.approx(0.05)
    assert intervals.p_value(seeds, 0.5) > intervals.p_value(seeds)
    assert math.isnan(
        intervals.p_value(intervals.paired([1.0], [0.0]), 0.5)
    )  # one pair says nothing of seeds
    alike = intervals.paired([1.0, 1.0], [1.0, 1.0])
    assert (intervals.p_value(alike), intervals.p_value(alike._replace(mean=1.0))) == (1.0, 0.0)


def test_holm_is_that_of_the_original():
    assert intervals.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert intervals.holm([0.5, 0.9, 0.01]) == pytest.approx([1.0, 1.0, 0.03])
    found = intervals.holm([math.nan, 0.02, 0.02])
    assert math.isnan(found[0])
    assert found[1:] == [0.04, 0.04]
    assert intervals.holm([]) == []


def test_holm_keeps_the_share_of_families_with_a_false_verdict():
    """Of 2,000 families of eight differences that are all nothing; uncorrected a third would say
    otherwise.
    """
    values = np.random.default_rng(8).random((2_000, 8))
    corrected = np.array([intervals.holm(row) for row in values])
    assert np.mean((corrected <= 0.05).any(axis=1)) == pytest.approx(0.05, abs=0.012)
    assert np.mean((values <= 0.05).any(axis=1)) > 0.3


# --- from a workdir -------------------------------------------------------------------------------


def compared(
    place, metric: str = "validation/mlm_loss", baseline: str = "15 %"
) -> dict[tuple, compare.Difference]:
    found = collect.results(place)
    families = collect.families(place.read_study(), found, "masking.rate")
    listed = compare.differences(place, families, baseline, [metric], draws=500)
    return {(one.family, one.point): one for one in listed}


def test_pairs_share_their_seed_and_the_other_axes(tmp_path):
    """Seeds move the loss by 0.05 and cells by 0.008 (as the workdir is built): pairs see only the
    latter.
    """
    study = study_workdir.masking_rate(rates=(0.15, 0.2, 0.4), seeds=range(6))
    place = study_workdir.build(tmp_path, study, examples=50, lines=4)
    cells = {
        (c.entry.labels["size"], c.entry.labels["masking.rate"], c.entry.seed): c
        for c in collect.results(place)
    }
    found = compared(place)
    assert found.keys() == {
        (size, rate) for size in ("2 x 64", "2 x 128") for rate in ("20 %", "40 %")
    }
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
        assert (one.both_low, one.both_high) == one.widest
        half = math.hypot(one.high - one.mean, 1.959964 * one.examples_error)
        assert (one.both_low, one.both_high) == pytest.approx((one.mean - half, one.mean + half))
        assert one.examples_error > 0
    assert compared(place) == found  # the same numbers from the same files


def test_what_the_same_examples_are_worth_is_the_error_they_share(tmp_path):
    """By the delta method, of the mean over seeds: what examples do to both arms leaves the
    difference.
    """
    place = study_workdir.build(
        tmp_path, study_workdir.masking_rate(**SMALL), examples=200, lines=4
    )
    found = compared(place)["2 x 64", "40 %"]
    rows = {"15 %": [], "40 %": []}
    for entry in place.cells():
        each = place.read_each(entry, "validation")
        sums, counts = each["mlm_loss.sum"], each["mlm_loss.count"]
        rows[entry.labels["masking.rate"]].append(
            (sums - counts * sums.sum() / counts.sum()) / counts.sum()
        )
    base, arm = (np.mean(rows[label], axis=0) for label in ("15 %", "40 %"))
    apart = math.sqrt((arm**2).sum() + (base**2).sum())
    assert found.examples_error == pytest.approx(math.sqrt(((arm - base) ** 2).sum()), rel=0.15)
    assert found.examples_unpaired == pytest.approx(apart, rel=0.15)
    assert found.examples_error < found.examples_unpaired


@pytest.mark.fault(39)
@pytest.mark.parametrize("state", ["failed", "diverged", "trained", "untouched"])
def test_a_hole_takes_its_pair_along(state, tmp_path):
    """The mean is of whole pairs: that the seed of the hole was a bad one for both arms does not
    enter it.
    """
    study = study_workdir.masking_rate(**SMALL, seeds=(0, 1, 2, 3))

    def hole(cell):
        return state if (cell.labels["masking.rate"], cell.seed) == ("40 %", 2) else "done"

    whole = compared(study_workdir.build(tmp_path / "whole", study, examples=20, lines=4))[
        "2 x 64", "40 %"
    ]
    place = study_workdir.build(tmp_path / "holed", study, hole, examples=20, lines=4)
    one = compared(place)["2 x 64", "40 %"]
    assert (whole.pairs, whole.holes, one.pairs, one.holes) == (4, 0, 3, 1)
    cells = {(c.entry.labels["masking.rate"], c.entry.seed): c for c in collect.results(place)}
    kept = [
        cells["40 %", seed].metrics["validation/mlm_loss"]
        - cells["15 %", seed].metrics["validation/mlm_loss"]
        for seed in (0, 1, 3)
    ]
    assert one.mean == pytest.approx(np.mean(kept))
    assert one.mean != pytest.approx(whole.mean, abs=1e-9)


def test_without_values_of_each_example_only_seeds_speak(tmp_path):
    place = study_workdir.build(tmp_path, study_workdir.masking_rate(**SMALL), examples=20, lines=4)
    one = compared(place, "pos/accuracy")["2 x 64", "40 %"]
    assert (one.pairs, one.examples) == (3, 0)
    assert math.isfinite(one.low)
    assert math.isnan(one.both_low)
    assert one.widest == (one.low, one.high)


def test_verdicts_are_corrected_for_all_differences_in_a_metric(tmp_path):
    study = study_workdir.masking_rate(rates=(0.15, 0.2, 0.8), seeds=range(4))
    found = compared(study_workdir.build(tmp_path, study, examples=400, lines=4))
    assert {one.tests for one in found.values()} == {4}  # two rates at two sizes
    assert [one.corrected for one in found.values()] == pytest.approx(
        intervals.holm([o.p for o in found.values()])
    )
    for one in found.values():
        seeds = intervals.Pairing(one.pairs, one.mean, one.low, one.high, one.error, one.unpaired)
        assert one.p == pytest.approx(intervals.p_value(seeds, one.examples_error))
        assert one.resolved == (one.corrected <= 0.05)
    assert len({one.resolved for one in found.values()}) == 2


def test_examples_that_do_not_say_which_they_are_are_not_paired(tmp_path):
    """Equal counts are no sign of equal examples: of pairs of sentences each counts one."""
    place = study_workdir.build(tmp_path, study_workdir.masking_rate(**SMALL), examples=20, lines=4)
    odd = next(c.entry for c in collect.results(place) if c.entry.labels["masking.rate"] == "40 %")
    each = place.read_each(odd, "blimp")
    for names in ({"examples": metrics.digest([b"others"])}, {}):
        with place.each(odd.id, "blimp").open("wb") as file:
            np.savez(
                file,
                **{name: values for name, values in each.items() if name != "examples"} | names,
            )
        assert compared(place, "blimp/accuracy")["2 x 64", "40 %"].examples == 0


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
    place = study_workdir.build(
        tmp_path, study_workdir.masking_rate(**SMALL), lambda cell: "untouched", lines=4
    )
    assert [one.pairs for one in compared(place).values()] == [0]
    assert compared(place, baseline="99 %") == {}
