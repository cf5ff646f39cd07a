"""Parameters a run starts from: fresh ones, or those of another model as far as they fit.

A parameter that does not fit is an error that names it, unless `init_fresh` says that it may start
fresh. `init_fresh_layers` starts the top of an encoder fresh although it fits (Zhang et al., 2021).
`init_vocab=remap` moves the rows of the vocabulary by their pieces: a piece that both vocabularies
have keeps its vector, any other starts fresh.
"""

from __future__ import annotations

import logging
import re
from typing import Any

import jax
import numpy as np

from bert_jax.config import knobs
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.errors import ConfigError
from bert_jax.interop import runs
from bert_jax.interop.parameter_names import PADDED, listing
from bert_jax.system import trees

logger = logging.getLogger(__name__)

UNNAMED = re.compile(r"LABEL_\d+|\d+")  # transformers' names of classes that nobody named
SIZES = ("layers", "hidden", "heads", "mlp", "embedding", "max_positions", "type_vocab")
SAME = (
    *("activation", "head_activation", "norm", "norm_epsilon", "position", "gated", "causal"),
    *("first_position", "rotary_base", "rotary_base_near", "first_norm", "biases", "pooler"),
    *("pooling", "norm_kind", "embedding_norm", "position_buckets", "attention_gate"),
    *("inner_norm", "norm_parameters", "mlp_biases", "layer_weights"),
)


def start_from(config: knobs.Config, params: Any, tokenizer: Tokenizer) -> Any:
    """Fill in the parameters that `config.init_from` has, placed as in `params`."""
    run = runs.open_run(config.init_from)
    theirs = {name: np.asarray(value) for name, value in trees.flat(run.params).items()}
    # The longest word may differ: it concerns rare words only.
    if run.tokenizer.vocab != tokenizer.vocab or run.tokenizer.rules != tokenizer.rules:
        theirs = _remapped(config, run, tokenizer, params, theirs)
    for head in _other_classes(config, run.config):
        theirs = {name: value for name, value in theirs.items() if not name.startswith(f"{head}/")}
    fresh = re.compile(config.init_fresh) if config.init_fresh else None
    ours = trees.flat(params)
    theirs |= _transforms(ours, theirs)
    wrong: list[str] = []
    left: list[str] = []  # parameters that start fresh
    for name, leaf in ours.items():
        if name in theirs and theirs[name].shape == leaf.shape:
            continue
        (left if fresh and fresh.search(name) else wrong).append(name)
    deepest = re.compile(r"layer_(\d+)/")
    deeper = {name: match for name in theirs if (match := deepest.search(name))}
    wrong += [name for name, match in deeper.items() if int(match[1]) >= (config.model.layers or 0)]
    if absent := sorted(name for name in wrong if name not in theirs):
        # The head of each, or its module of the encoder.
        depths = ((name.split("/"), 2 if name.startswith("encoder/") else 1) for name in absent)
        parts = "|".join(sorted({"/".join(names[:depth]) for names, depth in depths}))
        hint = f"--config.init_fresh='^({parts})/' starts them fresh"
        if run.config.model.layers != config.model.layers:
            hint = f"set config.model: {_settings(run.config.model, SIZES)}; or {hint}"
        raise ConfigError(f"init_from {config.init_from} lacks {listing(absent)}", hint)
    if wrong:
        raise ConfigError(
            f"init_from {config.init_from} has another shape for {listing(wrong)}",
            f"set config.model: {_settings(run.config.model, SIZES)}",
        )
    differ = [key for key in SAME if getattr(run.config.model, key) != getattr(config.model, key)]
    if differ:
        logger.warning(f"{config.init_from} was trained with {_settings(run.config.model, differ)}")
    theirs |= _fresh_top(config, ours, theirs)
    unused = sorted(theirs.keys() - ours.keys())
    if count := config.init_fresh_layers:
        top = f"the top {count} of {config.model.layers} layers and the pooler"
        logger.info(f"init_from {config.init_from}: {top} start fresh")
    for state, names in (("starts fresh", left), ("is not used", unused)):
        if names:
            logger.info(f"init_from {config.init_from}: {listing(names)} {state}")
    return trees.nested(
        {
            name: leaf if name in left else jax.device_put(theirs[name], leaf.sharding)
            for name, leaf in ours.items()
        }
    )


def _other_classes(ours: knobs.Config, theirs: knobs.Config) -> list[str]:
    """Return the heads over other classes: with as many classes they would fit and be wrong."""
    heads = []
    for head in ours.objectives.keys() & theirs.objectives.keys():
        our_labels, their_labels = ours.objectives[head].labels, theirs.objectives[head].labels
        if our_labels != their_labels and not all(map(UNNAMED.fullmatch, their_labels)):
            heads.append(head)
    return heads


def _transforms(ours: dict[str, Any], theirs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the dense layer and norm of the MLM head for heads over labels that lack theirs.

    transformers begins them there too: in ModernBERT's classes they have one name.
    """
    found = {}
    for name in ours.keys() - theirs.keys():
        head, _, rest = name.partition("/")
        if head in knobs.LABELLED and f"mlm/{rest}" in theirs:
            found[name] = theirs[f"mlm/{rest}"]
    return found


def _fresh_top(
    config: knobs.Config, ours: dict[str, Any], theirs: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return the tensors that change when the top layers and the pooler keep their fresh values."""
    count, layers = config.init_fresh_layers, config.model.layers
    assert layers is not None
    if not count:
        return {}
    top = [f"encoder/layer_{layer}/" for layer in range(layers - count, layers)]
    fresh = (*top, "encoder/pooler/", "encoder/final_norm/")
    names = [name for name in ours.keys() & theirs.keys() if name.startswith(fresh)]
    return {name: np.asarray(ours[name]) for name in names}


def _remapped(
    config: knobs.Config,
    run: runs.TrainedModel,
    tokenizer: Tokenizer,
    params: Any,
    theirs: dict[str, np.ndarray],
) -> dict[str, np.ndarray]:
    """Bring the vocabulary's rows into our order; rows of pieces that only we have stay fresh."""
    if config.init_vocab != "remap":
        raise ConfigError(
            f"init_from {config.init_from} has another tokenizer: {_pieces(run.tokenizer)}; "
            f"this run has {_pieces(tokenizer)}",
            f"--config.tokenizer.path={run.tokenizer_path} takes its own; "
            "--config.init_vocab=remap moves its vectors",
        )
    their_ids = {piece: i for i, piece in enumerate(run.tokenizer.vocab)}
    roles = zip(tokenizer.special, run.tokenizer.special, strict=True)  # whatever they are called
    their_ids |= {tokenizer.vocab[ours]: theirs for ours, theirs in roles}
    pairs = [(i, their_ids[piece]) for i, piece in enumerate(tokenizer.vocab) if piece in their_ids]
    rows, sources = (list(ids) for ids in zip(*pairs, strict=True))  # special tokens at least
    moved = dict(theirs)
    for name, leaf in trees.flat(params).items():
        if name in PADDED and name in theirs and leaf.shape[1:] == theirs[name].shape[1:]:
            moved[name] = np.array(leaf)
            moved[name][rows] = theirs[name][sources]
    kept = f"{len(pairs):,} of {tokenizer.size:,} pieces keep their rows"
    logger.info(f"init_from {config.init_from}: {kept}")
    return moved


def _pieces(tokenizer: Tokenizer) -> str:
    return f"{tokenizer.size:,} pieces ({tokenizer.kind}, rules {tokenizer.rules})"


def _settings(model: knobs.Model, keys: Any) -> str:
    return ", ".join(f"{key}={getattr(model, key)}" for key in keys)
