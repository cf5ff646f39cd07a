"""The page of a run in any state: what it says of the files of the run is frozen."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from bert_jax.reporting import run_charts, run_record, run_report
from bert_jax.system import folder_locks
from tests.pages import BEST, a_run, keep_steps, read_page, write_run

RUN = Path(__file__).parents[1] / "golden" / "run_v1" / "run"
MEASURED = {  # of an accelerator, too
    "train/tokens_per_second": 12_345.0,
    "train/data_wait": 0.004,
    "train/mfu": 0.457,
    "train/step_seconds": 0.05,
    "train/device_memory_bytes": 7e10,
}


def pretrain(folder: Path, times: int = 1) -> Path:
    """A run of pre-training that a kill tore, with everything that a run writes."""
    recorded = json.loads((RUN / "config.json").read_text())
    known = [json.loads(line) for line in (RUN / "metrics.jsonl").read_text().splitlines()]
    rows = [row | MEASURED | {"step": 8 * i + row["step"]} for i in range(times) for row in known]
    guess = [[{"token": "cat", "probability": 0.25}]]
    said = [{"step": 8, "text": f"Number {n} is [MASK].", "predictions": guess} for n in (1, 2)]
    write_run(folder, recorded, rows, said)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 99999, "tra')
    facts = {"jax": "1.2.3", "command": ["bert-jax", "a b"], "parameters": 1234567}
    (folder / "environment.json").write_text(json.dumps(facts | {"packages": {"p": "4"}}))
    return folder


def serve(folder: Path) -> Path:
    """A run whose step 400 is served, and not its last one."""
    keep_steps(a_run(folder, checkpoints={"best": "mlm_loss"}), [(400, 4.5), (600, 4.75)])
    return folder


def fine_tune(folder: Path) -> Path:
    """A run on SQuAD, whose scores are in per cent, and whose metrics name its objective."""
    recorded = {"objectives": {"span": {}}, "task": {"source": "files:x.json"}}
    row = {"step": 1, "time": 1, "eval/validation/f1": 55.6, "eval/validation/exact": 48.3}
    row |= {"train/loss": 2.5, "train/span_loss": 2.5, "train/span_accuracy": 0.5}
    return write_run(folder, recorded, [row])


RUNS: dict[str, Callable[[Path], Path]] = {
    "pretrained": pretrain,
    "served": serve,
    "fine_tuned": fine_tune,
}


@pytest.mark.parametrize("name", RUNS)
def test_page_says_what_is_frozen(name, tmp_path, check_frozen):
    folder = RUNS[name](tmp_path / "run")
    path = run_report.write_report(folder)
    assert path == folder / "report.html"
    check_frozen(path.read_text(encoding="utf-8"), name)


FALLING = {"rate": 0.3, "phases": [[1.0, 0.15, "linear"]], "unit": "pmi"}
STATED = {
    "masking rate 30.0 % to 15.0 %, in collocations · no": FALLING,
    "masking rate uniform, 0.000 % to 100.0 % · no": {"draw": "uniform"},
    "masking rate 40.0 % · prediction rate 10.0 % · no": {"rate": 0.4, "prediction_rate": 0.1},
    "15.0 % in each of 2 views, 30.0 % in all · no": {"rate": 0.15, "prediction_rate": 0.3},
}


@pytest.mark.parametrize(("said", "masking"), STATED.items())
def test_page_states_the_masking(tmp_path, masking, said):
    write_run(tmp_path, {"objectives": {"mlm": {}}, "masking": masking}, [])
    assert said in read_page(run_report.build_report(run_record.read_run(tmp_path)))


def test_thousands_of_lines_stay_small(tmp_path):
    """Ten times the lines make a page at most half as large again."""
    folders = [pretrain(tmp_path / str(times), times) for times in (50, 500)]
    some, many = [run_report.write_report(folder).stat().st_size for folder in folders]
    assert many < 1.5 * some


def test_losses_come_first():
    named = {f"train/{name}": [] for name in ("causal_lm_loss", "loss", "mlm_accuracy", "mlm_loss")}
    run = mock.Mock(curves=named, list_suites=list)
    learned = run_charts.list_learned([run])
    assert learned == ["loss", "mlm_loss", "causal_lm_loss", "mlm_accuracy"]


def show(folder: Path, kept=()) -> str:
    """The words of the page of a run with some checkpoints."""
    keep_steps(folder, kept)
    return read_page(run_report.build_report(run_record.read_run(folder)))


@pytest.mark.parametrize(
    ("kept", "best", "why"),
    [
        ([(600, 4.75)], "mlm_loss", "the only one kept"),
        ([(600, None), (400, None)], "mlm_loss", "the latest of 400 and 600"),
        ([(400, -0.45), (600, -0.4)], "mlm_accuracy", "highest validation MLM accuracy of 400"),
        (
            [(400, 4.7), (200, 4.8), (600, None)],
            "mlm_loss",
            "lowest validation MLM loss of 200 and 400 Time",
        ),
        ([(400, 4.7), (600, None)], "mlm_loss", "the only evaluated one of those kept"),
    ],
)
def test_page_says_why_a_step_is_served(kept, best, why, tmp_path):
    text = show(a_run(tmp_path, checkpoints={"best": best}), kept)
    assert f"Step served {kept[0][0]} {why}" in text
    assert ("upright dashed line" in text) == (kept[0][0] < 600), "the last step needs no mark"


def test_run_says_how_far_it_is(tmp_path):
    assert "600 of 600, finished" in show(a_run(tmp_path))
    missed = BEST | {500: math.nan}
    for losses, patience, state in (
        (BEST, 1, "ended early"),
        (missed, 2, "ended early"),
        (BEST, 2, "stopped"),
    ):
        a_run(tmp_path, losses, 1000, checkpoints={"best": "mlm_loss", "patience": patience})
        assert f"600 of 1,000, {state}" in show(tmp_path)
    with folder_locks.hold_lock(tmp_path):
        assert "600 of 1,000, training now" in show(tmp_path)
    line = {"step": 610, "time": 1, "train/loss": None, "train/skipped_in_row": 7.0}
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
    said = "At step 610, the last one, the loss is not finite and 7 updates in a row were not made."
    assert said in show(tmp_path)
    text = show(a_run(tmp_path, {}))
    assert "no measurements yet" in text
    assert "0 of 600, not begun" in text
    assert "0 of 600, imported" in show(tmp_path, [(0, None)])
