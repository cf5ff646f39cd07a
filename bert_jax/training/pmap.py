"""The update compiled by pmap, which keeps one copy of the state on every device."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bert_jax import sharding
from bert_jax.batch import Batch

PMAP_AXIS = "data"  # the mapped axis, over which the update sums


class PmapUpdate:
    """An `update(state, batch, step_inputs)` compiled by pmap, with the interface of a jitted one.

    Every device holds the whole state, and the rows of a batch are split in order. Without dropout
    the numbers are the same as under jit. `step.make_dropout_key` says how dropout differs.
    """

    def __init__(self, update: Callable, mesh: Mesh):
        axes: dict[str, Any] = {"in_axes": (None, 0, None), "out_axes": None}
        self._mapped: Any = jax.pmap(update, axis_name=PMAP_AXIS, donate_argnums=0, **axes)
        self._everywhere = sharding.replicated(mesh)

    def __call__(self, state: Any, batch: Batch, step_inputs: Any) -> Any:
        # With several processes pmap takes arrays of local devices, all other code those of all.
        several = jax.process_count() > 1
        state = _spread(state, replicate_locally()) if several else state
        state, metrics = self._mapped(state, _split_rows(batch), step_inputs)
        return (_spread(state, self._everywhere) if several else state), metrics

    def trace(self, *shapes: Any) -> Any:
        """Trace the update for shapes, to compile it for the devices of this process."""

        def update(state: Any, batch: Any, step_inputs: Any) -> Any:
            return self._mapped(state, _split_rows(batch), step_inputs)

        return jax.jit(update, donate_argnums=0).trace(*shapes)


def _split_rows(batch: Batch) -> Batch:
    """Split rows over the devices of this process: [B, ...] becomes [devices, B / devices, ...]."""
    parts = jax.local_device_count()
    return jax.tree.map(lambda x: x.reshape(parts, x.shape[0] // parts, *x.shape[1:]), batch)


def replicate_locally() -> NamedSharding:
    """Return the sharding of an array that every device of this process holds whole."""
    return NamedSharding(Mesh(np.array(jax.local_devices()), (PMAP_AXIS,)), PartitionSpec())


def _spread(tree: Any, where: NamedSharding) -> Any:
    """Give replicated arrays a sharding over more or fewer devices, without copying them."""

    def spread(x: jax.Array) -> jax.Array:
        parts = [shard.data for shard in x.addressable_shards]
        return jax.make_array_from_single_device_arrays(x.shape, where, parts)

    return jax.tree.map(spread, tree)
