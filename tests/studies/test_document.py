"""The report of a study in any state: what its page says is frozen, with all its numbers."""

import dataclasses
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from bert_jax.reporting.formats import SPACE
from bert_jax.studies import files
from bert_jax.studies.definition import Budget, Cell, Comparison, Study, axis, variants
from bert_jax.studies.report import compare, figures
from bert_jax.studies.report.blocks import Bullets, Code, render_html, render_markdown
from bert_jax.studies.report.view import View
from tests import study_workdir
from tests.browser import SIZES as WINDOWS
from tests.pages import Reader, check_page
from tests.studies.views import (
    LOSS,
    NULL,
    REVERSED,
    TRUE,
    build_view,
    compose,
    define_claims,
    read_view,
)
from tests.study_workdir import SIZES, masking_rate

FROZEN = Path(__file__).parent / "frozen"
ONE_SIZE = {"2 x 64": SIZES["2 x 64"]}
HOSTILE = "</script><script>alert(1)</script> *a* [b](c) | `d` _e_ \"'&amp;<img src=x onerror=f(2)>"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(compare, "DRAWS", 100)
    monkeypatch.setattr(files, "tell_time", lambda: "2026-11-22T09:00:00+00:00")


def finish(cell: Cell) -> str:
    return "done"


def leave_holes(cell: Cell) -> str:
    where = cell.labels["size"], cell.labels["masking.rate"], cell.seed
    return {("2 x 128", "40 %", 1): "failed", ("2 x 64", "80 %", 2): "diverged"}.get(where, "done")


def begin(cell: Cell) -> str:
    """The smaller size has other seeds than the larger one."""
    return "done" if cell.labels["size"] == "2 x 128" or cell.seed in (1, 3) else "untouched"


def finish_none(cell: Cell) -> str:
    return {0.15: "untouched", 0.4: "failed", 0.8: "diverged"}[cell.config.masking.rate]


FALLING = {"masking.rate": 0.3, "masking.phases": ((1.0, 0.15, "linear"),)}
TWO_VIEWS = {"masking.rate": 0.15, "masking.prediction_rate": 0.3}
RATES = variants("rate", {"fixed": {"masking.rate": 0.15}, "falling": FALLING, "views": TWO_VIEWS})
LARGER = dataclasses.replace(TRUE, more_at=("size", "2 x 128", "2 x 64"))
CLAIMS = (TRUE, REVERSED, NULL, LARGER, dataclasses.replace(LARGER, metric="pos/accuracy"))
SUITE = {"validation": study_workdir.EVALUATIONS["validation"]}


def find_best(rates: tuple[float, ...], sizes: dict[str, Any] = SIZES) -> Study:
    """Define a study of three budgets, whose best rates are planted near 17 and 24 %."""
    budget = Budget("tokens", (1_500_000, 3_000_000, 6_000_000))
    compared = (Comparison("masking.rate", f"{100 * rates[0]:g} %", (LOSS,)),)
    return masking_rate(rates, sizes, budget=budget, comparisons=compared, evaluations=SUITE)


STUDIES: dict[str, tuple[Study, Callable[[Cell], str]]] = {
    "holes": (masking_rate(rates=(0.05, 0.15, 0.4, 0.8)), leave_holes),
    "schedules": (masking_rate(axes=(RATES,), seeds=(0,), comparisons=()), finish),
    "no_results": (masking_rate(rates=(0.15, 0.4, 0.8), sizes=ONE_SIZE, seeds=(0,)), finish_none),
    "no_axes": (masking_rate(axes=(), comparisons=()), finish),
    "claims": (define_claims(claims=CLAIMS, evaluations=study_workdir.EVALUATIONS), finish),
    "claims_begun": (define_claims(claims=CLAIMS[:4], seeds=(0, 1, 3)), begin),
    "best": (find_best((0.1, 0.15, 0.2, 0.25, 0.3)), finish),
    "best_below": (find_best((0.3, 0.4, 0.5, 0.6, 0.7), ONE_SIZE), finish),
}


def build(name: str, folder: Path) -> View:
    study, state = STUDIES[name]
    return build_view(folder / "w", study, state, examples=40)


@pytest.mark.fault(24)
@pytest.mark.parametrize("name", STUDIES)
def test_page_says_what_is_frozen(name, tmp_path, pytestconfig):
    """Holes are shown everywhere, and never averaged away."""
    page = render_html(compose(build(name, tmp_path)))
    check_page(page, FROZEN / f"{name}.txt", pytestconfig)


def test_report_says_why_it_has_no_best_values(tmp_path):
    alike = {name: SIZES["2 x 64"] | {"optim.b2": b2} for name, b2 in (("a", 0.98), ("b", 0.99))}
    page = render_markdown(compose(build_view(tmp_path, find_best((0.1, 0.15, 0.2, 0.25), alike))))
    assert "No best masking rate is fitted: a and b have equally many parameters." in page


def test_best_values_rest_on_the_runs_there_are(tmp_path):
    """At the lowest rate all runs failed; those of the lowest budget determine no parabola."""
    few = {0.4: 0, 0.5: 0, 0.6: 1, 0.7: 2}  # the only seed of each rate

    def state(cell: Cell) -> str:
        rate, budget = cell.values["masking.rate"], cell.values["budget"]
        lost = budget == 1_500_000 and cell.seed != few.get(rate)
        return "failed" if lost or rate == 0.3 else "done"

    study = find_best((0.3, *few), ONE_SIZE)
    page = render_markdown(compose(build_view(tmp_path, study, state)))
    lines = page.replace(SPACE, " ").splitlines()
    table = lines.index("|best masking rate after|3 M|6 M tokens|")
    below = "below the 40 % that was tried"
    assert lines[table + 2] == f"|2 x 64|{below}|{below}|"


@pytest.mark.parametrize(
    ("knob", "share"),
    [
        ("optim.learning_rate", False),  # the best one would be written as 0 %
        ("model.init_stddev", False),
        ("objectives.mlm.weight", False),
        ("optim.warmup_fraction", True),
    ],
)
def test_only_a_share_has_a_best_value(tmp_path, knob, share):
    varied = axis(knob, (0.01, 0.02, 0.03, 0.05))
    compared = (Comparison(knob, "0.01", (LOSS,)),)
    study = masking_rate(axes=(varied,), comparisons=compared, evaluations=SUITE, budget=None)
    study.base.steps = 2_000
    page = render_markdown(compose(build_view(tmp_path, study)))
    assert (f"he best {varied.words} is" in page) == share
    assert ("after 2,000 steps" in page) == share


@pytest.mark.fault(18)
def test_hostile_names_are_inert_in_both_renderings(tmp_path):
    points = {HOSTILE: {"masking.rate": 0.15}, "b": {"masking.rate": 0.2}}
    study = Study(
        question=HOSTILE,
        base=study_workdir.base(),
        axes=(variants(f"objective{HOSTILE}", points),),
        seeds=(0, 1),
        evaluations=SUITE,
        comparisons=(Comparison(f"objective{HOSTILE}", HOSTILE, (LOSS,)),),
        notes=HOSTILE,
    )
    place = study_workdir.build(
        tmp_path, study, lambda cell: "failed" if cell.seed else "done", name=HOSTILE, lines=8
    )
    place.write_failure(place.read_cells()[1].id, "training", HOSTILE)
    made = compose(read_view(place))
    page = render_html(made)
    assert "alert(1)" in "".join(Reader(page).lines)
    code = "(`+).*?\\1"  # such as the command, is shown as it is
    for text, ours in ((page, 1), (re.sub(code, "", render_markdown(made)), 0)):
        assert text.count("<script") == ours
        assert "<img" not in text
    assert render_markdown([Bullets([("run by ", Code("a `b`"))])]) == "- run by `` a `b` ``"


def test_conditions_say_the_command_but_no_machine(tmp_path):
    view = build("no_results", tmp_path)
    spec = "experiments/corruption_split:cpu,0.15 0.4"
    typed = ["/home/me/.venv/bin/bert-jax", "study", "run", spec, "--jobs=2"]
    typed += ["--workdir", "/home/me/w", "--reuse=../pairs/"]
    changed = View(view.place, msgspec.structs.replace(view.study, command=typed), view.results)
    lines = render_markdown(compose(changed)).splitlines()
    assert f"- `bert-jax study run '{spec}' --jobs=2 --workdir=runs/w --reuse=runs/pairs`" in lines
    assert "/home" not in "".join(lines)


@pytest.fixture(scope="module")
def holes(tmp_path_factory) -> View:
    return build("holes", tmp_path_factory.mktemp("study"))


def test_cross_rate_marks_the_best_of_each_column(holes):
    """A row that lacks a seed is shown and is best nowhere; darker cells are nearer to the best."""
    heat = figures.draw_cross_rates(holes, holes.axis("masking.rate"))["cross_rate_2x64"]
    assert heat.rows == ["5 %", "15 %", "40 %", "80 % (2 of 3)"]
    whole = np.array(heat.values)[:-1]
    assert heat.marks == {(int(row), column) for column, row in enumerate(whole.argmin(axis=0))}
    shades = np.array(heat.shades)[:-1]
    assert np.all(shades.max(axis=0) == 1)
    np.testing.assert_array_equal(np.argsort(-shades, axis=0), np.argsort(whole, axis=0))


def test_losses_are_read_where_flops_are_equal(holes):
    """At 5 % the runs are the cheapest; others are read before their end."""
    made = figures.draw_at_equal(holes, holes.axis("masking.rate"), LOSS)
    points = dict(made["masking.rate_equal_flops"].series[0].points)
    runs = holes.families("masking.rate")[0].runs
    assert points[0.05] == pytest.approx(np.mean([run.metrics[LOSS] for run in runs["5 %"]]))
    expected = []
    for run in runs["40 %"]:
        steps, losses = zip(*run.history.evaluations[LOSS], strict=True)
        spent = np.log([run.spent("flops", step) for step in steps])
        expected.append(np.interp(math.log(runs["5 %"][0].spent("flops")), spent, losses))
    assert points[0.4] == pytest.approx(np.mean(expected))


def test_crossed_axes_are_a_matrix_with_holes(tmp_path):
    splits = {"80/10/10": (0.8, 0.1, 0.1), "100/0/0": (1.0, 0.0, 0.0)}
    name = "masking.replace"
    axes = (axis("masking.rate", (0.15, 0.4)), axis(name, splits.values(), splits))
    compared = (Comparison(name, "80/10/10", ("pos/accuracy",)),)
    study = masking_rate(seeds=(0, 1), axes=axes, comparisons=compared)

    def state(cell) -> str:
        return "failed" if list(cell.labels.values()) == ["40 %", "100/0/0"] else "done"

    made = build_view(tmp_path, study, state)
    (heat,) = figures.draw_crossed(made).values()
    assert (heat.rows, heat.columns) == (("15 %", "40 %"), ("80/10/10", "100/0/0"))
    assert heat.x == "split ([MASK]/same/random, %)"
    assert math.isnan(heat.values[1][1])
    top = max(value for row in heat.values for value in row if math.isfinite(value))
    assert [heat.values[i][j] for i, j in heat.marks] == [top]
    assert made.families(name)[0].name == "masking rate 15 %"  # a number says of what it is


# In the page: the texts of boxes that are cut, and the width of the first figure.
MEASURE = """(() => {
  const shows = element => element.getClientRects().length > 0;
  const boxes = [...document.querySelectorAll('.box .scroll')].filter(shows);
  const drawn = [...document.querySelectorAll('.chart svg')].filter(shows);
  return {
    cut: boxes.filter(element => element.scrollWidth > element.clientWidth + 1)
      .map(element => element.textContent.slice(0, 200)),
    first: drawn[0].getBoundingClientRect().width,
  };
})()"""


@pytest.mark.parametrize(("width", "dark"), WINDOWS)
def test_page_is_cut_nowhere_in_a_browser(browser, holes, width, dark):
    opened = render_html(compose(holes)).replace("<details>", "<details open>")
    browser.show(opened, width, dark)
    found = browser.js(MEASURE)
    assert found["cut"] == []
    assert found["first"] >= min(390, 0.78 * width)
