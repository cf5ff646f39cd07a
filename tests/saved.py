"""Run folders as training leaves them, saved without an update: what tests of opening and resuming
spoil.
"""

import contextlib
from collections.abc import Mapping
from pathlib import Path

import jax
import numpy as np

from bert_jax.checkpoints import saving
from bert_jax.config import knobs, to_dict
from bert_jax.training import data
from bert_jax.training.run import Run
from bert_jax.training.step import draw_state


def run(workdir: Path, config: knobs.Config, metrics: Mapping[int, float | None]) -> Path:
    """Save fresh parameters as the steps given, each with the metric that ranks it; all steps are
    kept.
    """
    given = data.load_training_data(config)
    init = jax.jit(lambda seed: draw_state(given.config, given.tokenizer.size, seed))
    meta = {
        "config": to_dict(given.config),
        "corpus": given.fingerprint,
        "tokenizer": given.tokenizer.hash,
        "batches": given.source.fingerprint,
    }
    made = saving.Checkpoints(workdir / "checkpoints", keep=len(metrics), keep_best=False)
    for step, metric in metrics.items():
        state = init(np.uint32(step))
        made.save(step, state, meta, metric)
    made.close()
    with contextlib.ExitStack() as resources:
        run = Run(given.config, given, workdir, resources)
        run.write_description(state["params"], ["bert-jax", "train"])
    return workdir


class Payload:
    """Writes a file when it is unpickled."""

    def __init__(self, marker: Path):
        self.marker = marker

    def __reduce__(self):
        return Path.touch, (self.marker,)
