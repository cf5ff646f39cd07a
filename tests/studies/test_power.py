"""The power of a study before it runs, and the spread of earlier runs that it follows from."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest

from bert_jax.reporting.formats import SPACE
from bert_jax.studies import actions, definition, results
from bert_jax.studies.folder import StudyFolder
from bert_jax.studies.report import power, simultaneous
from bert_jax.studies.report.view import View
from tests import study_workdir
from tests.claims import LOSS, NULL, REVERSED, TRUE, study
from tests.study_workdir import OWN_DEVIATION

PLAN = power.Plan(3, 2, {"masking.rate": 5})


def spread(table: Path, metric: str = LOSS) -> float:
    return power.find_spread(power.read_rows(table), metric, "masking.rate")


@pytest.fixture(scope="module")
def view(tmp_path_factory) -> View:
    place = study_workdir.build(tmp_path_factory.mktemp("w") / "w", study(), examples=300, lines=4)
    return View(place, place.read_study(), results.read_results(place))


def test_power_of_gains_has_twice_the_variance(view):
    results.read_results(view.place)
    more = dataclasses.replace(TRUE, more_at=("size", "2 x 128", "2 x 64"))
    deviation = spread(view.place.csv)
    for claim, values in ((TRUE, 1.0), (more, math.sqrt(2))):
        line = power.describe_power([claim], PLAN, [view.place.csv])[0]
        wanted = simultaneous.Wanted(claim.effect, families=PLAN.families)
        chance = simultaneous.find_power(
            PLAN.seeds, PLAN.points["masking.rate"], values * deviation, wanted
        )
        assert f"power {100 * chance:.0f}{SPACE}%" in line


def test_find_spread_is_that_of_one_run(view):
    """Half the variance of differences between two rates, whatever the seed adds."""
    results.read_results(view.place)
    losses = {(*r.entry.labels.values(), r.entry.seed): r.metrics[LOSS] for r in view.results}
    sizes, rates = ({labels[i] for labels in losses} for i in (0, 1))
    variances = [
        np.var([losses[size, a, seed] - losses[size, b, seed] for seed in range(4)], ddof=1)
        for size in sizes
        for a, b in itertools.combinations(rates, 2)
    ]
    right = pytest.approx(math.sqrt(np.mean(variances) / 2), rel=1e-4)
    assert spread(view.place.csv) == right
    assert OWN_DEVIATION / 2 < right.expected < OWN_DEVIATION * 2
    assert spread(view.place.csv, "validation/none") == 0
    assert spread(view.place.workdir / "none.csv") == 0


def test_find_spread_bears_sizes_with_fewer_seeds(view, tmp_path):
    results.read_results(view.place)
    with view.place.csv.open(newline="") as file:
        lines = list(csv.DictReader(file))
    only = [line for line in lines if line["size"] == "2 x 64"]
    few = only + [line for line in lines if line["size"] != "2 x 64" and line["seed"] == "0"]
    alone = [line for line in only if line["masking.rate"] != "80 %"]
    short = alone + [line for line in only if line["masking.rate"] == "80 %"][:1]
    found = []
    for number, chosen in enumerate((few, only, short, alone)):
        table = tmp_path / f"{number}.csv"
        with table.open("w", newline="") as file:
            writing = csv.DictWriter(file, list(lines[0]))
            writing.writeheader()
            writing.writerows(chosen)
        found.append(spread(table))
    assert found[0] == pytest.approx(found[1], rel=1e-12)
    assert found[2] == pytest.approx(found[3], rel=1e-12)
    assert min(found) > 0


def test_describe_power_by_tables_of_earlier_runs(view, tmp_path, capsys):
    results.read_results(view.place)
    (line,) = power.describe_power([TRUE], PLAN, [tmp_path / "none.csv", view.place.csv])
    assert re.search(rf"C1, a difference of 0.050 nats .*: power \d+{SPACE}% with 3 seeds", line)
    assert "results.csv" in line
    deviation = spread(view.place.csv)
    wanted = simultaneous.Wanted(0.05, families=2)
    chance = 100 * simultaneous.find_power(3, 5, deviation, wanted)
    needed = simultaneous.count_seeds(5, deviation, wanted)
    said = f"power {chance:.0f}{SPACE}% with 3 seeds, 90{SPACE}% with {needed}"
    assert f"{said} (intervals of 2 families hold together; " in line
    other = tmp_path / "other.csv"  # of a study that varies something else
    other.write_text(
        "cell,state,unit,seed,validation/mlm_loss\n"
        "a,done,word,0,5\nb,done,word,1,7\nc,done,token,0,6\nd,done,token,1,4\n"
    )
    assert power.describe_power([TRUE], PLAN, [other, view.place.csv]) == [line]
    assert "other.csv" in power.describe_power([TRUE], PLAN, [other])[0]
    (line,) = power.describe_power([TRUE], PLAN, [tmp_path / "none.csv"])
    assert "no earlier run" in line
    file = tmp_path / "claims" / "study.py"
    file.parent.mkdir()
    file.write_text("from tests.claims import study\ndef get_study(_=''): return study()\n")
    actions.run(str(file), tmp_path / "run", actions.Flags(dry_run=True))
    assert "C16, no difference beyond 0.150 nats" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        # Families of two sizes: C1 is of both, C16 is also compared.
        ({}, (["C1", "C3", "C16"], 1 + 2 + 2, {"size": 2, "masking.rate": 3})),
        ({"size": "2 x 128"}, (["C3", "C16"], 2, {"size": 1, "masking.rate": 3})),
        ({"masking.rate": "20 %"}, ([], 1, {"size": 2, "masking.rate": 1})),
    ],
)
def test_launch_describes_power_of_claims_with_cells(kept, said, monkeypatch):
    """A part of a study may have none of the points of a claim."""
    larger = dataclasses.replace(TRUE, more_at=("size", "2 x 128", "2 x 64"))
    made = study(
        claims=(larger, REVERSED, NULL),
        keep=lambda at: all(at[axis].label == label for axis, label in kept.items()),
    )
    asked = []
    monkeypatch.setattr(power, "describe_power", lambda *given: asked.append(given) or [])
    place = StudyFolder(Path("none"))
    named = actions.Named(made, "x", "x", Path("none/of"))
    actions._describe_power(place, named, definition.expand(made))
    if not said[0]:
        assert not asked
        return
    ((claims, plan, _),) = asked
    assert ([claimed.claim for claimed in claims], plan.families, plan.points) == said
    assert plan.seeds == 4
