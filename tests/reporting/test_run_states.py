"""The page of a run in any state: which step is served, how far it is, what its words mean."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import pytest

import bert_jax
from bert_jax.checkpoints import manifest
from bert_jax.checkpoints.steps import list_metrics
from bert_jax.errors import DataError
from bert_jax.reporting import run_charts, run_record, run_report, terms
from bert_jax.system import folder_locks
from tests import saved, texts
from tests.pages import Checker, a_run, figure, read_figure


def shown(folder: Path, kept=()) -> tuple[str, str]:
    """The page's source and its text."""
    html = run_report.write(folder, lambda _: kept).read_text()
    return html, run_text(html)


def run_text(html: str) -> str:
    """The words of a page."""
    body = re.sub(r"<(style|script)>.*?</\1>", "", html, flags=re.DOTALL)
    return " ".join(re.sub("<[^>]*>", " ", body).split())


# --- which step -----------------------------------------------------------------------------------


def test_the_step_served_is_in_tiles_curves_and_table(tmp_path):
    html, text = shown(a_run(tmp_path), [(400, 4.5), (600, 4.75)])
    assert "Step served 400 lowest validation MLM loss of 2 kept" in text
    assert "MLM loss 4.500 validation, step 400, served; 4.750 at step 600" in text
    assert "2.00 nats below the unigram 6.500" in text
    assert "MLM accuracy 45.0 % validation, step 400, served; 47.5 % at step 600" in text
    assert "The upright dashed line is step 400, which is served." in text
    assert "Evaluate, predict, inspect and export open step 400 of this run" in text
    assert "step validation MLM loss 400 4.500 served 600 4.750" in text
    without, _ = shown(a_run(tmp_path), [(600, 4.75), (400, 4.5)])
    dashed = [figure(page, "MLM loss").count("stroke-dasharray") for page in (html, without)]
    assert dashed == [3, 2], "the last step needs no mark; the unigram's is in the legend, too"


@pytest.mark.parametrize(
    ("kept", "best", "why"),
    [
        ([(600, 4.75)], "mlm_loss", "the only one kept"),
        ([(600, None), (400, None)], "", "the latest of 2 kept"),
        ([(600, None), (400, None)], "mlm_loss", "the latest of 2 kept"),
        ([(400, -0.45), (600, -0.4)], "mlm_accuracy", "highest validation MLM accuracy of 2 kept"),
    ],
)
def test_the_page_says_why_a_step_is_served(kept, best, why, tmp_path):
    folder = a_run(tmp_path, checkpoints={"best": best})
    assert f"Step served {kept[0][0]} {why}" in shown(folder, kept)[1]


def test_the_steps_kept_are_those_of_the_manifests(tmp_path):
    base = texts.config_file(tmp_path)
    settings = texts.configure(base, batch_size=8, model__hidden=16)
    run = saved.run(tmp_path / "run", settings, {10: 2.0, 20: 1.0, 30: 3.0})
    assert list_metrics(run) == [(20, 1.0), (10, 2.0), (30, 3.0)]
    (run / "checkpoints" / "20" / manifest.NAME).write_text("{}")
    assert list_metrics(run) == [(10, 2.0), (30, 3.0)]
    assert list_metrics(tmp_path) == []


# --- how far --------------------------------------------------------------------------------------


def test_a_run_says_how_far_it_is(tmp_path):
    assert "600 of 600, finished" in shown(a_run(tmp_path))[1]
    assert "600 of 1,000, stopped" in shown(a_run(tmp_path, steps=1000))[1]
    early = a_run(tmp_path, steps=1000, checkpoints={"best": "mlm_loss", "patience": 1})
    assert "600 of 1,000, ended early" in shown(early)[1]
    patient = a_run(tmp_path, steps=1000, checkpoints={"best": "mlm_loss", "patience": 2})
    assert "600 of 1,000, stopped" in shown(patient)[1]
    with folder_locks.hold(tmp_path):
        assert "600 of 1,000, training now" in shown(tmp_path)[1]


def test_a_run_without_a_line_yet_has_a_page(tmp_path):
    folder = a_run(tmp_path, {})
    html, text = shown(folder)
    assert "no measurements yet" in text
    assert "0 of 600, not begun" in text
    assert "<svg" not in html
    assert "0 of 600, imported" in shown(folder, [(0, None)])[1]


def test_a_run_without_evaluations_has_its_curves(tmp_path):
    folder = a_run(tmp_path)
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_text("".join(x for x in lines if "train/loss" in x))
    html, text = shown(folder, [(600, None)])
    assert read_figure(html, "MLM loss")[0] == "training, step 200: 5"
    assert "Step served 600 the only one kept" in text
    assert "validation," not in text


def test_a_run_that_diverged_says_so(tmp_path):
    folder = a_run(tmp_path, steps=1000)
    with (folder / "metrics.jsonl").open("a") as file:
        line = {"step": 610, "time": 1, "train/loss": None, "train/skipped_in_row": 7.0}
        file.write(json.dumps(line) + "\n")
    _, text = shown(folder)
    said = "At step 610, the last one, the loss is not finite and 7 updates in a row were not made."
    assert said in text
    assert "not finite" not in shown(a_run(tmp_path))[1].partition("Config")[0]


def test_a_config_of_another_version_is_shown_as_it_is(tmp_path):
    folder = a_run(tmp_path)
    tree = json.loads((folder / "config.json").read_text())
    del tree["optim"]["freeze"], tree["checkpoints"]
    (folder / "config.json").write_text(json.dumps(tree | {"warp": {"factor": 9}}))
    _, text = shown(folder, [(400, 4.5), (600, 4.75)])
    assert "warp.factor 9" in text
    assert "Step served 400 the latest of 2 kept" in text


# --- what it means --------------------------------------------------------------------------------


def test_words_are_explained_where_they_come_first():
    text = terms.explain("1 nats & 2 nats, the unigram <b>")
    assert text.count("data-means") == 2
    assert re.sub("<span[^>]*>|</span>", "", text) == "1 nats &amp; 2 nats, the unigram &lt;b&gt;"
    assert text.startswith('1 <span class="term"')
    assert terms.term("x", "") == "x"


def test_the_page_explains_its_measures_and_words(tmp_path):
    html, _ = shown(a_run(tmp_path, masking={"rate": 0.3}), [(400, 4.5), (600, 4.75)])
    explained = dict(
        re.findall(r'<span class="term" tabindex="0" data-means="([^"]*)">([^<]*)<', html)
    )
    words = set(explained.values())
    assert {"MLM loss", "MLM accuracy", "nats", "the unigram", "Step served"} <= words
    assert {"masking.rate", "optim.learning_rate"} <= words, "knobs have their documentation"


def test_the_learning_rate_has_a_linear_axis(tmp_path):
    folder = a_run(tmp_path)
    rates = [1e-6, 1e-3, 8e-4, 5e-4, 1e-6]
    lines = [
        {"step": 10 * i, "time": i, "train/learning_rate": rate, "train/grad_norm": rate}
        for i, rate in enumerate(rates)
    ]
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    html, _ = shown(folder)

    def ticks(title: str) -> list[float]:
        found = re.findall("text-anchor: end[^>]*>([^<]*)</text>", figure(html, title))
        return [float(label) for label in found]

    rate = ticks("Learning rate")
    gaps = {round(b - a, 9) for a, b in itertools.pairwise(rate)}
    assert len(gaps) == 1
    assert rate[0] == 0
    assert ticks("Gradient norm")[0] == 1e-6, "which is logarithmic where values lie far apart"


@pytest.mark.parametrize(
    ("objective", "title"),
    [("mlm", "Loss (nats)"), ("regress", "Loss (squared error)"), ("", "Loss")],
)
def test_the_loss_has_the_unit_of_its_objective(objective, title, tmp_path):
    run = run_record.RunRecord(
        tmp_path, {"objectives": {objective: {}} if objective else {}}, {}, [], (), False
    )
    assert run_charts.axis_of(run, "loss") == title


def test_the_report_of_the_api_is_that_of_the_run(tmp_path):
    assert "600 of 600, finished" in run_text(bert_jax.Run(a_run(tmp_path)).report().html)
    assert "600 of 900, stopped" in run_text(bert_jax.Run(a_run(tmp_path, steps=900)).report().html)
    with pytest.raises(DataError, match="no run in"):
        bert_jax.Run(tmp_path / "none").report()


def test_a_page_with_everything_is_one_document(tmp_path):
    a_run(tmp_path)
    source, _ = shown(tmp_path)
    assert Checker(source).outside == []
    assert source.count("<script") == 1
