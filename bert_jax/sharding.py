"""The placement of arrays on devices: a mesh, a rule for parameters, and a rule for batches.

The mesh has three axes. Runs that train together are split over `run`, rows of a batch over `data`
and `fsdp`, parameters and moments over `fsdp`.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from bert_jax.batch import Batch
from bert_jax.config import devices, knobs
from bert_jax.errors import ConfigError

AXES = ("run", "data", "fsdp")
BATCH = PartitionSpec(("data", "fsdp"))


def make_mesh(settings: knobs.Parallel, runs: int = 1) -> Mesh:
    """Make the mesh of all devices.

    With `data` = -1, runs that train together are split over devices first, as far as possible.
    Devices are in the order of their network, in which the places of a process may be apart. Under
    pmap each process must make rows of its own, so its devices stand next to each other.
    """
    everything = devices.list_all()
    rest, remainder = divmod(len(everything), settings.fsdp)
    across, data = 1, settings.data
    if data == -1:
        across = math.gcd(runs, rest)
        data = rest // across
    if remainder or across * data * settings.fsdp != len(everything):
        raise ConfigError(
            f"parallel.data {settings.data} x fsdp {settings.fsdp} != {len(everything)} devices",
            "leave data at -1 and let fsdp divide the device count",
        )
    types = (AxisType.Auto,) * len(AXES)
    shape = (across, data, settings.fsdp)
    if settings.step == "pmap":
        by_process = sorted(everything, key=lambda device: device.process_index)
        return Mesh(np.array(by_process).reshape(shape), AXES, axis_types=types)
    return jax.make_mesh(shape, AXES, axis_types=types, devices=everything)


# --- the state of a run ---------------------------------------------------------------------------


def split_array(shape: tuple[int, ...], mesh: Mesh) -> PartitionSpec:
    """Choose how an array of the state is split: along its largest axis that fsdp divides."""
    fsdp = mesh.shape["fsdp"]
    axes: list[str | None] = [None] * len(shape)
    divisible = [axis for axis, size in enumerate(shape) if size % fsdp == 0]
    if fsdp > 1 and divisible:
        axes[max(divisible, key=lambda axis: shape[axis])] = "fsdp"
    return PartitionSpec(*axes)


def state_shardings(state: Any, mesh: Mesh) -> Any:
    """Return the sharding of every array of a train state; scalars are replicated."""
    return jax.tree.map(lambda leaf: NamedSharding(mesh, split_array(leaf.shape, mesh)), state)


def replicated(mesh: Mesh) -> NamedSharding:
    """Return the sharding of an array that every device holds whole."""
    return NamedSharding(mesh, PartitionSpec())


# --- inside the model -----------------------------------------------------------------------------


def split_rows(x: jax.Array) -> jax.Array:
    """Keep an activation [B, ...] split by rows, like the batch.

    Otherwise XLA may split the activation like the parameters under fsdp, and gather the
    activations of the whole batch on every device. Under pmap, and in inference outside training,
    there is no mesh in context, and nothing is done.
    """
    return jax.lax.with_sharding_constraint(x, BATCH) if _splitting() else x


def keep_whole(table: jax.Array) -> jax.Array:
    """Replicate a small table, so that devices exchange the table and not vectors read from it."""
    return jax.lax.with_sharding_constraint(table, PartitionSpec()) if _splitting() else table


def map_parts(function: Callable, in_specs: Any, out_specs: Any) -> Callable:
    """Make a function run on each device, with the device's part of the arguments.

    This is for code that XLA cannot split, and for sums that must stay separate on each device.
    Without a mesh in context the function is returned as it is.
    """
    mesh = _splitting()
    if mesh is None:
        return function
    # Name every free axis, also axes of size 1: a Pallas kernel must see no automatic axis.
    free = {name for name in mesh.axis_names if name not in mesh.manual_axes}
    specs = {"in_specs": in_specs, "out_specs": out_specs}
    return jax.shard_map(function, axis_names=free, check_vma=False, **specs)


def copy_per_device(table: jax.Array) -> jax.Array:
    """Return a copy of a replicated array [N, ...] for each device that has rows of its own.

    The copies take no memory, because each device stores only its own. The gradients of all uses of
    a copy are added on its device, and then reduced over devices once. Without a mesh in context
    the array itself is returned.
    """
    mesh = _splitting()
    if mesh is None:
        return table
    return split_rows(jnp.broadcast_to(table, (count_row_shards(mesh), *table.shape)))


def apply_to_copy(function: Callable, table: jax.Array, x: jax.Array) -> jax.Array:
    """Apply a function to a table of `copy_per_device` and to rows, on each device separately."""
    if table.ndim == 2:
        return function(table, x)
    own = map_parts(lambda table, x: function(table[0], x), (BATCH, BATCH), BATCH)
    return own(table, x)


def _splitting() -> Any:
    """Return the mesh in context if the compiler splits arrays by it, else None."""
    mesh = jax.sharding.get_abstract_mesh()
    return None if mesh.empty or mesh.size == 1 or mesh.are_all_axes_manual else mesh


# --- batches --------------------------------------------------------------------------------------


def count_row_shards(mesh: Mesh) -> int:
    """Count the parts into which a mesh splits the rows of a batch."""
    return mesh.shape["data"] * mesh.shape["fsdp"]


def check_rows(rows: int, mesh: Mesh, what: str) -> None:
    """Refuse rows that do not divide evenly over the devices that split them."""
    ways = count_row_shards(mesh)
    if rows % ways:
        raise ConfigError(
            f"{what} = {rows} is not divisible by {ways} devices", f"use a multiple of {ways}"
        )


def local_rows(rows: int, mesh: Mesh) -> slice:
    """Return the smallest slice of a global batch that has all rows of this process's devices.

    If the places of these devices are apart, it has rows of other processes too.
    """
    indices = NamedSharding(mesh, BATCH).addressable_devices_indices_map((rows,)).values()
    bounds = [index[0].indices(rows) for index in indices if index is not None]
    return slice(min(b[0] for b in bounds), max(b[1] for b in bounds))


def place(batch: Batch, rows: int, mesh: Mesh) -> Batch:
    """Turn this process's rows of a batch into global arrays that are split over the mesh.

    `rows` is the number of rows of the whole batch.
    """
    first = local_rows(rows, mesh).start
    sharding = NamedSharding(mesh, BATCH)

    def put(local: np.ndarray) -> jax.Array:
        def rows_of(index: tuple[slice, ...] | None) -> np.ndarray:
            assert index is not None
            start, stop, _ = index[0].indices(rows)
            return local[start - first : stop - first]

        return jax.make_array_from_callback((rows, *local.shape[1:]), sharding, rows_of)

    return jax.tree.map(put, batch)


def to_host(tree: Any) -> Any:
    """Copy small replicated arrays to numpy, also in a run of several processes."""
    return jax.tree.map(
        lambda x: np.asarray(x.addressable_data(0)) if isinstance(x, jax.Array) else np.asarray(x),
        tree,
    )
