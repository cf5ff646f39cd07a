"""`bert-jax plan`: compile the update of a config for other devices, and show what it needs."""

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
from bert_jax.system.durations import format_duration

if TYPE_CHECKING:  # --help does not wait for the libraries of training
    from bert_jax.planning.update import Plan

EXAMPLE = "--config=configs/pretrain.py:base --target=v5e:2x4"
MFU = 0.4  # share of the peak FLOP/s that a run reaches, unless --mfu says
SMALLER = "--config.parallel.fsdp=N, or --config.model.scan=true with --config.model.remat=full"


def add_flags(parser: ArgumentParser) -> None:
    """Add the flags of the command."""
    parser.description = (
        "compile the update of a config for devices that need not be here, and say whether it "
        "fits, what it moves and how long the run takes"
    )
    cli.add_config_flag(parser)
    names = ", ".join(targets.TARGETS)
    parser.add_argument("--target", required=True, metavar="TARGET", help=names)
    price = "of a device and hour, for the cost of the run"
    parser.add_argument("--price", type=cli.read_amount, metavar="$", help=price)
    share = f"share of the peak FLOP/s that the run reaches ({MFU})"
    parser.add_argument("--mfu", type=read_share, default=MFU, metavar="SHARE", help=share)
    parser.add_argument("--output", type=cli.read_path, metavar="FILE", help="write the JSON there")


def read_share(text: str) -> float:
    """Convert a text to a number above 0 and up to 1."""
    share = cli.read_amount(text)
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
    """Compile the update of a config for a target; print a table, and return the plan as JSON.

    Args:
      config: the resolved config.
      target: a name of `targets.TARGETS`.
      price: the price of a device for an hour, for the cost of the run.
      mfu: the share of the peak FLOP/s for which hours are computed.
    """
    from bert_jax.interop import vocabulary
    from bert_jax.planning.update import compile_update
    from bert_jax.training import data

    found = targets.find_target(target)
    if config.parallel.step == "pmap" and target in targets.ELSEWHERE:
        hint = "--config.parallel.step=jit, or --target=cpu:8"
        raise ConfigError("parallel.step = 'pmap' is compiled for devices that are here", hint)
    with found.chosen():
        validation.check_trainable(config)
    config = data.fill_in_labels(config)
    plan = compile_update(config, found, vocabulary.assumed_size(config))
    report = build_report(plan, price, mfu)
    print(format_table(plan, report, mfu))
    return report


def build_report(plan: "Plan", price: float | None, mfu: float) -> dict[str, Any]:
    """Return the results of a plan as a dict, to print as JSON."""
    count = len(plan.target.devices)
    hours = plan.count_hours(mfu)
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
        "roofline_ms": plan.find_roofline(),
        "hours": hours,
        "cost": None if hours is None or price is None else hours * count * price,
        "largest_batch": plan.largest_batch,
        "reason": plan.reason,
    }


def format_table(plan: "Plan", report: dict[str, Any], mfu: float) -> str:
    """Format a plan for a terminal."""
    from bert_jax.training.memory import format_bytes

    target, config = plan.target, plan.config
    mesh = " x ".join(f"{name} {size}" for name, size in plan.mesh.items() if size > 1)
    shape = f"{config.batch_size:,} rows of {config.sequence_length} tokens"
    computed = f"{plan.dtype}, attention {plan.attention}, remat {plan.remat}"
    limit = format_bytes(target.chip.memory_bytes)
    memory = f"does NOT fit in {limit}: {plan.reason}"
    if plan.peak_bytes is not None:
        verdict = "fits in" if plan.fits else "does NOT fit in"
        parts = f"state and batch {format_bytes(plan.argument_bytes)}"
        parts += f", temporaries {format_bytes(plan.temp_bytes)}"
        memory = f"{format_bytes(plan.peak_bytes)} a device, {verdict} {limit}: {parts}"
    lines = [
        (
            "target",
            f"{target.name}: {report['devices']} x {target.chip.name}, {mesh or 'one device'}",
        ),
        ("update", f"{shape}, {plan.parameters:,} parameters, {computed}"),
        ("memory", memory),
    ]
    if plan.largest_batch:
        lines.append(("", f"the largest batch that fits: about {plan.largest_batch:,} rows a step"))
    if not plan.fits:
        doubled = 2 * config.optim.accumulation
        lines.append(("", f"smaller: --config.optim.accumulation={doubled}, {SMALLER}"))
    lines.append(("compute", f"{rounded(plan.flops / 1e12)} TFLOP a device and update"))
    heading = "collectives"
    for kind, sums in sorted(report["collectives"].items(), key=lambda row: -row[1]["bytes"]):
        lines.append((heading, f"{kind}: {sums['bytes'] / 1e6:,.1f} MB in {sums['count']:,}"))
        heading = ""
    if plan.peak_bytes is not None:
        lines.append((heading, f"activations of at most {plan.largest_rows:,} rows"))
    known = {name: ms for name, ms in report["roofline_ms"].items() if ms is not None}
    if known:
        least = ", ".join(f"{name} {ms:,.1f} ms" for name, ms in known.items())
        lines.append(("at least", least))
    if report["hours"] is not None:
        text = f"{plan.count_updates():,} steps take {format_duration(3600 * report['hours'])}"
        cost = "" if report["cost"] is None else f", ${report['cost']:,.0f}"
        lines.append(("run", f"{text} at {mfu:.0%} of the peak{cost}"))
    return "\n".join(f"{name:<12} {text}" for name, text in lines)


if __name__ == "__main__":
    cli.main(["plan", *sys.argv[1:]])
