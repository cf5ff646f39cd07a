"""Conversion of a ConfigDict or JSON to the frozen dataclasses of `knobs`, checked.

Config files are diffs over `default()`. Nothing else in the package reads a ConfigDict.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import logging
import re
import typing
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from bert_jax.config import effects, script, validation
from bert_jax.config.gone import GONE
from bert_jax.config.knobs import OBJECTIVES, SIZES, Config, Logging, Masking, Objective
from bert_jax.config.load import build, knob_at, parse
from bert_jax.config.presets import PRESETS
from bert_jax.errors import ConfigError
from bert_jax.errors import suggest as suggest

if TYPE_CHECKING:
    import ml_collections

logger = logging.getLogger(__name__)

FREE_ON_RESUME = (
    *(f"parallel.{name}" for name in ("step", "data", "fsdp", "tensor", "arms", "distributed")),
    *(f"checkpoints.{name}" for name in ("every", "epochs", "keep", "at", "at_words", "patience")),
    *("evals", "loader", "logging", "model.attention", "model.remat"),
    *("corpus.cache", "corpus.workers"),
)

# Knobs that are traced numbers in the program (`batch.StepInputs`), and knobs that only the host
# reads.
TRACED = re.compile(
    r"masking\.(rate|phases|prediction_rate|replace|draw\w*)"
    r"|objectives\.\w+\.(weight|share)|seed"
    r"|optim\.(learning_rate|weight_decay|schedule|warmup_steps|warmup_fraction|final_fraction"
    r"|decay_fraction|spike_sigmas)"
)

# The value in configs of older runs of a knob that did not exist yet, if it is not the default.
BEFORE = {
    "masking.rounding": "nearest",
    "objectives.causal_lm.end": False,
}

# Value of `pairs` -> the knobs of the pair objectives that it takes away.
OF_PAIRS: dict[str, tuple[str, ...]] = {
    "none": (
        *("objectives.nsp.weight", "objectives.sop.weight", "examples.short_probability"),
        *("examples.random_next_probability", "examples.truncate"),
    ),
    "sop": ("objectives.nsp.weight", "examples.random_next_probability"),
    "nsp": ("objectives.sop.weight",),
}
POOLING = ("model.pooling", "model.pooler", "model.pooler_bias")

# A key beside the knobs: the (path, value) pairs that were set by a preset, a task or a model.
TAKEN = "taken"


def default(preset: str = "") -> ml_collections.ConfigDict:
    """Return all knobs at their defaults, or a preset's; a misspelt knob cannot be set."""
    from bert_jax.config import configdict  # here: --help needs neither it nor ml_collections

    tree = configdict.make(dataclasses.asdict(Config()), effects.NAMED)
    tree.lock()
    if not preset:
        return tree
    if preset not in PRESETS:
        raise ConfigError(f"no preset {preset!r}", suggest(preset, PRESETS))
    set_values(tree, PRESETS[preset])
    return tree


def set_values(tree: ml_collections.ConfigDict, values: Mapping[str, Any]) -> None:
    """Set the knobs of a preset, a task's row or a model, by path.

    Whether they have an effect depends on the rest of the config, so until they are changed they
    count as defaults.
    """
    for path, value in values.items():
        put(tree, path.split("."), value)
    knobs = {**values, **flat(dict(values))}  # a value may be a whole section
    put(tree, [TAKEN], (*tree.get(TAKEN, ()), *knobs.items()))


def resolve(tree: Any) -> Config:
    """Return the checked Config of a ConfigDict or plain dict, with dependent values filled in.

    A knob that is set where it has no effect is refused: see `effects.py`.
    """
    config, idle = settle(tree)
    if idle:
        raise idle[0].error()
    return config


def settle(tree: Any, said: Iterable[str] = ()) -> tuple[Config, list[effects.Idle]]:
    """Return the checked config, and the knobs that are set where they have no effect.

    `said` are paths that the user set, even if a preset has the same value.
    """
    values = {**plain(tree)}
    taken = dict(values.pop(TAKEN, ()))
    written = build(Config, values, "config")
    config = derive(written)
    defaults = {path: value for path, value in taken.items() if path not in {*said}}
    return config, effects.idle(written, config, defaults)


def plain(tree: Any) -> Any:
    """Return a ConfigDict as plain dicts, and a dict as it is."""
    return tree if isinstance(tree, dict) else tree.to_dict()


def copied(tree: Any) -> ml_collections.ConfigDict:
    """Return an unlocked copy of a ConfigDict or plain dict."""
    from bert_jax.config import configdict

    return configdict.make(plain(tree))


def to_dict(config: Config) -> dict[str, Any]:
    """Return a config in plain JSON types; `recorded(to_dict(c)) == c`."""
    return json.loads(json.dumps(dataclasses.asdict(config)))


def recorded(tree: dict[str, Any]) -> Config:
    """Return the config that a run has saved, also a run of an older version with fewer knobs.

    Knobs without an effect are accepted: older versions did not check for them.
    """
    values: Any = copy.deepcopy(tree)
    for path, value in BEFORE.items():
        section, name = _find_section(values, path)
        if section:
            section.setdefault(name, value)
    for path, value in GONE.items():
        section, name = _find_section(values, path)
        if name in section and section[name] == value:
            del section[name]
    return settle(values)[0]


def _find_section(values: Any, path: str) -> tuple[dict[str, Any], str]:
    """Return the section of a knob and the knob's name; empty if the section is no dict."""
    *sections, name = path.split(".")
    for key in sections:
        values = values.get(key) if isinstance(values, dict) else None
    return values if isinstance(values, dict) else {}, name


def load_file(spec: str, beside: str = "", function: str = "get_config") -> Any:
    """Return what a user's file returns (see `script.call`); turn a config into a ConfigDict."""
    import ml_collections

    result = script.call(spec, beside, function)
    if function != "get_config" or isinstance(result, ml_collections.ConfigDict):
        return result
    if not isinstance(result, dict):
        file, kind = spec.partition(":")[0], type(result).__name__
        raise ConfigError(
            f"{file}: get_config returned {kind}, not a config",
            "return the ConfigDict that bert_jax.config.default() began",
        )
    return copied(result)


def override(tree: ml_collections.ConfigDict, path: str, text: str) -> None:
    """Set one knob from the command line; the text is read as the knob's type."""
    overrides(tree, [(path, text)])


def overrides(tree: ml_collections.ConfigDict, changes: Iterable[tuple[str, str]]) -> None:
    """Set the knobs of one command line; log what they take away from the file."""
    values = {path: read(path, text) for path, text in changes}
    if dropped := assign(tree, values):
        settings = ", ".join(f"{path} = {value}" for path, value in dropped.items())
        logger.info(f"pairs = {values['pairs']} leaves out {settings}")


def assign(tree: ml_collections.ConfigDict, values: Mapping[str, Any]) -> dict[str, Any]:
    """Set knobs by path; a knob that one of them replaces is reset, unless it is set here too.

    Returns:
      The settings of a pair objective that `pairs` takes away, by path: they are reset.
    """
    for path, value in values.items():
        replaced = effects.INSTEAD.get(effects.general(path), ())
        for other in replaced if value not in (None, "") else ():
            other = other.replace("*", path.split(".")[1]) if "*" in other else other
            if other not in values:
                put(tree, other.split("."), knob_at(other)[1].default)
        put(tree, path.split("."), value)
    return _leave_out_pairs(tree, values) if "pairs" in values else {}


def _leave_out_pairs(tree: ml_collections.ConfigDict, values: Mapping[str, Any]) -> dict[str, Any]:
    """Reset and return what the tree has for pair objectives other than `pairs`."""
    pairs, before, dropped = values["pairs"], flat(plain(tree)), {}
    for path in OF_PAIRS.get(pairs, ()):
        standard = knob_at(path)[1].default
        if path not in values and before.get(path, standard) != standard:
            dropped[path] = before[path]
            put(tree, path.split("."), standard)
    best = before.get("checkpoints.best", "")
    if "checkpoints.best" not in values and best.split("_")[0] in {"nsp", "sop"} - {pairs}:
        dropped["checkpoints.best"] = best
        tree.checkpoints.best = knob_at("checkpoints.best")[1].default
    # The vector of a text may have no head now; what it would be says more than this training.
    kept = [(path, before[path]) for path in POOLING if path in before]
    put(tree, [TAKEN], (*tree.get(TAKEN, ()), *kept))
    return dropped


def read(path: str, text: str) -> Any:
    """Return the value of one knob from the command line."""
    kind = check_path(path)
    if dataclasses.is_dataclass(kind):
        fields = ", ".join(f.name for f in dataclasses.fields(kind))
        raise ConfigError(f"config.{path} is a section, not a value", f"set one of: {fields}")
    if typing.get_origin(kind) is dict:
        if not text and typing.get_args(kind)[1] is str:
            return {}
        raise ConfigError(
            f"config.{path} is a section, not a value",
            f"set {path}.NAME.KNOB, or {path} in the file",
        )
    return parse(text, kind, f"config.{path}")


def check_path(path: str) -> Any:
    """Return the type of the knob at a path; raise a ConfigError that names the nearest knob."""
    return knob_at(path)[0]


def checked(path: str, value: Any) -> Any:
    """Return a value as a knob's type, checked against its range but not against other knobs."""
    kind, field = knob_at(path)
    return build(kind, value, f"config.{path}", field)


def put(tree: ml_collections.ConfigDict, names: list[str], value: Any) -> None:
    """Set one knob by the parts of its path; create a missing section, such as a new evaluation."""
    node: Any = tree
    for name in names[:-1]:
        if name not in node:
            with node.unlocked():
                node[name] = {}
        node = node[name]
    with node.unlocked():
        node[names[-1]] = value


def changed(config: Config, changes: Iterable[tuple[str, str]]) -> Config:
    """Return a config with some knobs set from the command line."""
    tree = copied(to_dict(config))
    overrides(tree, changes)
    return settle(tree)[0]


def differences(
    old: dict[str, Any], new: dict[str, Any], prefix: str = ""
) -> dict[str, tuple[Any, Any]]:
    """Return {dotted path: (old, new)} for every difference between two config dicts."""
    changes: dict[str, tuple[Any, Any]] = {}
    for key in sorted(old.keys() | new.keys()):
        a, b, path = old.get(key), new.get(key), f"{prefix}{key}"
        if isinstance(a, dict) and isinstance(b, dict):
            changes |= differences(a, b, f"{path}.")
        elif a != b:
            changes[path] = (a, b)
    return changes


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return {dotted path: value}; an empty section is a value."""
    values: dict[str, Any] = {}
    for key, value in tree.items():
        section = isinstance(value, dict) and value
        values |= flat(value, f"{prefix}{key}.") if section else {f"{prefix}{key}": value}
    return values


@functools.cache
def usual() -> dict[str, Any]:
    """Return the values that names of runs leave out, so that a knob added later renames none."""
    options = {  # of the objectives that the default config does not have
        f"objectives.{name}.{field.name}": field.default
        for name in OBJECTIVES
        for field in dataclasses.fields(Objective)
        if field.name not in ("weight", "labels")
    }
    # The default of this knob is what no run had before it.
    rounding = {"masking.rounding": BEFORE["masking.rounding"]}
    return options | BEFORE | flat(to_dict(Config())) | rounding


def free_on_resume(path: str) -> bool:
    """Tell whether a resumed run may change this knob without --allow-change."""
    return any(path == free or path.startswith(free + ".") for free in FREE_ON_RESUME)


# --- dependent values ---------------------------------------------------------------------------


def derive(c: Config) -> Config:
    """Fill in the values that follow from other knobs, then check the knobs against one another."""
    layers, hidden, heads = SIZES[c.model.size]
    m = c.model
    hidden = m.hidden or hidden
    model = dataclasses.replace(
        m,
        layers=m.layers or layers,
        hidden=hidden,
        heads=m.heads or heads,
        mlp=m.mlp or 4 * hidden,
        head_activation=m.head_activation or m.activation,
        classifier_dropout=m.dropout if m.classifier_dropout is None else m.classifier_dropout,
    )
    o = c.optim
    if o.warmup_fraction is not None:
        o = dataclasses.replace(o, warmup_steps=int(c.steps * o.warmup_fraction + 1e-9))
    c = dataclasses.replace(
        c, model=model, objectives=_objectives(c), optim=o, logging=_logging(c.logging)
    )
    if not effects.MASKS.holds(c, ""):  # the same run, whatever was or was not recorded
        masking = dataclasses.replace(c.masking, rounding=Masking().rounding)
        c = dataclasses.replace(c, masking=masking)
    if "hybrid" in c.objectives and m.attention == "auto":
        model = dataclasses.replace(model, attention="einsum")  # causal or not by example
        c = dataclasses.replace(c, model=model)
    validation.check(c)
    return c


def _logging(logging: Logging) -> Logging:
    """Return the trackers without repetition, and with what the older knob `tensorboard` says."""
    wanted = (*logging.trackers, *(("tensorboard",) if logging.tensorboard else ()))
    trackers = tuple(
        name
        for name in dict.fromkeys(wanted)
        if name != "tensorboard" or logging.tensorboard is not False
    )
    return dataclasses.replace(logging, trackers=trackers, tensorboard=None)


def _objectives(c: Config) -> dict[str, Objective]:
    """Return the objectives that are trained.

    A pair objective needs the labels of its `pairs`; setting its weight without them is an error.
    Where another objective over tokens is named, it replaces `mlm`.
    """
    active: dict[str, Objective] = {}
    others = [name for name in ("causal_lm", "diffusion", "hybrid") if name in c.objectives]
    if len(others) > 1:
        raise ConfigError(
            f"config.objectives has both {others[0]} and {others[1]}",
            "a model learns tokens by one of them: leave the other out",
        )
    for name, objective in c.objectives.items():
        if name not in OBJECTIVES:
            raise ConfigError(f"config.objectives has no {name!r}", suggest(name, OBJECTIVES))
        fits = name == c.pairs if name in ("nsp", "sop") else name != "mlm" or not others
        if fits:
            weight = OBJECTIVES[name].weight if objective.weight is None else objective.weight
            active[name] = dataclasses.replace(objective, weight=weight)
        elif objective.weight is not None and name == "mlm":
            raise ConfigError(
                f"config.objectives.mlm.weight = {objective.weight} beside objectives.{others[0]}",
                "a model learns tokens by one of them: leave the other out",
            )
        elif objective.weight is not None:
            raise ConfigError(
                f"config.objectives.{name}.weight = {objective.weight} but "
                f"config.pairs = {c.pairs!r}",
                f"set --config.pairs={name}, or leave the weight out",
            )
    return active
