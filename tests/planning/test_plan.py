"""`bert-jax plan`: its table and JSON; compilers of accelerators where they are installed."""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import subprocess
import sys

import pytest

from bert_jax import plan
from bert_jax.config import costs, load_file, override, resolve
from bert_jax.errors import ConfigError
from bert_jax.interop import vocabulary
from bert_jax.planning import targets
from bert_jax.training import memory
from bert_jax.training.program import mesh_for
from tests.texts import ROOT

TPU = pytest.mark.skipif(
    sys.version_info < (3, 12) or importlib.util.find_spec("libtpu") is None,
    reason="the extra tpu is not installed, or Python is older than 3.12",
)
CUDA = pytest.mark.skipif(
    sys.version_info < (3, 12)
    or not any(importlib.util.find_spec(f"jax_cuda{n}_plugin") for n in (12, 13)),
    reason="the extra cuda is not installed, or Python is older than 3.12",
)
KEYS = {  # of the JSON, that people rely on
    *("target", "devices", "fits", "peak_bytes", "memory_bytes", "argument_bytes", "temp_bytes"),
    *("flops", "collectives", "largest_collective_rows", "attention", "dtype", "remat"),
    *("roofline_ms", "hours", "cost", "largest_batch"),
}
BASE = ("--config=configs/pretrain.py:base", "--config.model.layers=2")


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
    assert "compiling for cpu:8: 64 rows a step" in said
    found = json.loads(output.read_text())
    assert set(found) >= KEYS
    assert (found["target"], found["devices"], found["fits"]) == ("cpu:8", 8, True)
    assert found["roofline_ms"] == {"compute": None, "network": None}
    config = resolve(load_file(str(ROOT / "configs" / "tiny.py")))
    assert found["flops"] == costs.flops_per_step(config, vocabulary.assumed_size(config)) / 8


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("tiny.py", {"model.remat": "full", "model.scan": "true"}),
        ("pretrain.py:tiny", {}),
        ("pretrain.py:mini", {"model.remat": "full", "model.scan": "true"}),
    ],
)
def test_dry_run_estimates_the_peak(name, changes, tmp_path):
    output = tmp_path / "plan.json"
    words = [f"--config.{path}={value}" for path, value in changes.items()]
    code, _, said = run(f"--config=configs/{name}", "--target=cpu:8", f"--output={output}", *words)
    assert code == 0, said
    found = json.loads(output.read_text())
    tree = load_file(str(ROOT / "configs" / name))
    for path, value in changes.items():
        override(tree, path, value)
    config = resolve(tree)
    estimated = memory.estimate(config, vocabulary.assumed_size(config), mesh_for(config))
    assert sum(estimated) == pytest.approx(found["peak_bytes"], rel=0.15)


@pytest.mark.parametrize("name", ["v5e:2x4", "h100x8"])
def test_compiler_that_is_not_installed_is_named(name, monkeypatch):
    extra = "tpu" if name.startswith("v5e") else "cuda"
    monkeypatch.setattr(targets.sys, "version_info", (3, 11))
    with pytest.raises(ConfigError, match=r"needs Python 3\.12 or newer"):
        targets.find(name)
    monkeypatch.setattr(targets.sys, "version_info", (3, 12))
    monkeypatch.setattr(targets.importlib.util, "find_spec", lambda module: None)
    with pytest.raises(ConfigError, match="not installed") as error:
        targets.find(name)
    assert f"[{extra}]'" in error.value.hint


@pytest.mark.parametrize("text", ["0", "1.5", "half"])
def test_mfu_is_a_share(text):
    with pytest.raises(argparse.ArgumentTypeError):
        plan._read_share(text)
    assert plan._read_share("1") == 1.0


@pytest.mark.slow
@pytest.mark.timeout(1200)
@TPU
def test_tpu_compiles_the_update(tmp_path):
    output = tmp_path / "plan.json"
    code, _, said = run(*BASE, "--target=v5e:2x4", "--config.batch_size=256", f"--output={output}")
    assert code == 0, said
    found = json.loads(output.read_text())
    assert (found["devices"], found["dtype"], found["fits"]) == (8, "bfloat16", True)
    assert found["largest_collective_rows"] == 0
    assert found["roofline_ms"]["compute"] > 0


@pytest.mark.slow
@pytest.mark.timeout(1200)
@CUDA
def test_gpu_compiles_the_update_with_fused_attention(tmp_path):
    output = tmp_path / "plan.json"
    dropout = "--config.model.attention_dropout=0"
    code, _, said = run(*BASE, dropout, "--target=h100x8", f"--output={output}")
    assert code == 0, said
    found = json.loads(output.read_text())
    assert (found["devices"], found["attention"], found["fits"]) == (8, "cudnn", True)
    assert found["largest_collective_rows"] == 0
    assert math.isclose(found["memory_bytes"], 80 * 2**30, rel_tol=0.01)
