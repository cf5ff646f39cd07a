"""Verdicts on claims: words by the ends of intervals, seeds needed by simulation, reports."""

from __future__ import annotations

import dataclasses
import math
import re

import numpy as np
import pytest

from bert_jax.errors import ConfigError
from bert_jax.reporting.formats import SPACE
from bert_jax.studies import definition, results
from bert_jax.studies.definition import Comparison
from bert_jax.studies.report import answers, build, simultaneous, verdicts
from bert_jax.studies.report.blocks import escape_markdown
from bert_jax.studies.report.compare import Difference
from bert_jax.studies.report.published import CLAIMS, TABLES
from bert_jax.studies.report.verdicts import (
    NOT_REPLICATED,
    REPLICATED,
    UNDERPOWERED,
    Judged,
    Verdict,
)
from bert_jax.studies.report.view import View
from bert_jax.studies.report.wording import format_interval
from tests import study_workdir
from tests.claims import LOSS, TRUE, study
from tests.two_way import halves_by_hand

SPREAD = 0.02


def gain(values: np.ndarray, families: int = 1, error: float = 0.0) -> Difference:
    """Return the first difference of a family of values [points, seeds]."""
    points = len(values)
    compared = simultaneous.compare_points(values, families, [error] * (points - 1))
    gap = compared.gaps[0]
    ends = {"mean": gap.mean, "low": gap.mean - gap.half, "high": gap.mean + gap.half}
    noise = {"spread": compared.spread, "points": points, "examples_error": error}
    return Difference("loss", "", "a", "b", gap.pairs, 0, **ends, **noise)


def noise(seeds: int, points: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, SPREAD, (points, seeds))


def raised(values: np.ndarray, mean: float) -> np.ndarray:
    """Return values whose first difference has a mean that is known."""
    moved = values.copy()
    moved[1] += mean - (values[1] - values[0]).mean()
    return moved


@pytest.mark.parametrize(
    ("low", "high", "options", "word"),
    [
        (0.1, 0.3, {}, REPLICATED),
        (-0.1, 0.3, {}, UNDERPOWERED),
        (-0.3, -0.1, {}, NOT_REPLICATED),
        (0.1, 0.3, {"least": 0.05}, REPLICATED),
        (0.1, 0.3, {"least": 0.15}, UNDERPOWERED),
        (0.1, 0.3, {"least": 0.4}, NOT_REPLICATED),
        (-0.1, 0.15, {"within": 0.2}, REPLICATED),
        (-0.15, 0.1, {"within": 0.2}, REPLICATED),
        (-0.1, 0.3, {"within": 0.2}, UNDERPOWERED),
        (0.1, 0.3, {"within": 0.25}, UNDERPOWERED),
        (-0.3, 0.3, {"within": 0.2}, UNDERPOWERED),
        (0.25, 0.3, {"within": 0.2}, NOT_REPLICATED),
        (-0.3, -0.25, {"within": 0.2}, NOT_REPLICATED),
    ],
)
def test_verdict_follows_from_the_interval(low, high, options, word):
    ends = {"mean": (low + high) / 2, "low": low, "high": high, "spread": 0.1, "points": 2}
    verdict = verdicts.judge_gain(Difference("loss", "", "a", "b", 3, 0, **ends), **options)
    assert verdict == (word, (low + high) / 2, low, high, 3, verdict.needed)
    assert (verdict.needed is None) == (word != UNDERPOWERED)


@pytest.mark.parametrize(
    ("mean", "families", "options", "wanted"),
    [
        (0.03, 1, {}, REPLICATED),
        (0.03, 6, {}, REPLICATED),
        (-0.03, 1, {}, NOT_REPLICATED),
        (0.05, 1, {"least": 0.02}, REPLICATED),
        (0.01, 1, {"within": 0.05}, REPLICATED),
        (0.08, 1, {"within": 0.05}, NOT_REPLICATED),
    ],
)
def test_verdict_needs_seeds_that_are_enough(mean, families, options, wanted, monkeypatch):
    """Of simulated studies with that many seeds nine of ten come to the verdict, or a little more.

    Their noise has the spread of the first study, and its difference is the true one.
    """
    few = noise(2, seed=5)
    scale = SPREAD / simultaneous.compare_points(few).spread
    seen = gain(raised(few * scale, mean), families)
    verdict = verdicts.judge_gain(seen, families, **options)
    assert verdict.word == UNDERPOWERED
    monkeypatch.setattr(simultaneous, "count_seeds", lambda *_: None)  # of the others: slow
    found = 0
    for seed in range(500):
        values = noise(verdict.needed, seed=seed)
        values[1] += mean
        found += verdicts.judge_gain(gain(values, families), families, **options).word == wanted
    assert 435 <= found <= 480


def test_verdict_needs_no_seeds_where_none_help():
    """Examples are too few, or the difference is nothing."""
    values = raised(noise(6, points=2), 0.1)
    assert verdicts.judge_gain(gain(values)).word == REPLICATED
    assert verdicts.judge_gain(gain(values, error=0.1))[0::5] == (UNDERPOWERED, None)
    close = raised(noise(3, points=2, seed=1), 0.02)
    wide, narrow = verdicts.judge_gain(gain(close, error=0.004)), verdicts.judge_gain(gain(close))
    assert (wide.word, narrow.word) == (UNDERPOWERED, UNDERPOWERED)
    assert wide.needed > narrow.needed
    assert verdicts.judge_gain(gain(raised(values, 0.0)))[0::5] == (UNDERPOWERED, None)


def test_verdict_of_one_pair_is_open():
    verdict = verdicts.judge_gain(gain(np.array([[0.0], [0.5]])))
    assert verdict == (UNDERPOWERED, 0.5, -math.inf, math.inf, 1, None)


# --- in a study -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def view(tmp_path_factory) -> View:
    place = study_workdir.build(tmp_path_factory.mktemp("w") / "w", study(), examples=300, lines=4)
    return View(place, place.read_study(), results.read_results(place))


def rows(judged: list[Judged]) -> list[list[str]]:
    """Rows of the table of claims."""
    (table,) = verdicts.describe_claims(judged)[-1].blocks
    return table.rows


def sentences(judged: list[Judged]) -> dict[str, list[str]]:
    """Verdicts by the sentence of their claim."""
    _, *blocks, _ = verdicts.describe_claims(judged)
    return {
        claim.text: list(listed.items)
        for claim, listed in zip(blocks[::2], blocks[1::2], strict=True)
    }


def test_judge_tells_true_reversed_and_null_apart(view):
    words = {(j.claimed.claim, j.family): j.verdict.word for j in verdicts.judge_claims(view)}
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


def test_judge_claims_by_all_points(view):
    """Six families: two sizes, each against 15 % (also claimed), 20 % and 80 %."""
    assert view.family_count == 6
    for claimed, family, verdict, _ in verdicts.judge_claims(view):
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


def test_judge_claims_by_intervals_of_differences(view):
    found = answers.compute_findings(view)
    gaps = {(gap.family, gap.point): gap for gap in found.gaps[0]}
    claims = [j for j in found.claims if j.claimed.baseline == "15 %"]
    assert len(claims) == 2
    for claimed, family, verdict, share in claims:
        gap = gaps[family, claimed.point]
        assert (verdict.low, verdict.high) == (-gap.high, -gap.low)  # a lower loss is a gain
        (line,) = rows([Judged(claimed, family, verdict, share)])
        assert numbers(line[3])[1:] == numbers(format_interval(-gap.high, -gap.low))


def test_judge_claims_of_gains_by_all_points(tmp_path):
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
    one, other = verdicts.judge_claims(seen)
    assert (one.family, other.family) == ("", "")
    assert (one.verdict.mean, other.verdict.mean) == pytest.approx((mean, -mean))
    for verdict in (one.verdict, other.verdict):
        assert verdict.high - verdict.mean == pytest.approx(half, rel=5e-3)
        assert verdict.mean - verdict.low == pytest.approx(half, rel=5e-3)
    assert "at 2 x 128 than at 2 x 64, by " in next(iter(sentences([one])))
    assert "20 % gains more over 80 % at 2 x 128 than at 2 x 64, by" in rows([one])[0][2]


def test_judge_claims_needs_runs_of_both_gains(tmp_path):
    """A study of one size so far, and one whose seeds differ."""
    larger = dataclasses.replace(TRUE, more_at=("size", "2 x 128", "2 x 64"))

    def verdict(name, state):
        made = study(claims=(larger,))
        place = study_workdir.build(tmp_path / name, made, state, examples=20, lines=4)
        ((_, _, found, _),) = verdicts.judge_claims(
            View(place, place.read_study(), results.read_results(place))
        )
        return found

    def both(*seeds):
        larger = "2 x 128"
        return lambda c: "done" if c.labels["size"] == larger or c.seed in seeds else "untouched"

    assert verdict("one", both()) is None
    assert verdict("some", both(1, 3)).seeds == 2


def test_report_has_verdicts_that_fit_the_intervals(view):
    """On the page and in the summary, for each difference and each claim."""
    build.write(view.place)
    page, summary = view.place.report.read_text(), view.place.summary.read_text()
    words = []
    for row in re.findall(r"<tr>(.*?)</tr>", page.split("Differences in pairs")[1]):
        cells = re.findall(r"<td[^>]*>(.*?)</td>", row)
        if len(cells) > 4 and "significant" in cells[4]:
            low, high = numbers(cells[2])
            words.append(cells[4] == "significant")
            assert (low > 0 or high < 0) == words[-1] == (numbers(cells[3])[0] <= 0.05)
    assert sorted(words) == [False, False, True, True]  # 20 and 80 % at two sizes
    judged = verdicts.judge_claims(view)
    for line, one in zip(rows(judged), judged, strict=True):
        _, low, high = numbers(line[3])
        margin = one.claimed.within
        assert (line[4] == "replicated") == (max(-low, high) < margin if margin else low > 0)
        assert line[3] in page
    for claim, listed in sentences(judged).items():
        assert all(escape_markdown(sentence) in summary for sentence in (claim, *listed))
    assert CLAIMS["C1"].text in page


def test_describe_writes_scores_in_per_cent():
    """F1 of a share is below 1, that of SQuAD below 100."""
    claimed = dataclasses.replace(TRUE, metric="squad/f1", effect=1.0)
    for scale, share, said in (
        (1, False, "+1.600 (+1.352 to +1.848)"),
        (100, True, f"+1.60{SPACE}% (+1.35 to +1.85{SPACE}%)"),
    ):
        verdict = Verdict("replicated", 1.6 / scale, 1.352 / scale, 1.848 / scale, 3, None)
        ((line,),) = sentences([Judged(claimed, "", verdict, share)]).values()
        assert line == f"{said}, replicated."


def test_judge_claims_of_one_seed_is_underpowered(tmp_path):
    place = study_workdir.build(tmp_path / "w", study(seeds=(0,)), examples=10, lines=4)
    one = View(place, place.read_study(), results.read_results(place))
    for verdict in (j.verdict for j in verdicts.judge_claims(one)):
        assert (verdict.word, verdict.high) == ("underpowered", math.inf)
    for lines in sentences(verdicts.judge_claims(one)).values():
        assert all("one pair: no interval" in line for line in lines)


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
def test_expand_refuses_claims_that_no_run_can_judge(change, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        definition.expand(study(claims=(dataclasses.replace(TRUE, **change),)))


def test_published_claims_are_whole():
    for name, claim in CLAIMS.items():
        assert re.fullmatch(r"C\d+", name)
        assert all(claim)
        assert not any(text.endswith(".") for text in claim)


@pytest.mark.parametrize("name", TABLES)
def test_published_tables_are_whole(name):
    one = TABLES[name]
    assert {len(row) for row in one.rows.values()} == {len(one.columns)}
    assert all(70 < score < 100 for row in one.rows.values() for score in row)
