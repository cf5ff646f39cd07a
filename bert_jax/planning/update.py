"""Compile the update of a config for a target, and read what the compiler says of it."""

import collections
import dataclasses
import math
import re
from typing import Any

import jax

from bert_jax.batch import SPECIAL
from bert_jax.config import costs, devices, knobs
from bert_jax.errors import EXHAUSTED
from bert_jax.masking import rates
from bert_jax.models import backends
from bert_jax.planning.activations import count_moved_rows
from bert_jax.planning.batches import make_longest_batch
from bert_jax.planning.collectives import Collective, find_collectives
from bert_jax.planning.targets import Target
from bert_jax.system import log
from bert_jax.training.program import Program, mesh_for

LESS = 4  # a batch that does not compile is compiled again with so many times fewer rows


@dataclasses.dataclass(frozen=True)
class Plan:
    """An update that was compiled for a target; numbers are per device and update."""

    config: knobs.Config
    target: Target
    mesh: dict[str, int]
    parameters: int
    flops: float  # of the model, by our own count
    attention: str
    dtype: str
    remat: str
    # None and 0 where the compiler only says, in `reason`, that the update does not fit.
    peak_bytes: int | None = None
    argument_bytes: int = 0
    temp_bytes: int = 0
    collectives: tuple[Collective, ...] = ()
    largest_rows: int = 0
    reason: str = ""
    largest_batch: int | None = None

    @property
    def fits(self) -> bool:
        """True if the update fits into the memory of a device."""
        return self.peak_bytes is not None and self.peak_bytes <= self.target.chip.memory_bytes

    def sum_collectives(self) -> dict[str, dict[str, int]]:
        """Sum the collectives of each kind, as {kind: {"count": …, "bytes": …}}."""
        sums: dict[str, dict[str, int]] = collections.defaultdict(lambda: {"count": 0, "bytes": 0})
        for collective in self.collectives:
            sums[collective.kind]["count"] += collective.times
            sums[collective.kind]["bytes"] += collective.bytes * collective.times
        return dict(sums)

    def find_roofline(self) -> dict[str, float | None]:
        """Return the milliseconds that an update takes at least, as {"compute": …, "network": …}.

        A number is None if the device's speed is unknown. Collectives are taken to run in rings,
        where a reduction is a scatter and a gather.
        """
        chip = self.target.chip
        count = len(self.target.devices)
        moved = 0.0
        for kind, sums in self.sum_collectives().items():
            rounds = 2 if kind == "all-reduce" else 1
            moved += rounds * sums["bytes"] * (count - 1) / count
        return {
            "compute": 1e3 * self.flops / chip.flops if chip.flops else None,
            "network": 1e3 * moved / chip.network if chip.network else None,
        }

    def count_hours(self, mfu: float) -> float | None:
        """Return the hours of the run's updates at a share `mfu` of the peak FLOP/s.

        The hours are None if the speed of the device, or the number of updates, is unknown.
        """
        if not self.target.chip.flops or self.config.epochs is not None:
            return None  # with epochs, the steps follow from the data
        return self.count_updates() * self.flops / (self.target.chip.flops * mfu) / 3600

    def count_updates(self) -> int:
        """Return the number of updates that the run makes; a branch begins at a later step."""
        return self.config.steps - self.config.trunk[1]


def compile_update(config: knobs.Config, target: Target, vocab_size: int) -> Plan:
    """Compile the update that `train` would run, for the devices of a target."""
    with target.chosen():
        mesh = mesh_for(config)
        log.log_line(f"compiling for {target.name}: {config.batch_size:,} rows a step")
        program = Program(config, SPECIAL, vocab_size, mesh)
        model = devices.fill_machine_knobs(config.model, train=True)
        with program.context():
            attention = backends.choose_backend(model, config.sequence_length, train=True)
        parameters = program.shapes["params"]
        plan = Plan(
            config=config,
            target=target,
            mesh={name: size for name, size in mesh.shape.items() if name != "run"},
            parameters=sum(leaf.size for leaf in jax.tree.leaves(parameters)),
            flops=costs.flops_per_step(config, vocab_size) / mesh.size,
            attention=attention,
            dtype=model.dtype,
            remat=model.remat,
        )
        longest = make_longest_batch(config, vocab_size)
        batch = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), longest)
        try:
            traced = program.trace(batch)
            compiled = traced.lower(lowering_platforms=(target.chip.kind,)).compile()
        except jax.errors.JaxRuntimeError as error:
            if EXHAUSTED not in str(error):
                raise
            return dataclasses.replace(
                plan,
                reason=_find_reason(str(error)),
                largest_batch=_find_largest_by_less(plan, vocab_size),
            )
    plan = _read_answer(plan, compiled)
    rows = count_moved_rows(plan.collectives, parameters, config, vocab_size, mesh)
    return dataclasses.replace(plan, largest_rows=rows, largest_batch=_estimate_largest(plan))


def _read_answer(plan: Plan, compiled: Any) -> Plan:
    """Add the memory, collectives and attention kernel of a compiled update to its plan."""
    sizes = compiled.memory_analysis()
    text = compiled.as_text()
    arguments = sizes.argument_size_in_bytes
    results = sizes.output_size_in_bytes - sizes.alias_size_in_bytes
    together = arguments + results + sizes.temp_size_in_bytes
    return dataclasses.replace(
        plan,
        attention=_find_kernel(text, plan.attention),
        # A TPU's compiler gives temporaries room in arguments too, and says what it takes in all.
        peak_bytes=getattr(sizes, "total_allocation_bytes", 0) or together,
        argument_bytes=arguments,
        temp_bytes=sizes.temp_size_in_bytes,
        collectives=tuple(find_collectives(text, len(plan.target.devices))),
    )


def _find_reason(text: str) -> str:
    """Return the line of a compiler's error that tells how much memory is missing."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if re.search(r"\bUsed\b|exceeds|out of memory", line)]
    return [*telling, *lines][0][:300]


def _find_kernel(text: str, asked: str) -> str:
    """Return the attention backend whose kernel a compiled program calls.

    The backend einsum has no kernel.
    """
    calls = " ".join(line for line in text.splitlines() if " custom-call(" in line)
    if "fmha" in calls:
        return "cudnn"
    if "splash" in calls:
        return "splash"
    return "einsum" if asked in ("cudnn", "splash") else asked


def _count_shares(plan: Plan) -> int:
    """Return the number that the rows of a batch must be a multiple of.

    Devices, accumulation steps and views each take an equal share of the rows.
    """
    split = plan.mesh["data"] * plan.mesh["fsdp"] * plan.config.optim.accumulation
    return math.lcm(split, rates.count_views(plan.config.masking))


def _estimate_largest(plan: Plan) -> int | None:
    """Estimate the largest global batch that fits, because memory is linear in the rows.

    Parameters and two moments are the arguments of the update. Neither these nor the gradients,
    which are as large as the parameters, grow with the rows.
    """
    if plan.peak_bytes is None:
        return None
    fixed = plan.argument_bytes * 4 // 3
    growing = plan.peak_bytes - fixed
    room = plan.target.chip.memory_bytes - fixed
    if growing <= 0 or room <= 0:
        return None
    shares = _count_shares(plan)
    return plan.config.batch_size * room // growing // shares * shares or None


def _find_largest_by_less(plan: Plan, vocab_size: int) -> int | None:
    """Compile the update of a quarter of the batch, and estimate the largest batch from it.

    If a quarter does not compile either, a quarter of the quarter is compiled, and so on. The
    result is None if the rows that are left cannot be split over the devices.
    """
    fewer = plan.config.batch_size // LESS
    if not fewer or fewer % _count_shares(plan):
        return None
    smaller = dataclasses.replace(plan.config, batch_size=fewer)
    return compile_update(smaller, plan.target, vocab_size).largest_batch
