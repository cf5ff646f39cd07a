"""The tables of a study as Markdown: held against numbers read from the files by hand."""

from __future__ import annotations

import dataclasses
import html
import json
import re
import statistics
from pathlib import Path

import pytest

from bert_jax.reporting.formats import SPACE
from bert_jax.studies import actions, results
from bert_jax.studies.folder import StudyFolder
from bert_jax.studies.report import build as report
from bert_jax.studies.report import collect, compare, findings, summary
from bert_jax.studies.report.aggregate import View
from tests import texts
from tests.study_workdir import SIZES, build, masking_rate

FOLDER = Path(__file__).resolve().parents[1] / "experiments"
COMMITTED = sorted(path.parent for path in FOLDER.glob("**/summary.md"))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(compare, "DRAWS", 100)


def states(cell) -> str:
    where = cell.labels["size"], cell.labels["masking.rate"], cell.seed
    return {("2 x 128", "40 %", 1): "failed"}.get(where, "done")


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> StudyFolder:
    study = masking_rate(rates=(0.15, 0.4))
    return build(tmp_path_factory.mktemp("study"), study, states, examples=20, lines=4)


def text(place: StudyFolder, **changes) -> str:
    view = View(place, place.read_study() | changes, results.read_results(place))
    return (
        summary.text(view, findings.find(view)).replace(SPACE, " ").replace("\N{MINUS SIGN}", "-")
    )


def tables(found: str) -> list[dict[str, list[str]]]:
    """Rows by their first column, of every table."""
    out: list[dict[str, list[str]]] = []
    for block in re.findall(r"(?:^\|.*\|\n?)+", found, re.MULTILINE):
        rows = [
            [cell.strip() for cell in line.strip("|").split(" | ")]
            for line in block.strip().splitlines()
            if not line.startswith("|---")
        ]
        assert len({len(row) for row in rows}) == 1
        out.append({row[0].strip("| "): [cell.strip("| ") for cell in row[1:]] for row in rows})
    return out


def losses(place: StudyFolder, size: str, rate: str) -> dict[int, float]:
    found = {}
    for entry in place.cells():
        path = place.result(entry.id, "validation")
        if (entry.labels["size"], entry.labels["masking.rate"]) == (size, rate) and path.exists():
            found[entry.seed] = json.loads(path.read_text())["metrics"]["mlm_loss"]
    return found


def test_means_and_differences_in_pairs(place):
    """The first measure has a column for each size, the other measures a row for each run."""
    means, pairs, others = tables(text(place))
    assert means["Validation MLM loss"] == pairs["minus 15 %"] == list(SIZES)
    assert others["size, masking.rate"] == ["BLiMP accuracy (%)", "POS accuracy (%)"]
    for column, size in enumerate(SIZES):
        base, arm = losses(place, size, "15 %"), losses(place, size, "40 %")
        assert means["15 %"][column].startswith(f"{statistics.mean(base.values()):.3f} ± ")
        gap = statistics.mean(arm[seed] - base[seed] for seed in arm)
        assert pairs["40 %"][column].replace("*", "").startswith(f"{gap:+.3f} (")
        assert "15 %" not in pairs
        assert f"{size}, 15 %" not in others
    large = list(SIZES).index("2 x 128")
    assert means["40 %"][large].endswith("(2 of 3)")
    assert pairs["40 %"][large].endswith(", 2 pairs")
    assert pairs["40 %"][1 - large].endswith(")")
    assert others["2 x 128, 40 %"][0].endswith(", 2 pairs")


def test_it_says_where_it_comes_from_but_not_on_which_machine(place):
    spec = "experiments/masking_rate:cpu,2 x 64"
    typed = ["/home/me/.venv/bin/bert-jax", "study", "run", spec, "--jobs=2"]
    places = (
        ["--workdir", "/home/me/w", "--reuse", "/home/me/pairs"],
        ["--workdir=/home/me/w", "--reuse=../pairs/"],
    )
    for words in places:
        found = text(place, command=[*typed, *words], git_commit="0123456789")
        wanted = f"- `bert-jax study run '{spec}' --jobs=2 --reuse=runs/pairs "
        assert f"{wanted}--workdir=runs/masking_rate`" in found.splitlines()
        assert "/home" not in found
    assert "- commit 0123456" in found.splitlines()
    assert "- commit 0123456+" in text(place, git_commit="0123456789ab+").splitlines()
    assert "11 of 12 cells done, seeds 0, 1, 2" in found


def test_a_study_without_axes_has_its_means(tmp_path):
    bare = dataclasses.replace(masking_rate(rates=(0.15,)), axes=(), comparisons=())
    place = build(tmp_path, bare, examples=10, lines=4)
    (means,) = tables(text(place))
    assert len(means["all"]) == len(means["cells"]) > 1


def test_differences_are_bold_where_zero_is_excluded(place):
    """The level is divided among six families: three metrics at two sizes."""
    families = collect.families(place.read_study(), results.read_results(place), "masking.rate")
    metrics = ["validation/mlm_loss", "pos/accuracy"]
    found = text(place)
    _, pairs, others = tables(found)
    for gap in compare.differences(place, families, "15 %", metrics, count=6):
        if gap.metric == metrics[0]:
            cell = pairs["40 %"][list(SIZES).index(gap.family)]
            assert f"({gap.low:+.3f} to {gap.high:+.3f})" in cell
        else:
            cell = others[f"{gap.family}, 40 %"][1]
            assert f"({100 * gap.low:+.2f} to {100 * gap.high:+.2f})" in cell
    assert disagreements(found) == []
    assert (
        "simultaneous 95 % intervals over seeds, and over examples for Validation MLM loss, "
        "BLiMP accuracy: all 6 families hold together"
    ) in found


def disagreements(found: str) -> list[str]:
    """Return the differences that are bold while their interval includes zero, or the reverse.

    The ends of an interval of differences have signs, those of other intervals have none.
    """
    found = found.replace(SPACE, "").replace("\N{MINUS SIGN}", "-").replace(" %", "")
    wrong = []
    number = r"([-+][\d.]+)"
    for cell in re.finditer(rf"[|] (\**)[-+]?([\d.]+)\** \({number} to {number}", found):
        low, high = float(cell[3]), float(cell[4])
        wrong += [cell[0]] if (low > 0 or high < 0) != bool(cell[1]) else []
    return wrong


@pytest.mark.parametrize("study", COMMITTED, ids=lambda path: path.name)
def test_committed_summaries_are_bold_by_interval(study):
    assert disagreements((study / "summary.md").read_text()) == []


@pytest.mark.parametrize("study", COMMITTED, ids=lambda path: path.name)
def test_committed_studies_have_one_answer(study):
    """The page, the summary and the terminal have it in the same words, at most sixty."""
    place = StudyFolder(study)
    view = View(place, place.read_study(), results.read_results(place))
    found = findings.find(view)
    lines, page = summary.text(view, found).splitlines(), report.compose(view, found)[0]
    for number, _ in enumerate(view.comparisons):
        lead = found.lead(view, number)
        assert 5 < len(lead.split()) <= 60
        assert summary.literal(lead) in lines
        assert f'<p class="lead">{html.escape(lead)}</p>' in page
        assert lead in found.answer(view).splitlines()
    assert disagreements("\n".join(lines)) == []


def test_names_of_users_stand_as_they_are(place):
    """Neither Markdown nor HTML: the page of a host would run the one and lay out the other."""
    odd = "<script>alert(1)</script> *a* [b](c) | `d` _e_ masking.prediction_rate"
    found = text(place, name=odd, question=f"# {odd}\n\n## Not a heading")
    assert "<script>" not in re.sub("``.*``", "", found)  # in code, such as the command's, it may
    shown = (
        r"&lt;script&gt;alert(1)&lt;/script&gt; "
        r"\*a\* \[b\](c) \| \`d\` \_e\_ masking.prediction_rate"
    )
    assert found.splitlines()[0] == f"# {shown}"
    assert found.splitlines()[2] == f"&#35; {shown} ## Not a heading"
    literal = {"2. x": "&#50;. x", "- x": "&#45; x", "22.5 %": "22.5 %", "-1": "-1"}
    assert [summary.literal(one) for one in literal] == list(literal.values())


def test_labels_of_users_stand_as_they_are(tmp_path):
    odd = "<img src=x onerror=alert(1)> | b"
    sizes = {odd: SIZES["2 x 64"], "2 x 128": SIZES["2 x 128"]}
    study = masking_rate(rates=(0.15, 0.4), sizes=sizes)
    found = text(build(tmp_path, study, examples=10, lines=4))
    assert "<img" not in found
    means, pairs, others = tables(found)
    shown = r"&lt;img src=x onerror=alert(1)&gt; \| b"
    assert shown in means["Validation MLM loss"]
    assert shown in pairs["minus 15 %"]
    assert f"{shown}, 40 %" in others


@pytest.mark.slow
def test_a_notebook_that_calls_the_command_has_a_backend_that_is_not_here(place):
    """Jupyter names one in the environment, and matplotlib refuses what it cannot import."""
    words = ("study", "report", f"--workdir={place.workdir}")
    code, _, err = texts.run(*words, MPLBACKEND="module://matplotlib_inline.backend_inline")
    assert code == 0, err


def test_a_command_with_marks_is_one_span_of_code():
    assert [summary.code(one) for one in ("a b", "a `b`")] == ["`a b`", "`` a `b` ``"]


def test_a_summary_is_made_from_the_table_alone(place, tmp_path, capsys):
    """study.json and results.csv are kept, cells and values of single examples are not."""
    report.write(place)
    kept = StudyFolder(tmp_path)
    for name in ("study.json", "results.csv"):
        (tmp_path / name).write_bytes((place.workdir / name).read_bytes())
    actions.report(tmp_path)
    assert capsys.readouterr().out.splitlines()[-1] == str(kept.report)
    ours, theirs = tables(kept.summary.read_text()), tables(place.summary.read_text())
    assert ours[0] == theirs[0]  # means
    whole = [(tmp_path / "summary.md").read_text(), place.summary.read_text()]
    listed = [text.split("## Conditions")[1].split("\n\n")[1] for text in whole]
    assert listed[0] == listed[1]
    assert "intervals over seeds: all 6 families" in whole[0].replace(SPACE, " ")
    for number in (1, 2):
        for name, row in ours[number].items():
            of_cells, of_table = (
                [c.split(" ")[0].strip("*") for c in each] for each in (theirs[number][name], row)
            )
            assert of_cells == of_table
