"""Parameters a run starts from: fresh ones, or those of another model as far as they fit.

`init_fresh_layers` starts the top of an encoder anew although it fits (Zhang et al., 2021).

What does not fit is an error that names it, unless the config says that it may start fresh. `init_vocab=remap` moves
the rows of the vocabulary by their pieces: a piece both vocabularies have keeps its vector, any other starts fresh.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from typing import Any

import jax
import numpy as np

from bert_jax import trees
from bert_jax.config import knobs
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.errors import ConfigError
from bert_jax.interop import runs
from bert_jax.interop.parameter_names import PADDED, listing

UNNAMED = re.compile(r"LABEL_\d+|\d+")  # what transformers calls classes that nobody named
SIZES = ("layers", "hidden", "heads", "mlp", "max_positions", "type_vocab")
SAME = ("activation", "head_activation", "norm", "norm_epsilon", "position", "gated", "causal")


def start_from(config: knobs.Config, params: Any, tokenizer: Tokenizer) -> Any:
    """`params` with everything that `config.init_from` has, placed as they are."""
    run = runs.open_run(config.init_from)
    theirs = {name: np.asarray(value) for name, value in trees.flat(run.params).items()}
    given = run.tokenizer.style
    style = dataclasses.replace(
        tokenizer.style, max_word_length=given.max_word_length, characters=given.characters
    )  # of rare words only
    if run.tokenizer.vocab != tokenizer.vocab or given != style:
        theirs = _remapped(config, run, tokenizer, params, theirs)
    for head in _other_classes(config, run.config):
        theirs = {name: value for name, value in theirs.items() if not name.startswith(f"{head}/")}
    fresh = re.compile(config.init_fresh) if config.init_fresh else None
    ours = trees.flat(params)
    wrong: list[str] = []
    left: list[str] = []
    for name, leaf in ours.items():
        if name in theirs and theirs[name].shape == leaf.shape:
            continue
        (left if fresh and fresh.search(name) else wrong).append(name)
    if wrong:
        absent = sorted(name for name in wrong if name not in theirs)
        raise ConfigError(
            f"init_from {config.init_from} {'lacks' if absent else 'has another shape for'} {listing(absent or wrong)}",
            f"--config.init_fresh='^({'|'.join(sorted({_part(n) for n in absent}))})/' starts them fresh"
            if absent
            else f"set config.model: {_settings(run.config.model, SIZES)}",
        )
    differ = [key for key in SAME if getattr(run.config.model, key) != getattr(config.model, key)]
    if differ:
        print(
            f"warning: {config.init_from} was trained with {_settings(run.config.model, differ)}",
            file=sys.stderr,
        )
    theirs |= _fresh_top(config, ours, theirs)
    unused = sorted(theirs.keys() - ours.keys())
    if config.init_fresh_layers:
        left_too = (
            f"the top {config.init_fresh_layers} of {config.model.layers} layers and the pooler"
        )
        print(f"init_from {config.init_from}: {left_too} start fresh", file=sys.stderr)
    for what, names in (("starts fresh", left), ("is not used", unused)):
        if names:
            print(f"init_from {config.init_from}: {listing(names)} {what}", file=sys.stderr)
    taken = {
        n: leaf if n in left else jax.device_put(theirs[n], leaf.sharding)
        for n, leaf in ours.items()
    }
    return trees.nested(taken)


def _other_classes(ours: knobs.Config, theirs: knobs.Config) -> list[str]:
    """Heads over classes that are not the same ones: of as many classes they would fit, and mean something else."""
    found = []
    for head in ours.objectives.keys() & theirs.objectives.keys():
        here, there = ours.objectives[head].labels, theirs.objectives[head].labels
        if here != there and not all(UNNAMED.fullmatch(label) for label in there):
            found.append(head)
    return found


def _fresh_top(
    config: knobs.Config, ours: dict[str, Any], theirs: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The tensors that change when the top layers, and the pooler above them, keep their fresh values."""
    count, found = config.init_fresh_layers, {}
    for name in (ours.keys() & theirs.keys()) if count else ():
        if "/layers/" in name:
            found[name] = np.concatenate([theirs[name][:-count], np.asarray(ours[name])[-count:]])
        elif name.startswith(("encoder/pooler/", "encoder/final_norm/")):
            found[name] = np.asarray(ours[name])
    return found


def _remapped(
    config: knobs.Config,
    run: runs.Run,
    tokenizer: Tokenizer,
    params: Any,
    theirs: dict[str, np.ndarray],
) -> dict[str, np.ndarray]:
    """Their tensors with the vocabulary's rows in our order, fresh where they have no such piece."""
    if config.init_vocab != "remap":
        raise ConfigError(
            f"init_from {config.init_from} has another tokenizer: {_pieces(run.tokenizer)}; this run has "
            f"{_pieces(tokenizer)}",
            f"--config.tokenizer.path={run.tokenizer_path} takes its own; --config.init_vocab=remap moves its vectors",
        )
    place = {piece: i for i, piece in enumerate(run.tokenizer.vocab)}
    pairs = [(i, place[piece]) for i, piece in enumerate(tokenizer.vocab) if piece in place]
    here, there = (list(ids) for ids in zip(*pairs, strict=True))  # the special tokens at least
    moved = dict(theirs)
    for name, leaf in trees.flat(params).items():
        if name in PADDED and name in theirs and leaf.shape[1:] == theirs[name].shape[1:]:
            moved[name] = np.array(leaf)
            moved[name][here] = theirs[name][there]
    print(
        f"init_from {config.init_from}: {len(pairs):,} of {tokenizer.size:,} pieces keep their rows",
        file=sys.stderr,
    )
    return moved


def _pieces(tokenizer: Tokenizer) -> str:
    style = dataclasses.asdict(tokenizer.style)
    return (
        f"{tokenizer.size:,} pieces ({', '.join(f'{key} {value}' for key, value in style.items())})"
    )


def _part(name: str) -> str:
    """The head a parameter belongs to, or the module of the encoder."""
    first, second, *_ = name.split("/")
    return f"{first}/{second}" if first == "encoder" else first


def _settings(model: knobs.Model, keys: Any) -> str:
    return ", ".join(f"{key}={getattr(model, key)}" for key in keys)
