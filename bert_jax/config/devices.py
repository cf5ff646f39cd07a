"""The best settings for each kind of device, for the knobs that a config leaves at `auto`.

A CPU keeps float32 because runs there are compared to the last digits. bfloat16_products saves a
third of the time where the processor supports it, and must be set by name. Dropout uses threefry
everywhere, so that runs under vmap draw the bits of single runs. The rows of accelerators follow
what their compilers make of BERT-base (experiments/scale/README.md); none was measured.

A TPU has 15.75 GiB and compiles one layer. Its loop copies arrays from the forward to the backward
pass, and remat=dots copies only results of matmuls. A GPU has room for all that the backward pass
reads. A loop would write and read arrays that fusions of unrolled layers pass on: a third of all
traffic. A batch that does not fit a GPU needs model.scan=true besides model.remat.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax

from bert_jax.config import knobs, model_knobs

logger = logging.getLogger(__name__)


class DeviceRow(NamedTuple):
    """The settings of one kind of device."""

    dtype: model_knobs.Dtype  # of training
    attention: str
    scan: bool
    remat: model_knobs.Remat
    arms: str
    prng: str = "threefry2x32"


TABLE: Mapping[str, DeviceRow] = {
    "cpu": DeviceRow("float32", "einsum", False, "none", "map"),
    "cuda": DeviceRow("bfloat16", "cudnn", False, "none", "vmap"),
    "gpu": DeviceRow("bfloat16", "einsum", False, "none", "vmap"),  # of other makers
    "tpu": DeviceRow("bfloat16", "splash", True, "dots", "vmap"),
}
# What a compiler is told besides its defaults. A TPU's adds up all gradients and reduces them over
# devices at once, with nothing to compute meanwhile; in parts of 1 MiB or more, all but the last
# move while the rest of the backward pass is computed (experiments/scale/README.md).
COMPILER: Mapping[str, Mapping[str, bool | int]] = {
    "tpu": {
        "xla_jf_crs_combiner_threshold_in_bytes": 2**20,
        "xla_enable_async_all_reduce": True,
        "xla_tpu_enable_async_collective_fusion_fuse_all_reduce": True,
    }
}
# Results of a model do not depend on the compute type of its training.
READING: model_knobs.Dtype = "float32"

_target: tuple[str, Sequence[Any]] | None = None  # of trace_for; else what this process has


def find_kind() -> str:
    """Return the kind of the devices that code is traced for; TABLE may have no row for it."""
    if _target:
        return _target[0]
    kind = jax.default_backend()
    return "cuda" if kind == "gpu" and "cuda" in jax.devices()[0].client.platform_version else kind


def list_all() -> Sequence[Any]:
    """Return all devices that code is traced for, also the devices of other processes."""
    return (_target and _target[1]) or jax.devices()


@contextlib.contextmanager
def trace_for(kind: str, devices: Sequence[Any] = ()) -> Iterator[None]:
    """Trace code for devices of another kind, as if they were here.

    Without `devices`, as a compiler describes them, the code is for the devices that are here.
    """
    global _target
    before, _target = _target, (kind, devices)
    try:
        yield
    finally:
        _target = before


def find_row() -> DeviceRow:
    """Return the row of this machine's devices, or the CPU's row for a kind without a row."""
    return TABLE.get(find_kind(), TABLE["cpu"])


def settle_model(model: knobs.Model, *, train: bool) -> knobs.Model:
    """Fill in the model knobs left to the machine; `backends.py` chooses the attention."""
    row = find_row() if train else find_row()._replace(dtype=READING, remat="none")
    return dataclasses.replace(
        model,
        dtype=row.dtype if model.dtype == "auto" else model.dtype,
        remat=row.remat if model.remat == "auto" else model.remat,
        scan=model.can_scan and (row.scan if model.scan is None else model.scan),
    )


def list_options() -> dict[str, bool | int]:
    """Return the options that an update is compiled with."""
    options = dict(COMPILER.get(find_kind(), {}))
    return options if _target else list_known(options)


def list_known(options: Mapping[str, bool | int]) -> dict[str, bool | int]:
    """Return the options that the compiler of the devices here knows; its versions differ."""
    taken = {}
    for name, value in options.items():
        try:
            jax.jit(lambda x: x, compiler_options={name: value}).lower(0.0).compile()
        except jax.errors.JaxRuntimeError:
            logger.warning(f"the compiler does not know {name}: an update may be slower")
        else:
            taken[name] = value
    return taken


def choose_prng(settings: knobs.Parallel) -> str:
    """Return the generator of dropout bits."""
    return find_row().prng if settings.prng == "auto" else settings.prng
