"""The best settings for each kind of device, for the knobs that a config leaves at `auto`.

A CPU keeps float32 because runs there are compared to the last digits. bfloat16_products is faster
on some processors only, and must be set by name. Dropout uses threefry everywhere, so that a run
under vmap draws the same bits as the run by itself. The rows of accelerators follow what their
compilers make of BERT-base (experiments/scale/README.md). Only `scan` of a GPU was measured.

On a TPU, which has 15.75 GiB of memory, one layer is compiled, as the body of a loop over layers.
The loop copies the arrays that the backward pass needs. With remat=dots these are only the results
of matmuls. A GPU has memory for all arrays that the backward pass reads, so its layers are
unrolled. A loop would write and read arrays there that unrolled layers keep within fusions: a third
of all memory traffic. A batch that does not fit a GPU needs model.scan=true besides model.remat.
"""

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
# Results of a model do not depend on the compute type of its training, but on the kind of device:
# `models/matmul.py` says how accelerators multiply float32.
READING: model_knobs.Dtype = "float32"

_target: tuple[str, Sequence[Any]] | None = None  # of trace_for; else what this process has


def find_kind() -> str:
    """Return the kind of device that code is traced for, such as "cuda"; TABLE may lack it."""
    if _target:
        return _target[0]
    kind = jax.default_backend()
    return "cuda" if kind == "gpu" and "cuda" in jax.devices()[0].client.platform_version else kind


def list_all() -> Sequence[Any]:
    """Return all devices that code is traced for, including the devices of other processes."""
    return (_target and _target[1]) or jax.devices()


@contextlib.contextmanager
def trace_for(kind: str, devices: Sequence[Any] = ()) -> Iterator[None]:
    """Trace the code of a block for devices of another kind, as if this machine had them.

    `devices` are a compiler's descriptions of such devices. Without them, the devices of this
    machine are used under the name `kind`.
    """
    global _target
    before, _target = _target, (kind, devices)
    try:
        yield
    finally:
        _target = before


def find_row() -> DeviceRow:
    """Return the settings for the kind of device that code is traced for.

    For a kind that TABLE lacks, these are the settings of a CPU.
    """
    return TABLE.get(find_kind(), TABLE["cpu"])


def fill_machine_knobs(model: knobs.Model, *, train: bool) -> knobs.Model:
    """Fill in the knobs `dtype`, `remat` and `scan` of a model, if they are left to the machine.

    `models/backends.py` chooses the attention backend.
    """
    row = find_row() if train else find_row()._replace(dtype=READING, remat="none")
    return dataclasses.replace(
        model,
        dtype=row.dtype if model.dtype == "auto" else model.dtype,
        remat=row.remat if model.remat == "auto" else model.remat,
        scan=model.can_scan and (row.scan if model.scan is None else model.scan),
    )


def list_options() -> dict[str, bool | int]:
    """Return the compiler options for an update on the devices that code is traced for."""
    options = dict(COMPILER.get(find_kind(), {}))
    return options if _target else list_known(options)


def list_known(options: Mapping[str, bool | int]) -> dict[str, bool | int]:
    """Return the compiler options that the installed compiler knows; warn of each other option."""
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
    """Return the name of the random number generator for dropout."""
    return find_row().prng if settings.prng == "auto" else settings.prng
