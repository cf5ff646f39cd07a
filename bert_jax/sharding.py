"""The placement of arrays on devices: one mesh, one rule for parameters, one for batches."""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from bert_jax.batch import Batch
from bert_jax.config import devices, knobs
from bert_jax.errors import ConfigError, PeerLost
from bert_jax.system.trees import name_of

AXES = ("arm", "data", "fsdp", "tensor")
BATCH = PartitionSpec(("data", "fsdp"))

HEARTBEAT = 60  # seconds without a heartbeat after which a process is lost, and all others end

# The axis of a parameter that tensor parallelism splits, counted from the end: whole heads, and
# whole features of the feed-forward, so that each layer reduces over devices twice; the vocabulary
# of the tables of tokens.
TENSOR_AXES = (
    (r"attention/(query|key|value|gate)/(kernel|bias)$", -2),
    (r"attention/out/kernel$", -3),
    (r"mlp/(up|gate)/(kernel|bias)$", -1),
    (r"mlp/down/kernel$", -2),
    (r"(embeddings/token|(mlm|causal_lm)/table)$", -2),
    (r"mlm/bias$", -1),
)


def start_processes(settings: knobs.Parallel) -> None:
    """Join the other processes of a run.

    They are those of a cluster that JAX detects, or of JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES
    and JAX_PROCESS_ID.
    """
    if not settings.distributed or jax.distributed.is_initialized():
        return
    count, index = os.environ.get("JAX_NUM_PROCESSES"), os.environ.get("JAX_PROCESS_ID")
    try:
        jax.distributed.initialize(
            num_processes=None if count is None else int(count),
            process_id=None if index is None else int(index),
            local_device_ids=_devices_of_process(),
            heartbeat_timeout_seconds=HEARTBEAT,
        )
    except ValueError as error:
        raise ConfigError(
            f"parallel.distributed: no processes to join: {error}",
            "set JAX_COORDINATOR_ADDRESS=HOST:PORT, JAX_NUM_PROCESSES and JAX_PROCESS_ID, or start "
            "under SLURM or MPI",
        ) from error


def _devices_of_process() -> list[int] | None:
    """Return the devices of its node that this process takes: [] for all, None as jax sees fit.

    Under SLURM and MPI jax gives a process one GPU, even where it is alone on its node.
    """
    beside = os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE") or os.environ.get(
        "SLURM_STEP_TASKS_PER_NODE", ""
    )
    chosen = "JAX_LOCAL_DEVICE_IDS" in os.environ
    return [] if re.fullmatch(r"1(\(x\d+\))?", beside) and not chosen else None


@contextlib.contextmanager
def translate_peer_loss() -> Iterator[None]:
    """Turn a network error between the processes of a run into PeerLost, a resumable stop."""
    try:
        yield
    except (RuntimeError, TimeoutError) as error:
        if jax.process_count() == 1 or not PeerLost.explains(error):
            raise
        raise PeerLost from error


def make_mesh(settings: knobs.Parallel, arms: int = 1) -> Mesh:
    """Return the mesh of all devices; runs that train together are spread over them first."""
    everything = devices.everything()
    rest, remainder = divmod(len(everything), settings.fsdp * settings.tensor)
    across = math.gcd(arms, rest) if settings.data == -1 else 1
    data = rest // across if settings.data == -1 else settings.data
    if remainder or across * data * settings.fsdp * settings.tensor != len(everything):
        raise ConfigError(
            f"parallel.data {settings.data} x fsdp {settings.fsdp} x tensor {settings.tensor} != "
            f"{len(everything)} devices",
            "leave data at -1 and let fsdp x tensor divide the device count",
        )
    shape = (across, data, settings.fsdp, settings.tensor)
    types = (AxisType.Auto,) * len(AXES)
    return jax.make_mesh(shape, AXES, axis_types=types, devices=everything)


def parameter_spec(name: str, shape: tuple[int, ...], mesh: Mesh) -> PartitionSpec:
    """Return how one parameter, or the optimizer moment of the same name and shape, is split.

    Tensor parallelism splits the axis in TENSOR_AXES. FSDP splits the largest of the other axes
    that is divisible.
    """
    axes: list[str | None] = [None] * len(shape)
    tensor, fsdp = mesh.shape["tensor"], mesh.shape["fsdp"]
    for pattern, axis in TENSOR_AXES:
        if tensor > 1 and re.search(pattern, name) and shape[axis] % tensor == 0:
            axes[axis] = "tensor"
    free = [i for i, size in enumerate(shape) if axes[i] is None and size % fsdp == 0]
    if fsdp > 1 and free:
        axes[max(free, key=lambda i: shape[i])] = "fsdp"
    return PartitionSpec(*axes)


def state_shardings(state: Any, mesh: Mesh) -> Any:
    """Return the sharding of every leaf of a train state; scalars are replicated."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: NamedSharding(mesh, parameter_spec(name_of(path), leaf.shape, mesh)),
        state,
    )


def state_layout(state: Any, mesh: Mesh, settings: knobs.Parallel) -> Any:
    """Return the shardings of the train state: split as the mesh says; replicated under pmap."""
    if settings.step == "jit":
        return state_shardings(state, mesh)
    if jax.process_count() > 1:
        # Evaluation and checkpoints of all processes need it so.
        return jax.tree.map(lambda _: replicated(mesh), state)
    # The very sharding that pmap gives its results, so that the second call is not compiled again.
    mapped = jax.pmap(lambda x: jax.lax.psum(x, "data"), axis_name="data", in_axes=0, out_axes=None)
    sharding = mapped(np.zeros(jax.local_device_count(), np.float32)).sharding
    return jax.tree.map(lambda _: sharding, state)


def replicated(mesh: Mesh) -> NamedSharding:
    """Return the sharding of an array that every device holds whole."""
    return NamedSharding(mesh, PartitionSpec())


def inputs_layout(mesh: Mesh, settings: knobs.Parallel, run_axis: bool) -> NamedSharding:
    """Return the sharding of step inputs: whole on every device, or split along their run axis."""
    if settings.step == "pmap":
        return replicated(Mesh(np.array(jax.local_devices()), ("data",)))
    return NamedSharding(mesh, PartitionSpec("arm") if run_axis else PartitionSpec())


def stacked(layout: Any, mesh: Mesh) -> Any:
    """Return the shardings of the stacked states of several runs, whose first axis is the runs."""

    def along_runs(sharding: NamedSharding) -> NamedSharding:
        return NamedSharding(mesh, PartitionSpec("arm", *sharding.spec))

    return jax.tree.map(along_runs, layout)


def stack(trees: Sequence[Any], layout: Any) -> Any:
    """Stack several trees into one and place it."""
    return jax.tree.map(
        lambda where, *leaves: jax.device_put(np.stack(leaves), where), layout, *trees
    )


class Resident:
    """Large arrays of the host that stay on the devices while they are the same objects."""

    def __init__(self, where: NamedSharding, run_axis: bool):
        self._where, self._run_axis = where, run_axis
        self._known: Sequence[Any] = ()
        self._placed: Any = None

    def place(self, trees: Sequence[Any]) -> Any:
        """Return the trees of all runs on the devices, stacked if there is an axis of runs."""
        if [*map(id, trees)] != [*map(id, self._known)]:
            whole = trees[0]
            if self._run_axis:
                whole = jax.tree.map(lambda *leaves: np.stack(leaves), *trees)
            self._known, self._placed = trees, jax.device_put(whole, self._where)
        return self._placed


def pick(tree: Any, index: int, layout: Any) -> Any:
    """Return one tree out of a stacked one, placed as it would be alone."""
    return jax.tree.map(lambda leaf, where: jax.device_put(leaf[index], where), tree, layout)


def along_rows(x: jax.Array) -> jax.Array:
    """Keep an activation [B, ...] split by rows as the batch is, where a mesh is in context.

    Without it XLA may follow the parameters under fsdp, and gather the activations of the whole
    batch on every device. Nothing is done under pmap and in inference, where there is no such mesh.
    """
    return jax.lax.with_sharding_constraint(x, BATCH) if _splitting() else x


def whole(table: jax.Array) -> jax.Array:
    """Have every device hold a small table whole, so that it moves and not what is read from it."""
    return jax.lax.with_sharding_constraint(table, PartitionSpec()) if _splitting() else table


def own_part(function: Callable, in_specs: Any, out_specs: Any) -> Callable:
    """Have a function see each device's own part of its arguments, where a mesh is in context.

    For code that XLA cannot split, and for sums that are to stay unreduced.
    """
    mesh = _splitting()
    if mesh is None:
        return function
    # All of them, which a kernel needs: also those that split nothing.
    free = {name for name in mesh.axis_names if name not in mesh.manual_axes}
    specs = {"in_specs": in_specs, "out_specs": out_specs}
    return jax.shard_map(function, axis_names=free, check_vma=False, **specs)


def by_heads(heads: int) -> PartitionSpec:
    """Return how queries, keys and values [B, heads, L, d] are split: by rows, and by heads."""
    mesh = _splitting()
    whole = mesh is None or heads % mesh.shape["tensor"]
    return PartitionSpec(BATCH[0], None if whole else "tensor")


def copies(table: jax.Array) -> jax.Array:
    """Return a copy of a replicated array [N, ...] for each device that has rows of its own.

    No memory is taken, as a device holds its own copy alone. The gradients of all uses of a copy
    are added on its device, and then reduced over devices once. Where tensor parallelism splits the
    array, its part is returned, and without a mesh in context the array itself.
    """
    mesh = _splitting()
    if mesh is None:
        return table
    if mesh.shape["tensor"] > 1:
        return jax.lax.with_sharding_constraint(table, PartitionSpec("tensor"))
    count = mesh.shape["data"] * mesh.shape["fsdp"]
    return along_rows(jnp.broadcast_to(table, (count, *table.shape)))


def apply_to_copy(function: Callable, table: jax.Array, x: jax.Array) -> jax.Array:
    """Apply a function to a table and rows, on each device to its own copy (see `copies`)."""
    if table.ndim == 2:
        return function(table, x)
    own = own_part(lambda table, x: function(table[0], x), (BATCH, BATCH), BATCH)
    return own(table, x)


def _splitting() -> Any:
    """Return the mesh in context if it splits arrays by itself, else None."""
    mesh = jax.sharding.get_abstract_mesh()
    return None if mesh.empty or mesh.size == 1 or mesh.are_all_axes_manual else mesh


def check_rows(rows: int, mesh: Mesh, what: str) -> None:
    """Refuse rows that do not divide evenly over the devices that split them."""
    ways = mesh.shape["data"] * mesh.shape["fsdp"]
    if rows % ways:
        raise ConfigError(
            f"{what} = {rows} is not divisible by {ways} devices", f"use a multiple of {ways}"
        )


def local_rows(rows: int, mesh: Mesh) -> slice:
    """Return the rows of a global batch that this process's devices hold."""
    indices = NamedSharding(mesh, BATCH).addressable_devices_indices_map((rows,)).values()
    bounds = [index[0].indices(rows) for index in indices if index is not None]
    return slice(min(b[0] for b in bounds), max(b[1] for b in bounds))


def place(batch: Batch, rows: int, mesh: Mesh) -> Batch:
    """Turn the host rows of this process into global arrays split over the mesh."""
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
    """Return small replicated arrays as numpy, whatever the number of processes."""
    return jax.tree.map(
        lambda x: np.asarray(x.addressable_data(0)) if isinstance(x, jax.Array) else np.asarray(x),
        tree,
    )


class MappedTrace:
    """A step under pmap, traced for shapes, with the interface of `jax.stages.Traced`."""

    def __init__(self, mapped: Any, shapes: tuple):
        self._mapped, self._shapes = mapped, shapes
        self.jaxpr = jax.make_jaxpr(lambda *arrays: mapped(*arrays))(*shapes)

    def lower(self, lowering_platforms: tuple[str, ...] = ()) -> Any:
        """Lower the step for the devices that are here; pmap knows no others."""
        return self._mapped.lower(*self._shapes)


class Mapped:
    """A pure `step(state, batch, inputs)` under pmap: replicated state, rows split in order."""

    def __init__(self, step: Callable, mesh: Mesh):
        axes: dict[str, Any] = {"in_axes": (None, 0, None), "out_axes": None}
        self._mapped: Any = jax.pmap(step, axis_name="data", donate_argnums=0, **axes)
        self._mesh = mesh
        self._local = replicated(Mesh(np.array(jax.local_devices()), ("data",)))

    def __call__(self, state: Any, batch: Batch, inputs: Any) -> Any:
        parts = jax.local_device_count()
        split = jax.tree.map(lambda x: x.reshape(parts, x.shape[0] // parts, *x.shape[1:]), batch)
        if jax.process_count() == 1:
            return self._mapped(state, split, inputs)
        # With several processes pmap takes arrays of local devices, all other code those of all.
        state, metrics = self._mapped(_spread(state, self._local), split, inputs)
        return _spread(state, replicated(self._mesh)), metrics

    def trace(self, state: Any, batch: Batch, inputs: Any) -> Any:
        """Trace the step for shapes, to compile it ahead of time."""
        parts = jax.local_device_count()
        split = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct((parts, x.shape[0] // parts, *x.shape[1:]), x.dtype),
            batch,
        )
        return MappedTrace(self._mapped, (state, split, inputs))


def _spread(tree: Any, where: NamedSharding) -> Any:
    """Return replicated arrays under a sharding over more or fewer devices; nothing is copied."""
    return jax.tree.map(
        lambda x: jax.make_array_from_single_device_arrays(
            x.shape, where, [s.data for s in x.addressable_shards]
        ),
        tree,
    )
