"""The best value over budgets and sizes, held against planted truths."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import expit, logit

from bert_jax.errors import ConfigError
from bert_jax.studies.scaling import ScaledRun, fit, fit_at_equal, read_at_equal

SIZES, BUDGETS, SEEDS = (1e5, 4e5, 1.6e6), (1.5e6, 3e6, 6e6, 12e6), (0, 1, 2)
VALUES = (0.1, 0.15, 0.2, 0.3, 0.4, 0.6)
OVER_BUDGET, OVER_SIZE = -0.25, 0.15


def best(size: float, budget: float) -> float:
    """Return the planted best value's logit."""
    return logit(0.3) + OVER_BUDGET * math.log(budget / 3e6) + OVER_SIZE * math.log(size / 4e5)


def planted(
    noise: float, correlation: float = 0.0, seed: int = 0, values=VALUES, sizes=SIZES, seeds=SEEDS
) -> list[ScaledRun]:
    """Return runs of a study whose best values are known; runs of a trunk share part of it."""
    rng = np.random.default_rng(seed)
    runs = []
    for size, value, number in itertools.product(sizes, values, seeds):
        trunk = rng.standard_normal()
        for budget in BUDGETS:
            own = math.sqrt(correlation) * trunk
            own += math.sqrt(1 - correlation) * rng.standard_normal()
            away = logit(value) - best(size, budget)
            loss = 5 - 0.1 * math.log(budget) + 0.02 * number + 0.05 * away**2 + noise * own
            runs.append(ScaledRun(size, budget, value, number, loss))
    return runs


def test_fit_finds_the_truth_without_noise():
    found = fit(planted(1e-6), draws=200)
    for optimum in found.optima:
        right = expit(best(optimum.size, optimum.budget))
        assert optimum.value == pytest.approx(right, abs=1e-3)
        assert optimum.low < optimum.value < optimum.high
        assert optimum.inside == (0.1 <= right <= 0.6)
    assert found.over_budget.estimate == pytest.approx(OVER_BUDGET, abs=1e-3)
    assert found.over_size.estimate == pytest.approx(OVER_SIZE, abs=1e-3)


@pytest.mark.parametrize("correlation", [0.0, 0.7])
def test_fit_intervals_hold_the_planted_exponents(correlation):
    """In at least 90 of 100 studies, and the vertices' own intervals likewise."""
    held = np.zeros(3)
    estimates, halves = [], []
    for seed in range(100):
        found = fit(planted(0.01, correlation, seed), draws=300, seed=seed)
        held[0] += found.over_budget.low <= OVER_BUDGET <= found.over_budget.high
        held[1] += found.over_size.low <= OVER_SIZE <= found.over_size.high
        exponents = found.over_budget, found.over_size
        estimates.append([exponent.estimate for exponent in exponents])
        halves.append([(exponent.high - exponent.low) / 2 for exponent in exponents])
        inside = [o.low <= expit(best(o.size, o.budget)) <= o.high for o in found.optima]
        held[2] += np.mean(inside)
    assert (held >= 90).all(), held
    assert held[2] <= 99.5, "an interval that always holds says nothing"
    wide = np.mean(halves, axis=0) / np.std(estimates, axis=0)
    assert (wide < 2.6).all(), f"wider than the estimates scatter: {wide}"  # 2 by Student's t


def test_fit_intervals_hold_for_budgets_of_a_trunk():
    held = []
    for seed in range(100):
        found = fit(planted(0.02, 0.8, seed, sizes=SIZES[1:2], seeds=(0,)), draws=200, seed=seed)
        held += [o.low <= expit(best(o.size, o.budget)) <= o.high for o in found.optima]
    assert np.mean(held) >= 0.93


def test_fit_gives_a_flat_size_no_say_in_the_trend():
    shown = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        runs = planted(0.01, 0.5, seed, sizes=SIZES[:1])
        for run in planted(0.0, sizes=SIZES[1:2]):
            runs.append(run._replace(loss=5 + 0.01 * rng.standard_normal()))
        found = fit(runs, draws=200, seed=seed)
        shown += found.over_size.low > 0 or found.over_size.high < 0
        for optimum in found.optima:
            assert math.isnan(optimum.value) or 0 <= optimum.low <= optimum.high <= 1
    assert shown <= 4


def test_fit_has_no_best_value_without_a_minimum():
    hill = [run._replace(loss=10 - run.loss) for run in planted(0.001, sizes=SIZES[:1])]
    found = fit(hill + planted(0.001, sizes=SIZES[1:]), draws=200)
    assert all(math.isnan(o.value) == (o.size == SIZES[0]) for o in found.optima)
    assert found.over_budget.estimate == pytest.approx(OVER_BUDGET, abs=0.02)


@pytest.mark.parametrize("values", [(0.15, 0.3, 1.0), (0.15, 0.4), (0.15, 0.3, 0.6)])
def test_fit_refuses_runs_that_make_no_curve(values):
    """A share of 1 has no logit, two points make no parabola, and three leave no error."""
    runs = [ScaledRun(1e5, 1e6, value, 0, 5.0) for value in values]
    with pytest.raises(ConfigError, match=r"parabola|no more than the curves"):
        fit(runs)


def test_fit_refuses_values_that_no_seed_shares():
    """Two seeds have the same two values; the third value is of another seed alone."""
    few = {0.15: (0, 1), 0.3: (0, 1), 0.6: (2,)}
    whole = planted(0.01, values=few)
    runs = [run for run in whole if run.budget > BUDGETS[0] or run.seed in few[run.value]]
    with pytest.raises(ConfigError, match="parabola"):
        fit(runs)


def test_fit_takes_four_runs_of_one_seed():
    """Three parameters leave one degree of freedom."""
    losses = {0.15: 5.0, 0.3: 4.9, 0.45: 4.92, 0.6: 5.1}
    found = fit([ScaledRun(1e5, 1e6, value, 0, loss) for value, loss in losses.items()])
    (optimum,) = found.optima
    assert math.isnan(found.over_budget.estimate)
    assert math.isnan(found.over_size.estimate)
    square, slope, _ = np.polyfit(logit(list(losses)), list(losses.values()), 2)
    assert optimum.value == pytest.approx(expit(-slope / (2 * square)))
    assert optimum.low < optimum.value < optimum.high


def test_read_at_equal_reads_lines_in_the_log_exactly():
    """Whatever a value makes its runs cost; sizes and seeds are each read by themselves."""

    def cost(run: ScaledRun) -> float:
        return run.size * run.budget * (1 + run.value)

    def loss(run: ScaledRun, at: float) -> float:
        return 9 - (0.1 + 0.05 * run.value) * math.log(at) + 0.3 * run.seed - 1e-7 * run.size

    runs = [run._replace(loss=loss(run, cost(run))) for run in planted(0.0)]
    read, weights = read_at_equal(runs, [cost(run) for run in runs])
    assert len(read) == len(runs)
    assert weights @ [run.loss for run in runs] == pytest.approx([run.loss for run in read])
    for run in read:
        assert run.loss == pytest.approx(loss(run, run.budget), abs=1e-9)
    for size in SIZES:
        costs = sorted({run.budget for run in read if run.size == size})
        assert len(costs) == len(BUDGETS)
        ratios = [b / a for a, b in itertools.pairwise(costs)]
        assert ratios == pytest.approx([ratios[0]] * len(ratios))
        # From what the dearest costs after the least budget to what the cheapest does after all.
        assert costs[0] == pytest.approx(size * BUDGETS[0] * (1 + max(VALUES)))
        assert costs[-1] == pytest.approx(size * BUDGETS[-1] * (1 + min(VALUES)))


def test_read_at_equal_needs_common_costs():
    one = [run for run in planted(0.0) if run.budget == BUDGETS[0]]
    assert read_at_equal(one, [run.budget for run in one])[0] == []
    two = [run for run in planted(0.0) if run.budget in BUDGETS[:2]]
    assert read_at_equal(two, [run.budget * 10 ** (10 * run.value) for run in two])[0] == []
    with pytest.raises(ConfigError, match="no cost that all values have in common"):
        fit_at_equal(one, [run.budget for run in one])


def test_read_at_equal_leaves_out_a_size_with_holes():
    """At each budget of the size another value is missing, so only two have all budgets."""
    holes = dict(zip(BUDGETS, VALUES, strict=False))
    whole = planted(0.01, sizes=SIZES[1:])
    few = [run for run in planted(0.01, sizes=SIZES[:1]) if run.value != holes[run.budget]]
    runs = (whole + few, whole)
    found, wanted = (fit_at_equal(some, [run.budget for run in some]) for some in runs)
    assert [optimum[:3] for optimum in found.optima] == [optimum[:3] for optimum in wanted.optima]


def test_fit_at_equal_intervals_hold_a_fixed_best():
    """In at least 90 of 100 studies: readings share runs, and runs a trunk."""
    held = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        runs, costs = [], []
        for value, number in itertools.product(VALUES, SEEDS):
            trunk = rng.standard_normal()
            for budget in BUDGETS:
                costs.append(budget * (1 + value))
                loss = 5 - 0.1 * math.log(costs[-1]) + 0.05 * (logit(value) - logit(0.3)) ** 2
                loss += 0.01 * math.sqrt(0.5) * (trunk + rng.standard_normal())
                runs.append(ScaledRun(1e5, budget, value, number, loss))
        found = fit_at_equal(runs, costs, draws=300, seed=seed)
        held += found.over_budget.low <= 0 <= found.over_budget.high
    assert held >= 90
