"""The text that `bert-jax train --dry-run` prints."""

import json

import jax

from bert_jax.batch import SPECIAL
from bert_jax.config import knobs, to_dict, validation
from bert_jax.interop import vocabulary
from bert_jax.masking import rates
from bert_jax.training import branch, data, memory
from bert_jax.training.program import Program, mesh_for


def describe_config(config: knobs.Config, with_config: bool = True) -> str:
    """Describe the run of a config as text: parameters, memory, steps, and the resolved config.

    Nothing is prepared or written.
    """
    mesh = mesh_for(config)
    config = data.load_training_data(config).config if config.task.source else config
    # The steps of epochs follow from the text, which may not be prepared yet.
    known = config.epochs is None or bool(config.task.source)
    if known:
        validation.warn_of_warmup(config)
        validation.warn_of_lost_best(config)
    if config.branch_from:
        branch.check_trunk(config)
    vocab_size = vocabulary.assumed_size(config)
    shapes = Program(config, SPECIAL, vocab_size, mesh).shapes
    parameters = sum(leaf.size for leaf in jax.tree.leaves(shapes["params"]))
    sizes = memory.estimate_bytes(config, vocab_size, mesh, shapes)
    total, state, gradients, activations = (
        memory.format_bytes(size) for size in (sum(sizes), *sizes)
    )
    tokens = config.steps * config.batch_size * config.sequence_length
    length = (
        f"{config.steps:,} of {config.batch_size} x {config.sequence_length} = {tokens:,} tokens"
    )
    if not known:
        length = f"those of {config.epochs:g} epochs, counted when the text is prepared"
    lines = [
        f"parameters      {parameters:,} (vocabulary {vocab_size:,})",
        f"memory/device   {total}: state {state}, gradients {gradients}, "
        f"activations about {activations}",
        f"devices         {jax.device_count()} x {jax.devices()[0].device_kind}, "
        f"mesh {dict(mesh.shape)}",
        f"steps           {length}",
    ]
    if (views := rates.count_views(config.masking)) > 1:
        read = f"an update reads {config.batch_size // views} rows"
        if known:
            read += f", the run {tokens // views:,} tokens of text"
        lines.append(f"views           {views} of each example: {read}")
    run, fork = config.trunk
    if fork:
        left = f": {config.steps - fork:,} updates to make" if known else ""
        lines.append(f"branch          of {run} at step {fork:,}{left}")
    if with_config:
        resolved = to_dict(config)
        if not known:
            del resolved["steps"]
            if config.optim.warmup_fraction is not None:
                del resolved["optim"]["warmup_steps"]
        lines.append(json.dumps(resolved, indent=2))
    else:
        lines.append("config          left out on a terminal; `... --dry-run | less` shows it")
    return "\n".join(lines)
