"""`bert-jax plan`: its table and JSON; compilers of accelerators where they are installed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import pytest

from bert_jax.config import costs, load_file, resolve
from bert_jax.errors import ConfigError
from bert_jax.interop import vocabulary
from bert_jax.planning import targets
from tests.texts import ROOT

TPU = pytest.mark.skipif(
    sys.version_info < (3, 12) or importlib.util.find_spec("libtpu") is None,
    reason="the extra tpu is not installed, or Python is older than 3.12",
)
KEYS = {  # of the JSON, that people rely on
    *("target", "devices", "fits", "peak_bytes", "memory_bytes", "argument_bytes", "temp_bytes"),
    *("flops", "collectives", "largest_collective_rows", "attention", "dtype", "remat"),
    *("roofline_ms", "hours", "cost", "largest_batch"),
}


def run(*words: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "bert_jax.cli", "plan", *words]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def test_plan_prints_a_table_and_writes_json(tmp_path):
    output = tmp_path / "new" / "plan.json"
    words = ("--config=configs/tiny.py", "--target=cpu:8", "--price=2.5", f"--output={output}")
    code, printed, said = run(*words)
    assert code == 0, said
    assert "cpu:8: 8 x cpu" in printed
    assert "fits in" in printed
    found = json.loads(output.read_text())
    assert set(found) >= KEYS
    assert (found["target"], found["devices"], found["fits"]) == ("cpu:8", 8, True)
    assert found["roofline_ms"] == {"compute": None, "network": None}
    config = resolve(load_file(str(ROOT / "configs" / "tiny.py")))
    assert found["flops"] == costs.flops_per_step(config, vocabulary.assumed_size(config)) / 8


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


@pytest.mark.parametrize("name", ["cpu:8", "v5e:2x4", "h100x8"])
def test_target_is_one_of_the_contract(name):
    assert name in targets.TARGETS
    with pytest.raises(ConfigError, match="no target"):
        targets.find_target(f"{name}x")


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
    words = ("--config=configs/pretrain.py:base", "--config.model.layers=2")
    code, _, said = run(*words, "--target=v5e:2x4", f"--output={output}")
    assert code == 0, said
    found = json.loads(output.read_text())
    assert (found["devices"], found["dtype"]) == (8, "bfloat16")
    assert found["largest_collective_rows"] == 0
    assert found["roofline_ms"]["compute"] > 0
