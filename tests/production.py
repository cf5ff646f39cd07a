"""Trains, stops, goes on, evaluates, exports and generates as users do: the compiler has every
optimization on.

`python -m tests.production FOLDER` does what belongs to the demo in one process, on one small text,
and leaves there what `test_production.py` looks at; `python -m tests.production FOLDER packed` does
the rest.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from bert_jax import export, suites, train
from bert_jax.config import knobs
from bert_jax.data import pipeline, prepare
from bert_jax.errors import Stopped
from bert_jax.interop import runs
from bert_jax.models.encoder import Encoder
from bert_jax.objectives import network
from bert_jax.predictors import stream
from bert_jax.predictors.options import Options
from bert_jax.system import trees
from bert_jax.training import runs as training_runs
from tests import fault_points, texts

DEMO = texts.ROOT / "configs" / "tiny.py"
STEPS, RATES = 10, (0.15, 0.4)
LINES = ["the cat [MASK] my old friend in the garden.", "a [MASK] dog hears every [MASK]."]
PROMPTS = ["the cat sees", "every child"]
OFTEN = {"logging__every": 1, "logging__trackers": ()}
SMALL = {
    **OFTEN,
    "steps": STEPS,
    "checkpoints__every": 3,
    "evals__validation__every": STEPS,
    "logging__samples": 0,
}
PACKED = {
    "packing": 4,
    "examples__short_probability": 1,
    "sequence_length": 64,
}  # short, or each fills a row
CAUSAL = {"objectives__causal_lm__weight": 1, "model__causal": True, "pairs": "none"}


def configs(folder: Path) -> dict[str, knobs.Config]:
    """Return everything that is trained; the docstrings that the demo reads differ from machine to
    machine.
    """
    base = texts.config_file(folder)
    small = texts.configure(base, **SMALL, **PACKED)
    text = dataclasses.asdict(small.corpus)
    ours = {
        f"corpus__{name}": text[name]
        for name in ("source", "path", "workers", "validation_fraction")
    }
    end = {
        "masking__rounding": "nearest",  # as when the losses of its first updates were recorded
        "steps": 30,
        "evals__validation__every": 30,
        "checkpoints__every": 30,
        "logging__samples": 0,
    }
    return {
        "demo": texts.configure(
            DEMO, **ours, tokenizer__vocab_size=small.tokenizer.vocab_size, **OFTEN, **end
        ),
        "packed": small,
        "causal": texts.configure(base, **SMALL, **CAUSAL, checkpoints__best="causal_lm_loss"),
        **{
            str(rate): texts.configure(base, **SMALL, **PACKED, masking__rate=rate)
            for rate in RATES
        },
    }


def main(folder: Path) -> None:
    """Train the demo, export it, and ask both; `found.json` has what leaves no other trace."""
    asked = configs(folder)
    train.run(asked["demo"], folder / "demo", command=[])
    demo = runs.open_run(str(folder / "demo"))
    causal = dataclasses.replace(
        demo, config=asked["causal"], params=fresh(asked["causal"], demo.tokenizer.size)
    )
    np.savez(folder / "causal.npz", **trees.flat(causal.params))
    with contextlib.redirect_stdout(io.StringIO()):
        export.run(str(folder / "demo"), folder / "exported")
    found = {
        "flags": [
            jax.config.read("jax_disable_most_optimizations"),
            os.environ.get("XLA_FLAGS", ""),
        ],
        "masks": ask(demo, "fill-mask", LINES, top_k=demo.tokenizer.size),
        "imported": ask(
            runs.open_run(str(folder / "exported")), "fill-mask", LINES, top_k=demo.tokenizer.size
        ),
        "generated": ask(causal, "generate", PROMPTS, max_tokens=8),
    }
    (folder / "found.json").write_text(json.dumps(found))


def packed(folder: Path) -> None:
    """Train packed rows: at once, with a stop between, and fused with another rate."""
    asked = configs(folder)
    train.run(asked["packed"], folder / "packed", command=[])
    stop_and_go_on(asked["packed"], folder / "resumed")
    train.train([(asked[str(rate)], folder / str(rate)) for rate in RATES], command=[])
    run = runs.open_run(str(folder / "packed"))
    source = pipeline.Source(prepare.prepare_corpus(asked["packed"]), "train", asked["packed"])
    batch = source.batch(0)
    encode = jax.jit(Encoder(run.config.model, run.tokenizer.size).apply)
    hidden = encode({"params": run.params["encoder"]}, batch).hidden
    np.savez(
        folder / "rows.npz",
        hidden=hidden,
        **{name: batch[name] for name in ("tokens", "type_ids", "segment_ids")},
    )
    found = suites.evaluate(run, "pretrain")
    (folder / "evaluated.json").write_text(json.dumps(found))


def stop_and_go_on(config: knobs.Config, workdir: Path) -> None:
    """Train, be asked to stop in the seventh update, and train on."""

    def stop(name: str, step: int) -> None:
        if step == 7:
            fault_points.act("term")

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Stopped):
        fault_points.plant(training_runs, stop, patch.setattr)
        train.run(config, workdir, command=[])
    assert not (workdir / "checkpoints" / str(STEPS)).exists()
    train.run(config, workdir, command=[])


def fresh(config: knobs.Config, size: int) -> Any:
    """Return weights that no update has changed."""
    return jax.device_get(jax.jit(lambda seed: network.init(config, size, seed))(np.uint32(1)))


def ask(
    run: runs.TrainedModel, task: str, lines: list[str], **options: Any
) -> list[dict[str, Any]]:
    """Return what a model makes of the lines."""
    return list(stream.predict(stream.Model(run, Options(**options)), task, lines))


if __name__ == "__main__":
    (packed if "packed" in sys.argv else main)(Path(sys.argv[1]))
