"""What a GPU alone can show: `make test-gpu` on a machine that has one.

`BERT_JAX_GPU=cpu` runs these tests on the CPU in the GPU's place, which tries the tests themselves.
Every other test suite runs on fake CPU devices, see tests/conftest.py.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models import backends
from bert_jax.models.attention_mask import make_attention_mask
from tests import outcomes, texts, tiny

PLACE = os.environ.get("BERT_JAX_GPU", "")
pytestmark = pytest.mark.skipif(
    PLACE != "cpu" and jax.default_backend() != "gpu", reason="no GPU: `make test-gpu` needs one"
)
# The sum of a gradient over equal tokens has a fixed order only with this flag.
SAME_BITS = "--xla_gpu_deterministic_ops=true"
SURE = ("model.dropout=0", "model.attention_dropout=0")  # what is drawn differs between programs
ROWS, LENGTH, HEADS, WIDTH = 4, 256, 2, 64
FORMS = {
    "all": {},
    "causal": {"causal": True},
    "window": {"window": 32},
    "alibi": {"position": "alibi"},
}


def run_command(*words: object, platform: str = "", **variables: str) -> str:
    """Run `bert-jax WORDS` on the GPU, or on another platform of jax; return standard output."""
    environment = texts.as_a_user() | {"PYTHONPATH": str(texts.ROOT), **variables}
    if platform or PLACE == "cpu":
        environment["JAX_PLATFORMS"] = platform or "cpu"
    command = [sys.executable, "-m", "bert_jax.cli", *map(str, words)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return done.stdout


def train(base: Path, workdir: Path, *knobs: str, **settings: str) -> list[float]:
    """Train for 12 updates; return their losses."""
    common = ("steps=12", "logging.every=1", "checkpoints.every=6", "evals.validation.every=12")
    flags = [f"--config={base}", f"--workdir={workdir}", *set_knobs(*common, *knobs)]
    run_command("train", *flags, **settings)
    losses = outcomes.logged(workdir, "loss")
    assert len(losses) == 12
    return losses


def set_knobs(*knobs: str) -> list[str]:
    """Return the flags that set knobs."""
    return [f"--config.{knob}" for knob in knobs]


def attend_with_gradients(name: str, form: str, dtype: str, device: jax.Device) -> list[np.ndarray]:
    """Compute the weighted sum of a backend and its gradients, zero at padding."""
    cfg = tiny.config(model__heads=HEADS, model__hidden=HEADS * WIDTH).model
    cfg = tiny.replace(cfg, dtype=dtype, **FORMS[form])
    batch = tiny.batch(ROWS, LENGTH, seed=3, examples=4)
    real = (batch["segment_ids"] > 0)[..., None, None]
    result = jnp.float32 if dtype == "float32" else jnp.bfloat16
    shape = (4, ROWS, LENGTH, HEADS, WIDTH)
    # The cotangent is the gradient of the weighted sum.
    query, key, value, cotangent = np.random.default_rng(0).normal(size=shape).astype(np.float32)

    @jax.jit
    def compute(query, key, value):
        mask = make_attention_mask(batch, cfg, cfg.window)

        def attend(*operands):
            return backends.TABLE[name](*operands, mask, cfg, lambda weights: weights)[0]

        out, pull = jax.vjp(attend, query, key, value)
        return (out, *pull(jnp.where(real, cotangent, 0).astype(out.dtype)))

    with jax.default_device(device), jax.default_matmul_precision("highest"):
        found = compute(*(jnp.asarray(x, result) for x in (query, key, value)))
        return [np.where(real, np.asarray(x, np.float32), 0) for x in found]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("name", "dtype"), [("einsum", "float32"), ("cudnn", "bfloat16")])
def test_backend_equals_the_cpu_einsum(name, dtype, form):
    """Values and gradients; the CPU's einsum is held against numpy by tests/models."""
    if name == "cudnn" and jax.default_backend() != "gpu":
        pytest.skip("a kernel of the GPU")
    expected = attend_with_gradients("einsum", form, "float32", jax.devices("cpu")[0])
    found = attend_with_gradients(name, form, dtype, jax.devices()[0])
    bound = 1e-5 if dtype == "float32" else 2e-2
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=bound * np.abs(theirs).max())


def test_float32_updates_equal_those_of_the_cpu(base, tmp_path):
    knobs = ("model.dtype=float32", *SURE)
    exact = {"JAX_DEFAULT_MATMUL_PRECISION": "highest"}
    found = train(base, tmp_path / "here", *knobs, **exact)
    expected = train(base, tmp_path / "cpu", *knobs, platform="cpu", **exact)
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_bfloat16_updates_stay_near_the_cpu(base, tmp_path):
    found = train(base, tmp_path / "here", "model.dtype=bfloat16", *SURE)
    expected = train(base, tmp_path / "cpu", "model.dtype=float32", *SURE, platform="cpu")
    np.testing.assert_allclose(found, expected, rtol=2e-2)


def test_pmap_gives_the_losses_of_jit(base, tmp_path):
    jit = train(base, tmp_path / "jit", *SURE)
    pmap = train(base, tmp_path / "pmap", "parallel.step=pmap", *SURE)
    np.testing.assert_allclose(pmap, jit, rtol=1e-4)


def test_killed_run_resumes_to_the_same_bits(base, tmp_path):
    train(base, tmp_path / "whole", XLA_FLAGS=SAME_BITS)
    folder = tmp_path / "killed"
    train(base, folder, XLA_FLAGS=SAME_BITS)
    last = folder / "checkpoints" / "12"
    last.rename(tmp_path / "taken")  # as if the run had been killed before its last save
    train(base, folder, XLA_FLAGS=SAME_BITS)
    outcomes.assert_same(folder, tmp_path / "whole", 12)


def test_runs_of_one_program_equal_single_runs(base, tmp_path):
    flags = set_knobs("steps=12", "logging.every=1", *SURE)
    sweep = ("study", "sweep", f"--config={base}", "--axis", "masking.rate=0.15,0.4", "--seeds=2")
    for fuse in ("4", "never"):
        run_command(*sweep, f"--workdir={tmp_path / fuse}", f"--fuse={fuse}", "--jobs=1", *flags)
    cells = sorted(path.name for path in (tmp_path / "4" / "cells").iterdir())
    assert len(cells) == 4
    for cell in cells:
        folders = [tmp_path / fuse / "cells" / cell for fuse in ("4", "never")]
        together, alone = (outcomes.logged(folder, "loss") for folder in folders)
        np.testing.assert_allclose(together, alone, rtol=1e-3)


def test_plan_tells_the_peak_memory_of_a_run(base, tmp_path):
    shape = ("batch_size=256", "sequence_length=128", "model.layers=4", "model.hidden=256")
    file = tmp_path / "plan.json"
    words = ("plan", f"--config={base}", "--target=here", f"--output={file}")
    run_command(*words, *set_knobs(*shape))
    peak = json.loads(file.read_text())["peak_bytes"]
    train(base, tmp_path / "run", *shape)
    if PLACE == "cpu":  # which counts no memory
        return
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    used = [json.loads(line).get("train/device_memory_bytes", 0) for line in lines]
    assert 0.7 * peak < max(used) < 1.3 * peak


def test_benchmark_times_an_update(base, tmp_path):
    file = tmp_path / "update.json"
    run_command("benchmark", f"--config={base}", f"--output={file}")
    assert json.loads(file.read_text())["median_ms"] > 0
