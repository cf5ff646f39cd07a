"""`bert-jax plan`: its numbers, JSON and table; compilers of accelerators where installed."""

import dataclasses
import importlib.util
import json
import os
import subprocess
import sys

import pytest

from bert_jax import plan
from bert_jax.errors import ConfigError
from bert_jax.planning import targets, update
from bert_jax.planning.collectives import Array, Collective
from tests import tiny
from tests.texts import ROOT

TPU = pytest.mark.skipif(
    sys.version_info < (3, 12) or importlib.util.find_spec("libtpu") is None,
    reason="the extra tpu is not installed, or Python is older than 3.12",
)
# 9,000 updates of 2 MFLOP a device on eight devices of 1 GFLOP/s, 1 MB/s and 1 MB.
CHIP = targets.Chip("made up", "cpu", memory_bytes=1_000_000, flops=1e9, network=1e6)
PLAN = update.Plan(
    config=tiny.config(batch_size=32, steps=9_000),
    target=targets.Target("eight", CHIP, (None,) * 8),
    mesh={"data": 8, "fsdp": 1},
    parameters=12_500,
    flops=2e6,
    attention="einsum",
    dtype="float32",
    remat="none",
    peak_bytes=500_000,
    argument_bytes=150_000,  # with gradients, 200,000 do not grow with the rows
    temp_bytes=300_000,
    collectives=(
        Collective("all-reduce", (Array("f32", (1000,)),), 4_000, 5, ""),
        Collective("all-gather", (Array("f32", (200,)),), 800, 1, ""),
    ),
)


def change_chip(**figures) -> update.Plan:
    chip = dataclasses.replace(CHIP, **figures)
    return dataclasses.replace(PLAN, target=dataclasses.replace(PLAN.target, chip=chip))


def test_plan_counts_hours_and_the_roofline():
    assert PLAN.count_hours(0.5) == pytest.approx(9_000 * 2e6 / 0.5e9 / 3600)
    in_epochs = dataclasses.replace(PLAN, config=dataclasses.replace(PLAN.config, epochs=2))
    assert in_epochs.count_hours(0.5) is None
    branch = dataclasses.replace(PLAN.config, branch_from="runs/trunk@3000")
    branch_plan = dataclasses.replace(PLAN, config=branch)
    assert branch_plan.count_hours(0.5) == pytest.approx(6_000 * 2e6 / 0.5e9 / 3600)
    rings = (2 * 5 * 4_000 + 800) * 7 / 8  # a reduction is a scatter and a gather
    assert PLAN.find_roofline() == {"compute": 2.0, "network": pytest.approx(rings / 1e3)}
    unknown = change_chip(flops=None, network=None)
    assert unknown.count_hours(0.5) is None
    assert unknown.find_roofline() == {"compute": None, "network": None}


def test_plan_estimates_the_largest_batch():
    assert update._estimate_largest(PLAN) == 80  # 32 x 800,000 / 300,000 rows, as eights
    narrow = change_chip(memory_bytes=150_000)
    assert update._estimate_largest(narrow) is None
    assert PLAN.fits
    assert change_chip(memory_bytes=500_000).fits
    assert not change_chip(memory_bytes=499_999).fits


def test_report_costs_every_device():
    report = plan.build_report(PLAN, price=2.5, mfu=0.5)
    assert json.loads(json.dumps(report)) == report
    assert (report["target"], report["devices"], report["fits"]) == ("eight", 8, True)
    assert report["cost"] == pytest.approx(report["hours"] * 8 * 2.5)
    assert report["collectives"]["all-reduce"] == {"count": 5, "bytes": 20_000}
    assert plan.build_report(PLAN, price=None, mfu=0.5)["cost"] is None


def test_table_has_every_number_of_the_report():
    report = plan.build_report(PLAN, price=2.5, mfu=0.5)
    lines = plan.format_table(PLAN, report, 0.5).splitlines()
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == [
        *("target", "update", "memory", "compute", "collectives", "at", "run")
    ]
    for said in ("12,500 parameters", "compute 2.0 ms, network 35.7 ms", "9,000 steps take 36 s"):
        assert said in "\n".join(lines)
    config = tiny.config(optim__accumulation=4)
    refused = dataclasses.replace(
        PLAN, config=config, peak_bytes=None, reason="Used 28.94G of 15.75G"
    )
    table = plan.format_table(refused, plan.build_report(refused, None, 0.5), 0.5)
    assert ": Used 28.94G of 15.75G" in table
    assert "smaller: --config.optim.accumulation=8, --config.parallel.fsdp=N, or " in table


@pytest.mark.parametrize(("name", "extra"), [("v5e:2x4", "tpu"), ("h100x8", "cuda")])
def test_compiler_that_is_not_installed_is_named(name, extra, monkeypatch):
    monkeypatch.setattr(targets.sys, "version_info", (3, 11))
    with pytest.raises(ConfigError, match=r"needs Python 3\.12 or newer"):
        targets.find_target(name)
    monkeypatch.setattr(targets.sys, "version_info", (3, 12))
    monkeypatch.setattr(targets.importlib.util, "find_spec", lambda module: None)
    with pytest.raises(ConfigError, match="not installed") as error:
        targets.find_target(name)
    assert f"[{extra}]'" in error.value.hint


def test_plan_refuses_pmap_for_devices_elsewhere(monkeypatch):
    monkeypatch.setattr(targets, "find_target", lambda name: PLAN.target)
    with pytest.raises(ConfigError, match="compiled for devices that are here"):
        plan.run(tiny.config(parallel__step="pmap"), "h100x8")


def test_tpu_is_described_to_its_compiler(monkeypatch):
    monkeypatch.setattr(os, "environ", {})
    targets._prepare_process("v5e:2x4")
    assert os.environ["TPU_ACCELERATOR_TYPE"] == "v5litepod-8"


def test_gpu_is_described_as_xla_reads_it():
    text = targets.describe_gpu("a100")
    assert "  core_count: 108\n" in text
    assert "  cuda_compute_capability { major: 8 }\n" in text
    assert f"  device_memory_size: {targets.CHIPS['a100'].memory_bytes}\n" in text


@pytest.mark.slow
@pytest.mark.timeout(1200)
@TPU
def test_tpu_compiles_the_update(tmp_path):
    output = tmp_path / "plan.json"
    words = ["--config=configs/pretrain.py:base", "--config.model.layers=2", "--target=v5e:2x4"]
    command = [sys.executable, "-m", "bert_jax.cli", "plan", *words, f"--output={output}"]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(output.read_text())
    assert (found["devices"], found["dtype"]) == (8, "bfloat16")
    assert found["largest_collective_rows"] == 0
    assert found["roofline_ms"]["compute"] > 0
