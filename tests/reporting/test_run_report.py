"""The page of a run in any state: whole, offline, escaped, and true to the files of the run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bert_jax import config
from bert_jax.reporting import run_charts, run_report
from bert_jax.reporting.formats import number
from bert_jax.reporting.metric_names import find_title, is_share
from bert_jax.system import folder_locks
from tests.pages import a_run, figure, keep_steps, read_page, titles, write_run

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


def pretrain(folder: Path, lines: int = 20, steps: int = 500) -> Path:
    """A run of pre-training that a kill tore, with everything that a run writes."""
    changes = {"steps": steps, "optim": {"warmup_steps": 9}, "masking": {"rate": 0.25}}
    recorded = config.resolve(changes)
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
    keep_steps(folder, kept)
    path = run_report.write_report(folder)
    assert path == folder / "report.html"
    source = path.read_text(encoding="utf-8")
    return source, read_page(source)


# --- a whole run ----------------------------------------------------------------------------------


def test_page_has_every_number_of_the_files(tmp_path):
    """Tiles are of the last evaluation, and what never changes in training is a line of text."""
    source, text = show(pretrain(tmp_path))
    links = re.findall('<a href="#([^"]*)">', source)
    assert re.findall('<section id="([^"]*)">', source) == links
    for said in ("500 of 500, finished", "MLM + NSP", "masking rate 25.0 % of tokens", "'a b'"):
        assert said in text
    assert "selected, of eligible 25.0 % 25.0 % 25.0 % 25.0 %" in text
    assert "by [MASK] 80.0 % 80.0 %" in text
    tiles = re.findall('<div class="tile">.*?</div><strong>(.*?)</strong>', source)
    results = [SCORES[name] for name in ("mlm_loss", "mlm_accuracy", "nsp_accuracy", "nsp_loss")]
    shares = [False, True, True, False]
    assert tiles[:4] == [number(x, share) for x, share in zip(results, shares, strict=True)]
    assert "95 % interval 55.0 to 65.0; the majority 50.0 %" in text
    assert "the unigram 6.300" in text
    assert "50 ms per step, 0.4 % waiting for data, 45.7 % of the devices' nominal" in text
    for key, value in TRAINED.items():
        name = key.removeprefix("train/")
        if name not in {*run_charts.SPENT, *run_charts.HELD, *run_charts.LEDGER}:
            shown = find_title(name) if name != "loss" else "Loss, the weighted sum"
            constant = f">{shown}</span> <b>{number(value, is_share(name))}</b>"
            assert shown in titles(source) or constant in source, name


def test_times_add_up_to_the_whole(tmp_path):
    text = show(pretrain(tmp_path))[1]
    table = text.partition("share of the time")[2].partition("Other")[0]
    shares = [float(share) for share in re.findall(r"([\d.]+) %", table)]
    assert shares[:4] == [31.2, 0.6, 15.0, 1.2]  # of 40 seconds
    assert sum(shares) == pytest.approx(100, abs=0.3)
    assert "3.21 GB" in table


def test_thousands_of_lines_stay_small(tmp_path):
    folder = pretrain(tmp_path, lines=4_000, steps=40_000)
    assert run_report.write_report(folder).stat().st_size < 300_000


def test_served_step_is_in_tiles_and_curves(tmp_path):
    source, text = show(a_run(tmp_path), [(400, 4.5), (600, 4.75)])
    assert "MLM loss 4.500 validation, step 400, served; 4.750 at step 600" in text
    without, _ = show(tmp_path, [(600, 4.5), (400, 4.75)])
    dashed = [figure(page, "MLM loss").count("stroke-dasharray") for page in (source, without)]
    assert dashed[0] == dashed[1] + 1, "the last step needs no mark"


@pytest.mark.parametrize(
    ("kept", "best", "why"),
    [
        ([(600, 4.75)], "mlm_loss", "the only one kept"),
        ([(600, None), (400, None)], "mlm_loss", "the latest of 400 and 600"),
        ([(400, 4.5), (600, 4.75)], "mlm_loss", "lowest validation MLM loss of 400 and 600"),
        ([(400, -0.45), (600, -0.4)], "mlm_accuracy", "highest validation MLM accuracy of 400"),
    ],
)
def test_page_says_why_a_step_is_served(kept, best, why, tmp_path):
    folder = a_run(tmp_path, checkpoints={"best": best})
    assert f"Step served {kept[0][0]} {why}" in show(folder, kept)[1]


def test_scores_in_per_cent_are_shares_on_the_page(tmp_path):
    """As SQuAD's scores are; its metrics of training are named like those of its evaluation."""
    recorded = {"objectives": {"span": {}}, "task": {"source": "files:x.json"}}
    row = {"step": 1, "time": 1, "eval/validation/f1": 55.6, "eval/validation/exact": 48.3}
    row |= {"train/loss": 2.5, "train/span_loss": 2.5, "train/span_accuracy": 0.5}
    source, text = show(write_run(tmp_path, recorded, [row]))
    assert titles(source) == ["Loss", "Accuracy", "Exact match", "F1"]
    assert "F1 55.6 %" in text
    assert "fine-tuned on x.json" in text


# --- how far it is --------------------------------------------------------------------------------


def test_run_says_how_far_it_is(tmp_path):
    assert "600 of 600, finished" in show(a_run(tmp_path))[1]
    for patience, state in ((1, "ended early"), (2, "stopped")):
        a_run(tmp_path, steps=1000, checkpoints={"best": "mlm_loss", "patience": patience})
        assert f"600 of 1,000, {state}" in show(tmp_path)[1]
    with folder_locks.hold_lock(tmp_path):
        assert "600 of 1,000, training now" in show(tmp_path)[1]
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
