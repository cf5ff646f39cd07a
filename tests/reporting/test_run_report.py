"""The page of a run in any state: whole, offline, escaped, and true to the files of the run."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

import bert_jax
from bert_jax import config
from bert_jax.checkpoints import manifest
from bert_jax.checkpoints.steps import list_metrics
from bert_jax.errors import DataError
from bert_jax.reporting import run_charts, run_report
from bert_jax.reporting.formats import number
from bert_jax.reporting.metric_names import is_share, pretty
from bert_jax.system import folder_locks
from tests import saved, texts
from tests.pages import HOSTILE, a_run, figure, read_figure, read_page, titles, write_run

TRAINED = {
    "train/loss": 3.5,
    "train/mlm_loss": 3.25,
    "train/mlm_accuracy": 0.4,
    "train/masked_fraction": 0.25,
    "train/mask_token_fraction": 0.8,
    "train/random_fraction": 0.1,
    "train/kept_fraction": 0.1,
    "train/learning_rate": 1e-4,
    "train/grad_norm": 2.0,
    "train/skipped_in_row": 0.0,
    "train/tokens_per_second": 12_345.0,
    "train/data_wait": 0.004,
    "train/mfu": 0.457,
    "train/step_seconds": 0.05,
    "train/compile_seconds": 12.5,
    "train/saving_seconds": 0.5,
    "train/data_seconds": 0.25,
    "train/evaluation_seconds": 6.0,
    "train/host_memory_bytes": 3.21e9,
    "train/device_memory_bytes": 7e10,
}
SCORES = {
    "mlm_loss": 5.25,
    "unigram_loss": 6.3,
    "mlm_accuracy": 0.3,
    "unigram_accuracy": 0.1,
    "nsp_accuracy": 0.6,
    "nsp_accuracy_low": 0.55,
    "nsp_accuracy_high": 0.65,
    "majority_accuracy": 0.5,
    "examples": 400,
    "nsp_loss": 0.65,
}


def pretrain(folder: Path, lines: int = 20, steps: int = 500, **masking) -> Path:
    """A run of pre-training that a kill tore, with everything that a run writes."""
    rate = {"rate": 0.25, **masking}
    recorded = config.resolve({"steps": steps, "optim": {"warmup_steps": 9}, "masking": rate})
    rows = []
    for i in range(1, lines + 1):
        known = {"step": i * steps // lines, "time": 2.0 * i}
        changing = {"train/loss": 3 + 1 / i, "train/learning_rate": 1e-4 * i}
        rows.append(known | TRAINED | changing)
        rows.append(known | {f"eval/validation/{name}": value for name, value in SCORES.items()})
    guess = [[{"token": "cat", "probability": 0.25}]]
    said = [{"step": steps, "text": f"Number {n} is [MASK].", "predictions": guess} for n in (1, 2)]
    write_run(folder, config.to_dict(recorded), rows, said)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 99999, "tra')
    facts = {"jax": "1.2.3", "command": ["bert-jax", "a b"], "parameters": 1234567}
    (folder / "environment.json").write_text(json.dumps(facts | {"packages": {"p": "4"}}))
    return folder


def show(folder: Path, kept=()) -> tuple[str, str]:
    """The page's source and its words."""
    path = run_report.write(folder, lambda _: kept)
    assert path == folder / "report.html"
    source = path.read_text(encoding="utf-8")
    return source, read_page(source)


# --- a whole run ----------------------------------------------------------------------------------


def test_page_links_to_its_sections_in_order(tmp_path):
    source, text = show(pretrain(tmp_path))
    links = re.findall('<a href="#([^"]*)">([^<]*)</a>', source)
    assert re.findall('<section id="([^"]*)">', source) == [anchor for anchor, _ in links]
    assert [name for _, name in links] == [
        *("Predictions", "Learning", "Masking ledger", "Time and memory", "Other measurements"),
        *("Config", "Environment"),
    ]
    for said in ("500 of 500, finished", "MLM + NSP", "masking rate 25.0 % of tokens", "'a b'"):
        assert said in text


def test_tiles_equal_the_last_evaluation(tmp_path):
    source, text = show(pretrain(tmp_path))
    tiles = re.findall('<div class="tile">.*?</div><strong>(.*?)</strong>', source)
    results = [SCORES[name] for name in ("mlm_loss", "mlm_accuracy", "nsp_accuracy", "nsp_loss")]
    shares = [False, True, True, False]
    assert tiles[:4] == [number(x, share) for x, share in zip(results, shares, strict=True)]
    assert "95 % interval 55.0 to 65.0; the majority 50.0 %" in text
    assert "the unigram 6.300" in text
    assert "50 ms per step, 0.4 % waiting for data, 45.7 % of the devices' nominal" in text


def test_every_number_of_training_is_on_the_page(tmp_path):
    source, _ = show(pretrain(tmp_path))
    for key in TRAINED:
        name = key.removeprefix("train/")
        if name not in {*run_charts.SPENT, *run_charts.HELD, *run_charts.LEDGER}:
            shown = pretty(name) if name != "loss" else "Loss, the weighted sum"
            value = number(TRAINED[key], is_share(name))
            assert shown in titles(source) or f">{shown}</span> <b>{value}</b>" in source, name


def test_times_add_up_to_the_whole(tmp_path):
    text = show(pretrain(tmp_path))[1]
    table = text.partition("share of the time")[2].partition("Other")[0]
    shares = [float(share) for share in re.findall(r"([\d.]+) %", table)]
    assert shares[:4] == [31.2, 0.6, 15.0, 1.2]  # of 40 seconds
    assert sum(shares) == pytest.approx(100, abs=0.3)
    assert "3.21 GB" in table


@pytest.mark.parametrize("phases", [[], [[1.0, 0.3, "linear"]]])
def test_ledger_compares_with_the_config(phases, tmp_path):
    source, text = show(pretrain(tmp_path, phases=phases))
    wish = "scheduled" if phases else "25.0 %"
    assert f"selected, of eligible {wish} 25.0 % 25.0 % 25.0 %" in text
    assert "by [MASK] 80.0 % 80.0 %" in text
    assert ("<summary>Charts over the steps" in source) == (not phases)


def test_ten_thousand_lines_stay_small(tmp_path):
    folder = pretrain(tmp_path, lines=10_000, steps=100_000)
    assert run_report.write(folder).stat().st_size < 300_000


def test_training_is_faint_behind_validation(tmp_path):
    source, _ = show(a_run(tmp_path))
    faint = {title: "opacity: 0.6" in figure(source, title) for title in titles(source)[:2]}
    assert faint == {"Loss, the weighted sum": False, "MLM loss": True}
    assert read_figure(source, "MLM loss")[::3] == [
        "training, step 200: 5",
        "validation, step 200: 5",
    ]


@pytest.mark.fault(18)
def test_texts_of_all_files_are_escaped(tmp_path):
    recorded = {"model": {"size": HOSTILE}, "corpus": {"source": HOSTILE}}
    line = {"step": 1, f"train/{HOSTILE}": 1.0, f"eval/{HOSTILE}/accuracy": 0.5}
    guess = [[{"token": HOSTILE, "probability": 0.5}]]
    sample = {"step": 1, "text": f"a [MASK] {HOSTILE}", "predictions": guess}
    write_run(tmp_path, recorded, [line], [sample])
    facts = {HOSTILE: {HOSTILE: HOSTILE}, "x": HOSTILE}
    (tmp_path / "environment.json").write_text(json.dumps(facts))
    source, text = show(tmp_path)
    assert source.count("<script") == 1
    assert "<img" not in source
    assert text.count("alert(1)") > 6


# --- a task ---------------------------------------------------------------------------------------


def test_squads_scores_are_per_cent_already(tmp_path):
    recorded = {"objectives": {"span": {}}, "task": {"source": "files:x.json"}}
    row = {"step": 1, "time": 1, "eval/validation/f1": 55.6, "eval/validation/exact": 48.3}
    row |= {"train/loss": 2.5, "train/span_loss": 2.5, "train/span_accuracy": 0.5}
    source, text = show(write_run(tmp_path, recorded, [row]))
    assert titles(source) == ["Loss", "Accuracy", "Exact match", "F1"]
    assert "Span loss" not in text  # it is the loss
    assert "F1 55.6 %" in text
    assert "fine-tuned on x.json" in text


# --- which step is served -------------------------------------------------------------------------


def test_served_step_is_in_tiles_curves_and_table(tmp_path):
    source, text = show(a_run(tmp_path), [(400, 4.5), (600, 4.75)])
    assert "Step served 400 lowest validation MLM loss of 2 kept" in text
    assert "MLM loss 4.500 validation, step 400, served; 4.750 at step 600" in text
    assert "step validation MLM loss 400 4.500 served 600 4.750" in text
    without, _ = show(tmp_path, [(600, 4.75), (400, 4.5)])
    dashed = [figure(page, "MLM loss").count("stroke-dasharray") for page in (source, without)]
    assert dashed[0] == dashed[1] + 1, "the last step needs no mark"


@pytest.mark.parametrize(
    ("kept", "best", "why"),
    [
        ([(600, 4.75)], "mlm_loss", "the only one kept"),
        ([(600, None), (400, None)], "mlm_loss", "the latest of 2 kept"),
        ([(400, -0.45), (600, -0.4)], "mlm_accuracy", "highest validation MLM accuracy of 2 kept"),
    ],
)
def test_page_says_why_a_step_is_served(kept, best, why, tmp_path):
    folder = a_run(tmp_path, checkpoints={"best": best})
    assert f"Step served {kept[0][0]} {why}" in show(folder, kept)[1]


def test_kept_steps_are_those_of_sound_manifests(tmp_path):
    base = texts.config_file(tmp_path)
    settings = texts.configure(base, batch_size=8, model__hidden=16)
    run = saved.run(tmp_path / "run", settings, {10: 2.0, 20: 1.0, 30: 3.0})
    assert list_metrics(run) == [(20, 1.0), (10, 2.0), (30, 3.0)]
    (run / "checkpoints" / "20" / manifest.NAME).write_text("{}")
    assert list_metrics(run) == [(10, 2.0), (30, 3.0)]


# --- how far it is --------------------------------------------------------------------------------


def test_run_says_how_far_it_is(tmp_path):
    assert "600 of 600, finished" in show(a_run(tmp_path))[1]
    for patience, state in ((1, "ended early"), (2, "stopped")):
        a_run(tmp_path, steps=1000, checkpoints={"best": "mlm_loss", "patience": patience})
        assert f"600 of 1,000, {state}" in show(tmp_path)[1]
    with folder_locks.hold(tmp_path):
        assert "600 of 1,000, training now" in show(tmp_path)[1]


def test_run_without_a_line_yet_has_a_page(tmp_path):
    source, text = show(a_run(tmp_path, {}))
    assert "no measurements yet" in text
    assert "0 of 600, not begun" in text
    assert "<svg" not in source
    assert "0 of 600, imported" in show(tmp_path, [(0, None)])[1]


def test_diverged_run_says_so(tmp_path):
    line = {"step": 610, "time": 1, "train/loss": None, "train/skipped_in_row": 7.0}
    with (a_run(tmp_path) / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
    said = "At step 610, the last one, the loss is not finite and 7 updates in a row were not made."
    assert said in show(tmp_path)[1]


def test_config_of_another_version_is_shown(tmp_path):
    folder = a_run(tmp_path)
    tree = json.loads((folder / "config.json").read_text())
    del tree["optim"]["freeze"], tree["checkpoints"]
    (folder / "config.json").write_text(json.dumps(tree | {"warp": {"factor": 9}}))
    _, text = show(folder, [(400, 4.5), (600, 4.75)])
    assert "warp.factor 9" in text
    assert "Step served 400 the latest of 2 kept" in text


def test_page_explains_measures_and_knobs(tmp_path):
    source, _ = show(a_run(tmp_path, masking={"rate": 0.3}))
    words = re.findall(r'<span class="term" tabindex="0" data-means="[^"]+">([^<]*)<', source)
    assert {"MLM loss", "MLM accuracy", "the unigram", "masking.rate"} <= {*words}


def test_learning_rate_has_a_linear_axis(tmp_path):
    lines = [
        {"step": 10 * i, "time": i, "train/learning_rate": rate, "train/grad_norm": rate}
        for i, rate in enumerate([1e-6, 1e-3, 8e-4, 5e-4, 1e-6])
    ]
    source, _ = show(write_run(tmp_path, {}, lines))

    def read_ticks(title: str) -> list[float]:
        found = re.findall("text-anchor: end[^>]*>([^<]*)</text>", figure(source, title))
        return [float(label) for label in found]

    assert read_ticks("Learning rate")[0] == 0
    assert read_ticks("Gradient norm")[0] == 1e-6


@pytest.mark.parametrize(
    ("objectives", "title"),
    [({"mlm": {}}, "Loss (nats)"), ({"regress": {}}, "Loss (squared error)"), ({}, "")],
)
def test_loss_has_the_unit_of_its_objective(objectives, title, tmp_path):
    lines = [{"step": step, "train/loss": math.exp(-step)} for step in (1, 2)]
    source, _ = show(write_run(tmp_path, {"objectives": objectives}, lines))
    assert title in figure(source, "Loss")
    assert bool(title) == ("Loss (" in figure(source, "Loss"))


def test_report_of_the_api_is_that_of_the_run(tmp_path):
    found = bert_jax.Run(a_run(tmp_path)).report().html
    assert found == run_report.write(tmp_path, list_metrics).read_text()
    with pytest.raises(DataError, match="no run in"):
        bert_jax.Run(tmp_path / "none")
