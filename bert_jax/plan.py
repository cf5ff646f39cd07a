"""`bert-jax plan`: what the compiler of a target makes of the update of a config."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, ArgumentTypeError
from typing import TYPE_CHECKING, Any

from bert_jax import cli
from bert_jax.config import knobs, validation
from bert_jax.errors import ConfigError
from bert_jax.planning import targets
from bert_jax.reporting.formats import rounded
from bert_jax.system import disk
from bert_jax.system.durations import duration

if TYPE_CHECKING:  # --help does not wait for the libraries of training
    from bert_jax.planning.update import Plan

EXAMPLE = "--config=configs/pretrain.py:base --target=v5e:2x4"
MFU = 0.4  # share of the peak FLOP/s that a run reaches, unless --mfu says
SMALLER = (
    "--config.optim.accumulation=2, --config.parallel.fsdp=N, or --config.model.scan=true with "
    "--config.model.remat=full"
)


def flags(parser: ArgumentParser) -> None:
    """Add the flags of the command."""
    parser.description = (
        "compile the update of a config for devices that need not be here, and say whether it "
        "fits, what it moves and how long the run takes"
    )
    cli.config_flag(parser)
    names = ", ".join(targets.TARGETS)
    parser.add_argument("--target", required=True, metavar="TARGET", help=names)
    price = "of a device and hour, for the cost of the run"
    parser.add_argument("--price", type=_read_price, metavar="$", help=price)
    share = f"share of the peak FLOP/s that the run reaches ({MFU})"
    parser.add_argument("--mfu", type=_read_share, default=MFU, metavar="SHARE", help=share)
    parser.add_argument("--output", type=cli.path, metavar="FILE", help="write the JSON there")


def _read_price(text: str) -> float:
    try:
        price = float(text)
    except ValueError:
        price = -1.0
    if not 0 <= price < float("inf"):
        raise ArgumentTypeError(f"{text!r} is not a number of 0 or more")
    return price


def _read_share(text: str) -> float:
    share = cli.amount(text)
    if share > 1:
        raise ArgumentTypeError(f"{text!r} is more than 1, the peak")
    return share


def main(call: cli.Call) -> None:
    """Run the command line."""
    args = call.args
    config = cli.read_config(args.config, call.overrides)
    if args.output is not None:
        disk.check_output(args.output)
    report = run(config, args.target, price=args.price, mfu=args.mfu)
    if args.output is not None:
        disk.write_output(args.output, json.dumps(report, indent=2) + "\n")


def run(
    config: knobs.Config, target: str, *, price: float | None = None, mfu: float = MFU
) -> dict[str, Any]:
    """Compile the update of a config for a target and print a table; return the same as JSON.

    Args:
      config: the resolved config.
      target: a name of `targets.TARGETS`.
      price: of a device and hour, for the cost of the run.
      mfu: the share of the peak FLOP/s at which hours are told.
    """
    from bert_jax.interop import vocabulary
    from bert_jax.planning.update import compile_update

    found = targets.find(target)
    if config.parallel.step == "pmap" and target in targets.ELSEWHERE:
        hint = "--config.parallel.step=jit, or --target=cpu:8"
        raise ConfigError("parallel.step = 'pmap' is compiled for devices that are here", hint)
    with found.chosen():
        validation.trainable(config)
    plan = compile_update(config, found, vocabulary.assumed_size(config))
    report = as_json(plan, price, mfu)
    print(format_table(plan, report, mfu))
    return report


def as_json(plan: Plan, price: float | None, mfu: float) -> dict[str, Any]:
    """Return the JSON object of a plan."""
    count = len(plan.target.devices)
    hours = plan.hours(mfu)
    cost = None if hours is None or price is None else hours * count * price
    return {
        "target": plan.target.name,
        "devices": count,
        "mesh": plan.mesh,
        "batch_size": plan.config.batch_size,
        "parameters": plan.parameters,
        "fits": plan.fits,
        "peak_bytes": plan.peak_bytes,
        "memory_bytes": plan.target.chip.memory_bytes,
        "argument_bytes": plan.argument_bytes,
        "temp_bytes": plan.temp_bytes,
        "flops": plan.flops,
        "collectives": plan.sum_collectives(),
        "largest_collective_rows": plan.largest_rows,
        "attention": plan.attention,
        "dtype": plan.dtype,
        "remat": plan.remat,
        "roofline_ms": plan.roofline(),
        "hours": hours,
        "cost": cost,
        "largest_batch": plan.largest_batch,
        "reason": plan.reason,
    }


def format_table(plan: Plan, report: dict[str, Any], mfu: float) -> str:
    """Format a plan for a terminal."""
    target, config = plan.target, plan.config
    mesh = " x ".join(f"{name} {size}" for name, size in plan.mesh.items() if size > 1)
    devices = f"{target.name}: {len(target.devices)} x {target.chip.name}"
    update = (
        f"{config.batch_size:,} rows of {config.sequence_length} tokens, "
        f"{plan.parameters:,} parameters, {plan.dtype}, attention {plan.attention}, "
        f"remat {plan.remat}"
    )
    lines = [
        ("target", f"{devices}, {mesh or 'one device'}"),
        ("update", update),
        ("memory", _describe_memory(plan)),
    ]
    if plan.largest_batch:
        lines.append(("", f"the largest batch that fits: about {plan.largest_batch:,} rows a step"))
    if not plan.fits:
        lines.append(("", f"smaller: {SMALLER}"))
    lines.append(("compute", f"{rounded(plan.flops / 1e12)} TFLOP a device and update"))
    lines += _describe_collectives(plan)
    lines += _describe_time(plan, report, mfu)
    return "\n".join(f"{name:<12} {text}" for name, text in lines)


def _describe_memory(plan: Plan) -> str:
    from bert_jax.training.memory import readable

    limit = readable(plan.target.chip.memory_bytes)
    if plan.peak_bytes is None:
        return f"does NOT fit in {limit}: {plan.reason}"
    verdict = "fits in" if plan.fits else "does NOT fit in"
    parts = f"state and batch {readable(plan.argument_bytes)}"
    parts += f", temporaries {readable(plan.temp_bytes)}"
    return f"{readable(plan.peak_bytes)} a device, {verdict} {limit}: {parts}"


def _describe_collectives(plan: Plan) -> list[tuple[str, str]]:
    if plan.peak_bytes is None:
        return []
    sums = plan.sum_collectives()
    if not sums:
        return [("collectives", "none")]
    kinds = sorted(sums, key=lambda kind: -sums[kind]["bytes"])
    texts = [f"{k}: {sums[k]['bytes'] / 1e6:,.1f} MB in {sums[k]['count']:,}" for k in kinds]
    texts.append(f"activations of at most {plan.largest_rows:,} rows")
    return [("collectives", texts[0]), *(("", text) for text in texts[1:])]


def _describe_time(plan: Plan, report: dict[str, Any], mfu: float) -> list[tuple[str, str]]:
    known = {name: ms for name, ms in plan.roofline().items() if ms is not None}
    rows = []
    if known:
        least = ", ".join(f"{name} {ms:,.1f} ms" for name, ms in known.items())
        rows.append(("at least", least))
    if report["hours"] is not None:
        text = f"{plan.config.steps:,} steps take {duration(3600 * report['hours'])} at {mfu:.0%}"
        text += " of the peak"
        if report["cost"] is not None:
            text += f", ${report['cost']:,.0f}"
        rows.append(("run", text))
    return rows


if __name__ == "__main__":
    cli.main(["plan", *sys.argv[1:]])
