"""A study's rows, page and pictures, from any state of its folder, against its files by hand."""

from __future__ import annotations

import csv
import dataclasses
import html
import json
import math
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

from bert_jax import config
from bert_jax.config import costs
from bert_jax.masking import quotas, rates
from bert_jax.reporting import page, svg
from bert_jax.reporting.figures import Chart, Heat
from bert_jax.reporting.formats import HOLE, SPACE
from bert_jax.studies import definition, results, scaling
from bert_jax.studies.definition import Budget, Comparison, Study, axis, variants
from bert_jax.studies.folder import Entry, StudyFolder
from bert_jax.studies.report import (
    aggregate,
    answers,
    budgets,
    collect,
    compare,
    findings,
    matrices,
    published,
    tables,
)
from bert_jax.studies.report import build as report
from bert_jax.studies.report.aggregate import View
from bert_jax.system import folder_locks
from tests import chromium, study_workdir
from tests.study_workdir import SIZES, build, masking_rate
from tests.test_report import HOSTILE, VOID, Checker

ONE_SIZE = {"2 x 64": SIZES["2 x 64"]}
ONE_CELL = masking_rate(rates=(0.15,), sizes=ONE_SIZE, seeds=(0,))
VOID.add("input")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(compare, "DRAWS", 200)


def states(cell) -> str:
    where = cell.labels["size"], cell.labels["masking.rate"], cell.seed
    return {("2 x 128", "40 %", 1): "failed", ("2 x 64", "80 %", 2): "diverged"}.get(where, "done")


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> StudyFolder:
    """Four rates, two sizes, three seeds; one cell failed and one diverged."""
    study = masking_rate(rates=(0.05, 0.15, 0.4, 0.8))
    return build(tmp_path_factory.mktemp("study"), study, states, examples=40, lines=20)


@pytest.fixture(scope="module")
def view(place) -> View:
    return View(place, place.read_study(), results.read_results(place))


@pytest.fixture(scope="module")
def body(view) -> str:
    return report.compose(view, findings.find(view))[0]


def read(html: str) -> str:
    """The text of a page that is whole and asks for nothing from elsewhere."""
    checked = Checker(page.page("t", html, report.STYLE))
    assert checked.outside == []
    return re.sub(r"\s+", " ", " ".join(checked.text))


def compose(place: StudyFolder) -> str:
    view = View(place, place.read_study(), results.read_results(place))
    return report.compose(view, findings.find(view))[0]


def sections(html: str) -> dict[str, str]:
    """The bodies of the sections by their headings, whether they are folded or not."""
    whole = re.findall('<section id="[^"]*">(.*?)</section>', html, re.DOTALL)
    plain = "<h2>(.*?)</h2>(.*)"
    folded = (
        '<details><summary><h2>(.*?)</h2> <span class="held">.*?</span></summary>(.*)</details>'
    )
    found = [
        re.fullmatch(folded, each, re.DOTALL) or re.fullmatch(plain, each, re.DOTALL)
        for each in whole
    ]
    return {one[1]: one[2] for one in found}


def metric(place: StudyFolder, cell: str, name: str, key: str) -> float:
    return json.loads(place.result(cell, name).read_text())["metrics"][key]


def cells(place: StudyFolder) -> dict[tuple[str, str, int], str]:
    """Ids by size, rate and seed, from cell.json alone."""
    found = {}
    for cell in place.cells():
        found[cell.labels["size"], cell.labels["masking.rate"], cell.seed] = cell.id
    return found


# --- rows -----------------------------------------------------------------------------------------


def test_every_cell_has_a_row(place):
    results.read_results(place)
    text = place.csv.read_text()
    rows = list(csv.DictReader(text.splitlines()))
    assert [row["cell"] for row in rows] == list(place.read_study()["cells"])
    by_cell = {row["cell"]: row for row in rows}
    for (size, rate, seed), one in cells(place).items():
        row = by_cell[one]
        assert (row["size"], row["masking.rate"], row["seed"]) == (size, rate, str(seed))
        assert float(row["masking.rate.value"]) == float(rate.removesuffix(" %")) / 100
        assert row["steps"] == "2000"
        if row["state"] == "done":
            steps_tokens = 2_000 * 32 * 64
            assert float(row["tokens"]) == steps_tokens
            assert float(row["predictions"]) == pytest.approx(
                steps_tokens * float(row["masking.rate.value"])
            )
            assert float(row["validation/mlm_loss"]) == metric(place, one, "validation", "mlm_loss")
            assert float(row["blimp/field/syntax"]) == metric(place, one, "blimp", "field/syntax")
        else:
            assert row["validation/mlm_loss"] == ""
    holes = {row["state"]: row for row in rows if row["state"] != "done"}
    assert holes.keys() == {"failed", "diverged"}
    assert holes["failed"]["error"] == "training: XlaRuntimeError: out of <memory>"
    assert holes["failed"]["step"] == "1000"
    assert holes["diverged"]["error"].startswith("5 updates")
    names = next(csv.reader(text.splitlines()))
    assert names[:2] == ["cell", "state"]
    assert names.index("evaluated") + 1 == names.index("validation/examples")
    assert not list(place.workdir.glob("*.tmp"))


def test_columns_stay_where_they_are_while_the_study_runs(tmp_path):
    study = masking_rate(rates=(0.15, 0.4), sizes=ONE_SIZE)
    place = build(
        tmp_path, study, lambda c: "untouched" if c.seed else "done", examples=10, lines=4
    )
    results.read_results(place)
    before = place.csv.read_text().splitlines()
    assert [row.split(",")[1] for row in before[1:]].count("waiting") == 4
    build(tmp_path, study, examples=10, lines=4)
    results.read_results(place)
    assert place.csv.read_text().splitlines()[0] == before[0]


def test_a_result_of_another_evaluation_is_none(tmp_path):
    place = build(tmp_path, ONE_CELL, examples=10, lines=4)
    entry = place.cells()[0]
    path = place.result(entry.id, "validation")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"spec": "of an earlier one"}))
    found = results.read_results(place)[0]
    assert not any(name.startswith("validation/") for name in found.metrics)
    assert any(name.startswith("blimp/") for name in found.metrics)


def test_an_evaluation_that_came_to_nothing_is_told(tmp_path):
    place = build(tmp_path, ONE_CELL, examples=10, lines=4)
    place.write_result(place.cells()[0], "pos", {}, 1.0, {}, error="the loss is <nan>")
    assert results.read_results(place)[0].errors == {"pos": "the loss is <nan>"}
    text = read(compose(place))
    assert "pos: no result" in text
    assert "the loss is <nan>" in text


@pytest.mark.parametrize("step", [0, 1, 7, 50, 100])
def test_predictions_under_a_schedule_are_added_up_step_by_step(step):
    tree = study_workdir.base()
    tree.steps = 100
    tree.optim.warmup_steps = 0
    tree.masking.update({"rate": 0.3, "phases": ((1.0, 0.1, "linear"),)})
    resolved = config.resolve(tree)
    by_hand = math.fsum(32 * 64 * rates.rate_at(resolved.masking, one, 100) for one in range(step))
    assert collect.clock("predictions", resolved, 4_000)(step) == pytest.approx(by_hand)
    assert collect.clock("tokens", resolved, 4_000)(step) == step * 32 * 64


def test_flops_are_those_of_the_vocabulary_there_is(tmp_path):
    """Of a cell that has begun its own size counts, before that the one its budget was spent with;
    never the wish.
    """
    base = study_workdir.base()
    base.tokenizer.vocab_size = 30_522
    study = masking_rate((0.15, 0.4), ONE_SIZE, (0,), base=base)
    place = build(tmp_path / "w", study, lambda cell: "untouched")
    cells = [dataclasses.replace(cell, vocabulary=2_000) for cell in definition.expand(study)]
    place.write_study({"name": "x"}, [Entry(**vars(cell)) for cell in cells])
    place.cell(cells[0].id).mkdir()
    (place.cell(cells[0].id) / "environment.json").write_text(json.dumps({"vocabulary": 1_000}))
    for one, cell, size in zip(results.read_results(place), cells, (1_000, 2_000), strict=True):
        wanted = costs.flops_per_step(cell.config, size)
        assert one.spent("flops", 7) == pytest.approx(7 * wanted)
        assert one.clock("flops")(7) == one.spent("flops", 7)


# --- the page -------------------------------------------------------------------------------------


def test_the_page_says_what_the_files_say(place, view, body):
    text = read(body)
    assert body.startswith("<h1>Which masking rate")
    for said in ("22 of 24", "1 failed, 1 diverged", "2 CPU cores", "abcdef012345", "2026-11-21"):
        assert said in text, said
    assert "bert-jax study run experiments/masking_rate --workdir=runs/masking_rate" in text
    assert "; ".join(sections(body)) == (
        "Answer; Best value; Differences in pairs; Equal budgets; Trained at one rate, evaluated "
        "at others; What was masked; Downstream; Published, beside ours: Masking rates of Wettig "
        "et al.; Notes; Config; State and cost"
    )
    assert "Whatever an arm is trained with" in sections(body)["Notes"]
    assert "Seeds share the order of the data" in sections(body)["Notes"]
    values = [
        metric(place, cells(place)["2 x 64", "15 %", seed], "validation", "mlm_loss")
        for seed in range(3)
    ]
    half = 4.302653 * np.std(values, ddof=1) / math.sqrt(3)
    assert f"{np.mean(values):.3f} ± {half:.3f}" in sections(body)["Answer"]
    assert "nan" not in body.lower()
    assert ">inf" not in body


def test_holes_are_seen_everywhere(body):
    parts = sections(body)
    state = read(parts["State and cost"])
    assert "2 x 128, 40 % 1" in state
    assert "XlaRuntimeError: out of <memory>" in state
    assert "5 updates in a row were not finite" in state
    answer = read(parts["Answer"]).replace(SPACE, " ")
    assert "Fewer: 2 x 64: 80 % (2 of 3); 2 x 128: 40 % (2 of 3)." in answer
    assert answer.count("(2 of 3)") >= 2 * 3 + 2 * 3  # of 3 metrics, below figures and in tables
    assert re.search(
        r"2 x 128, 40 %</td>.*?data-head=\"pairs\">2</td><td[^>]*data-head=\"missing\">1</td>",
        parts["Differences in pairs"],
    )
    assert read(parts["Downstream"]).count("2 of 3") == 4
    assert state.count("2 of 3") == 2


def test_differences_are_shown_with_intervals(view, body):
    """Those of six families, three metrics at two sizes, by the draws that the page had."""
    found = compare.differences(
        view.place, view.families("masking.rate"), "15 %", ["validation/mlm_loss"], 6, 5_000
    )
    part = sections(body)["Differences in pairs"]
    for one in found:
        row = [
            aggregate.plain(one.mean, signed=True),
            aggregate.interval(one.low, one.high),
            html.escape(aggregate.probability(one.p)),
            "significant" if one.significant else "not significant",
            f"{one.spread:.3f}{', own' if one.own else ''}",
        ]
        assert re.search(".*?".join(f">{re.escape(cell)}</td>" for cell in row), part)
    assert {one.own for one in found} == {one.significant for one in found} == {True, False}
    assert "Minus 15 %, in 2 to 3 pairs" in read(part).replace(SPACE, " ")


def test_the_answer_comes_first_and_what_it_cost_last(view, body):
    text = read(body)
    told = re.search(r'<p class="lead">(.*?)</p>', body)[1].replace(SPACE, " ")
    assert re.match(r"The best masking rate is \d+ to \d+ % after 4.1 M tokens\. By val", told)
    (warned,) = answers.warnings(view)
    places = [text.index(part) for part in ("Answer", told, warned, "Means of 3 seeds")]
    assert places == sorted(places)
    last = sections(body)["State and cost"]
    assert body.rstrip().endswith(f"{last}</details></section>")
    for said in ("Cells done", "Hardware", "XlaRuntimeError", "abcdef012345"):
        assert said not in body[: body.index(last)]


def test_contents_lead_to_every_section(body):
    links = re.findall('<a href="#(.+?)">(.+?)</a>', body)
    assert [title for _, title in links] == list(sections(body))
    names = re.findall(' id="(.+?)"', body)
    assert len(set(names)) == len(names)
    assert {name for name, _ in links} <= set(names)
    assert body.index("</h1>") < body.index("</nav>") < body.index("<h2>")


def test_a_link_to_a_section_opens_it(body, tmp_path):
    whole = page.page("t", body, report.STYLE)
    shown = chromium.document(tmp_path, whole, address="to-equal-budgets")
    assert re.findall('<section id="([^"]*)"><details open', shown) == ["to-equal-budgets"]


def test_all_but_the_answer_is_folded_under_what_it_holds(body):
    def is_open(at: int) -> bool:
        return body.count("<details", 0, at) == body.count("</details", 0, at)

    assert not [one for one in re.finditer("<table", body) if is_open(one.start())]
    shown = re.finditer("<figcaption>(.*?)<", body)
    assert [one[1] for one in shown if is_open(one.start())] == [
        "Validation MLM loss"  # by one budget there is no figure of best values
    ]
    held = {read(one) for one in re.findall("<summary>.*?</summary>", body)}
    said = {" ".join(one.split()).removeprefix("t ") for one in held}
    assert {
        "POS accuracy 1 figure",
        "Means 6 rows",
        "Differences in pairs 3 figures, 3 tables",
    } <= said


def test_points_that_the_plan_leaves_out_are_not_missing(view):
    """Those of cells that are done without a metric; one that failed is missing."""
    metric, families = "pos/accuracy", view.families("masking.rate")
    text = aggregate.seeds_note(families, aggregate.getter(metric)).replace(SPACE, " ")
    assert text.endswith("Fewer: 2 x 64: 80 % (2 of 3); 2 x 128: 40 % (2 of 3).")
    without = [
        dataclasses.replace(one, metrics={}) if one.entry.labels["masking.rate"] == "15 %" else one
        for one in view.results
    ]
    families = View(view.place, view.study, without).families("masking.rate")
    assert aggregate.seeds_note(families, aggregate.getter(metric)).replace(SPACE, " ") == text


MEASURE = """<script>
const shows = element => element.getClientRects().length > 0;
const drawn = [...document.querySelectorAll('.chart svg')].filter(shows);
const box = drawn[0].getBoundingClientRect();
drawn[0].dispatchEvent(new PointerEvent('pointermove', { clientX: box.right - 20, clientY: 9 }));
parent.document.body.dataset.measured = JSON.stringify({
  errors: window.errors,
  beyond: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  cut: [...document.querySelectorAll('.scroll')].filter(shows)
    .filter(element => element.scrollWidth > element.clientWidth + 1)
    .map(element => element.textContent.slice(0, 200)),
  kinds: [...new Set(drawn.map(svg => svg.closest('.broad, .slim').className))],
  first: box.width,
  tip: [...document.querySelectorAll('.tip')].filter(shows).map(tip => tip.textContent),
});
</script></body>"""
WATCH = "<head><script>window.errors = []; onerror = what => { errors.push(what); };</script>"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("width", "kind", "least"), [(420, "slim", 330), (435, "slim", 330), (1400, "broad", 560)]
)
def test_nothing_is_cut_in_a_browser(body, tmp_path, width, kind, least):
    whole = page.page("t", body.replace("<details>", "<details open>"), report.STYLE)
    whole = html.escape(whole.replace("<head>", WATCH).replace("</body>", MEASURE))
    framed = f'<iframe style="width:{width}px; height:900px; border:0" srcdoc="{whole}"></iframe>'
    dumped = chromium.document(tmp_path, f"<body>{framed}</body>", width=1500)
    found = json.loads(html.unescape(re.search(r'data-measured="(.*?)"', dumped)[1]))
    assert found["errors"] == []
    assert found["beyond"] == 0
    assert found["cut"] == []
    assert found["kinds"] == [kind]
    assert found["first"] >= least
    (tip,) = found["tip"]
    assert re.fullmatch(
        r"masking rate 80 %\n2 x 64  5\.\d+ \(\d\.\d+ to \d\.\d+\)\n2 x 128  5\.\d+ \(.*\)", tip
    )


HEIGHT = """<script>
document.body.dataset.height = document.documentElement.scrollHeight;
</script></body>"""


@pytest.mark.slow
def test_the_page_of_the_largest_study_is_short(tmp_path):
    (tmp_path / "none.png").touch()  # then no other is drawn
    for name in ("study.json", "results.csv", "curves.csv", "examples.npz"):
        (tmp_path / name).write_bytes(Path("experiments/best_rate", name).read_bytes())
    report.write(StudyFolder(tmp_path))
    whole = (tmp_path / "report.html").read_text().replace("</body>", HEIGHT)
    dumped = chromium.document(tmp_path, whole, width=1400)
    assert int(re.search(r'data-height="(\d+)"', dumped)[1]) <= 8_000


def test_without_script_nothing_is_lost(body):
    whole = page.page("t", body, report.STYLE)
    assert whole.count("<script") == 1
    tabs = sections(body)["Equal budgets"]
    labels = re.findall(r"<label[^>]*>equal (\w+)", tabs)
    assert labels == ["steps", "tokens", "predictions", "FLOPs"]
    assert tabs.count('type="radio"') == 4
    assert len(re.findall(" checked", tabs)) == 1
    assert tabs.count("<figure") == 4 * (1 + 2)  # a reading and the curves of two sizes each
    for picture in re.findall(r"<svg.*?</svg>", body, re.DOTALL):
        ElementTree.fromstring(picture)


def test_everything_is_escaped(tmp_path):
    points = {HOSTILE: {"masking.rate": 0.15}, "b": {"masking.rate": 0.2}}
    study = Study(
        question=HOSTILE,
        base=study_workdir.base(),
        axes=(variants(f"objective{HOSTILE}", points),),
        seeds=(0, 1),
        evaluations={"validation": study_workdir.EVALUATIONS["validation"]},
        comparisons=(Comparison(f"objective{HOSTILE}", HOSTILE, ("validation/mlm_loss",)),),
        notes=HOSTILE,
    )
    place = build(
        tmp_path, study, lambda cell: "done" if cell.seed == 0 else "failed", name=HOSTILE, lines=8
    )
    place.write_failure(place.cells()[1].id, "training", HOSTILE)
    html = compose(place)
    assert "alert(1)" in read(html)
    assert "<script" not in html
    assert "<img" not in html


@pytest.mark.parametrize(
    ("baseline", "other", "seeds", "rates"),
    [
        ("untouched", "untouched", (0, 1), (0.15, 0.4)),
        ("halfway", "halfway", (0, 1), (0.15, 0.4)),
        ("trained", "trained", (0, 1), (0.15, 0.4)),
        ("failed", "done", (0, 1), (0.15, 0.4)),
        ("done", "done", (0,), (0.15, 0.4)),
        ("done", "", (0,), (0.15,)),
        ("diverged", "", (0,), (0.15,)),
    ],
)
def test_any_state_has_a_page(baseline, other, seeds, rates, tmp_path):
    def state(cell):
        return baseline if cell.labels["masking.rate"] == "15 %" else other

    study = masking_rate(rates=rates, sizes=ONE_SIZE, seeds=seeds)
    place = build(tmp_path, study, state, examples=10, lines=8)
    html = compose(place)
    text = read(html)
    done = sum(row["state"] == "done" for row in csv.DictReader(place.csv.read_text().splitlines()))
    assert f"{done} of {len(seeds) * len(rates)}" in text
    assert "nan" not in html.lower()
    assert ("No answer yet" in sections(html)["Answer"]) == (done == 0)
    assert ("Equal budgets" in sections(html)) == any(
        one.history.evaluations for one in results.read_results(place)
    )
    if done and len(seeds) == 1:
        assert "One seed: no interval" in text
        assert "±" not in text


def test_a_cell_at_work_is_shown_as_running(tmp_path):
    study = masking_rate(rates=(0.15,), sizes=ONE_SIZE, seeds=(0, 1))
    place = build(tmp_path, study, lambda cell: "halfway", examples=10, lines=8)
    with folder_locks.hold(place.cell(place.cells()[0].id)):
        text = read(compose(place))
    assert "1 running, 1 waiting" in text
    assert "Waiting: 1, of which 1 were begun" in text


def test_a_study_that_compares_nothing_is_shown_by_its_last_axis(tmp_path):
    study = masking_rate(rates=(0.15, 0.4), comparisons=())
    place = build(tmp_path, study, examples=10, lines=8)
    place.write_study(place.read_study() | {"published": ["no such table"]}, place.cells())
    parts = sections(compose(place))
    assert "Validation MLM loss" in parts["Answer"]
    assert "Differences in pairs" not in parts
    assert "no published table called no such table" in parts["Published"]


# --- figures --------------------------------------------------------------------------------------


def test_lines_are_means_at_their_rates(place, view):
    from bert_jax.studies.report import sections as parts

    chart = parts.headline(view, view.comparisons[0])["masking.rate_validation_mlm_loss"]
    assert isinstance(chart, Chart)
    line = chart.series[0]
    assert line.name == "2 x 64"
    assert [x for x, _ in line.points] == [0.05, 0.15, 0.4, 0.8]
    for (x, y), (_, low, high), rate in zip(
        line.points, line.whiskers, ("5 %", "15 %", "40 %", "80 %"), strict=True
    ):
        ids = [cells(place)["2 x 64", rate, seed] for seed in range(3) if (x, seed) != (0.8, 2)]
        values = [metric(place, one, "validation", "mlm_loss") for one in ids]
        assert y == pytest.approx(np.mean(values))
        assert (low + high) / 2 == pytest.approx(y)
        assert sorted(v for at, v in line.dots if at == x) == pytest.approx(sorted(values))
    assert chart.baselines == [("unigram", study_workdir.UNIGRAM)]


def test_far_apart_numbers_are_placed_by_their_logarithm_and_words_in_rows():
    rates = collect.Axis("optim.learning_rate", ("1e-5", "1e-4", "1e-2"), (1e-5, 1e-4, 1e-2))
    assert aggregate.places(rates) == pytest.approx({"1e-5": -5, "1e-4": -4, "1e-2": -2})
    words = collect.Axis("objective", ("NSP", "none"), ("NSP", "none"))
    assert aggregate.places(words) == {"NSP": 0.0, "none": 1.0}
    assert not words.numeric
    assert aggregate.chart_over(words, "t", []).rows == ("NSP", "none")


def test_budgets_are_read_where_all_runs_have_spent_as_much():
    points = [(100.0, 8.0), (200.0, 6.0), (400.0, 5.0)]
    assert budgets.read(points, math.sqrt(100 * 200)) == pytest.approx(7.0)
    assert budgets.read(points, math.sqrt(200 * 400)) == pytest.approx(5.5)
    assert budgets.read(points, 400) == 5.0
    assert budgets.read(points, 99) is None
    assert budgets.read(points, 401) is None
    assert budgets.read([], 1) is None


def test_equal_flops_are_read_alike_by_curve_and_fit():
    """Figures at equal budgets and best values at equal FLOPs are in one report."""
    losses = {2e12: 6.0, 8e12: 5.2, 1e14: 4.1}
    runs = [scaling.Run(1e5, cost, 0.3, 0, loss) for cost, loss in losses.items()]
    runs += [scaling.Run(1e5, cost, 0.6, 0, 7.0) for cost in losses]
    costs = [*losses, *(1.5 * cost for cost in losses)]
    read_by_fit = [run for run in scaling.at_equal(runs, costs)[0] if run.value == 0.3]
    assert len(read_by_fit) == 3
    for run in read_by_fit:
        assert budgets.read(list(losses.items()), run.budget) == pytest.approx(run.loss, abs=1e-12)


def test_the_common_budget_is_the_least_that_was_given(view):
    tokens = 2_000 * 32 * 64
    for panel in budgets.panels(view, "masking.rate"):
        for number, family in enumerate(view.families("masking.rate")):
            least = {"steps": 2_000, "tokens": tokens, "predictions": 0.05 * tokens}.get(panel.kind)
            assert least is None or budgets.common(family, panel.kind) == pytest.approx(least)
            if panel.kind != "predictions":
                continue
            # 15 % has spent as many after a third of its steps, 80 % before its first evaluation.
            line = dict(panel.readings[""].series[number].points)
            assert line.keys() == {0.05, 0.15, 0.4}
            histories = [one.history.evaluations for one in family.runs["15 %"]]
            arm = [dict(each["validation/mlm_loss"]) for each in histories]
            at = 2_000 / 3
            way = math.log(at / 500) / math.log(750 / 500)
            expected = np.mean([one[500] + way * (one[750] - one[500]) for one in arm])
            assert line[0.15] == pytest.approx(expected)
            assert panel.curves[number].mark == pytest.approx(0.05 * tokens)
        if panel.kind == "predictions":
            assert "schedule of all runs but 5 % had not ended there" in panel.text
            assert "before the first evaluation: 2 x 64: 80 %; 2 x 128: 80 %." in panel.text


@pytest.fixture(scope="module")
def many(tmp_path_factory) -> View:
    """Two rates at two sizes and four budgets, which are eight lines."""
    tokens = tuple(steps * 32 * 64 for steps in (600, 1_000, 2_000, 10_000))
    study = masking_rate(rates=(0.15, 0.4), seeds=(0, 1), budget=Budget("tokens", tokens))
    place = build(tmp_path_factory.mktemp("many"), study, examples=10, lines=8)
    return View(place, place.read_study(), results.read_results(place))


def test_figures_have_a_colour_for_each_line(many):
    """Of means, of differences, and at equal budgets of every kind."""
    shown = report.compose(many, findings.find(many))[1]
    parts = {name: figure for name, figure in shown.items() if isinstance(figure, Chart)}
    parts = {name: figure for name, figure in parts.items() if "_curves_" not in name}
    assert {f"masking.rate_equal_{kind}_2x64" for kind in budgets.KINDS} < parts.keys()
    for name, figure in parts.items():
        tones = [series.tone for series in figure.series]
        assert len(set(tones)) == len(tones) <= aggregate.COLOURS, name
    for kind in budgets.KINDS:
        lines = [
            f"{size}, {series.name}"  # the size is in the title of the figure
            for size in ("2 x 64", "2 x 128")
            for series in parts[f"masking.rate_equal_{kind}_{size.replace(' ', '')}"].series
        ]
        assert lines == [family.name for family in many.families("masking.rate")]


def test_families_of_one_long_axis_are_divided_too(tmp_path):
    sizes = {f"2 x {width}": {"model.hidden": width} for width in range(32, 256, 32)}
    study = masking_rate(rates=(0.15, 0.4), sizes=sizes, seeds=(0,))
    place = build(tmp_path, study, examples=10, lines=8)
    panels = View(place, place.read_study(), results.read_results(place)).panels("masking.rate")
    assert {part: len(families) for part, families in panels.items()} == dict.fromkeys(sizes, 1)


def test_amounts_are_listed_by_their_size(many):
    said = {
        panel.kind: panel.text.replace(SPACE, " ") for panel in budgets.panels(many, "masking.rate")
    }
    assert said["steps"].startswith("Read after 600, 1,000, 2,000 and 10,000 steps, the smallest")
    amounts = [budgets.common(family, "flops") for family in many.families("masking.rate")]
    least, most = (f"{end(amounts) / 1e12:.3g} T" for end in (min, max))
    assert said["flops"].startswith(f"Read after {least} to {most} FLOPs, the smallest")


def test_curves_leave_out_cells_that_fell_behind(view):
    steps = budgets.panels(view, "masking.rate")[0]
    line = steps.curves[0].series[-1]
    assert line.name == "80 %"
    runs = view.families("masking.rate")[0].runs["80 %"]
    kept = [one for one in runs if one.state.name == "done"]
    finals = [dict(one.history.evaluations["validation/mlm_loss"])[2_000] for one in kept]
    assert line.points[-1] == (2_000, pytest.approx(np.mean(finals)))
    assert len(finals) == 2
    assert "80 % (2 of 3)" in steps.curves[0].note
    assert len(line.band) == len(line.points)


def test_the_cross_rate_matrix_marks_the_best_of_each_column(place, view):
    heat = matrices.cross_rate(view)["cross_rate_2x64"]
    assert isinstance(heat, Heat)
    rates = sorted(study_workdir.RATES)
    assert list(heat.columns) == [f"{100 * rate:g}{SPACE}%" for rate in rates]
    ids = cells(place)

    def mean(trained: str, rate: float) -> float:
        seeds = range(2 if trained == "80 %" else 3)
        key = f"{rate:g}/mlm_loss"
        return np.mean([metric(place, ids["2 x 64", trained, s], "cross_rate", key) for s in seeds])

    trained = [row.removesuffix(" (2 of 3)") for row in heat.rows]
    grid = np.array([[mean(row, rate) for rate in rates] for row in trained])
    assert heat.rows[-1] == "80 % (2 of 3)"  # no mean of all seeds: it is shown, and best nowhere
    assert not any("of 3" in row for row in heat.rows[:-1])
    assert np.allclose(heat.values, grid)
    whole = grid[:-1]
    assert heat.marks == {(int(row), column) for column, row in enumerate(whole.argmin(axis=0))}
    shades = np.array(heat.shades)[:-1]
    assert np.all(shades.max(axis=0) == 1)
    assert np.array_equal(np.argsort(-shades, axis=0), np.argsort(whole, axis=0))
    assert svg.draw(heat).count('class="best"') == len(rates)


def test_the_cross_rate_matrix_has_no_row_for_a_rate_that_a_size_leaves_out(tmp_path):
    study = masking_rate(
        rates=(0.15, 0.3, 0.4),
        seeds=(0, 1),
        keep=lambda at: at["size"].label == "2 x 64" or at["masking.rate"].value != 0.3,
    )
    place = build(tmp_path, study, examples=10, lines=8)
    made = matrices.cross_rate(View(place, place.read_study(), results.read_results(place)))
    assert made["cross_rate_2x64"].rows == ["15 %", "30 %", "40 %"]
    assert made["cross_rate_2x128"].rows == ["15 %", "40 %"]


def test_a_point_that_lacks_seeds_is_best_nowhere():
    grid = [[1.0, 2.0], [3.0, 4.0], [0.5, 9.0]]
    shades, marks = matrices._by_column(grid, [True, True, False])
    assert marks == {(0, 0), (0, 1)}
    assert shades[2][0] == 1  # as dark as the best, and not marked


def test_crossed_axes_of_masking_are_a_heat_map_with_holes(tmp_path):
    split = {"80/10/10": (0.8, 0.1, 0.1), "100/0/0": (1.0, 0.0, 0.0)}
    axes = (axis("masking.rate", (0.15, 0.4)), axis("masking.replace", split.values(), split))
    study = masking_rate(
        seeds=(0, 1),
        axes=axes,
        comparisons=(Comparison("masking.replace", "80/10/10", ("pos/accuracy",)),),
    )

    def state(cell):
        return "failed" if list(cell.labels.values()) == ["40 %", "100/0/0"] else "done"

    place = build(tmp_path, study, state, examples=10, lines=8)
    view = View(place, place.read_study(), results.read_results(place))
    (heat,) = matrices.crossed(view).values()
    assert (heat.rows, heat.columns) == (("15 %", "40 %"), ("80/10/10", "100/0/0"))
    assert heat.x == "split ([MASK]/same/random, %)"
    assert math.isnan(heat.values[1][1])
    assert 'class="hole"' in svg.draw(heat)
    top = max(value for row in heat.values for value in row if math.isfinite(value))
    assert [heat.values[i][j] for i, j in heat.marks] == [top]
    assert "rate 15 %" in read(sections(compose(place))["Answer"])  # a number says of what it is


def test_the_ledger_is_beside_the_config(view):
    table = read(f"<table>{tables.ledger(view)}</table>").replace(SPACE, " ")
    quota = quotas.mean_quotas(0.15, 62, "nearest")[-1] / 62
    assert f"2 x 64, 15 % 15.0 % {100 * quota:.1f} % {100 * quota:.1f} % 80.0 %" in table


def test_a_schedule_is_shown_from_end_to_end(tmp_path):
    falling = {"masking.rate": 0.3, "masking.phases": ((1.0, 0.15, "linear"),)}
    study = masking_rate(
        axes=(variants("rate", {"30 to 15 %": falling}),), seeds=(0,), comparisons=()
    )
    place = build(tmp_path, study, examples=10, lines=8)
    text = read(compose(place)).replace(SPACE, " ")
    assert "30.0 % to 15.0 %" in text


def test_views_are_named_beside_the_rate(tmp_path):
    more = {"masking.rate": 0.15, "masking.prediction_rate": 0.3}
    study = masking_rate(axes=(variants("views", {"two": more}),), seeds=(0,), comparisons=())
    place = build(tmp_path, study, examples=10, lines=8)
    text = read(compose(place)).replace(SPACE, " ")
    assert "15.0 % in each of 2 views, 30.0 % in all" in text


def test_published_numbers_are_labelled_as_of_another_scale(body):
    part = next(text for title, text in sections(body).items() if title.startswith("Published"))
    text = read(part)
    assert "Another scale: BERT-large" in text
    assert "numbers from the authors' repository" in text
    assert "Ours: POS accuracy" in text
    assert part.count("<figure") == 1 + 4
    for score in ("84.5", "91.6", "80.8", "93.3"):
        assert score in text


@pytest.mark.parametrize("name", published.TABLE)
def test_published_tables_are_whole(name):
    one = published.TABLE[name]
    assert {len(row) for row in one.rows.values()} == {len(one.columns)}
    assert not one.values or len(one.values) == len(one.rows)
    assert all(70 < score < 100 for row in one.rows.values() for score in row)
    drawn = [svg.draw(figure) for figure in tables.figures_of(name)]
    assert len(drawn) == len(one.columns)
    for picture in drawn:
        assert len(list(ElementTree.fromstring(picture).iter("circle"))) == len(one.rows)


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_everything_is_written_and_written_again_alike(tmp_path):
    only = Comparison("masking.rate", "15 %", ("validation/mlm_loss",))
    study = masking_rate(rates=(0.15, 0.4), sizes=ONE_SIZE, seeds=(0, 1), comparisons=(only,))
    place = build(tmp_path, study, examples=10, lines=8)
    assert report.write(place) in place.report.read_text()

    def all_files() -> dict[str, bytes]:
        paths = [place.report, place.csv, *place.figures.iterdir()]
        return {path.name: path.read_bytes() for path in paths}

    first = all_files()
    drawn = ("masking.rate_validation_mlm_loss", "cross_rate_2x64", "masking.rate_curves_2x64")
    assert {f"{name}.png" for name in drawn} <= first.keys()
    for name, data in first.items():
        if name.endswith(".png"):
            assert data.startswith(b"\x89PNG\r\n")
            assert len(data) < 200_000
    assert not list(tmp_path.rglob("*.tmp"))
    report.write(place)
    assert all_files() == first


def test_a_report_needs_no_jax():
    names = ("report.collect", "report.compare", "report.build", "definition")
    code = f"import sys\nfor n in {names}: __import__('bert_jax.studies.' + n)\n"
    code += "print([m for m in ('jax', 'flax', 'matplotlib') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_hole_is_a_dash():
    assert aggregate.plain(math.nan) == aggregate.interval(-math.inf, math.inf) == HOLE
    assert aggregate.plain(-0.00001) == aggregate.interval(-0.00001, 0.1)[:5] == "0.000"
    assert aggregate.interval(0.00032, 0.1) == "+0.0003 to +0.100"  # zero is excluded
    assert aggregate.plain(0.1234, True, True).replace(SPACE, " ") == "+12.34 %"
    assert Path(aggregate.slug("a b", "", "c/d %")).name == "ab_c_d"
