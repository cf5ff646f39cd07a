"""The tables of a study as Markdown: held against numbers read from the files by hand."""

from __future__ import annotations

import dataclasses
import json
import re
import statistics

import pytest

from bert_jax.charts import SPACE
from bert_jax.studies import collect, compare, report, summary
from bert_jax.studies.arrange import View
from bert_jax.studies.places import Place
from tests.study_workdir import SIZES, build, masking_rate

SEEDS = (0, 1, 2)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(compare, "DRAWS", 100)


def states(cell) -> str:
    where = cell.labels["size"], cell.labels["masking.rate"], cell.seed
    return {("2 x 128", "40 %", 1): "failed"}.get(where, "done")


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Place:
    return build(tmp_path_factory.mktemp("study"), masking_rate(rates=(0.15, 0.4)), states, examples=20, lines=4)


def text(place: Place, **changes) -> str:
    view = View(place, place.read_study() | changes, collect.results(place))
    return summary.text(view, report.differences(view)).replace(SPACE, " ").replace("\N{MINUS SIGN}", "-")


def tables(found: str) -> list[dict[str, list[str]]]:
    """Rows by their first column, of every table."""
    out: list[dict[str, list[str]]] = []
    for block in re.findall(r"(?:^\|.*\|\n?)+", found, re.MULTILINE):
        rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in block.strip().splitlines()]
        assert len({len(row) for row in rows}) == 1
        out.append({row[0].strip("| "): [cell.strip("| ") for cell in row[1:]] for row in rows})
    return out


def losses(place: Place, size: str, rate: str) -> dict[int, float]:
    found = {}
    for entry in place.cells():
        path = place.result(entry.id, "validation")
        if (entry.labels["size"], entry.labels["masking.rate"]) == (size, rate) and path.exists():
            found[entry.seed] = json.loads(path.read_text())["metrics"]["mlm_loss"]
    return found


def test_means_and_differences_in_pairs(place):
    means, pairs = tables(text(place))
    name = "size, masking.rate"
    assert means[name] == pairs[name] == ["Validation MLM loss", "BLiMP accuracy", "POS accuracy"]
    for size in SIZES:
        base, arm = losses(place, size, "15 %"), losses(place, size, "40 %")
        assert means[f"{size}, 15 %"][0].startswith(f"{statistics.mean(base.values()):.3f} ± ")
        gap = statistics.mean(arm[seed] - base[seed] for seed in arm)
        assert pairs[f"{size}, 40 %"][0].startswith(f"{gap:+.3f} (")
        assert f"{size}, 15 %" not in pairs
    assert means["2 x 128, 40 %"][0].endswith("(2 of 3)")
    assert pairs["2 x 128, 40 %"][0].endswith(", 2 pairs")
    assert pairs["2 x 64, 40 %"][0].endswith(")")


def test_it_says_where_it_comes_from_but_not_on_which_machine(place):
    typed = ["/home/me/.venv/bin/bert-jax", "study", "run", "experiments/masking_rate:cpu,2 x 64", "--jobs=2"]
    places = (["--workdir", "/home/me/w", "--reuse", "/home/me/pairs"], ["--workdir=/home/me/w", "--reuse=../pairs/"])
    for words in places:
        found = text(place, command=[*typed, *words], git_commit="0123456789")
        wanted = "- `bert-jax study run 'experiments/masking_rate:cpu,2 x 64' --jobs=2 --reuse=runs/pairs "
        assert f"{wanted}--workdir=runs/masking_rate`" in found.splitlines()
        assert "/home" not in found
    assert "- commit 0123456" in found.splitlines()
    assert "- commit 0123456+" in text(place, git_commit="0123456789ab+").splitlines()
    assert "11 of 12 cells done, seeds 0, 1, 2" in found


def test_a_study_without_axes_has_its_means(tmp_path):
    study = dataclasses.replace(masking_rate(rates=(0.15,)), axes=(), comparisons=())
    place = build(tmp_path, study, examples=10, lines=4)
    (means,) = tables(text(place))
    assert len(means["all"]) == len(means["cells"]) > 1


def test_it_is_written_with_the_report(place):
    report.write(place)
    assert (place.workdir / "summary.md").read_text().startswith("# masking_rate\n")
    assert not list(place.workdir.glob("*.tmp"))
