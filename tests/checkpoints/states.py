"""States of runs for the tests of checkpoints: every dtype, odd shapes, an optimizer's tuples."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from bert_jax.checkpoints import saving


def make_state(seed: int = 0) -> dict[str, Any]:
    """Make a state with negative zero, denormals, bfloat16 and numbers that are not finite."""
    random = np.random.default_rng(seed)
    table = random.normal(size=(16, 8)).astype(np.float32)
    table[0, :4] = [-0.0, 1e-42, 3.4e38, 0.0]
    mlp = {"kernel": jnp.asarray(random.normal(size=(3, 8, 5)), jnp.bfloat16), "bias": jnp.zeros(5)}
    params = {"embeddings": {"token": jnp.asarray(table)}, "layer_0": {"mlp": mlp}}
    return {
        "params": params,
        "optimizer": optax.adam(1e-3).init(params),
        "step": jnp.int32(seed),
        "key": jax.random.key_data(jax.random.key(seed + 7)),
        "not_finite": jnp.asarray([np.nan, np.inf, -np.inf, 1.0], jnp.float32),
    }


def list_bits(tree: Any) -> list[bytes]:
    """Return the bytes of each leaf."""
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]


def open_folder(folder: Path, keep: int = 2, keep_best: bool = False, at: Any = ()) -> Any:
    """Open the checkpoints of a folder."""
    return saving.Checkpoints(folder, keep, keep_best, at)


def save_steps(folder: Path, *steps: int) -> Path:
    """Save the state of each step, with the step as its seed; all of them are kept."""
    made = open_folder(folder, keep=len(steps))
    for step in steps:
        made.save(step, make_state(step), {"seen": step})
    made.close()
    return folder


def restore_state(folder: Path, step: int | None = None) -> Any:
    """Restore the newest step, or `step`, in a run of its own."""
    made = open_folder(folder)
    restored = made.restore(make_state(), step)
    made.close()
    return restored


def flip_bit(path: Path, place: int | None = None) -> None:
    """Flip a bit in the middle of a file, or at a place."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if place is None else place] ^= 4
    path.write_bytes(data)
