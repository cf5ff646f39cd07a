"""Differences from a baseline: intervals by hand, the bootstrap against analytic errors, holes."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from bert_jax.evaluation import metrics
from bert_jax.studies import results
from bert_jax.studies.folder import StudyFolder
from bert_jax.studies.report import collect, compare
from bert_jax.studies.report.view import View
from tests import study_workdir
from tests.two_way import halves_by_hand

EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"
SMALL = {"rates": (0.15, 0.4), "sizes": {"2 x 64": study_workdir.SIZES["2 x 64"]}}


def resampled(sums: np.ndarray, counts: np.ndarray, draws: int = 4_000) -> np.ndarray:
    """[cells, draws] of cells that share their examples."""
    arrays = {f"{i}": (row, counts, b"") for i, row in enumerate(sums)}
    return np.stack([one.values for one in compare.resample_examples(arrays, draws).values()])


# --- by hand ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "axis", "metric", "families", "least"),
    [
        # Of a metric at a size and budget 41, of differences of gains 4 of C1 and 3 of C2.
        ("best_rate", "masking.rate", "validation/mlm_loss", 48, 30),
        ("masking_rate", "masking.rate", "validation/mlm_loss", 6, 10),  # of 3 metrics, 2 sizes
        ("masking_laws", "law", "bound/nats_per_token", 6, 6),  # of 4 metrics, and of C7 and C13
    ],
)
def test_differences_of_committed_results(name, axis, metric, families, least, tmp_path):
    """The two-way layout is computed from results.csv, without values of single examples."""
    losses: dict = defaultdict(lambda: defaultdict(dict))
    with (EXPERIMENTS / name / "results.csv").open() as file:
        for row in csv.DictReader(file):
            if row[metric]:
                place = row.get("size", ""), row.get("budget", "")
                losses[place][row[axis]][int(row["seed"])] = float(row[metric])
    for file in ("study.json", "results.csv"):
        (tmp_path / file).write_bytes((EXPERIMENTS / name / file).read_bytes())
    place = StudyFolder(tmp_path)
    view = View(place, place.read_study(), results.read_results(place))
    assert view.family_count == families
    significant = 0
    for family in view.families(axis):
        at = family.runs["15 %"][0].entry.labels
        points = losses.pop((at.get("size", ""), at.get("budget", "")))
        labels = ["15 %", *(label for label in points if label != "15 %")]
        values = np.array([[points[label][seed] for seed in range(3)] for label in labels])
        halves = halves_by_hand(values, 0.05 / families)
        gaps = compare.compare_families(place, [family], "15 %", [metric], families)
        by_point = {gap.point: gap for gap in gaps}
        for label, row, half in zip(labels[1:], values[1:], halves, strict=True):
            gap = by_point.pop(label)
            assert gap.mean == pytest.approx((row - values[0]).mean())
            assert gap.high - gap.mean == pytest.approx(half, rel=0.01)
            assert gap.mean - gap.low == pytest.approx(half, rel=0.01)
            assert gap.examples == 0
            significant += abs(gap.mean) > half
        assert not by_point
    assert not losses
    assert significant >= least


# --- bootstrap ------------------------------------------------------------------------------------


def test_replicates_have_the_error_of_a_ratio():
    """By the delta method: the root of the summed squared residuals over the summed counts."""
    rng = np.random.default_rng(2)
    counts = rng.integers(1, 20, 400).astype(float)
    sums = counts * rng.normal(5, 2, 400)
    residuals = sums - counts * sums.sum() / counts.sum()
    analytic = math.sqrt((residuals**2).sum()) / counts.sum()
    found = resampled(sums[None], counts)[0]
    assert found.std() == pytest.approx(analytic, rel=0.04)
    assert found.mean() == pytest.approx(sums.sum() / counts.sum(), abs=analytic / 10)


def test_replicates_resample_all_cells_alike():
    """What two arms share cancels in each resample, however much the examples differ."""
    rng = np.random.default_rng(4)
    counts = rng.integers(1, 9, 200).astype(float)
    base = counts * rng.normal(0, 10, 200)
    known = compare.resample_examples(
        {"a": (base + 0.25 * counts, counts, b"x"), "b": (base, counts, b"x")}, 500
    )
    assert np.allclose(known["a"].values - known["b"].values, 0.25)
    assert known["b"].values.std() > 0.1


def test_replicates_of_other_examples_are_another_group():
    """Examples of equal counts are no equal examples."""
    ones = np.ones(50)
    cells = dict.fromkeys("ab", (ones, ones, b"x"))
    cells |= {"c": (ones, 2 * ones, b"x"), "d": (ones, ones, b"y")}
    known = compare.resample_examples(cells, 10)
    assert known["a"].group == known["b"].group
    assert len({one.group for one in known.values()}) == 3
    assert np.allclose(known["c"].values, 0.5)


def test_replicates_pool_many_examples(monkeypatch):
    rng = np.random.default_rng(5)
    sums = rng.normal(0, 1, 5_000)
    monkeypatch.setattr(compare, "POOLED", 700)
    found = resampled(sums[None], np.ones(5_000), draws=3_000)[0]
    assert found.std() == pytest.approx(sums.std() / math.sqrt(5_000), rel=0.1)
    assert found.mean() == pytest.approx(sums.mean(), abs=found.std() / 10)


def test_weights_draw_with_replacement():
    weights = np.concatenate(list(compare._weights(30, 5_000, seed=0)))
    assert weights.shape == (5_000, 30)
    assert np.all(weights.sum(axis=1) == 30)
    assert weights.var() == pytest.approx(29 / 30, rel=0.05)  # binomial(30, 1/30)
    again = np.concatenate(list(compare._weights(30, 5_000, seed=0)))
    assert np.array_equal(weights, again)


# --- from a workdir -------------------------------------------------------------------------------


def compared(
    place, metric: str = "validation/mlm_loss", baseline: str = "15 %"
) -> dict[tuple, compare.Difference]:
    found = results.read_results(place)
    families = collect.families(place.read_study(), found, "masking.rate")
    listed = compare.compare_families(place, families, baseline, [metric], draws=500)
    return {(one.family, one.point): one for one in listed}


def test_differences_pair_seeds_and_other_axes(tmp_path):
    """Seeds move the loss by 0.05 and cells by 0.008, as the workdir is built: only these count."""
    study = study_workdir.masking_rate(rates=(0.15, 0.2, 0.4), seeds=range(6))
    place = study_workdir.build(tmp_path, study, examples=50, lines=4)
    losses = {
        (*c.entry.labels.values(), c.entry.seed): c.metrics["validation/mlm_loss"]
        for c in results.read_results(place)
    }
    found = compared(place)
    rates, sizes = ("15 %", "20 %", "40 %"), ("2 x 64", "2 x 128")
    assert list(found) == [(size, rate) for size in sizes for rate in rates[1:]]
    examples = stats.norm.isf((1 - math.sqrt(0.95)) / 2)  # of two errors, each on its own
    for size in sizes:
        values = np.array([[losses[size, rate, seed] for seed in range(6)] for rate in rates])
        for i, half in enumerate(halves_by_hand(values, 0.05), 1):
            one = found[size, rates[i]]
            assert one.mean == pytest.approx((values[i] - values[0]).mean())
            half = math.hypot(half, examples * one.examples_error)
            assert (one.high - one.mean, one.mean - one.low) == pytest.approx(
                (half, half), rel=5e-3
            )
            assert (one.pairs, one.holes, one.examples, one.points) == (6, 0, 50, 3)
            assert 0.5 < one.spread / study_workdir.OWN_DEVIATION < 2
            assert one.examples_error > 0
    assert compared(place) == found  # the same numbers from the same files


def test_examples_error_is_of_the_difference(tmp_path):
    """By the delta method, of the mean over seeds: what examples do to both sides leaves it."""
    place = study_workdir.build(
        tmp_path, study_workdir.masking_rate(**SMALL), examples=200, lines=4
    )
    found = compared(place)["2 x 64", "40 %"]
    rows = {"15 %": [], "40 %": []}
    for entry in place.cells():
        each = place.read_arrays(entry, "validation")
        sums, counts = each["mlm_loss.sum"], each["mlm_loss.count"]
        rows[entry.labels["masking.rate"]].append(
            (sums - counts * sums.sum() / counts.sum()) / counts.sum()
        )
    base, arm = (np.mean(rows[label], axis=0) for label in ("15 %", "40 %"))
    assert found.examples_error == pytest.approx(math.sqrt(((arm - base) ** 2).sum()), rel=0.15)


@pytest.mark.fault(24)
@pytest.mark.parametrize("state", ["failed", "diverged", "trained", "untouched"])
def test_differences_leave_out_pairs_with_a_hole(state, tmp_path):
    """The mean is of whole pairs, even if the seed of the hole was a bad one for both arms."""
    study = study_workdir.masking_rate(**SMALL, seeds=(0, 1, 2, 3))

    def hole(cell):
        return state if (cell.labels["masking.rate"], cell.seed) == ("40 %", 2) else "done"

    whole = compared(study_workdir.build(tmp_path / "whole", study, examples=20, lines=4))[
        "2 x 64", "40 %"
    ]
    place = study_workdir.build(tmp_path / "holed", study, hole, examples=20, lines=4)
    one = compared(place)["2 x 64", "40 %"]
    assert (whole.pairs, whole.holes, one.pairs, one.holes) == (4, 0, 3, 1)
    losses = {
        (c.entry.labels["masking.rate"], c.entry.seed): c.metrics.get("validation/mlm_loss")
        for c in results.read_results(place)
    }
    kept = [losses["40 %", seed] - losses["15 %", seed] for seed in (0, 1, 3)]
    assert one.mean == pytest.approx(np.mean(kept))
    assert one.mean != pytest.approx(whole.mean, abs=1e-9)


def test_differences_without_examples_have_t_intervals(tmp_path):
    """The interval of one difference is then that of a paired t test over seeds."""
    place = study_workdir.build(tmp_path, study_workdir.masking_rate(**SMALL), examples=20, lines=4)
    one = compared(place, "pos/accuracy")["2 x 64", "40 %"]
    assert (one.pairs, one.examples, one.examples_error) == (3, 0, 0.0)
    values = {
        label: [c.metrics["pos/accuracy"] for c in runs]
        for family in collect.families(
            place.read_study(), results.read_results(place), "masking.rate"
        )
        for label, runs in family.runs.items()
    }
    theirs = stats.ttest_rel(values["40 %"], values["15 %"])
    assert (one.low, one.high) == pytest.approx(tuple(theirs.confidence_interval(0.95)))


def test_differences_pair_no_unnamed_examples(tmp_path):
    """Equal counts are no sign of equal examples: of pairs of sentences each counts one."""
    place = study_workdir.build(tmp_path, study_workdir.masking_rate(**SMALL), examples=20, lines=4)
    odd = next(
        c.entry for c in results.read_results(place) if c.entry.labels["masking.rate"] == "40 %"
    )
    each = place.read_arrays(odd, "blimp")
    for names in ({"examples": metrics.digest([b"others"])}, {}):
        with place.each(odd.id, "blimp").open("wb") as file:
            np.savez(file, **{name: each[name] for name in each if name != "examples"} | names)
        assert compared(place, "blimp/accuracy")["2 x 64", "40 %"].examples == 0


def test_differences_resample_no_other_examples(tmp_path):
    place = study_workdir.build(tmp_path, study_workdir.masking_rate(**SMALL), examples=20, lines=4)
    odd = next(
        c.entry for c in results.read_results(place) if c.entry.labels["masking.rate"] == "40 %"
    )
    each = place.read_arrays(odd, "validation")
    with place.each(odd.id, "validation").open("wb") as file:
        np.savez(file, **{name: values[:-1] for name, values in each.items()})
    one = compared(place)["2 x 64", "40 %"]
    assert (one.pairs, one.examples) == (3, 0)
    assert math.isfinite(one.low)


def test_differences_need_the_baseline(tmp_path):
    place = study_workdir.build(
        tmp_path, study_workdir.masking_rate(**SMALL), lambda cell: "untouched", lines=4
    )
    assert [one.pairs for one in compared(place).values()] == [0]
    assert compared(place, baseline="99 %") == {}
