"""How long a checkpoint holds up training, and how long it takes to be written.

    python experiments/scale/save.py base

The state is that of a model of this size with AdamW in float32, filled with random numbers, which
do not compress better than trained ones. It is saved twice: the first save also compiles.
"""

import sys
import tempfile
import time
from pathlib import Path

import jax
import numpy as np

from bert_jax import config as configs
from bert_jax.checkpoints.saving import Checkpoints, bytes_needed
from bert_jax.system import allocator
from bert_jax.training.step import draw_state

VOCABULARY = 30_522


def main(size: str) -> None:
    """Save a state twice, and print what each save takes."""
    allocator.retain_memory()
    tree = configs.default()
    tree.model.size = size
    config, random = configs.resolve(tree), np.random.default_rng(0)

    def fill(leaf: jax.ShapeDtypeStruct) -> jax.Array:
        return jax.device_put(random.standard_normal(leaf.shape).astype(leaf.dtype))

    shapes = jax.eval_shape(lambda seed: draw_state(config, VOCABULARY, seed), np.uint32(0))
    state = jax.tree.map(fill, shapes)
    print(f"{size}: {bytes_needed(state) / 1e9:.2f} GB")
    with tempfile.TemporaryDirectory(dir=".") as folder:
        checkpoints = Checkpoints(Path(folder) / "checkpoints", keep=1, keep_best=False)
        for step in (1, 2):
            for what, part in (
                ("training waits", lambda step=step: checkpoints.save(step, state, {})),
                ("then it is written", checkpoints.wait),
            ):
                wall, processor = time.perf_counter(), time.process_time()
                part()
                wall, processor = time.perf_counter() - wall, time.process_time() - processor
                print(f"save {step}: {what:18} {wall:6.2f} s, {processor:5.2f} s of processors")
        checkpoints.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
