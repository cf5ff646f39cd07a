"""The page of a run in any state: what it says of the files of the run is frozen."""

import json
import math
from pathlib import Path
from unittest import mock

import pytest

from bert_jax.reporting import run_charts, run_record, run_report
from bert_jax.system import folder_locks
from tests.pages import BEST, a_run, keep_steps, read_lines, write_run

RUN = Path(__file__).parents[1] / "golden" / "run_v1" / "run"
MEASURED = {"tokens_per_second": 12_345.0, "data_wait": 0.004, "step_seconds": 0.05}
MEASURED |= {"mfu": 0.457, "device_memory_bytes": 7e10}  # of an accelerator


def pretrain(folder: Path, times: int = 1) -> Path:
    """A run of pre-training that a kill tore, with everything that a run writes."""
    recorded = json.loads((RUN / "config.json").read_text())
    known = [json.loads(line) for line in (RUN / "metrics.jsonl").read_text().splitlines()]
    more = {f"train/{name}": value for name, value in MEASURED.items()}
    rows = [row | more | {"step": 8 * i + row["step"]} for i in range(times) for row in known]
    guess = [[{"token": "cat", "probability": 0.25}]]
    said = [{"step": 8, "text": f"Number {n} is [MASK].", "predictions": guess} for n in (1, 2)]
    write_run(folder, recorded, rows, said)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 99999, "tra')
    facts = {"jax": "1.2.3", "command": ["bert-jax", "a b"], "parameters": 1234567}
    (folder / "environment.json").write_text(json.dumps(facts | {"packages": {"p": "4"}}))
    return folder


def fine_tune(folder: Path) -> Path:
    """A run on SQuAD, whose scores are in per cent, and whose metrics name its objective."""
    recorded = {"objectives": {"span": {}}, "task": {"source": "files:x.json"}}
    row = {"step": 1, "time": 1, "eval/validation/f1": 55.6, "eval/validation/exact": 48.3}
    row |= {"train/loss": 2.5, "train/span_loss": 2.5, "train/span_accuracy": 0.5}
    return write_run(folder, recorded, [row])


RUNS = {"pretrained": pretrain, "fine_tuned": fine_tune}


@pytest.mark.parametrize("name", RUNS)
def test_page_says_what_is_frozen(name, tmp_path, check_frozen):
    folder = RUNS[name](tmp_path / "run")
    path = run_report.write_report(folder)
    assert path == folder / "report.html"
    check_frozen(path.read_text(encoding="utf-8"), name)


def list_lines(folder: Path) -> list[str]:
    """List what the page of a run says before its config."""
    lines = read_lines(run_report.build_report(run_record.read_run(folder)))
    return lines[: lines.index("Config")]


LOSS = {"best": "mlm_loss"}
BY_LOSS = {"checkpoints": LOSS}
HASTY = {"steps": 1_000, "checkpoints": LOSS | {"patience": 1}}
PATIENT = {"steps": 1_000, "checkpoints": LOSS | {"patience": 2}}
FALLING = {"rate": 0.3, "phases": [[1.0, 0.15, "linear"]], "unit": "pmi"}
TWO_VIEWS = {"rate": 0.15, "prediction_rate": 0.3}
STATES = {
    # name -> arguments of `a_run`, and the steps that are kept
    "finished": ({}, []),
    "ended early": (HASTY, []),
    "step 500 has no loss": (PATIENT | {"losses": BEST | {500: math.nan}}, []),
    "stopped": (PATIENT, []),
    "not begun": ({"losses": {}}, []),
    "imported": ({"losses": {}}, [(0, None)]),
    "the only one kept": (BY_LOSS, [(600, 4.75)]),
    "the latest": (BY_LOSS, [(600, None), (400, None)]),
    "the highest accuracy": (
        {"checkpoints": {"best": "mlm_accuracy"}},
        [(400, -0.45), (600, -0.4)],
    ),
    "the lowest loss of two": (BY_LOSS, [(400, 4.7), (200, 4.8), (600, None)]),
    "the only one evaluated": (BY_LOSS, [(400, 4.7), (600, None)]),
    "a rate that falls": ({"losses": {}, "masking": FALLING}, []),
    "a rate of any share": ({"losses": {}, "masking": {"draw": "uniform"}}, []),
    "few are predicted": ({"losses": {}, "masking": {"rate": 0.4, "prediction_rate": 0.1}}, []),
    "two views": ({"losses": {}, "masking": TWO_VIEWS}, []),
}


def test_page_says_what_is_frozen_of_each_state(tmp_path, check_frozen):
    """How far a run is, which step is served and why, and how it masks."""
    lines = []
    for name, (changes, kept) in STATES.items():
        folder = a_run(tmp_path / name, **changes)
        keep_steps(folder, kept)
        lines += [f"# {name}", *list_lines(folder)]
    check_frozen(lines, "states")


def test_page_says_whether_a_run_trains_or_fails(tmp_path):
    a_run(tmp_path, steps=1_000)
    with folder_locks.hold_lock(tmp_path):
        assert "of 1,000, training now" in list_lines(tmp_path)
    line = {"step": 610, "time": 1, "train/loss": None, "train/skipped_in_row": 7.0}
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
    said = "At step 610, the last one, the loss is not finite and 7 updates in a row were not made."
    assert said in list_lines(tmp_path)


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
