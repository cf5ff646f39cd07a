"""The promises of `make demo`, checked on the run itself."""

from __future__ import annotations

import json
import time

import pytest

from tests import texts


@pytest.mark.slow
def test_demo_learns_what_it_promises_in_its_time(tmp_path):
    began, workdir = time.monotonic(), tmp_path / "run"
    train = ("train", "--config=tiny", f"--workdir={workdir}")
    code, _, err = texts.run(*train, user=True, timeout=1500)
    assert code == 0, err
    code, out, err = texts.run("evaluate", f"--checkpoint={workdir}", user=True)
    assert code == 0, err
    seconds = time.monotonic() - began
    found = json.loads(out)["pretrain"]
    assert found["mlm_loss"] <= found["unigram_loss"] - 2.0
    assert found["mlm_accuracy"] >= 3.5 * found["unigram_accuracy"]
    assert found["nsp_accuracy_low"] > found["majority_accuracy"]
    lines = map(json.loads, (workdir / "metrics.jsonl").read_text().splitlines())
    assert [row["train/data_wait"] for row in lines if "train/data_wait" in row][-1] < 0.02
    assert seconds < 300, f"{seconds:.0f} s; on an idle machine of two cores it takes under 300"
