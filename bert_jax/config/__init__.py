"""The boundary: a ConfigDict or JSON becomes the frozen dataclasses of `knobs`, checked, or a ConfigError.

Config files are diffs over `default()`. Nothing else in the package reads a ConfigDict.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import typing
from collections.abc import Iterable, Mapping
from typing import Any

import ml_collections

from bert_jax.config import effects, script, validation
from bert_jax.config.knobs import OBJECTIVES, SIZES, Config, Objective
from bert_jax.config.load import at, build, parse, suggest
from bert_jax.config.presets import PRESETS
from bert_jax.errors import ConfigError

FREE_ON_RESUME = (
    *(f"parallel.{name}" for name in ("step", "data", "fsdp", "tensor", "arms", "distributed")),
    *(
        "loader",
        "checkpoints.every",
        "checkpoints.epochs",
        "checkpoints.keep",
        "checkpoints.patience",
    ),
    *("evals", "logging", "model.attention", "corpus.cache", "corpus.workers"),
)

BEFORE = {  # what a knob that was not there meant, where that is not its default
    "objectives.causal_lm.end": False,
    "tokenizer.characters": "huggingface",
}

TAKEN = "taken"  # beside the knobs of a ConfigDict: the (path, value) that came as a whole, with a preset or a model


def default(preset: str = "") -> ml_collections.ConfigDict:
    """All knobs at their defaults or a preset's, locked: a config file changes what it needs and cannot misspell."""
    tree = ml_collections.ConfigDict(dataclasses.asdict(Config()), type_safe=False).lock()
    if preset:
        apply(tree, preset)
    return tree


def apply(tree: ml_collections.ConfigDict, preset: str) -> None:
    """Sets every knob that a preset names; what it leaves open stays as it is."""
    if preset not in PRESETS:
        raise ConfigError(f"no preset {preset!r}", suggest(preset, PRESETS))
    take(tree, PRESETS[preset])


def take(tree: ml_collections.ConfigDict, values: Mapping[str, Any]) -> None:
    """Sets knobs by path that come as a whole, from a preset, a task's row or a model.

    Which of them have an effect depends on the rest of the config: while they stand, they are as good as defaults.
    """
    for path, value in values.items():
        put(tree, path.split("."), value)
    several = {**values, **flat(dict(values))}  # a section may be given as a whole
    put(tree, [TAKEN], (*tree.get(TAKEN, ()), *several.items()))


def resolve(tree: Any) -> Config:
    """Turns a ConfigDict or plain dict into a checked Config with every dependent value filled in.

    A knob that is set where it does nothing is refused: see `effects.py`.
    """
    config, idle = settle(tree)
    if idle:
        raise idle[0].error()
    return config


def settle(tree: Any, said: Iterable[str] = ()) -> tuple[Config, list[effects.Idle]]:
    """A checked config, and its knobs that are set where they do nothing.

    Args:
      tree: a ConfigDict or plain dict.
      said: paths that are asked for, even if a preset has the same value.
    """
    values = {**plain(tree)}
    taken = dict(values.pop(TAKEN, ()))
    asked = build(Config, values, "config")
    config = derive(asked)
    return config, effects.idle(asked, config, {k: v for k, v in taken.items() if k not in {*said}})


def plain(tree: Any) -> Any:
    """A ConfigDict as plain dicts; what is no ConfigDict stays as it is."""
    return tree.to_dict() if isinstance(tree, ml_collections.ConfigDict) else tree


def copied(tree: Any) -> ml_collections.ConfigDict:
    """Make a ConfigDict of the same values, to change."""
    return ml_collections.ConfigDict(copy.deepcopy(plain(tree)), type_safe=False)


def to_dict(config: Config) -> dict[str, Any]:
    """Plain JSON types; `recorded(to_dict(c)) == c`."""
    return json.loads(json.dumps(dataclasses.asdict(config)))


def recorded(tree: dict[str, Any]) -> Config:
    """The config that a run has saved, maybe before there were all of today's knobs, or their check for effects."""
    values: Any = copy.deepcopy(tree)
    for path, value in BEFORE.items():
        *sections, name = path.split(".")
        section = functools.reduce(
            lambda at, key: at.get(key) if isinstance(at, dict) else None, sections, values
        )
        if isinstance(section, dict) and section:  # what is no section `settle` refuses
            section.setdefault(name, value)
    return settle(values)[0]


def load_file(spec: str, beside: str = "", function: str = "get_config") -> Any:
    """What a user's file makes: see `script.call`; a config is a ConfigDict, whatever its file returns."""
    found = script.call(spec, beside, function)
    if function != "get_config" or isinstance(found, ml_collections.ConfigDict):
        return found
    if not isinstance(found, dict):
        said = f"{spec.partition(':')[0]}: get_config returned {type(found).__name__}, not a config"
        raise ConfigError(said, "return the ConfigDict that bert_jax.config.default() began")
    return copied(found)


def override(tree: ml_collections.ConfigDict, path: str, text: str) -> None:
    """Sets one knob from the command line; the text is read as the type the knob has."""
    overrides(tree, [(path, text)])


def overrides(tree: ml_collections.ConfigDict, changes: Iterable[tuple[str, str]]) -> None:
    """Sets the knobs of one command line."""
    assign(tree, {path: _read(path, text) for path, text in changes})


def assign(tree: ml_collections.ConfigDict, values: Mapping[str, Any]) -> None:
    """Sets knobs by path; what they take the place of goes back to its default unless it is among them."""
    for path, value in values.items():
        name = path.split(".")[1] if "." in path else ""
        others = (
            other.replace("*", name)
            for other in effects.INSTEAD.get(effects.general(path), ())
            if value not in (None, "")
        )
        for other in others:
            if other not in values:
                put(tree, other.split("."), default_of(other))
        put(tree, path.split("."), value)


def _read(path: str, text: str) -> Any:
    """The value of one knob from the command line."""
    kind = check_path(path)
    if dataclasses.is_dataclass(kind):
        fields = ", ".join(f.name for f in dataclasses.fields(kind))
        raise ConfigError(f"config.{path} is a section, not a value", f"set one of: {fields}")
    if typing.get_origin(kind) is dict:
        raise ConfigError(
            f"config.{path} is a section, not a value",
            f"set {path}.NAME.KNOB, or {path} in the file",
        )
    return parse(text, kind, f"config.{path}")


def check_path(path: str) -> Any:
    """The type of the knob at a path; of a path that no config has, the error names the nearest one."""
    return at(path)[0]


def default_of(path: str) -> Any:
    """The default of the knob at a path."""
    field = at(path)[1]
    assert field is not None
    return field.default


def checked(path: str, value: Any) -> Any:
    """A value as one knob takes it, of its type and within its range, whatever the other knobs are."""
    kind, field = at(path)
    return build(kind, value, f"config.{path}", field)


def put(tree: ml_collections.ConfigDict, names: list[str], value: Any) -> None:
    """Sets one knob by the parts of its path; a section that is not there, such as another evaluation, is made."""
    node: Any = tree
    for name in names[:-1]:
        if name not in node:
            with node.unlocked():
                node[name] = {}
        node = node[name]
    with node.unlocked():
        node[names[-1]] = value


def changed(config: Config, changes: Iterable[tuple[str, str]]) -> Config:
    """A config with some knobs set from the command line."""
    tree = copied(to_dict(config))
    overrides(tree, changes)
    return settle(tree)[0]


def differences(
    old: dict[str, Any], new: dict[str, Any], prefix: str = ""
) -> dict[str, tuple[Any, Any]]:
    """Dotted path -> (old, new) wherever two config dicts disagree."""
    found: dict[str, tuple[Any, Any]] = {}
    for key in sorted(old.keys() | new.keys()):
        a, b, path = old.get(key), new.get(key), f"{prefix}{key}"
        if isinstance(a, dict) and isinstance(b, dict):
            found |= differences(a, b, f"{path}.")
        elif a != b:
            found[path] = (a, b)
    return found


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted path -> value; an empty section is a value."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        section = isinstance(value, dict) and value
        found |= flat(value, f"{prefix}{key}.") if section else {f"{prefix}{key}": value}
    return found


def free_on_resume(path: str) -> bool:
    """Whether a resumed run may change this knob without being told to."""
    return any(path == free or path.startswith(free + ".") for free in FREE_ON_RESUME)


# --- dependent values -----------------------------------------------------------------------------------------------


def derive(c: Config) -> Config:
    """Fills in what follows from other knobs, then checks what must hold between them."""
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
    c = dataclasses.replace(c, model=model, objectives=_objectives(c), optim=o)
    validation.check(c)
    return c


def _objectives(c: Config) -> dict[str, Objective]:
    """Pair objectives exist where `pairs` makes their labels; asking for one without the other is an error.

    `causal_lm` reads the text as it is, so it takes the place of `mlm`.
    """
    active: dict[str, Objective] = {}
    for name, objective in c.objectives.items():
        if name not in OBJECTIVES:
            raise ConfigError(f"config.objectives has no {name!r}", suggest(name, OBJECTIVES))
        fits = (
            name == c.pairs
            if name in ("nsp", "sop")
            else name != "mlm" or "causal_lm" not in c.objectives
        )
        if objective.weight is None and fits:
            active[name] = dataclasses.replace(objective, weight=1.0)
        elif objective.weight is not None and fits:
            active[name] = objective
        elif objective.weight is not None and name == "mlm":
            raise ConfigError(
                f"config.objectives.mlm.weight = {objective.weight} beside objectives.causal_lm",
                "one reads corrupted text, the other the text as it is: leave one of them out",
            )
        elif objective.weight is not None:
            raise ConfigError(
                f"config.objectives.{name}.weight = {objective.weight} but config.pairs = {c.pairs!r}",
                f"set --config.pairs={name}, or leave the weight out",
            )
    return active
