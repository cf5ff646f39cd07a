"""`bert-jax plan`: what the compiler of a target makes of the update of a config."""

from __future__ import annotations

import dataclasses
import json
import sys
from argparse import ArgumentParser, ArgumentTypeError
from typing import TYPE_CHECKING, Any

from bert_jax import cli
from bert_jax.errors import ConfigError
from bert_jax.planning import targets
from bert_jax.reporting.formats import rounded
from bert_jax.system import disk
from bert_jax.system.durations import duration

if TYPE_CHECKING:  # --help and usage errors answer before jax is loaded
    from bert_jax.config import knobs
    from bert_jax.planning.update import Plan

EXAMPLE = "--config=configs/pretrain.py:base --target=v5e:2x4"


def flags(parser: ArgumentParser) -> None:
    """Add the flags of the command."""
    parser.description = (
        "compile the update of a config for devices that need not be here, and say whether it "
        "fits, what it moves and what bounds its speed"
    )
    cli.config_flag(parser)
    parser.add_argument(
        "--target",
        required=True,
        metavar="TARGET",
        help=", ".join(targets.TARGETS),
    )
    parser.add_argument("--price", type=_price, metavar="$", help="of a device and hour")
    parser.add_argument(
        "--no-search", action="store_true", help="do not look for the largest batch that fits"
    )
    parser.add_argument("--output", type=cli.path, metavar="FILE", help="write the JSON there")


def _price(text: str) -> float:
    try:
        price = float(text)
    except ValueError:
        price = -1.0
    if not 0 <= price < float("inf"):
        raise ArgumentTypeError(f"{text!r} is not a number of 0 or more")
    return price


def main(call: cli.Call) -> None:
    """Run the command line."""
    args = call.args
    config = cli.read_config(args.config, call.overrides)
    if args.output is not None:
        disk.check_output(args.output)
    report = run(config, args.target, price=args.price, search=not args.no_search)
    if args.output is not None:
        disk.write_output(args.output, json.dumps(report, indent=2) + "\n")


def run(
    config: knobs.Config, target: str, *, price: float | None = None, search: bool = True
) -> dict[str, Any]:
    """Compile the update of a config for a target and print a table; return the same as JSON.

    Args:
      config: the resolved config.
      target: a name of `targets.TARGETS`.
      price: of a device and hour, for the cost of the run.
      search: look for the largest batch that fits, where this one does not.
    """
    from bert_jax.config import validation
    from bert_jax.interop import vocabulary

    devices = targets.find(target)
    if config.parallel.step == "pmap" and target in targets.ELSEWHERE:
        hint = "--config.parallel.step=jit, or --target=cpu:8"
        raise ConfigError("parallel.step = 'pmap' is compiled for devices that are here", hint)
    from bert_jax.planning import search as searching
    from bert_jax.planning import update

    with devices.chosen():
        validation.trainable(config)

    vocab_size = vocabulary.assumed_size(config)

    def compile_with(rows: int) -> Plan:
        changed = dataclasses.replace(config, batch_size=rows)
        return update.compile_update(changed, devices, vocab_size)

    plan = compile_with(config.batch_size)
    largest = None
    if search and not plan.fits:
        largest = searching.largest_batch(plan, compile_with)
    report = as_json(plan, price, largest, searching.advice(plan))
    print(table(plan, report))
    return report


def as_json(
    plan: Plan, price: float | None, largest: int | None, advice: list[str]
) -> dict[str, Any]:
    """Return the JSON object of a plan."""
    least = plan.milliseconds()
    hours = None
    if least is not None and plan.config.epochs is None:  # else the steps follow from the data
        hours = plan.config.steps * least / 3.6e6
    count = len(plan.target.devices)
    cost = None if hours is None or price is None else hours * count * price
    return {
        "target": plan.target.name,
        "devices": count,
        "mesh": plan.mesh,
        "batch_size": plan.config.batch_size,
        "fits": plan.fits,
        "peak_bytes": plan.peak_bytes,
        "estimated_bytes": plan.estimated_bytes,
        "memory_bytes": plan.target.chip.memory_bytes,
        "argument_bytes": plan.argument_bytes,
        "temp_bytes": plan.temp_bytes,
        "flops": plan.flops,
        "matmul_flops": plan.matmul_flops,
        "collectives": plan.sums(),
        "largest_collective_rows": plan.largest_rows,
        "overlap": plan.overlap,
        "float32_matmuls": plan.float32_matmuls,
        "attention": plan.attention,
        "dtype": plan.dtype,
        "remat": plan.remat,
        "traffic_bytes": plan.traffic_bytes,
        "roofline_ms": plan.roofline(),
        "mfu_bound": plan.mfu_bound(),
        "hours": hours,
        "cost": cost,
        "largest_batch": largest,
        "advice": advice,
        "reason": plan.reason,
    }


def table(plan: Plan, report: dict[str, Any]) -> str:
    """Return the lines that a plan prints."""
    target, config = plan.target, plan.config
    mesh = " x ".join(f"{name} {size}" for name, size in plan.mesh.items() if size > 1)
    lines = [
        (
            "target",
            f"{target.name}: {len(target.devices)} x {target.chip.name}, {mesh or 'one device'}",
        ),
        (
            "update",
            f"{config.batch_size:,} rows of {config.sequence_length} tokens, "
            f"{plan.parameters:,} parameters, {plan.dtype}, attention {plan.attention}, "
            f"remat {plan.remat}",
        ),
        ("memory", _memory(plan)),
    ]
    if report["largest_batch"]:
        lines.append(("", f"the largest batch that fits: {report['largest_batch']:,} rows a step"))
    model, program = plan.flops, plan.matmul_flops
    again = (
        f", {program / model - 1:+.0%} in the program" if abs(program / model - 1) >= 0.01 else ""
    )
    lines.append(("compute", f"{rounded(model / 1e12)} TFLOP a device and update{again}"))
    if plan.peak_bytes is not None:
        lines += [("collectives", text) for text in _collectives(plan)]
    lines += _speed(plan, report)
    lines += [("advice", text) for text in report["advice"]]
    shown, before = [], ""
    for name, text in lines:
        shown.append(f"{'' if name == before else name:<12} {text}".rstrip())
        before = name
    return "\n".join(shown)


def _memory(plan: Plan) -> str:
    from bert_jax.training.memory import readable

    limit = readable(plan.target.chip.memory_bytes)
    if plan.peak_bytes is None:
        return f"does NOT fit in {limit}: {plan.reason}"
    verdict = "fits in" if plan.fits else "does NOT fit in"
    return (
        f"{readable(plan.peak_bytes)} a device, {verdict} {limit}: "
        f"state and batch {readable(plan.argument_bytes)}, "
        f"temporaries {readable(plan.temp_bytes)}"
    )


def _collectives(plan: Plan) -> list[str]:
    rows = [
        f"{kind}: {sums['bytes'] / 1e6:,.1f} MB in {sums['count']:,}"
        for kind, sums in sorted(plan.sums().items(), key=lambda item: -item[1]["bytes"])
    ]
    if not rows:
        return ["none"]
    activations = f"activations of at most {plan.largest_rows:,} rows"
    return [*rows, f"{plan.overlap:.0%} of the bytes beside computing; {activations}"]


def _speed(plan: Plan, report: dict[str, Any]) -> list[tuple[str, str]]:
    line, bound = plan.roofline(), report["mfu_bound"]
    if bound is None or plan.peak_bytes is None:
        return []
    parts = ", ".join(
        f"{name} {value:,.1f} ms" for name, value in line.items() if value is not None
    )
    rows = [("roofline", parts), ("", f"MFU at most {bound:.0%}")]
    if report["hours"] is not None:
        text = f"{plan.config.steps:,} steps take at least {duration(3600 * report['hours'])}"
        if report["cost"] is not None:
            text += f", ${report['cost']:,.0f}"
        rows.append(("run", text))
    return rows


if __name__ == "__main__":
    cli.main(["plan", *sys.argv[1:]])
