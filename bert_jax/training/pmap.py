"""The update under pmap: the state whole on every device, the rows of a batch split in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bert_jax.batch import Batch

AXIS = "data"  # the mapped axis, over which the update sums


class MappedUpdate:
    """A pure `update(state, batch, inputs)` under pmap, with the interface of a jitted one."""

    def __init__(self, update: Callable, mesh: Mesh):
        axes: dict[str, Any] = {"in_axes": (None, 0, None), "out_axes": None}
        self._mapped: Any = jax.pmap(update, axis_name=AXIS, donate_argnums=0, **axes)
        self._everywhere = NamedSharding(mesh, PartitionSpec())

    def __call__(self, state: Any, batch: Batch, inputs: Any) -> Any:
        parts = jax.local_device_count()
        split = jax.tree.map(lambda x: x.reshape(parts, x.shape[0] // parts, *x.shape[1:]), batch)
        if jax.process_count() == 1:
            return self._mapped(state, split, inputs)
        # With several processes pmap takes arrays of local devices, all other code those of all.
        state = spread(state, replicate_locally())
        state, metrics = self._mapped(state, split, inputs)
        return spread(state, self._everywhere), metrics

    def trace(self, state: Any, batch: Batch, inputs: Any) -> TracedUpdate:
        """Trace the update for shapes, to compile it ahead of time."""
        parts = jax.local_device_count()
        split = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct((parts, x.shape[0] // parts, *x.shape[1:]), x.dtype),
            batch,
        )
        return TracedUpdate(self._mapped, (state, split, inputs))


class TracedUpdate:
    """An update under pmap, traced for shapes, with the interface of `jax.stages.Traced`."""

    def __init__(self, mapped: Any, shapes: tuple):
        self._mapped = mapped
        self._shapes = shapes
        self.jaxpr = jax.make_jaxpr(lambda *arrays: mapped(*arrays))(*shapes)

    def lower(self, lowering_platforms: tuple[str, ...] = ()) -> Any:
        """Lower the update for the devices that are here; pmap knows no others."""
        return self._mapped.lower(*self._shapes)


def replicate_locally() -> NamedSharding:
    """Return the sharding of an array that every device of this process holds whole."""
    return NamedSharding(Mesh(np.array(jax.local_devices()), (AXIS,)), PartitionSpec())


def find_state_sharding() -> Any:
    """Return the very sharding that pmap gives its results in a run of one process.

    With any other sharding the second update would be compiled again.
    """
    mapped = jax.pmap(lambda x: jax.lax.psum(x, AXIS), axis_name=AXIS, in_axes=0, out_axes=None)
    return mapped(np.zeros(jax.local_device_count(), np.float32)).sharding


def spread(tree: Any, where: NamedSharding) -> Any:
    """Return replicated arrays under a sharding over more or fewer devices; nothing is copied."""
    return jax.tree.map(
        lambda x: jax.make_array_from_single_device_arrays(
            x.shape, where, [s.data for s in x.addressable_shards]
        ),
        tree,
    )
