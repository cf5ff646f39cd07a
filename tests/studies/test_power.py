"""The power of a study before it runs, and the spread of earlier runs that it follows from."""

import dataclasses
import itertools
import math
import shutil
from pathlib import Path

import numpy as np
import pytest

from bert_jax.studies import tables
from bert_jax.studies.report import power, wording
from tests.studies.views import LOSS, NULL, TRUE, list_values
from tests.study_workdir import OWN_DEVIATION

SIZES = power.Sizes(3, 2, {"masking.rate": 5})


def find_spread(table: Path, metric: str = LOSS) -> float:
    return power.find_spread(tables.read_csv(table), metric, "masking.rate")


def test_spread_is_that_of_one_run(view, tmp_path):
    """Half the variance of differences between two rates, whatever the seed adds."""
    losses = list_values(view)
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
    assert find_spread(tmp_path / "none.csv") == 0
    head, *lines = view.place.csv.read_text().splitlines()
    steps = tmp_path / "steps.csv"  # an axis that is named as a fixed column
    steps.write_text("\n".join([head.replace("size", "axis.steps"), *lines]) + "\n")
    over_sizes = power.find_spread(tables.read_csv(view.place.csv), LOSS, "size")
    assert power.find_spread(tables.read_csv(steps), LOSS, "steps") == over_sizes
    few = tmp_path / "few.csv"  # of one size, with another rate of a single seed
    rest = [line for line in lines if "2 x 128" not in line]
    begun = [line.replace("80 %", "90 %") for line in rest if "80 %" in line][:1]
    found = []
    for chosen in (rest, rest + begun):
        few.write_text("\n".join([head, *chosen]) + "\n")
        found.append(find_spread(few))
    assert found[0] == pytest.approx(found[1], rel=1e-12) != 0


def test_power_is_told_as_is_frozen(view, tmp_path, monkeypatch, check_frozen):
    """By a table that varies the axis, if any; a difference of gains has twice the variance."""
    monkeypatch.chdir(tmp_path)
    own, other, gone = (tmp_path / name for name in ("own.csv", "other.csv", "gone.csv"))
    shutil.copy(view.place.csv, own)
    other.write_text(
        "cell,state,unit,seed,validation/mlm_loss,squad/f1\n"
        "a,done,word,0,5,61\nb,done,word,1,7,62\nc,done,token,0,6,63\nd,done,token,1,4,63\n"
    )
    larger = dataclasses.replace(TRUE, more_at=("size", "2 x 128", "2 x 64"))
    lines = power.describe_power([TRUE, larger, NULL], SIZES, [gone, other, own])
    answers = dataclasses.replace(TRUE, metric="squad/f1", effect=0.5)
    lines += power.describe_power([NULL, answers], SIZES, [other])
    for damaged in (b"cell\xff\n", other.read_bytes().replace(b",6,", b",6.\x01,")):
        gone.write_bytes(damaged)
        lines += power.describe_power([NULL], SIZES, [gone])
    check_frozen(lines, "power")


def test_file_names_of_figures_differ():
    families = ("10", "10 %", "<64", ">64", "x" * 300, "x" * 301)
    names = {wording.name_file("size", family) for family in families}
    assert len(names) == len(families)
    assert max(map(len, names)) < 200
    name = wording.name_file("size", "2x128, budget 12,000 tokens")
    assert name == "size_2x128_budget12_000tokens"
