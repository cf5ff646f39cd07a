"""`bert-jax benchmark`: time the update of a config on the devices of this machine."""

import json
import statistics
import sys
import time
from argparse import ArgumentParser
from typing import Any

from bert_jax import cli
from bert_jax.batch import SPECIAL
from bert_jax.config import knobs, validation
from bert_jax.system import allocator, disk
from bert_jax.system.durations import format_duration

EXAMPLE = "--config=configs/pretrain.py:base --config.batch_size=64"
WARM = 3  # updates before the timed ones: the first compiles, and caches are cold


def add_flags(parser: ArgumentParser) -> None:
    """Add the flags of the command."""
    parser.description = (
        "time the update of a config on the devices that are here, on full rows of random text "
        "or on the first batch of a task"
    )
    cli.add_config_flag(parser)
    updates = "updates that are timed (%(default)s)"
    parser.add_argument("--updates", type=cli.read_positive, default=20, metavar="N", help=updates)
    written = "write the JSON there"
    parser.add_argument("--output", type=cli.read_path, metavar="FILE", help=written)


def main(call: cli.Call) -> None:
    """Run the command line."""
    args = call.args
    config = cli.read_config(args.config, call.overrides)
    if args.output is not None:
        disk.check_output(args.output)
    allocator.retain_memory()
    report = run(config, args.updates)
    if args.output is not None:
        disk.write_output(args.output, json.dumps(report, indent=2) + "\n")
    print(format_report(report))


def run(config: knobs.Config, updates: int = 20) -> dict[str, Any]:
    """Time updates of a config on one batch; return a dict with their speed and MFU.

    An update is timed from the batch on the host until its metrics are computed. The FLOPs are the
    FLOPs that the model needs for the real tokens, as `config/costs.py` counts them. MFU is their
    share of the nominal peak of the devices. MFU is null for a device without a known peak, such as
    a CPU.
    """
    import jax  # here: --help does not wait for the libraries of training

    from bert_jax.config import devices
    from bert_jax.interop import vocabulary
    from bert_jax.planning import batches
    from bert_jax.training import clock, data, memory
    from bert_jax.training.program import Program, mesh_for
    from bert_jax.training.step import compute_inputs

    validation.check_trainable(config)
    config = data.fill_in_labels(config)
    vocab_size = vocabulary.assumed_size(config)
    batch = batches.make_batch(config, vocab_size)
    mesh = mesh_for(config)
    seconds = []
    with memory.explain_out_of_memory(config, vocab_size, mesh):
        program = Program(config, SPECIAL, vocab_size, mesh)
        state = program.place([program.start.draw_state(config.seed)])
        step_inputs = compute_inputs(config, 0)
        for _ in range(WARM + updates):
            began = time.perf_counter()
            state, metrics = program.update(state, batch, [step_inputs])
            jax.block_until_ready(metrics)
            seconds.append(time.perf_counter() - began)
    tokens, flops = clock.count_work(config, vocab_size, batch)
    median = statistics.median(seconds[WARM:])
    kind = jax.devices()[0].device_kind
    peak = clock.find_peak_flops(kind)
    return {
        "device": kind,
        "devices": mesh.size,
        "batch_size": config.batch_size,
        "sequence_length": batch["tokens"].shape[1],
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(program.shapes["params"])),
        "dtype": devices.fill_machine_knobs(config.model, train=True).dtype,
        "updates": updates,
        "first_seconds": seconds[0],
        "median_ms": 1e3 * median,
        "min_ms": 1e3 * min(seconds[WARM:]),
        "tokens_per_second": tokens / median,
        "model_flops_per_second": flops / median,
        "mfu": flops / median / (peak * mesh.size) if peak else None,
    }


def format_report(report: dict[str, Any]) -> str:
    """Format a report for a terminal."""
    shape = f"{report['batch_size']:,} rows of {report['sequence_length']:,} tokens"
    times = f"median {report['median_ms']:,.1f} ms, least {report['min_ms']:,.1f} ms"
    speed = f"{report['tokens_per_second']:,.0f} tokens a second"
    speed += f", {report['model_flops_per_second'] / 1e12:.3g} TFLOP/s"
    if report["mfu"] is None:
        speed += f"; no MFU, because the peak of {report['device']} is not known"
    else:
        speed += f", MFU {report['mfu']:.1%}"
    first = format_duration(report["first_seconds"])
    rows = {
        "devices": f"{report['devices']} x {report['device']}",
        "update": f"{shape}, {report['parameters']:,} parameters, {report['dtype']}",
        "time": f"{times} of {report['updates']} updates",
        "speed": speed,
        "start": f"the first update took {first} with its compilation",
    }
    return "\n".join(f"{name:<12} {text}" for name, text in rows.items())


if __name__ == "__main__":
    cli.main(["benchmark", *sys.argv[1:]])
