"""What users run is what is tested: the same numbers with every optimization of the compiler.

The other tests compile with most of them off, as compiling is what they wait for. Here one process
has the flags of a user, and does everything once on small models.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert_jax.interop import runs
from bert_jax.system import trees
from tests import outcomes, production, reference, texts

FLAGS = ("XLA_FLAGS", "JAX_DISABLE_MOST_OPTIMIZATIONS")  # that tests set
DEMO = (  # the masked language model's losses by a compiler without any optimization
    *(4.99995, 4.89235, 5.00618, 5.00708, 4.93056, 4.87576, 4.9905, 4.77051, 4.51771, 4.52927),
    *(4.53614, 4.48977, 4.49374, 4.34347, 4.2636, 4.19194, 4.10415, 4.12138, 4.18004, 4.14148),
    *(4.07161, 4.15016, 3.94677, 3.97139, 3.99242, 3.84336, 3.95146, 3.91358, 3.7722, 3.72853),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Everything that the process left."""
    found = tmp_path_factory.mktemp("production")
    process(found)
    return found


def process(found: Path, *words: str) -> None:
    """Run `tests.production` with the flags of a user."""
    environment = {name: value for name, value in os.environ.items() if name not in FLAGS} | {
        "PYTHONPATH": str(texts.ROOT),
        # Of this process: the same program is not compiled again.
        "JAX_ENABLE_COMPILATION_CACHE": "true",
        "JAX_COMPILATION_CACHE_DIR": str(found / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    command = [sys.executable, "-m", "tests.production", str(found), *words]
    done = subprocess.run(
        command, env=environment, cwd=texts.ROOT, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture(scope="module")
def found(folder) -> dict[str, Any]:
    return json.loads((folder / "found.json").read_text())


@pytest.fixture(scope="module")
def more(folder) -> Path:
    """Everything that the process of packed rows left."""
    process(folder, "packed")
    return folder


@pytest.fixture(scope="module")
def demo(folder) -> runs.TrainedModel:
    return runs.open_run(str(folder / "demo"))


def series(workdir: Path, name: str) -> np.ndarray:
    return np.array([row[name] for row in outcomes.metrics(workdir) if name in row])


def test_the_process_has_the_flags_of_a_user(found):
    assert found["flags"] == [False, ""]


def test_the_first_updates_of_the_demo(folder):
    losses = series(folder / "demo", "train/mlm_loss")
    np.testing.assert_allclose(
        losses, DEMO, atol=1e-3
    )  # what other roundings make of it in thirty updates


def test_masks_are_filled_as_the_paper_states_bert(demo, found):
    params, vocab = reference.widen(demo.params), demo.tokenizer.vocab
    for line, row in zip(production.LINES, found["masks"], strict=True):
        ids = [demo.tokenizer.special.cls, *demo.tokenizer.encode_batch([line], escape=False)[0]]
        ids = np.array([*ids, demo.tokenizer.special.sep])
        hidden, _ = reference.encoder(
            params["encoder"], ids, np.zeros_like(ids), demo.config.model.heads
        )
        columns = np.flatnonzero(ids == demo.tokenizer.special.mask)
        wanted = reference.softmax(reference.mlm_logits(params, hidden, columns, len(vocab)))
        assert len(row["masks"]) == len(columns) >= 1
        for given, expected in zip(row["masks"], wanted, strict=True):
            probabilities = {one["token"]: one["probability"] for one in given}
            np.testing.assert_allclose(
                [probabilities[piece] for piece in vocab], expected, rtol=1e-4
            )


def test_an_export_comes_back_bit_for_bit_and_answers_alike(folder, demo, found):
    ours, theirs = (
        trees.flat(run.params) for run in (demo, runs.open_run(str(folder / "exported")))
    )
    assert ours.keys() == theirs.keys()
    assert [
        name
        for name in ours
        if np.asarray(ours[name]).tobytes() != np.asarray(theirs[name]).tobytes()
    ] == []
    assert found["imported"] == found["masks"]


@pytest.mark.slow
def test_packed_rows_are_read_as_if_each_example_stood_alone(more):
    run = runs.open_run(str(more / "packed"))
    params, rows = reference.widen(run.params["encoder"]), np.load(more / "rows.npz")
    several = 0
    for tokens, types, segments, hidden in zip(
        *(rows[name][:6] for name in ("tokens", "type_ids", "segment_ids", "hidden")), strict=True
    ):
        several += segments.max() > 1
        for example in range(1, segments.max() + 1):
            here = segments == example
            wanted, _ = reference.encoder(params, tokens[here], types[here], run.config.model.heads)
            np.testing.assert_allclose(hidden[here], wanted, atol=1e-4)
    assert several
    losses = series(more / "packed", "train/mlm_loss")
    assert losses[-1] < losses[0] - 0.5


@pytest.mark.slow
def test_an_evaluation_is_what_the_run_found_in_its_end(more):
    found = json.loads((more / "evaluated.json").read_text())
    assert found["examples"] > 100
    for name in ("mlm_loss", "nsp_loss", "mlm_accuracy"):
        trained = series(more / "packed", f"eval/validation/{name}")[-1]
        np.testing.assert_allclose(found[name], trained, rtol=1e-6)


@pytest.mark.slow
def test_a_stopped_run_goes_on_bit_for_bit(more):
    outcomes.assert_same(more / "resumed", more / "packed", production.STEPS)


@pytest.mark.slow
def test_fused_runs_are_what_they_are_alone(more):
    for name in (
        "train/mlm_loss",
        "train/nsp_loss",
        "train/masked_fraction",
        "eval/validation/mlm_loss",
    ):
        fused, alone = (series(more / run, name) for run in (str(production.RATES[0]), "packed"))
        np.testing.assert_allclose(fused, alone, atol=1e-3, err_msg=name)
    assert abs(series(more / "0.4", "train/masked_fraction") - 0.4).max() < 0.05


def test_a_text_goes_on_with_the_likeliest_tokens(folder, demo, found):
    params = reference.widen(trees.nested(dict(np.load(folder / "causal.npz"))))
    params["mlm"] = params["causal_lm"]
    special = demo.tokenizer.special
    for prompt, row in zip(production.PROMPTS, found["generated"], strict=True):
        before = demo.tokenizer.encode_batch([prompt])[0]
        ids = [special.cls, *before]
        while len(ids) < 1 + len(before) + 8 and ids[-1] != special.sep:
            types = np.zeros(len(ids), int)
            hidden, _ = reference.encoder(params["encoder"], np.array(ids), types, 2, causal=True)
            scores = reference.mlm_logits(params, hidden, [-1], demo.tokenizer.size)[0]
            scores[[special.pad, special.unk, special.cls, special.mask]] = -np.inf
            ids.append(int(scores.argmax()))
        said = [
            demo.tokenizer.readable(i) for i in (before, [i for i in ids[1:] if i != special.sep])
        ]
        assert said[0] + row["continuation"] == said[1]
