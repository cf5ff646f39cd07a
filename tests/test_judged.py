"""Claims of a study: verdicts in its report, power before it runs, and what is refused."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest

from bert_jax.errors import ConfigError
from bert_jax.reporting.formats import SPACE
from bert_jax.studies import actions, definition, results
from bert_jax.studies.definition import Claimed, Comparison, Suite
from bert_jax.studies.folder import Entry, StudyFolder
from bert_jax.studies.report import aggregate, build, findings, judged, simultaneous
from bert_jax.studies.report.aggregate import View
from bert_jax.studies.report.claims import CLAIMS
from bert_jax.studies.report.summary import literal
from bert_jax.studies.report.verdicts import Verdict
from tests import study_workdir
from tests.study_workdir import OWN_DEVIATION, masking_rate
from tests.test_study_compare import halves_by_hand

LOSS = "validation/mlm_loss"
# By `study_workdir.truth`: 20 % beats 80 % by 0.1 nats and more, and 15 % hardly differs.
TRUE = Claimed("C1", "masking.rate", "20 %", "80 %", LOSS, effect=0.05)
REVERSED = dataclasses.replace(TRUE, claim="C3", point="80 %", baseline="20 %")
NULL = dataclasses.replace(TRUE, claim="C16", baseline="15 %", within=0.15)
PLAN = judged.Plan(3, 2, {"masking.rate": 5})


def study(**changes):
    settings = {"rates": (0.15, 0.2, 0.8), "claims": (TRUE, REVERSED, NULL), "seeds": (0, 1, 2, 3)}
    settings |= {"comparisons": (Comparison("masking.rate", "15 %", (LOSS,)),)}
    return masking_rate(**{**settings, "evaluations": {"validation": Suite("pretrain")}, **changes})


@pytest.fixture(scope="module")
def view(tmp_path_factory) -> View:
    place = study_workdir.build(tmp_path_factory.mktemp("w") / "w", study(), examples=300, lines=4)
    return View(place, place.read_study(), results.read_results(place))


def test_true_reversed_and_null_claims_are_told_apart(view):
    words = {(j.claimed.claim, j.family): j.verdict.word for j in judged.judge(view)}
    assert {word for (claim, _), word in words.items() if claim == "C1"} == {"replicated"}
    assert {word for (claim, _), word in words.items() if claim == "C3"} == {"not replicated"}
    assert {word for (claim, _), word in words.items() if claim == "C16"} == {"replicated"}
    assert {family for _, family in words} == {"2 x 64", "2 x 128"}


def numbers(text: str) -> list[float]:
    """Return the numbers that a text shows."""
    return [float(x) for x in re.findall(r"-?\d+\.?\d*", text.replace("\N{MINUS SIGN}", "-"))]


def by_hand(values: dict[tuple[str, int], float], baseline: str, point: str, level: float):
    """Return mean and half of the interval of a point minus the baseline, over all three rates."""
    labels = [baseline, point, *({"15 %", "20 %", "80 %"} - {baseline, point})]
    table = np.array([[values[label, seed] for seed in range(4)] for label in labels])
    return (table[1] - table[0]).mean(), halves_by_hand(table, level)[0]


def test_claims_are_judged_by_all_points(view):
    """Six families: two sizes, each against 15 % (also claimed), 20 % and 80 %."""
    assert view.family_count == 6
    for claimed, family, verdict, _ in judged.judge(view):
        losses = {
            (r.entry.labels["masking.rate"], r.entry.seed): r.metrics[LOSS]
            for r in view.results
            if r.entry.labels["size"] == family
        }
        mean, half = by_hand(losses, claimed.baseline, claimed.point, 0.05 / 6)
        assert verdict.mean == pytest.approx(-mean)
        # Over 300 examples, whose own noise has a deviation of 0.3, on both sides and in 4 seeds.
        error = math.sqrt((verdict.high - verdict.mean) ** 2 - half**2) / 2.865  # Sidak's quantile
        assert error == pytest.approx(0.3 / math.sqrt(300) * math.sqrt(2 / 4), rel=0.25)
        assert verdict.mean - verdict.low == pytest.approx(verdict.high - verdict.mean)
        assert verdict.seeds == 4


def test_claims_have_the_interval_of_the_differences(view):
    found = findings.find(view)
    gaps = {(gap.family, gap.point): gap for gap in found.gaps[0]}
    claims = [j for j in found.claims if j.claimed.baseline == "15 %"]
    assert len(claims) == 2
    for claimed, family, verdict, share in claims:
        gap = gaps[family, claimed.point]
        assert (verdict.low, verdict.high) == (-gap.high, -gap.low)  # a lower loss is a gain
        (line,) = judged.rows([judged.Judged(claimed, family, verdict, share)])
        assert numbers(line[3])[1:] == numbers(aggregate.interval(-gap.high, -gap.low))


def test_claims_of_gains_are_judged_by_all_points(tmp_path):
    """The spread is that of differences of gains, over all rates; one verdict of both sizes."""
    metric = "pos/accuracy"  # no values of single examples
    larger = dataclasses.replace(TRUE, metric=metric, more_at=("size", "2 x 128", "2 x 64"))
    smaller = dataclasses.replace(larger, more_at=("size", "2 x 64", "2 x 128"))
    compared = (Comparison("masking.rate", "15 %", (metric,)),)
    made = study(
        claims=(larger, smaller), comparisons=compared, evaluations=study_workdir.EVALUATIONS
    )
    place = study_workdir.build(tmp_path / "w", made, examples=10, lines=4)
    seen = View(place, place.read_study(), results.read_results(place))
    scores = {(*r.entry.labels.values(), r.entry.seed): r.metrics[metric] for r in seen.results}
    rates = {(rate, seed) for _, rate, seed in scores}
    more = {at: scores["2 x 128", *at] - scores["2 x 64", *at] for at in rates}
    mean, half = by_hand(more, "80 %", "20 %", 0.05 / 4)  # two claims, a comparison at two sizes
    one, other = judged.judge(seen)
    assert (one.family, other.family) == ("", "")
    assert (one.verdict.mean, other.verdict.mean) == pytest.approx((mean, -mean))
    for verdict in (one.verdict, other.verdict):
        assert verdict.high - verdict.mean == pytest.approx(half, rel=5e-3)
        assert verdict.mean - verdict.low == pytest.approx(half, rel=5e-3)
    assert "at 2 x 128 than at 2 x 64, by " in next(iter(judged.sentences([one])))
    assert "20 % gains more over 80 % at 2 x 128 than at 2 x 64, by" in judged.rows([one])[0][2]


def test_it_has_no_verdict_before_both_gains_have_runs(tmp_path):
    """A study of one size so far, and one whose seeds differ."""
    larger = dataclasses.replace(TRUE, more_at=("size", "2 x 128", "2 x 64"))

    def verdict(name, state):
        made = study(claims=(larger,))
        place = study_workdir.build(tmp_path / name, made, state, examples=20, lines=4)
        ((_, _, found, _),) = judged.judge(
            View(place, place.read_study(), results.read_results(place))
        )
        return found

    def both(*seeds):
        larger = "2 x 128"
        return lambda c: "done" if c.labels["size"] == larger or c.seed in seeds else "untouched"

    assert verdict("one", both()) is None
    assert verdict("some", both(1, 3)).seeds == 2


def test_its_power_is_that_of_twice_the_variance(view):
    results.read_results(view.place)
    more = dataclasses.replace(TRUE, more_at=("size", "2 x 128", "2 x 64"))
    spread = judged.spread(view.place.csv, LOSS, "masking.rate")
    for claim, values in ((TRUE, 1.0), (more, math.sqrt(2))):
        line = judged.power([claim], PLAN, [view.place.csv])[0]
        wanted = simultaneous.Wanted(claim.effect, families=PLAN.families)
        power = simultaneous.power(PLAN.seeds, PLAN.points["masking.rate"], values * spread, wanted)
        assert f"power {100 * power:.0f}{SPACE}%" in line


def test_shown_intervals_and_verdicts_agree(view):
    """On the page and in the summary, for each difference and each claim."""
    build.write(view.place)
    page, summary = view.place.report.read_text(), view.place.summary.read_text()
    words = []
    for row in re.findall(r"<tr>(.*?)</tr>", page.split("Differences in pairs</h2>")[1]):
        cells = re.findall(r"<td[^>]*>(.*?)</td>", row)
        if len(cells) > 4 and "significant" in cells[4]:
            low, high = numbers(cells[2])
            words.append(cells[4] == "significant")
            assert (low > 0 or high < 0) == words[-1] == (numbers(cells[3])[0] <= 0.05)
    assert sorted(words) == [False, False, True, True]  # 20 and 80 % at two sizes
    judgements = judged.judge(view)
    for line, found in zip(judged.rows(judgements), judgements, strict=True):
        _, low, high = numbers(line[3])
        margin = found.claimed.within
        assert (line[4] == "replicated") == (max(-low, high) < margin if margin else low > 0)
        assert line[3] in page
    for claim, verdicts in judged.sentences(judgements).items():
        assert all(literal(sentence) in summary for sentence in (claim, *verdicts))
    assert CLAIMS["C1"].text in page


def test_scores_in_per_cent_are_written_as_they_are():
    """F1 of a share is below 1, that of SQuAD below 100."""
    claimed = dataclasses.replace(TRUE, metric="squad/f1", effect=1.0)
    for scale, share, said in (
        (1, False, "+1.600 (+1.352 to +1.848)"),
        (100, True, f"+1.60{SPACE}% (+1.35 to +1.85{SPACE}%)"),
    ):
        verdict = Verdict("replicated", 1.6 / scale, 1.352 / scale, 1.848 / scale, 3, None)
        ((line,),) = judged.sentences([judged.Judged(claimed, "", verdict, share)]).values()
        assert line == f"{said}, replicated."


def test_one_seed_is_underpowered(tmp_path):
    place = study_workdir.build(tmp_path / "w", study(seeds=(0,)), examples=10, lines=4)
    one = View(place, place.read_study(), results.read_results(place))
    for verdict in (j.verdict for j in judged.judge(one)):
        assert (verdict.word, verdict.high) == ("underpowered", math.inf)
    for lines in judged.sentences(judged.judge(one)).values():
        assert all("one pair: no interval" in line for line in lines)


def test_the_spread_of_earlier_runs_is_of_one_run(view):
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
    assert judged.spread(view.place.csv, LOSS, "masking.rate") == right
    assert OWN_DEVIATION / 2 < right.expected < OWN_DEVIATION * 2
    assert judged.spread(view.place.csv, "validation/none", "masking.rate") == 0
    assert judged.spread(view.place.workdir / "none.csv", LOSS, "masking.rate") == 0


def test_a_size_with_fewer_seeds_neither_hides_the_spread_nor_the_seeds_of_others(view, tmp_path):
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
        found.append(judged.spread(table, LOSS, "masking.rate"))
    assert found[0] == pytest.approx(found[1], rel=1e-12)
    assert found[2] == pytest.approx(found[3], rel=1e-12)
    assert min(found) > 0


def test_a_launch_says_its_power(view, tmp_path, capsys):
    results.read_results(view.place)
    (line,) = judged.power([TRUE], PLAN, [tmp_path / "none.csv", view.place.csv])
    assert re.search(rf"C1, a difference of 0.050 nats .*: power \d+{SPACE}% with 3 seeds", line)
    assert "results.csv" in line
    spread = judged.spread(view.place.csv, LOSS, "masking.rate")
    wanted = simultaneous.Wanted(0.05, families=2)
    chance = 100 * simultaneous.power(3, 5, spread, wanted)
    needed = simultaneous.seeds_needed(5, spread, wanted)
    said = f"power {chance:.0f}{SPACE}% with 3 seeds, 90{SPACE}% with {needed}"
    assert f"{said} (intervals of 2 families hold together; " in line
    other = tmp_path / "other.csv"  # of a study that varies something else
    other.write_text(
        "cell,state,unit,seed,validation/mlm_loss\n"
        "a,done,word,0,5\nb,done,word,1,7\nc,done,token,0,6\nd,done,token,1,4\n"
    )
    assert judged.power([TRUE], PLAN, [other, view.place.csv]) == [line]
    assert "other.csv" in judged.power([TRUE], PLAN, [other])[0]
    (line,) = judged.power([TRUE], PLAN, [tmp_path / "none.csv"])
    assert "no earlier run" in line
    file = tmp_path / "claims" / "study.py"
    file.parent.mkdir()
    file.write_text("from tests.test_judged import study\ndef get_study(_=''): return study()\n")
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
def test_a_launch_says_the_power_of_claims_it_has_cells_for(kept, said, monkeypatch):
    """A part of a study may have none of the points of a claim."""
    larger = dataclasses.replace(TRUE, more_at=("size", "2 x 128", "2 x 64"))
    made = study(
        claims=(larger, REVERSED, NULL),
        keep=lambda at: all(at[axis].label == label for axis, label in kept.items()),
    )
    asked = []
    monkeypatch.setattr(judged, "power", lambda *given: asked.append(given) or [])
    place = StudyFolder(Path("none"))
    cells = [
        Entry(**vars(cell), evaluations={"validation": {}}) for cell in definition.expand(made)
    ]
    actions._describe_power(made, cells, place, Path("none/of"))
    if not said[0]:
        assert not asked
        return
    ((claims, plan, _),) = asked
    assert ([claimed.claim for claimed in claims], plan.families, plan.points) == said
    assert plan.seeds == 4


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"claim": "C99"}, "no published claim 'C99'"),
        ({"axis": "masking.unit"}, "no axis 'masking.unit'"),
        ({"point": "50 %"}, "has no point '50 %'"),
        ({"metric": "validation/f1"}, "has no metric 'f1'"),
        ({"metric": "blimp/accuracy"}, "names no evaluation"),
        ({"effect": 0.0}, "effect = 0.0"),
        ({"within": -1.0}, "effect = 0.05"),
        ({"more_at": ("masking.rate", "20 %", "80 %")}, "more_at = ('masking.rate'"),
        ({"more_at": ("size", "2 x 64", "2 x 64")}, "more_at = ('size'"),
        ({"more_at": ("size", "2 x 64")}, "more_at = ('size'"),
        ({"more_at": ["size", "2 x 128", "2 x 64"]}, "more_at = ['size'"),
        ({"more_at": ("size", "2 x 128", "2 x 64"), "within": 0.1}, "and within"),
        ({"more_at": ("size", "2 x 65", "2 x 64")}, "has no point '2 x 65'"),
    ],
)
def test_a_claim_that_cannot_be_judged_is_refused(change, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        definition.expand(study(claims=(dataclasses.replace(TRUE, **change),)))


def test_every_published_claim_is_whole():
    for name, claim in CLAIMS.items():
        assert re.fullmatch(r"C\d+", name)
        assert all(claim)
        assert not any(text.endswith(".") for text in claim)
