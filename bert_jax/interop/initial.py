"""Parameters that a run starts from: fresh ones, or those of another model if they fit.

A parameter that does not fit is an error, unless `init_fresh` matches its name: then it starts
fresh. `init_fresh_layers` starts the top layers of an encoder fresh although they fit (Zhang et
al., 2021). With `init_vocab=remap` the two vocabularies may differ: a piece that both have keeps
its vector, and any other piece starts fresh.
"""

import logging
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from bert_jax.config import knobs
from bert_jax.data import engines
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.errors import ConfigError
from bert_jax.interop import runs
from bert_jax.interop.config_json import list_different_knobs
from bert_jax.interop.parameter_names import PADDED, list_names
from bert_jax.objectives import diffusion

logger = logging.getLogger(__name__)

UNNAMED = re.compile(r"LABEL_\d+|\d+")  # transformers' names of classes that nobody named
SIZES = ("layers", "hidden", "heads", "mlp", "embedding", "max_positions", "type_vocab")
Flat = dict[str, Any]  # our names -> arrays
Draw = Callable[[Collection[str]], Flat]  # draws fresh values of the named parameters


def start_from(config: knobs.Config, layout: Any, draw: Draw, tokenizer: Tokenizer) -> Any:
    """Return the first parameters of a run: taken from the model `config.init_from`, or drawn.

    `layout` has the shape and the sharding of each parameter. Only the fresh parameters are drawn,
    so that no time is spent on compiling the draws of a whole model.
    """
    source = config.init_from
    run = runs.open_run(source)
    ours: Flat = flatten_dict(layout, sep="/")
    theirs: Flat = _allow_mask_token(flatten_dict(run.params, sep="/"))
    # The longest word may differ: it concerns rare words only.
    if run.tokenizer.vocab != tokenizer.vocab or run.tokenizer.rules != tokenizer.rules:
        theirs = _remap_rows(config, run, tokenizer, ours, theirs, draw)
    theirs = _drop_other_classes(config, run.config, theirs)
    theirs |= _copy_transforms(ours, theirs)
    unfit = {name for name in ours if name not in theirs or theirs[name].shape != ours[name].shape}
    fresh = {name for name in unfit if config.init_fresh and re.search(config.init_fresh, name)}
    _check_fit(config, run, theirs, unfit, fresh)
    # What parameters there are, and their shapes, shows the sizes and word_head.
    differ = list_different_knobs(config, run.config.model).keys() - {*SIZES, "word_head"}
    if differ:
        logger.warning(
            f"{source} was trained with {_list_settings(run.config.model, sorted(differ))}"
        )
    both = set(config.heads) & set(run.config.heads)
    if "mlm" in both and config.shifted != run.config.shifted:
        logger.warning(
            f"{source} was trained with objectives.hybrid.shift={run.config.shifted}: "
            "its MLM head predicts tokens of other places than this run's"
        )
    if config.init_fresh_layers:
        fresh |= _find_top(config, ours)
        top = f"the top {config.init_fresh_layers} of {config.model.layers} layers and the pooler"
        logger.info(f"init_from {source}: {top} start fresh")
    unused = theirs.keys() - ours.keys()
    for state, names in (("starts fresh", fresh & unfit), ("is not used", unused)):
        if names:
            logger.info(f"init_from {source}: {list_names(sorted(names))} {state}")
    drawn = draw(fresh)
    placed = {
        name: drawn[name] if name in fresh else jax.device_put(np.asarray(theirs[name]), x.sharding)
        for name, x in ours.items()
    }
    return unflatten_dict(placed, sep="/")


def _allow_mask_token(params: Flat) -> Flat:
    """Set the bias of [MASK] to 0 if it forbids a model of `diffusion` to predict [MASK].

    With a number so large among the biases, LAMB would scale up the updates of all of them.
    """
    if "mlm/bias" not in params:
        return params
    bias = np.asarray(params["mlm/bias"])
    return params | {"mlm/bias": np.where(bias == diffusion.FORBIDDEN, np.float32(0), bias)}


def _check_fit(
    config: knobs.Config, run: runs.TrainedModel, theirs: Flat, unfit: set[str], fresh: set[str]
) -> None:
    """Refuse a model if it lacks parameters, or if its shapes or number of layers differ.

    `unfit` names the parameters that it lacks or has in another shape, and `fresh` those of them
    that `init_fresh` lets start fresh.
    """
    source = config.init_from
    wrong = sorted(unfit - fresh)
    absent = [name for name in wrong if name not in theirs]
    sizes = f"set config.model: {_list_settings(run.config.model, SIZES)}"
    # If so, the encoder has another size: only config.model helps.
    is_resized = any(name in theirs and name.startswith("encoder/") for name in wrong)
    named = fresh.union(absent) if is_resized else unfit
    # The head of each, or its module of the encoder.
    found = (re.match(r"encoder/[^/]+|[^/]+", name) for name in named)
    parts = sorted({match[0] for match in found if match})
    hint = f"--config.init_fresh='^({'|'.join(parts)})/' starts them fresh"
    if absent:
        if run.config.model.layers != config.model.layers:
            hint = f"{sizes}; or {hint}"
        raise ConfigError(f"init_from {source} lacks {list_names(absent)}", hint)
    last = f"encoder/layer_{config.model.layers}/"  # the first layer that is too much
    extra_layers = [name for name in theirs if name.startswith(last)]
    if wrong or extra_layers:
        hint = sizes if is_resized or extra_layers else hint
        said = f"init_from {source} has another shape for {list_names(wrong + extra_layers)}"
        raise ConfigError(said, hint)


def _drop_other_classes(ours: knobs.Config, theirs: knobs.Config, params: Flat) -> Flat:
    """Leave out heads whose classes have other names than in our config.

    If the number of classes is the same, such a head would fit, but its outputs would mean other
    classes.
    """
    for head in ours.objectives.keys() & theirs.objectives.keys():
        labels = theirs.objectives[head].labels
        if ours.objectives[head].labels != labels and not all(map(UNNAMED.fullmatch, labels)):
            params = {name: x for name, x in params.items() if not name.startswith(f"{head}/")}
    return params


def _copy_transforms(ours: Flat, theirs: Flat) -> Flat:
    """Copy the MLM head's dense layer and norm for the labelled heads that lack them.

    A labelled head predicts labels, such as classes. The result has only the copied parameters.
    transformers copies them too, because ModernBERT's classes give these layers the same name.
    """
    found = {}
    for name in ours.keys() - theirs.keys():
        head, _, rest = name.partition("/")
        if head in knobs.LABELLED and f"mlm/{rest}" in theirs:
            found[name] = theirs[f"mlm/{rest}"]
    return found


def _find_top(config: knobs.Config, names: Iterable[str]) -> set[str]:
    """Return the names of the parameters of the top layers, the last norm and the pooler."""
    layers = config.model.layers
    assert layers is not None
    top = [f"encoder/layer_{i}/" for i in range(layers - config.init_fresh_layers, layers)]
    starts = (*top, "encoder/pooler/", "encoder/final_norm/")
    return {name for name in names if name.startswith(starts)}


def _remap_rows(
    config: knobs.Config,
    run: runs.TrainedModel,
    tokenizer: Tokenizer,
    ours: Flat,
    theirs: Flat,
    draw: Draw,
) -> Flat:
    """Move the rows of the vocabulary to the ids that our tokenizer gives their pieces.

    The rows of pieces that only our tokenizer has stay fresh.
    """
    if config.init_vocab != "remap":
        raise ConfigError(
            f"init_from {config.init_from} has another tokenizer: {_describe(run.tokenizer)}; "
            f"this run has {_describe(tokenizer)}",
            f"--config.tokenizer.path={run.tokenizer_path} takes its own; "
            "--config.init_vocab=remap moves its vectors",
        )
    our_pieces: Sequence[Any] = tokenizer.vocab
    their_pieces: Sequence[Any] = run.tokenizer.vocab
    if tokenizer.kind != run.tokenizer.kind:
        our_pieces, their_pieces = map(_read_pieces, (tokenizer, run.tokenizer))
    their_ids: dict[Any, int] = {}
    for their_id, piece in enumerate(their_pieces):
        their_ids.setdefault(piece, their_id)  # punctuation may be there after a blank too
    # Special tokens are matched by their roles, whatever they are called.
    for our_id, their_id in zip(tokenizer.special, run.tokenizer.special, strict=True):
        their_ids[our_pieces[our_id]] = their_id
    rows = [i for i, piece in enumerate(our_pieces) if piece in their_ids]
    sources = [their_ids[our_pieces[i]] for i in rows]
    moved = dict(theirs)
    tables = ours.keys() & theirs.keys() & set(PADDED)
    alike = sorted(name for name in tables if ours[name].shape[1:] == theirs[name].shape[1:])
    for name, fresh in draw(alike).items():
        moved[name] = np.array(fresh)
        moved[name][rows] = np.asarray(theirs[name])[sources]
    kept = f"{len(rows):,} of {tokenizer.size:,} pieces keep their rows"
    logger.info(f"init_from {config.init_from}: {kept}")
    return moved


def _read_pieces(tokenizer: Tokenizer) -> list[tuple[bool, str]]:
    """Return for each piece whether it continues a word, and its text without the mark of its kind.

    So `##ing` of WordPiece equals `ing` of byte-level BPE, and `the` equals `Ġthe`. Punctuation
    continues no word, because WordPiece marks none.
    """
    mark = f"^{engines.PREFIX}" if tokenizer.kind == "wordpiece" else "^[ ▁]"
    is_decoded = tokenizer.shown is not tokenizer.vocab
    pieces = []
    for own, piece, continues in zip(
        tokenizer.vocab, tokenizer.shown, tokenizer.continuation, strict=True
    ):
        text = re.sub(mark, "", piece)
        if is_decoded and piece == own and not piece.isascii():
            text = f"\ufffd{piece}"  # bytes of a part of a character, which match nothing
        is_word = any(map(str.isalnum, text))
        pieces.append((bool(continues) and is_word, text))
    return pieces


def _describe(tokenizer: Tokenizer) -> str:
    return f"{tokenizer.size:,} pieces ({tokenizer.kind}, rules {tokenizer.rules})"


def _list_settings(model: knobs.Model, keys: Iterable[str]) -> str:
    return ", ".join(f"{key}={getattr(model, key)}" for key in keys)
