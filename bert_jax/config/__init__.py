"""Convert a user's ConfigDict to the checked, frozen dataclasses of `knobs`.

A config is written as a ConfigDict that differs from `default()`. `resolve` checks each knob and
fills in the knobs whose values follow from other knobs. Nothing else in the package reads a
ConfigDict.
"""

import copy
import dataclasses
import functools
import json
import logging
from collections.abc import Iterable, Mapping
from typing import Any

import ml_collections

from bert_jax.config import conditions, script, table
from bert_jax.config.declare import Traits
from bert_jax.config.derived import derive
from bert_jax.config.knobs import LABELLED, OBJECTIVES, Config, Objective
from bert_jax.config.presets import PRESETS
from bert_jax.errors import ConfigError, suggest

logger = logging.getLogger(__name__)

POOLING = ("model.pooling", "model.pooler", "model.pooler_bias")

# A key besides the knobs: the (path, value) pairs that were set by a preset, a task or a model.
TAKEN = "taken"

# Names of runs leave these values out, because runs from before these knobs existed have them.
FORMER = {"masking.rounding": "nearest", "objectives.causal_lm.end": False}

# Knobs that are constants by now. A saved run has them, and opens if it had these values.
CONSTANTS: dict[str, Any] = {
    "task.question_tokens": 64,
    "task.n_best": 20,
    "masking.pmi_count": 10,
    "loader": {"prefetch": 4},
}


class Entries(ml_collections.ConfigDict):
    """A section whose entries are named by the user, and may be added and deleted at any time."""

    def lock(self) -> "Entries":
        """Lock the entries, but not the section: `resolve` checks the names of entries."""
        for entry in self.values():
            if isinstance(entry, ml_collections.ConfigDict):
                entry.lock()
        return self


# --- writing a config -----------------------------------------------------------------------------


def default(preset: str = "") -> ml_collections.ConfigDict:
    """Return a ConfigDict with every knob at its default, or at the value of a preset.

    The ConfigDict is locked, so that a misspelt knob cannot be set.
    """
    tree = copy_tree(dataclasses.asdict(Config()))
    for section in table.ENTRIES:
        tree[section] = Entries(tree[section], type_safe=False)
    tree.lock()
    if preset and preset not in PRESETS:
        raise ConfigError(f"no preset {preset!r}", suggest(preset, PRESETS))
    if preset:
        set_values(tree, PRESETS[preset])
    return tree


def load_file(spec: str, beside: str = "", function: str = "get_config") -> Any:
    """Call a user's file and return its config as a ConfigDict (see `script.call_file`).

    The result of a `function` other than get_config is returned as it is.
    """
    result = script.call_file(spec, beside, function)
    if function == "get_config" and not isinstance(result, ml_collections.ConfigDict):
        file = spec.partition(":")[0]
        raise ConfigError(
            f"{file}: get_config returned {type(result).__name__}, not a config",
            "return the ConfigDict that bert_jax.config.default() began",
        )
    return result


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


def set_values(tree: ml_collections.ConfigDict, values: Mapping[str, Any]) -> None:
    """Set knobs of a config to the values of a preset, a task or a model: {path: value}.

    These values count as defaults until the user changes them, because whether the knobs act
    depends on the rest of the config.
    """
    for path, value in values.items():
        put(tree, path.split("."), value)
    knobs = {**values, **flatten(dict(values))}  # a value may be a whole section
    put(tree, [TAKEN], (*tree.get(TAKEN, ()), *knobs.items()))


def override(tree: ml_collections.ConfigDict, path: str, text: str) -> None:
    """Set one knob; the text of a command line is converted to the knob's type."""
    overrides(tree, [(path, text)])


def overrides(tree: ml_collections.ConfigDict, changes: Iterable[tuple[str, str]]) -> None:
    """Set the knobs of one command line; log the knobs that are reset because of `pairs`."""
    values = {path: table.read_text(path, text) for path, text in changes}
    if dropped := assign(tree, values):
        settings = ", ".join(f"{path} = {value}" for path, value in dropped.items())
        logger.info(f"pairs = {values['pairs']} leaves out {settings}")


def assign(tree: ml_collections.ConfigDict, values: Mapping[str, Any]) -> dict[str, Any]:
    """Set knobs by path, and reset the knobs that they replace (`steps` replaces `epochs`).

    A knob that `values` sets too is not reset.

    Returns:
      {path: former value} of the knobs that are reset because `pairs` excludes their objective.
    """
    for path, value in values.items():
        section = path.rpartition(".")[0]
        resets = table.find_knob(path).traits.resets
        if value in (None, ""):
            resets = ()
        for name in resets:
            other = f"{section}.{name}".removeprefix(".")
            if other not in values:
                put(tree, other.split("."), table.find_knob(other).default)
        put(tree, path.split("."), value)
    return _leave_out_pairs(tree, values) if "pairs" in values else {}


def _leave_out_pairs(tree: ml_collections.ConfigDict, values: Mapping[str, Any]) -> dict[str, Any]:
    """Reset the knobs of the pair objectives that `values["pairs"]` excludes.

    Returns:
      {path: former value} of the knobs that were reset.
    """
    before = flatten(to_plain_dict(tree))
    others = {"nsp", "sop"} - {values["pairs"]}
    without = [f"objectives.{name}.weight" for name in sorted(others)]
    for path, knob in table.list_knobs().items():
        wanted = [when for when in knob.traits.when if when.startswith("pairs=")]
        if wanted and values["pairs"] not in wanted[0].removeprefix("pairs=").split("|"):
            without.append(path)
    if before.get("checkpoints.best", "").partition("_")[0] in others:
        without.append("checkpoints.best")
    dropped = {}
    for path in without:
        usual = table.find_knob(path).default
        if path not in values and before.get(path, usual) != usual:
            dropped[path] = before[path]
            put(tree, path.split("."), usual)
    # The vector of a text may have no head now; what it would be says more than this training.
    kept = [(path, before[path]) for path in POOLING if path in before]
    put(tree, [TAKEN], (*tree.get(TAKEN, ()), *kept))
    return dropped


def copy_with_source(tree: Any, source: str) -> ml_collections.ConfigDict:
    """Copy a config, and set `task.source` if it has labelled data and `source` is given.

    Knobs of its own source that do nothing for the new one are reset: those that say where the
    splits are if the new one names them, and those of files if the new one is of tfds.
    """
    tree = copy_tree(tree)
    if source and set(tree.get("objectives", ())) & set(LABELLED):
        put(tree, ["task", "source"], source)
        idle = ["files", "validation_fraction"] if conditions.names_splits(source) else []
        if source.startswith("tfds:"):
            idle = ["files", "validation_fraction", "format", "columns"]
        for name in idle:
            put(tree, ["task", name], table.find_knob(f"task.{name}").default)
    return tree


# --- reading a config -----------------------------------------------------------------------------


def resolve(tree: Any) -> Config:
    """Return the checked Config of a ConfigDict or plain dict, with dependent values filled in.

    A knob that is set where it does nothing is refused: see `conditions.py`.
    """
    config, idle = resolve_and_list_idle(tree)
    if idle:
        raise idle[0].error()
    return config


def resolve_and_list_idle(
    tree: Any, said: Iterable[str] = ()
) -> tuple[Config, list[conditions.Idle]]:
    """Return the checked Config, and the knobs that are set where they do nothing.

    A value that a preset sets counts as a default, unless the knob's path is in `said`: the paths
    that the user set.
    """
    values = {**to_plain_dict(tree)}
    taken = dict(values.pop(TAKEN, ()))
    written = table.build_section(Config, values, "config")
    config = derive(written)
    defaults = {path: value for path, value in taken.items() if path not in {*said}}
    return config, conditions.find_idle(written, config, defaults)


def read_recorded(tree: dict[str, Any]) -> Config:
    """Return the Config of the dict that a run has saved.

    Here a knob may be set where it does nothing, and knobs of earlier versions may be present.
    """
    tree = copy.deepcopy(tree)
    for path, value in CONSTANTS.items():
        section, _, name = path.rpartition(".")
        knobs = tree.get(section, {}) if section else tree
        if knobs.get(name) == value:
            del knobs[name]
    return resolve_and_list_idle(tree)[0]


def change_knobs(config: Config, changes: Iterable[tuple[str, str]]) -> Config:
    """Copy a config, and set the (path, text) pairs of a command line in the copy."""
    tree = copy_tree(to_dict(config))
    overrides(tree, changes)
    return resolve_and_list_idle(tree)[0]


def check_knob(path: str, value: Any) -> Any:
    """Convert a value to the type of the knob at a path; refuse a value out of its range.

    Rules between several knobs are not checked.
    """
    return table.check_value(table.find_knob(path), value, f"config.{path}")


def to_plain_dict(tree: Any) -> Any:
    """Convert a ConfigDict to plain dicts; return a dict unchanged."""
    return tree if isinstance(tree, dict) else tree.to_dict()


def copy_tree(tree: Any) -> ml_collections.ConfigDict:
    """Return an unlocked copy of a ConfigDict or plain dict."""
    return ml_collections.ConfigDict(copy.deepcopy(to_plain_dict(tree)), type_safe=False)


def to_dict(config: Config) -> dict[str, Any]:
    """Convert a config to plain JSON types; `read_recorded(to_dict(c)) == c`."""
    return json.loads(json.dumps(dataclasses.asdict(config)))


def flatten(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return {dotted path: value} of nested dicts; an empty dict counts as a value."""
    values: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            values |= flatten(value, f"{prefix}{key}.")
        else:
            values[f"{prefix}{key}"] = value
    return values


def differences(
    old: dict[str, Any], new: dict[str, Any], prefix: str = ""
) -> dict[str, tuple[Any, Any]]:
    """Return {dotted path: (old, new)} for every difference between two config dicts.

    A section that only one of the two dicts has counts as one difference.
    """
    changes: dict[str, tuple[Any, Any]] = {}
    for key in sorted(old.keys() | new.keys()):
        before = old.get(key)
        after = new.get(key)
        path = f"{prefix}{key}"
        if isinstance(before, dict) and isinstance(after, dict):
            changes |= differences(before, after, f"{path}.")
        elif before != after:
            changes[path] = (before, after)
    return changes


@functools.cache
def list_usual_values() -> dict[str, Any]:
    """Return {path: usual value} for every knob.

    The name of a run states only the knobs whose values are not the usual ones. So a knob that is
    added to the package later does not rename the runs that have its usual value.
    """
    options = {  # of the objectives that the default config does not have
        f"objectives.{name}.{field.name}": field.default
        for name in OBJECTIVES
        for field in dataclasses.fields(Objective)
        if field.name not in ("weight", "labels")
    }
    return options | flatten(to_dict(Config())) | FORMER


def free_on_resume(path: str) -> bool:
    """Tell whether a resumed run may change this knob without --allow-change."""
    section = table.read_section(Config).get(path.partition(".")[0])
    return find_traits(path).free or (section is not None and section.traits.free)


def is_traced(path: str) -> bool:
    """Tell whether a knob can change without a new compilation.

    Such a knob is a traced number of the program, or only the host reads it.
    """
    return find_traits(path).traced


def find_traits(path: str) -> Traits:
    """Return the Traits of the knob at a path; default Traits for a path without a knob."""
    knob = table.list_knobs().get(table.generalize(path))
    return knob.traits if knob else Traits()
