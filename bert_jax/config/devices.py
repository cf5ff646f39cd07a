"""What serves each kind of device best, where a config leaves it to the machine: one row each.

On a CPU float32 is kept because runs there are compared to the last digits; bfloat16_products is worth a third of the
time where the processor has them, and is asked for by name. Dropout bits are threefry's everywhere, so that arms under
vmap draw those of runs alone. The C allocator is no column: it is set before jax looks for devices (`allocator.py`).
The rows of accelerators follow published experience; they were not measured.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

import jax

from bert_jax.config import knobs


class Row(NamedTuple):
    """The compute type of training, the backend of attention, whether layers are a loop, how arms share a device."""

    dtype: str
    attention: str
    scan: bool
    arms: str
    prng: str


TABLE: Mapping[str, Row] = {
    "cpu": Row("float32", "einsum", False, "map", "threefry2x32"),
    "cuda": Row("bfloat16", "cudnn", False, "vmap", "threefry2x32"),
    "gpu": Row("bfloat16", "einsum", False, "vmap", "threefry2x32"),  # of other makers
    "tpu": Row("bfloat16", "splash", True, "vmap", "threefry2x32"),
}
READING = "float32"  # what a model says does not depend on the type it was trained in


def device() -> str:
    """What this process computes on: a row of TABLE, or a kind that has none."""
    kind = jax.default_backend()
    return "cuda" if kind == "gpu" and "cuda" in jax.devices()[0].client.platform_version else kind


def here() -> Row:
    """The row of this machine; of a kind that has none, the CPU's."""
    return TABLE.get(device(), TABLE["cpu"])


def settled(model: knobs.Model, *, train: bool) -> knobs.Model:
    """The model with what it leaves to the machine filled in; attention is settled pass by pass (`backends.py`)."""
    row = here()
    dtype = (row.dtype if train else READING) if model.dtype == "auto" else model.dtype
    return dataclasses.replace(
        model, dtype=dtype, scan=row.scan if model.scan is None else model.scan
    )


def prng(settings: knobs.Parallel) -> str:
    """The generator of dropout bits."""
    return here().prng if settings.prng == "auto" else settings.prng
