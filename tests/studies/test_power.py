"""The power of a study before it runs, and the spread of earlier runs that it follows from."""

import dataclasses
import itertools
import math
from pathlib import Path

import numpy as np
import pytest

from bert_jax.reporting.formats import SPACE
from bert_jax.studies import tables
from bert_jax.studies.report import power, simultaneous
from bert_jax.studies.report.view import View
from tests.studies.views import LOSS, NULL, TRUE, build_view, define_claims
from tests.study_workdir import OWN_DEVIATION

SIZES = power.Sizes(3, 2, {"masking.rate": 5})


def find_spread(table: Path, metric: str = LOSS) -> float:
    return power.find_spread(tables.read_csv(table), metric, "masking.rate")


@pytest.fixture(scope="module")
def view(tmp_path_factory) -> View:
    return build_view(tmp_path_factory.mktemp("w") / "w", define_claims(), examples=300)


def test_spread_is_that_of_one_run(view):
    """Half the variance of differences between two rates, whatever the seed adds."""
    losses = {(*r.entry.labels.values(), r.entry.seed): r.metrics[LOSS] for r in view.results}
    sizes, rates = ({labels[i] for labels in losses} for i in (0, 1))
    variances = [
        np.var([losses[size, a, seed] - losses[size, b, seed] for seed in range(4)], ddof=1)
        for size in sizes
        for a, b in itertools.combinations(rates, 2)
    ]
    right = math.sqrt(np.mean(variances) / 2)
    assert find_spread(view.place.csv) == pytest.approx(right, rel=1e-4)
    assert OWN_DEVIATION / 2 < right < OWN_DEVIATION * 2
    assert find_spread(view.place.csv, "validation/none") == 0
    assert find_spread(view.place.workdir / "none.csv") == 0
    head, *lines = view.place.csv.read_text().splitlines()
    few = view.place.workdir / "few.csv"  # of one size, with another rate of a single seed
    rest = [line for line in lines if "2 x 128" not in line]
    begun = [line.replace("80 %", "90 %") for line in rest if "80 %" in line][:1]
    found = []
    for chosen in (rest, rest + begun):
        few.write_text("\n".join([head, *chosen]) + "\n")
        found.append(find_spread(few))
    assert found[0] == pytest.approx(found[1], rel=1e-12) != 0


@pytest.mark.parametrize(("more_at", "times"), [(None, 1.0), (("size", "2 x 128", "2 x 64"), 2.0)])
def test_power_follows_from_earlier_runs(view, more_at, times, tmp_path):
    """A gain has the variance of one difference, a difference of gains that of two."""
    claim = dataclasses.replace(TRUE, more_at=more_at)
    (line,) = power.describe_power([claim], SIZES, [tmp_path / "none.csv", view.place.csv])
    apart = math.sqrt(times) * find_spread(view.place.csv)
    wanted = simultaneous.Wanted(claim.effect, families=2)
    chance = 100 * simultaneous.find_power(3, 5, apart, wanted)
    needed = simultaneous.count_seeds(5, apart, wanted)
    assert f"power {chance:.0f}{SPACE}% with 3 seeds, 90{SPACE}% with {needed} (inter" in line


def test_power_prefers_tables_that_vary_the_axis(view, tmp_path):
    other = tmp_path / "other.csv"
    other.write_text(
        "cell,state,unit,seed,validation/mlm_loss\n"
        "a,done,word,0,5\nb,done,word,1,7\nc,done,token,0,6\nd,done,token,1,4\n"
    )
    both, one, without, none = (
        power.describe_power([NULL], SIZES, tables)[0]
        for tables in ([other, view.place.csv], [view.place.csv], [other], [])
    )
    assert both == one != without
    assert none.endswith("no earlier run says how far seeds lie apart")
