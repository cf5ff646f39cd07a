"""Count the rows of activations that collectives move between devices; 0 if none moves."""

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any

import jax
from jax.sharding import Mesh

from bert_jax import sharding
from bert_jax.config import costs, knobs
from bert_jax.models.encoder import pad_vocabulary
from bert_jax.planning.collectives import Collective

Dims = tuple[int, ...]


def count_moved_rows(
    collectives: Iterable[Collective],
    parameters: Any,
    config: knobs.Config,
    vocab_size: int,
    mesh: Mesh,
) -> int:
    """Count the examples of the largest activation that a collective moves between devices.

    Only shapes distinguish an activation from a gradient. A scalar is no activation, and neither is
    an array with the shape of a parameter, of a stack of it or of a shard. A flat array is none
    either, because XLA joins several gradients to reduce them at once. Nor are the edges of padded
    shards, which no operation of the model asks to move.
    """
    ways = {1, *mesh.shape.values(), sharding.count_row_shards(mesh)}
    known: set[Dims] = set()
    for leaf in jax.tree.leaves(parameters):
        for shape in (leaf.shape, (config.model.layers or 1, *leaf.shape)):  # a scan stacks layers
            known |= {_sort(form) for form in _list_forms(shape, ways)}
    sizes = _list_model_sizes(config, vocab_size)
    most = 0
    for collective in collectives:
        if collective.kind == "collective-permute" and "op_name" not in collective.line:
            continue
        for array in collective.arrays:
            is_joined = collective.kind == "all-reduce" and len(array.dims) == 1
            if array.dims and array.is_floating and not is_joined:
                dims = _join_parts(array.dims, collective.parts, sizes)
                if not _is_parameter(array.dims, known) and not _is_parameter(dims, known):
                    most = max(most, _count_rows(dims, sizes, config, mesh))
    return most


def _join_parts(dims: Dims, parts: int, sizes: list[int]) -> Dims:
    """Return the shape of the whole array, of which a reduce-scatter gives a device one part.

    The last axis whose whole length is a size of the model was cut into `parts` parts. If no axis
    has such a length, the rows were cut.
    """
    for axis, size in reversed([*enumerate(dims)]):
        if parts > 1 and size * parts in sizes:
            return (*dims[:axis], size * parts, *dims[axis + 1 :])
    return (*dims, parts)


def _list_model_sizes(config: knobs.Config, vocab_size: int) -> list[int]:
    """List the lengths that an axis of an activation may have, besides the number of rows."""
    model = config.model
    assert model.hidden is not None
    sizes = [model.hidden, model.mlp, pad_vocabulary(model, vocab_size), model.heads]
    sizes += [model.hidden // (model.heads or 1), config.sequence_length]
    sizes += [costs.own_slots(config), model.embedding, costs.count_distances(model)]
    if small := config.generator:
        sizes += [small.hidden, small.mlp, small.heads]
    return [size for size in sizes if size]


def _count_rows(dims: Dims, sizes: list[int], config: knobs.Config, mesh: Mesh) -> int:
    """Estimate the number of examples in an activation from its shape."""
    rest = [size for size in dims if size > 1]
    is_flat = len(rest) == 1
    for size in sizes:
        for part in (size, size // mesh.shape["fsdp"]):
            if part in rest and len(rest) > 1:
                rest.remove(part)
                break
    count = math.prod(rest)
    per_example = (1, config.sequence_length, costs.own_slots(config))
    candidates = [count // per for per in per_example if count % per == 0]
    within = [rows for rows in candidates if rows <= config.batch_size]
    if not within and is_flat:  # parameters that were gathered at once
        return 0
    return max(within, default=min(candidates))


def _is_parameter(dims: Dims, known: set[Dims]) -> bool:
    """Tell whether an array has the shape of a parameter, which XLA may have padded by 1 %."""
    own = _sort(dims)
    return any(
        len(shape) == len(own)
        and sum(a != b for a, b in zip(shape, own, strict=True)) <= 1
        and math.prod(shape) <= math.prod(own) <= 1.01 * math.prod(shape)
        for shape in known
    )


def _sort(dims: Dims) -> Dims:
    return tuple(sorted(size for size in dims if size > 1))


def _list_forms(shape: Dims, ways: set[int]) -> Iterator[Dims]:
    """Yield the shapes that a parameter may have: with two axes joined, or cut into shards."""
    if len(shape) == 1:  # a gathered bias has the devices on an axis of its own
        yield from ((count, shape[0] // count) for count in ways if shape[0] % count == 0)
    merged = [shape]
    for i in range(len(shape) - 1):
        merged.append((*shape[:i], shape[i] * shape[i + 1], *shape[i + 2 :]))
    for form in merged:
        for cuts in itertools.product(sorted(ways), repeat=min(len(form), 3)):
            parts = [*cuts, *[1] * (len(form) - len(cuts))]
            if all(size % part == 0 for size, part in zip(form, parts, strict=True)):
                yield tuple(size // part for size, part in zip(form, parts, strict=True))
