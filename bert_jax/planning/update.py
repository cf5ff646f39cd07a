"""Compile the update of a config for a target, and say what the compiled program shows."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from bert_jax.batch import HOST_KEYS, SPECIAL, Batch
from bert_jax.config import costs, devices, knobs
from bert_jax.errors import EXHAUSTED
from bert_jax.masking import rates
from bert_jax.models import backends
from bert_jax.models.encoder import pad_vocabulary
from bert_jax.planning import hlo, matmuls
from bert_jax.planning.matmuls import Matmul
from bert_jax.planning.targets import Target
from bert_jax.system import log
from bert_jax.training import data, memory
from bert_jax.training.program import Program, mesh_for

SMALL = 1e-3  # share of an update's FLOPs below which the type of a matmul does not matter


@dataclasses.dataclass(frozen=True)
class Plan:
    """An update, compiled for a target; numbers are those of a device and an update."""

    config: knobs.Config
    target: Target
    mesh: dict[str, int]
    parameters: int
    flops: float  # of the model, by our own count
    matmul_flops: float  # that the program computes, recomputed ones included
    float32_matmuls: int
    attention: str
    dtype: str
    remat: str
    estimated_bytes: int  # by the arithmetic of a dry run, in place of peak_bytes
    # Of the compiled program; as they are here where the compiler only says that it does not fit.
    peak_bytes: int | None = None
    argument_bytes: int = 0
    temp_bytes: int = 0
    collectives: Sequence[hlo.Collective] = ()
    traffic_bytes: int = 0
    largest_rows: int = 0
    reason: str = ""  # why the compiler refuses

    @property
    def fits(self) -> bool:
        """Return whether the update fits in the memory of a device."""
        return self.peak_bytes is not None and self.peak_bytes <= self.target.chip.memory_bytes

    @property
    def overlap(self) -> float:
        """Return the share of the collectives' bytes that move while the device computes."""
        total = sum(c.bytes * c.times for c in self.collectives)
        beside = sum(c.bytes * c.times for c in self.collectives if c.asynchronous)
        return beside / total if total else 1.0

    def sums(self) -> dict[str, dict[str, int]]:
        """Return count and bytes of the collectives by kind."""
        sums: dict[str, dict[str, int]] = collections.defaultdict(lambda: {"count": 0, "bytes": 0})
        for collective in self.collectives:
            sums[collective.kind]["count"] += collective.times
            sums[collective.kind]["bytes"] += collective.bytes * collective.times
        return dict(sums)

    def roofline(self) -> dict[str, float | None]:
        """Return the least milliseconds that compute, memory and network take; None if unknown."""
        chip, count = self.target.chip, len(self.target.devices)
        moved = sum(  # by rings: a reduction is a scatter and a gather
            c.bytes * c.times * (2 if c.kind == "all-reduce" else 1) * (count - 1) / count
            for c in self.collectives
        )
        parts = {
            "compute": (self.matmul_flops, chip.flops),
            "memory": (self.traffic_bytes, chip.bandwidth),
            "network": (moved, chip.network),
        }
        return {name: 1e3 * work / rate if rate else None for name, (work, rate) in parts.items()}

    def milliseconds(self) -> float | None:
        """Return the least time of an update; None on devices whose figures are not known.

        Compute and memory traffic overlap, and so do collectives that the program begins early.
        """
        line = self.roofline()
        compute, memory, network = line["compute"], line["memory"], line["network"]
        if compute is None or memory is None or network is None:
            return None
        beside = network * self.overlap
        return max(compute, memory, beside) + network - beside

    def mfu_bound(self) -> float | None:
        """Return the share of the peak FLOP/s that the model cannot exceed."""
        least = self.milliseconds()
        if least is None or self.target.chip.flops is None:
            return None
        return self.flops / (self.target.chip.flops * least / 1e3)


def batch_shapes(config: knobs.Config) -> Batch:
    """Return shapes and types of a batch of the config; a labelled task is read for its own."""
    if config.task.source:
        batch = data.gather(config).source.batch(0)
        return {key: jax.ShapeDtypeStruct(x.shape, x.dtype) for key, x in batch.items()}
    rows, per_token = config.batch_size, HOST_KEYS[: HOST_KEYS.index("example_ids")]
    widths = {
        key: config.sequence_length if key in per_token else config.packing for key in HOST_KEYS
    }
    shapes = {key: jax.ShapeDtypeStruct((rows, width), np.int32) for key, width in widths.items()}
    if rates.count_views(config.masking) > 1:
        shapes["views"] = shapes["example_ids"]
    if config.masked and config.masking.weights != "none":
        shapes["unit_scales"] = jax.ShapeDtypeStruct((rows, config.sequence_length), np.float32)
    return shapes


def compile_update(config: knobs.Config, target: Target, vocab_size: int) -> Plan:
    """Compile the update that `train` would run, for the devices of a target."""
    with target.chosen():
        mesh = mesh_for(config)
        log.line(f"compiling for {target.name}: {config.batch_size:,} rows a step")
        program = Program(config, SPECIAL, vocab_size, mesh)
        traced = program.trace(batch_shapes(config))
        model = devices.settled(config.model, train=True)
        with program.context():
            attention = backends.choose_backend(model, config.sequence_length, train=True)
        counts = matmuls.count(traced.jaxpr.jaxpr)
        flops = sum(one.flops * times for one, times in counts.items())
        if attention != "einsum":  # the traced program does not show what a fused kernel computes
            flops += costs.attention_flops(config)
        plan = Plan(
            config=config,
            target=target,
            mesh={name: size for name, size in mesh.shape.items() if name != "run"},
            parameters=sum(leaf.size for leaf in jax.tree.leaves(program.shapes["params"])),
            flops=costs.flops_per_step(config, vocab_size) / mesh.size,
            matmul_flops=flops / mesh.size,
            float32_matmuls=0 if model.dtype == "float32" else _large_in_float32(counts),
            attention=attention,
            dtype=model.dtype,
            remat=model.remat,
            estimated_bytes=sum(memory.estimate(config, vocab_size, mesh, program.shapes)),
        )
        try:
            compiled = traced.lower(lowering_platforms=(target.platform,)).compile()
        except jax.errors.JaxRuntimeError as error:
            if EXHAUSTED not in str(error):
                raise
            return dataclasses.replace(plan, reason=_reason(str(error)))
    sizes, text = compiled.memory_analysis(), hlo.parse(compiled.as_text())
    arguments, results = sizes.argument_size_in_bytes, sizes.output_size_in_bytes
    together = arguments + results - sizes.alias_size_in_bytes + sizes.temp_size_in_bytes
    collectives, parameters = text.collectives(), program.shapes["params"]
    return dataclasses.replace(
        plan,
        attention=_attention(text, attention),
        # A TPU's compiler gives temporaries room in arguments too, and says what it takes in all.
        peak_bytes=getattr(sizes, "total_allocation_bytes", 0) or together,
        argument_bytes=arguments,
        temp_bytes=sizes.temp_size_in_bytes,
        collectives=collectives,
        traffic_bytes=text.traffic(),
        largest_rows=_largest_rows(collectives, parameters, config, vocab_size, mesh),
    )


def _large_in_float32(counts: Counter[Matmul]) -> int:
    """Return the number of matmuls of float32, without those whose work does not matter."""
    least = SMALL * sum(one.flops * times for one, times in counts.items())
    return sum(
        times
        for one, times in counts.items()
        if set(one.types) == {"float32"} and times * one.flops > least
    )


def _reason(text: str) -> str:
    """Return the line of a compiler's error that says how much memory is missing."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next(
        (line for line in lines if re.search(r"\bUsed\b|exceeds|out of memory", line)), lines[0]
    )[:300]


def _attention(program: hlo.Program, asked: str) -> str:
    """Return the attention backend whose kernel the program calls; einsum has none."""
    calls = " ".join(program.custom_calls())
    if "fmha" in calls:
        return "cudnn"
    if "splash" in calls:
        return "splash"
    return "einsum" if asked in ("cudnn", "splash") else asked


def _largest_rows(
    collectives: Iterable[hlo.Collective],
    parameters: Any,
    config: knobs.Config,
    vocab_size: int,
    mesh: Mesh,
) -> int:
    """Return the most examples whose activations a collective takes or gives.

    Left out are scalars, arrays that have the shape of a parameter, of a stack of it or of a shard,
    the flat arrays that XLA makes of several gradients to reduce them at once, and the edges of
    shards that it has padded, which no operation of the model asks to move. Numbers of slots or
    positions are divided out of the rest.
    """
    known = set()
    ways = {1, *mesh.shape.values(), mesh.shape["data"] * mesh.shape["fsdp"]}
    for leaf in jax.tree.leaves(parameters):
        # A scan stacks the parameters of all layers.
        for shape in (leaf.shape, (config.model.layers or 1, *leaf.shape)):
            known |= {_sorted(form) for form in _forms(shape, ways)}
    model, slots = config.model, costs.own_slots(config)
    assert model.hidden is not None
    assert model.heads is not None
    assert model.mlp is not None
    inner = [model.hidden, model.mlp, pad_vocabulary(model, vocab_size), model.heads]
    inner += [model.hidden // model.heads, config.sequence_length, slots]
    inner += [model.embedding] if model.embedding else []
    inner.append(costs.distances(config))
    if small := config.generator:
        sizes = (small.hidden, small.mlp, small.heads, model.hidden // model.heads)
        inner += [size or 1 for size in sizes]
    most = 0
    for collective in collectives:
        if collective.kind == "collective-permute" and "op_name" not in collective.line:
            continue
        for shape in collective.operands + collective.results:
            several = collective.kind == "all-reduce" and len(shape.dims) == 1
            if not shape.dims or not shape.floating or several:
                continue
            if not _is_parameter(_sorted(shape.dims), known):
                most = max(most, _rows(shape.dims, inner, config, slots, mesh))
    return most


def _rows(
    dims: tuple[int, ...], inner: list[int], config: knobs.Config, slots: int, mesh: Mesh
) -> int:
    """Return how many examples an array holds, as far as its shape says."""
    rest = [size for size in dims if size > 1]
    for size in inner:
        for part in (size, size // mesh.shape["fsdp"]):
            if part in rest and len(rest) > 1:
                rest.remove(part)
                break
    count = math.prod(rest)
    candidates = [count // per for per in (1, config.sequence_length, slots) if count % per == 0]
    flat = len(dims) == 1  # several arrays that XLA has made one
    return max(
        (c for c in candidates if c <= config.batch_size), default=0 if flat else min(candidates)
    )


def _is_parameter(dims: tuple[int, ...], known: set[tuple[int, ...]]) -> bool:
    """Tell whether an array has the shape of a parameter, which XLA may have padded by 1 %."""
    return dims in known or any(
        len(shape) == len(dims)
        and sum(own != size for own, size in zip(shape, dims, strict=True)) == 1
        and all(own <= size <= 1.01 * own for own, size in zip(shape, dims, strict=True))
        for shape in known
    )


def _sorted(dims: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(size for size in dims if size > 1))


def _forms(shape: tuple[int, ...], ways: set[int]) -> Iterator[tuple[int, ...]]:
    """Yield the shapes that a parameter may have: two axes made one, and shards of any axes."""
    if len(shape) == 1:  # a gathered bias has the devices on an axis of its own
        yield from ((count, shape[0] // count) for count in ways if shape[0] % count == 0)
    merged = [shape] + [
        (*shape[:i], shape[i] * shape[i + 1], *shape[i + 2 :]) for i in range(len(shape) - 1)
    ]
    for form in merged:
        for cuts in itertools.product(sorted(ways), repeat=min(len(form), 3)):
            if all(size % cut == 0 for size, cut in zip(form, cuts, strict=False)):
                cut = tuple(size // c for size, c in zip(form, cuts, strict=False))
                yield cut + form[len(cut) :]
