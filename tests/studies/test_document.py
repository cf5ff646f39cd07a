"""The report of a study in any state: its page and its summary, against its files by hand."""

from __future__ import annotations

import dataclasses
import html
import re

import pytest

from bert_jax.masking import quotas
from bert_jax.reporting.figures import Chart, Series
from bert_jax.reporting.formats import SPACE
from bert_jax.studies.definition import Comparison, Study, variants
from bert_jax.studies.report import answers, build, compare
from bert_jax.studies.report.blocks import (
    Block,
    Bold,
    Bullets,
    Code,
    Figures,
    Paragraph,
    Section,
    Table,
    Title,
    render_html,
    render_markdown,
)
from bert_jax.studies.report.result_tables import tabulate_ledger
from bert_jax.studies.report.view import View
from tests import study_workdir
from tests.browser import SIZES as WINDOWS
from tests.studies.views import LOSS, build_view, compose, read_view
from tests.study_workdir import SIZES, masking_rate

ONE_SIZE = {"2 x 64": SIZES["2 x 64"]}
HOSTILE = "</script><script>alert(1)</script> *a* [b](c) | `d` _e_ \"'&amp;<img src=x onerror=f(2)>"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(compare, "DRAWS", 100)


@pytest.fixture(scope="module")
def view(tmp_path_factory) -> View:
    """Four rates, two sizes, three seeds; one cell failed and one diverged."""

    def state(cell) -> str:
        where = cell.labels["size"], cell.labels["masking.rate"], cell.seed
        return {("2 x 128", "40 %", 1): "failed", ("2 x 64", "80 %", 2): "diverged"}.get(
            where, "done"
        )

    study = masking_rate(rates=(0.05, 0.15, 0.4, 0.8))
    return build_view(tmp_path_factory.mktemp("study"), study, state, examples=40)


@pytest.fixture(scope="module")
def blocks(view) -> list[Block]:
    return compose(view)


def summarize(view: View) -> str:
    return render_markdown(compose(view)).replace("\N{MINUS SIGN}", "-")


def read_page(blocks: list[Block]) -> str:
    """Read the text of a page."""
    return re.sub(r"\s+", " ", html.unescape(re.sub("<[^>]*>", " ", render_html(blocks))))


TABLE = Table(["rate", "loss"], [["15 %", "5.1"], ["40 %", (Bold("4.9"), " (4.8 to 5.0)")]])
CHART = Figures({"loss": Chart("Loss", [Series("", [(0.1, 5.0), (0.4, 4.9)])])})
REPORT = [
    Title("rates", "Which rate is best?"),
    Section("Answer", [Paragraph("40 %.", lead=True), CHART, TABLE]),
    Section("Empty", [Paragraph(""), Figures({})]),
    Section("Origin", [Bullets([("run by ", Code("a `b`"))]), Section("Cost", [TABLE], True)]),
    Section("Config", [CHART, Paragraph("seed")], detail=True),
]


def test_renderings_have_their_parts_of_a_report():
    """The summary leaves details out, the page folds them; both leave out empty sections."""
    assert render_markdown(REPORT, lambda name: f"figures/{name}.png") == (
        "# rates\n\nWhich rate is best?\n\n## Answer\n\n40 %.\n\n![Loss](figures/loss.png)\n\n"
        "|rate|loss|\n|---|---:|\n|15 %|5.1|\n|40 %|**4.9** (4.8 to 5.0)|\n\n"
        "## Origin\n\n- run by `` a `b` ``"
    )
    shown = render_html([*REPORT, Section("More", [Paragraph("x")])])
    assert re.findall("<h2>(.*?)</h2>", shown) == ["Answer", "Origin", "Config", "More"]
    assert re.findall("<summary>(.*?)</summary>", shown) == ["Cost", "<h2>Config</h2>"]
    links = re.findall('<a href="#(.+?)">', shown)
    assert links == re.findall('<section id="(.+?)"', shown)
    assert ("<b>4.9</b> (4.8 to 5.0)" in shown, shown.count("<svg")) == (True, 1)


@pytest.mark.fault(18)
def test_hostile_names_are_inert_in_both_renderings(tmp_path):
    points = {HOSTILE: {"masking.rate": 0.15}, "b": {"masking.rate": 0.2}}
    study = Study(
        question=HOSTILE,
        base=study_workdir.base(),
        axes=(variants(f"objective{HOSTILE}", points),),
        seeds=(0, 1),
        evaluations={"validation": study_workdir.EVALUATIONS["validation"]},
        comparisons=(Comparison(f"objective{HOSTILE}", HOSTILE, (LOSS,)),),
        notes=HOSTILE,
    )
    place = study_workdir.build(
        tmp_path, study, lambda cell: "failed" if cell.seed else "done", name=HOSTILE, lines=8
    )
    place.write_failure(place.read_cells()[1].id, "training", HOSTILE)
    made = compose(read_view(place))
    assert "alert(1)" in read_page(made)
    code = "(`+).*?\\1"  # such as the command, is shown as it is
    for text, ours in ((render_html(made), 1), (re.sub(code, "", render_markdown(made)), 0)):
        assert text.count("<script") == ours
        assert "<img" not in text


@pytest.mark.fault(24)
def test_report_shows_holes_everywhere(blocks):
    shown = read_page(blocks)
    assert re.search(r"2 of 24 cells lack results \(1 \w+, 1 \w+\)", shown)
    assert "XlaRuntimeError: out of <memory>" in shown
    assert "5 updates in a row were not finite" in shown
    assert "Fewer: 2 x 64, 80 % (2 of 3); 2 x 128, 40 % (2 of 3)." in shown
    assert len(re.findall(r"± \d\S* \(2 of 3\)", shown)) >= 4  # means of two measures
    assert ", 2 pairs" in shown
    assert "nan" not in shown.lower()
    assert "inf " not in shown


def test_ledger_names_schedules_and_views(tmp_path):
    rates = {
        "15.0 %": {"masking.rate": 0.15},
        "30.0 % to 15.0 %": {"masking.rate": 0.3, "masking.phases": ((1.0, 0.15, "linear"),)},
        "15.0 % in each of 2 views, 30.0 % in all": {
            "masking.rate": 0.15,
            "masking.prediction_rate": 0.3,
        },
    }
    study = masking_rate(axes=(variants("rate", rates),), seeds=(0,), comparisons=())
    (table,) = tabulate_ledger(build_view(tmp_path, study))
    assert [row[1].replace(SPACE, " ") for row in table.rows] == [*rates]
    quota = quotas.mean_quotas(0.15, 62, "nearest")[-1] / 62
    assert table.rows[0][2].replace(SPACE, " ") == f"{100 * quota:.1f} %"


def test_conditions_say_the_command_but_no_machine(view):
    spec = "experiments/corruption_split:cpu,0.15 0.4"
    typed = ["/home/me/.venv/bin/bert-jax", "study", "run", spec, "--jobs=2"]
    typed += ["--workdir", "/home/me/w", "--reuse=../pairs/"]
    changed = View(view.place, dict(view.study) | {"command": typed}, view.results)
    lines = summarize(changed).splitlines()
    wanted = f"- `bert-jax study run '{spec}' --jobs=2 --reuse=runs/pairs "
    assert f"{wanted}--workdir=runs/masking_rate`" in lines
    assert "- commit abcdef0" in lines
    assert "/home" not in "".join(lines)


METHODS = "docs/statistics.md"
LINKED = f"[{METHODS}](../../{METHODS})", f'<a href="../../{METHODS}">{METHODS}</a>'
NAMED = f"`{METHODS}`", f"<code>{METHODS}</code>"


@pytest.mark.parametrize(("package", "said"), [("bert_jax", LINKED), ("other", NAMED)])
def test_report_in_a_checkout_links_to_its_methods(package, said, tmp_path):
    for name in ("docs", package):
        (tmp_path / name).mkdir()
    (tmp_path / METHODS).touch()
    methods = Paragraph((answers.link_methods(tmp_path / "runs" / "mine"),))
    assert render_markdown([methods]) == said[0]
    assert said[1] in render_html([Title("mine"), Section("Answer", [methods])])


@pytest.mark.parametrize("state", ["untouched", "failed", "diverged"])
def test_study_without_results_has_a_report(state, tmp_path):
    """Without axes and comparisons, too."""
    study = masking_rate(rates=(0.15, 0.4), sizes=ONE_SIZE, seeds=(0,))
    shown = read_page(compose(build_view(tmp_path / "a", study, lambda cell: state)))
    assert "0 of 2 cells done" in shown
    assert "No answer yet" in shown
    assert "nan" not in shown.lower()
    bare = dataclasses.replace(study, axes=(), comparisons=())
    assert "|all|" in summarize(build_view(tmp_path / "b", bare))


@pytest.mark.slow
def test_report_has_all_files_and_again_alike(tmp_path):
    only = Comparison("masking.rate", "15 %", (LOSS,))
    study = masking_rate(rates=(0.15, 0.4), sizes=ONE_SIZE, seeds=(0, 1), comparisons=(only,))
    place = build_view(tmp_path, study).place
    assert html.escape(build.write_report(place).splitlines()[0]) in place.report.read_text()

    def read_files() -> dict[str, bytes]:
        paths = [place.report, place.csv, place.summary, *place.figures.iterdir()]
        return {path.name: path.read_bytes() for path in paths}

    first = read_files()
    for name in ("masking.rate_validation_mlm_loss", "cross_rate_2x64", "masking.rate_curves_2x64"):
        assert {f"{name}.{kind}" for kind in ("png", "svg", "pdf")} <= first.keys()
    assert "](figures/masking.rate_validation_mlm_loss.png)" in place.summary.read_text()
    build.write_report(place)
    assert read_files() == first


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
def test_page_is_cut_nowhere_in_a_browser(browser, blocks, width, dark):
    opened = render_html(blocks).replace("<details>", "<details open>")
    browser.show(opened, width, dark)
    found = browser.js(MEASURE)
    assert found["cut"] == []
    assert found["first"] >= min(390, 0.78 * width)
