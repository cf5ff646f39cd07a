"""The largest batch that fits a target, and the knobs that would help."""

from __future__ import annotations

import math
from collections.abc import Callable

from bert_jax.config import devices
from bert_jax.masking import rates
from bert_jax.planning.update import Plan

COMPILATIONS = 6  # at most, to find the largest batch
ROUND = 8  # rows a device, of batches larger than that


def largest_batch(plan: Plan, compile_with: Callable[[int], Plan]) -> int | None:
    """Return the largest global batch that fits, by bisection over rows of a device.

    Args:
      plan: of a batch that does not fit.
      compile_with: compiles the update with another global batch.

    Returns:
      None if a row a device does not fit.
    """
    split = plan.mesh["data"] * plan.mesh["fsdp"] * plan.config.optim.accumulation
    unit = math.lcm(split, rates.count_views(plan.config.masking))
    fits, fails = 0, plan.config.batch_size // unit  # rows of a device
    for _ in range(COMPILATIONS):
        if fails - fits <= 1:
            break
        rows = (fits + fails) // 2
        if rows > ROUND:
            rows -= rows % ROUND
        if rows <= fits:
            break
        if compile_with(rows * unit).fits:
            fits = rows
        else:
            fails = rows
    return fits * unit or None


def advice(plan: Plan) -> list[str]:
    """Return the knobs that would make an update fit, or make it faster."""
    model, parallel = plan.config.model, plan.config.parallel
    lines = []
    if not plan.fits:
        with plan.target.chosen():
            looped = devices.settled(model, train=True).scan
        loop = "" if looped else "--config.model.scan=true "  # without which nothing is recomputed
        if plan.remat == "none":
            lines.append(f"{loop}--config.model.remat=dots: keep matmuls, recompute the rest")
        if plan.remat != "full" or not looped:
            lines.append(f"{loop}--config.model.remat=full: keep the input of each layer alone")
        lines.append("--config.optim.accumulation=2: half of the rows at a time")
        if parallel.fsdp == 1 and len(plan.target.devices) > 1:
            lines.append("--config.parallel.fsdp=N: split parameters and moments over N devices")
    fusable = plan.target.chip.kind != "cpu" and "hybrid" not in plan.config.objectives
    if fusable and plan.attention == "einsum" and model.attention_dropout:
        lines.append("--config.model.attention_dropout=0: a fused attention kernel can be used")
    if plan.float32_matmuls:
        lines.append(
            f"{plan.float32_matmuls} matmuls multiply float32: --config.model.dtype=bfloat16"
        )
    return lines
