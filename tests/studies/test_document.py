"""The report of a study in any state: its page and its summary, against its files by hand."""

from __future__ import annotations

import dataclasses
import html
import json
import re
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from bert_jax.masking import quotas
from bert_jax.reporting import page
from bert_jax.reporting.formats import SPACE
from bert_jax.studies import actions, results
from bert_jax.studies.definition import Comparison, Study, variants
from bert_jax.studies.folder import StudyFolder
from bert_jax.studies.report import answers, build, cell_tables, charts, compare, document
from bert_jax.studies.report import blocks as parts
from bert_jax.studies.report.blocks import Block, Section, Table, render_html, render_markdown
from bert_jax.studies.report.view import View, get_metric
from bert_jax.system import folder_locks
from tests import chromium, study_workdir, texts
from tests.study_workdir import SIZES, masking_rate

FOLDER = Path(__file__).resolve().parents[2] / "experiments"
COMMITTED = sorted(path.parent for path in FOLDER.glob("**/summary.md"))
ONE_SIZE = {"2 x 64": SIZES["2 x 64"]}
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&amp;"
METRIC = "validation/mlm_loss"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(compare, "DRAWS", 100)


def make_state(cell) -> str:
    where = cell.labels["size"], cell.labels["masking.rate"], cell.seed
    return {("2 x 128", "40 %", 1): "failed", ("2 x 64", "80 %", 2): "diverged"}.get(where, "done")


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> StudyFolder:
    """Four rates, two sizes, three seeds; one cell failed and one diverged."""
    study = masking_rate(rates=(0.05, 0.15, 0.4, 0.8))
    folder = tmp_path_factory.mktemp("study")
    return study_workdir.build(folder, study, make_state, examples=40, lines=20)


def read_view(place: StudyFolder, **changes) -> View:
    return View(place, place.read_study() | changes, results.read_results(place))


@pytest.fixture(scope="module")
def view(place) -> View:
    return read_view(place)


@pytest.fixture(scope="module")
def blocks(view) -> list[Block]:
    return document.compose(view, answers.compute_findings(view))


@pytest.fixture(scope="module")
def body(blocks) -> str:
    return render_html(blocks)


def summarize(view: View) -> str:
    text = render_markdown(document.compose(view, answers.compute_findings(view)))
    return text.replace("\N{MINUS SIGN}", "-")


def read(body: str) -> str:
    """The text of a page."""
    return re.sub(r"\s+", " ", html.unescape(re.sub("<[^>]*>", " ", body)))


def compose(place: StudyFolder) -> str:
    view = read_view(place)
    return render_html(document.compose(view, answers.compute_findings(view)))


def find_section(blocks: list[Block], title: str) -> Section:
    return next(b for b in blocks if isinstance(b, Section) and b.title.startswith(title))


def list_losses(place: StudyFolder, size: str, rate: str) -> dict[int, float]:
    """Losses by seed, from the files of the cells."""
    found = {}
    for entry in place.cells():
        path = place.result(entry.id, "validation")
        if (entry.labels["size"], entry.labels["masking.rate"]) == (size, rate) and path.exists():
            found[entry.seed] = json.loads(path.read_text())["metrics"]["mlm_loss"]
    return found


# --- both renderings ------------------------------------------------------------------------------


def test_report_begins_with_the_answer(view, blocks, body):
    """At most 60 words, warnings, one figure and one table, in this order."""
    answer = find_section(blocks, "Answer")
    lead, warned, figure, table, _ = answer.blocks
    assert len(lead.text.split()) <= 60
    assert re.match(r"The best masking rate is \d+ to \d+\W% after 4.1\WM tokens\. By", lead.text)
    assert warned.items[0] == answers.list_warnings(view)[0]
    assert list(figure.figures) == ["masking.rate_validation_mlm_loss"]
    assert table.head[:3] == ["metric", "best point", "mean"]
    assert [row[0] for row in table.rows] == [f"Validation MLM loss, {size}" for size in SIZES]
    (comparison,) = view.comparisons
    gaps = compare.compare_families(view.place, view.families("masking.rate"), "15 %", [METRIC], 6)
    for row, family in zip(table.rows, view.families("masking.rate"), strict=True):
        best = answers.find_leader(family, METRIC, comparison["baseline"], gaps)
        assert row[1] == best
        values = list_losses(view.place, family.name, best).values()
        assert row[2].startswith(f"{statistics.mean(values):.3f} ± ")
    assert body.index("<h2>Answer") < body.index(html.escape(lead.text)) < body.index("<figure")


def test_page_and_summary_have_the_same_answer(view, blocks):
    summary, page = summarize(view), read(render_html(blocks))
    lead = find_section(blocks, "Answer").blocks[0].text
    assert parts.escape_markdown(lead) in summary.replace(SPACE, " ")
    assert lead.replace(SPACE, " ") in page
    for row in find_section(blocks, "Answer").blocks[3].rows:
        assert f"| {row[1]} | {row[2]} |".replace(SPACE, " ") in summary
        assert f"{row[1]} {row[2]}".replace(SPACE, " ") in page


def test_page_says_what_the_files_say(body, blocks):
    text = read(body)
    assert body.startswith("<h1>Which masking rate")
    titles = [block.title for block in blocks if isinstance(block, Section)]
    shown = re.findall("<h2>(.*?)</h2>", body)
    assert shown == [
        title for title in titles if title not in ("Published claims", "Two axes at once")
    ]
    for said in ("22 of 24 cells", "abcdef012345", "2026-11-21", "2 CPU cores"):
        assert said in text, said
    assert "bert-jax study run experiments/masking_rate --workdir=runs/masking_rate" in text
    assert "Whatever an arm is trained with" in text
    assert "Seeds share the order of the data" in text
    assert "nan" not in body.lower()
    assert ">inf" not in body


def test_report_shows_holes_everywhere(blocks, body):
    text = read(body)
    assert "XlaRuntimeError: out of <memory>" in text
    assert "5 updates in a row were not finite" in text
    assert "Fewer: 2 x 64: 80 % (2 of 3); 2 x 128: 40 % (2 of 3)." in text
    (pairs,) = (
        block
        for block in find_section(blocks, "By masking.rate").blocks
        if isinstance(block, Section) and block.title == "Differences in pairs"
    )
    table = pairs.blocks[1].blocks[0]
    (row,) = (row for row in table.rows if row[0] == "2 x 128, 40 %")
    known = dict(zip(table.head, row, strict=True))
    assert (known["pairs"], known["missing"]) == ("2", "1")
    assert text.count("2 of 3") >= 12  # below figures and in tables


def test_only_the_answer_and_the_comparison_are_open(body):
    """All other tables and figures are folded under what they hold."""

    def is_open(at: int) -> bool:
        return body.count("<details", 0, at) == body.count("</details", 0, at)

    captions = re.finditer("<figcaption>(.*?)<", body)
    assert [one[1] for one in captions if is_open(one.start())] == ["Validation MLM loss"]
    tables = [one for one in re.finditer("<table", body) if is_open(one.start())]
    # Best points and values, means and differences of the first measure, and of others.
    assert len(tables) == 5
    held = {read(one).strip() for one in re.findall("<summary>.*?</summary>", body)}
    assert {"POS accuracy 1 figure", "Means of all measures 6 rows"} <= held
    assert "Differences in pairs 3 figures, 3 tables" in held


def test_summary_has_means_and_differences_in_pairs(view):
    """The first measure has a column for each size; a difference has its simultaneous interval."""
    text = summarize(view)
    sizes = list(SIZES)
    means, pairs = (
        re.search(rf"\| {title} \| {' . '.join(sizes)} .*?\n\n", text, re.DOTALL)[0]
        .strip()
        .splitlines()
        for title in ("Validation MLM loss", "minus 15 %")
    )
    families = view.families("masking.rate")
    gaps = {
        (gap.family, gap.point): gap
        for gap in compare.compare_families(view.place, families, "15 %", [METRIC], 6)
    }
    assert [line.split(" | ")[0] for line in pairs[2:]] == ["| 5 %", "| 40 %", "| 80 %"]
    for line in pairs[2:]:
        rate, *cells = line.strip("| ").split(" | ")
        for size, cell in zip(sizes, cells, strict=True):
            gap = gaps[size, rate]
            bold = "**" if gap.significant else ""
            shown = f"{bold}{gap.mean:+.3f}{bold} ({gap.low:+.3f} to {gap.high:+.3f})"
            assert cell == shown + (f", {gap.pairs} pairs" if gap.holes else "")
            base, arm = (list_losses(view.place, size, label) for label in ("15 %", rate))
            assert gap.mean == pytest.approx(statistics.mean(arm[s] - base[s] for s in arm))
    for line in means[2:]:
        rate, *cells = line.strip("| ").split(" | ")
        for size, cell in zip(sizes, cells, strict=True):
            losses = list_losses(view.place, size, rate)
            assert cell.startswith(f"{statistics.mean(losses.values()):.3f} ± ")
            assert cell.endswith("(2 of 3)") == (len(losses) == 2)
    assert "over seeds, and over examples for Validation MLM loss, BLiMP accuracy: all 6" in text


def find_disagreements(text: str) -> list[str]:
    """Return the differences that are bold while their interval includes zero, or the reverse.

    The ends of an interval of differences have signs, those of other intervals have none.
    """
    text = text.replace(SPACE, "").replace("\N{MINUS SIGN}", "-").replace(" %", "")
    wrong = []
    number = r"([-+][\d.]+)"
    for cell in re.finditer(rf"[|] (\**)[-+]?([\d.]+)\** \({number} to {number}", text):
        low, high = float(cell[3]), float(cell[4])
        wrong += [cell[0]] if (low > 0 or high < 0) != bool(cell[1]) else []
    return wrong


@pytest.mark.parametrize("study", COMMITTED, ids=lambda path: path.name)
def test_committed_summary_is_bold_by_interval(study):
    assert find_disagreements((study / "summary.md").read_text()) == []


@pytest.mark.parametrize("study", COMMITTED, ids=lambda path: path.name)
def test_committed_study_has_one_short_answer(study):
    """The page, the summary and the terminal have it in the same words, at most sixty."""
    place = StudyFolder(study)
    view = View(place, place.read_study(), results.read_results(place))
    found = answers.compute_findings(view)
    blocks = document.compose(view, found)
    lines, page = render_markdown(blocks).splitlines(), render_html(blocks)
    for number, _ in enumerate(view.comparisons):
        lead = answers.write_lead(view, found, number)
        assert 5 < len(lead.split()) <= 60
        assert parts.escape_markdown(lead) in lines
        assert f'<p class="lead">{html.escape(lead)}</p>' in page
        assert lead in answers.write_answer(view, found).splitlines()
    assert find_disagreements("\n".join(lines)) == []


# --- origin ---------------------------------------------------------------------------------------


def test_conditions_say_the_command_but_no_machine(place):
    spec = "experiments/masking_rate:cpu,2 x 64"
    typed = ["/home/me/.venv/bin/bert-jax", "study", "run", spec, "--jobs=2"]
    places = (
        ["--workdir", "/home/me/w", "--reuse", "/home/me/pairs"],
        ["--workdir=/home/me/w", "--reuse=../pairs/"],
    )
    for words in places:
        text = summarize(read_view(place, command=[*typed, *words], git_commit="0123456789"))
        wanted = f"- `bert-jax study run '{spec}' --jobs=2 --reuse=runs/pairs "
        assert f"{wanted}--workdir=runs/masking_rate`" in text.splitlines()
        assert "/home" not in text
    assert "- commit 0123456" in text.splitlines()
    assert "- commit 0123456+" in summarize(read_view(place, git_commit="0123456789ab+"))
    assert "22 of 24 cells done, seeds 0, 1, 2" in text


def test_ledger_is_beside_the_config(view):
    (table,) = cell_tables.tabulate_ledger(view)
    quota = f"{100 * quotas.mean_quotas(0.15, 62, 'nearest')[-1] / 62:.1f} %"
    row = next(row for row in table.rows if row[0] == "2 x 64, 15 %")
    assert [cell.replace(SPACE, " ") for cell in row[1:5]] == ["15.0 %", quota, quota, "80.0 %"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"masking.rate": 0.3, "masking.phases": ((1.0, 0.15, "linear"),)}, "30.0 % to 15.0 %"),
        (
            {"masking.rate": 0.15, "masking.prediction_rate": 0.3},
            "15.0 % in each of 2 views, 30.0 % in all",
        ),
    ],
)
def test_ledger_names_schedules_and_views(changes, said, tmp_path):
    study = masking_rate(axes=(variants("rate", {"x": changes}),), seeds=(0,), comparisons=())
    place = study_workdir.build(tmp_path, study, examples=10, lines=8)
    (table,) = cell_tables.tabulate_ledger(read_view(place))
    assert table.rows[0][1].replace(SPACE, " ") == said


def test_published_numbers_are_of_another_scale(blocks):
    said, table = find_section(blocks, "Published, beside ours").blocks
    assert said.text.startswith("Another scale: BERT-large")
    assert "numbers from the authors' repository" in said.text
    assert isinstance(table, Table)
    assert table.rows[3] == ["40 %", "84.5", "91.6", "88.1", "92.8"]


def test_note_of_seeds_lists_no_point_that_the_plan_leaves_out(view):
    """Those of cells that are done without a metric; one that failed is missing."""
    metric, families = "pos/accuracy", view.families("masking.rate")
    text = charts.note_seeds(families, get_metric(metric)).replace(SPACE, " ")
    assert text.endswith("Fewer: 2 x 64: 80 % (2 of 3); 2 x 128: 40 % (2 of 3).")
    without = [
        dataclasses.replace(one, metrics={}) if one.entry.labels["masking.rate"] == "15 %" else one
        for one in view.results
    ]
    families = View(view.place, view.study, without).families("masking.rate")
    assert charts.note_seeds(families, get_metric(metric)).replace(SPACE, " ") == text


# --- any state ------------------------------------------------------------------------------------


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
def test_any_state_has_a_report(baseline, other, seeds, rates, tmp_path):
    def state(cell):
        return baseline if cell.labels["masking.rate"] == "15 %" else other

    study = masking_rate(rates=rates, sizes=ONE_SIZE, seeds=seeds)
    place = study_workdir.build(tmp_path, study, state, examples=10, lines=8)
    page = compose(place)
    done = sum(one.state.name == "done" for one in results.read_results(place))
    assert f"{done} of {len(seeds) * len(rates)} cells done" in page
    assert ("No answer yet" in page) == (done == 0)
    assert "nan" not in page.lower()
    assert f"{done} of" in summarize(read_view(place))


def test_report_of_a_running_cell_says_so(tmp_path):
    study = masking_rate(rates=(0.15, 0.4), sizes=ONE_SIZE, seeds=(0,))
    place = study_workdir.build(tmp_path, study, lambda cell: "halfway", examples=10, lines=8)
    with folder_locks.hold(place.cell(place.cells()[0].id)):
        text = read(compose(place))
    assert "Waiting: 1, of which 1 were begun" in text
    assert "running" in text


def test_report_tells_an_evaluation_that_failed(tmp_path):
    study = masking_rate(rates=(0.15,), sizes=ONE_SIZE, seeds=(0,))
    place = study_workdir.build(tmp_path, study, examples=10, lines=4)
    place.write_result(place.cells()[0], "pos", {}, 1.0, {}, error="the loss is <nan>")
    text = read(compose(place))
    assert "pos: no result" in text
    assert "the loss is <nan>" in text


def test_study_without_comparisons_is_shown_by_its_last_axis(tmp_path):
    study = masking_rate(rates=(0.15, 0.4), comparisons=())
    place = study_workdir.build(tmp_path / "a", study, examples=10, lines=8)
    text = compose(place)
    assert "<h2>By masking.rate</h2>" in text
    assert "Differences in pairs" not in text
    bare = dataclasses.replace(study, axes=())
    place = study_workdir.build(tmp_path / "b", bare, examples=10, lines=4)
    head, _, row = summarize(read_view(place)).split("## Means\n\n")[1].splitlines()[:3]
    assert head.startswith("| cells |")
    assert row.startswith("| all |")
    assert head.count("|") == row.count("|") > 3


def test_everything_is_escaped(tmp_path):
    points = {HOSTILE: {"masking.rate": 0.15}, "b": {"masking.rate": 0.2}}
    study = Study(
        question=HOSTILE,
        base=study_workdir.base(),
        axes=(variants(f"objective{HOSTILE}", points),),
        seeds=(0, 1),
        evaluations={"validation": study_workdir.EVALUATIONS["validation"]},
        comparisons=(Comparison(f"objective{HOSTILE}", HOSTILE, (METRIC,)),),
        notes=HOSTILE,
    )
    place = study_workdir.build(
        tmp_path, study, lambda cell: "done" if cell.seed == 0 else "failed", name=HOSTILE, lines=8
    )
    place.write_failure(place.cells()[1].id, "training", HOSTILE)
    found = compose(place)
    assert "alert(1)" in read(found)
    spans = "(`+).*?\\1"  # code, such as the command, is shown as it is
    for text in (found, re.sub(spans, "", summarize(read_view(place)))):
        assert "<script" not in text
        assert "<img" not in text


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_write_writes_all_files_and_again_alike(tmp_path):
    only = Comparison("masking.rate", "15 %", (METRIC,))
    study = masking_rate(rates=(0.15, 0.4), sizes=ONE_SIZE, seeds=(0, 1), comparisons=(only,))
    place = study_workdir.build(tmp_path, study, examples=10, lines=8)
    assert html.escape(build.write(place).splitlines()[0]) in place.report.read_text()

    def all_files() -> dict[str, bytes]:
        paths = [place.report, place.csv, place.summary, *place.figures.iterdir()]
        return {path.name: path.read_bytes() for path in paths}

    first = all_files()
    drawn = ("masking.rate_validation_mlm_loss", "cross_rate_2x64", "masking.rate_curves_2x64")
    assert {f"{name}.png" for name in drawn} <= first.keys()
    assert "](figures/masking.rate_validation_mlm_loss.png)" in place.summary.read_text()
    for name, data in first.items():
        if name.endswith(".png"):
            assert data.startswith(b"\x89PNG\r\n")
            assert len(data) < 200_000
    assert not list(tmp_path.rglob("*.tmp"))
    build.write(place)
    assert all_files() == first


def test_write_makes_a_report_from_tables_alone(place, tmp_path, capsys):
    """study.json and results.csv are kept, cells and values of single examples are not."""
    results.read_results(place)
    for name in ("study.json", "results.csv"):
        (tmp_path / name).write_bytes((place.workdir / name).read_bytes())
    actions.report(tmp_path)
    assert capsys.readouterr().out.splitlines()[-1] == str(tmp_path / "report.html")
    ours = (tmp_path / "summary.md").read_text()
    assert "intervals over seeds: all 6 families" in ours
    theirs = summarize(read_view(place))
    of_means = r"\| Validation MLM loss \|.*?\n\n"
    assert re.search(of_means, ours, re.DOTALL)[0] == re.search(of_means, theirs, re.DOTALL)[0]


def test_report_needs_no_jax():
    names = ("report.collect", "report.compare", "report.build", "definition")
    code = f"import sys\nfor n in {names}: __import__('bert_jax.studies.' + n)\n"
    code += "print([m for m in ('jax', 'flax', 'matplotlib') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_report_bears_a_backend_that_is_not_here(place):
    """Jupyter names one in the environment, and matplotlib refuses what it cannot import."""
    words = ("study", "report", f"--workdir={place.workdir}")
    code, _, err = texts.run(*words, MPLBACKEND="module://matplotlib_inline.backend_inline")
    assert code == 0, err


# --- in a browser ---------------------------------------------------------------------------------

MEASURE = """<script>
const shows = element => element.getClientRects().length > 0;
const drawn = [...document.querySelectorAll('.chart svg')].filter(shows);
parent.document.body.dataset.measured = JSON.stringify({
  errors: window.errors,
  beyond: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  cut: [...document.querySelectorAll('.scroll')].filter(shows)
    .filter(element => element.scrollWidth > element.clientWidth + 1)
    .map(element => element.textContent.slice(0, 200)),
  first: drawn[0].getBoundingClientRect().width,
});
</script></body>"""
WATCH = "<head><script>window.errors = []; onerror = what => { errors.push(what); };</script>"


@pytest.mark.slow
@pytest.mark.parametrize(("width", "least"), [(420, 330), (1400, 560)])
def test_nothing_is_cut_in_a_browser(body, tmp_path, width, least):
    whole = page.page("t", body.replace("<details>", "<details open>"), build.STYLE)
    whole = html.escape(whole.replace("<head>", WATCH).replace("</body>", MEASURE))
    framed = f'<iframe style="width:{width}px; height:900px; border:0" srcdoc="{whole}"></iframe>'
    dumped = chromium.document(tmp_path, f"<body>{framed}</body>", width=1500)
    found = json.loads(html.unescape(re.search(r'data-measured="(.*?)"', dumped)[1]))
    assert found["errors"] == []
    assert found["beyond"] == 0
    assert found["cut"] == []
    assert found["first"] >= least


HEIGHT = """<script>
document.body.dataset.height = document.documentElement.scrollHeight;
</script></body>"""


@pytest.mark.slow
def test_page_of_the_largest_study_is_short(tmp_path):
    (tmp_path / "none.png").touch()  # then no other is drawn
    for name in ("study.json", "results.csv", "curves.csv", "examples.npz"):
        (tmp_path / name).write_bytes((FOLDER / "best_rate" / name).read_bytes())
    build.write(StudyFolder(tmp_path))
    whole = (tmp_path / "report.html").read_text().replace("</body>", HEIGHT)
    dumped = chromium.document(tmp_path, whole, width=1400)
    assert int(re.search(r'data-height="(\d+)"', dumped)[1]) <= 8_000


def test_link_to_a_section_opens_it(body, tmp_path):
    whole = page.page("t", body, build.STYLE)
    shown = chromium.document(tmp_path, whole, address="to-what-was-masked")
    assert re.findall('<section id="([^"]*)"><details open', shown) == ["to-what-was-masked"]
