"""The conditions under which knobs act, and the refusal of knobs that do nothing.

A knob that does nothing where it is set would misrepresent a run, and make a study compare runs
that are the same.

A declaration names its conditions by texts of these forms, all of which must hold:

    "pairs=nsp|sop"        the knob at the path has one of the values
    "model.window>0"       the number at the path is above 0
    "init_from"            the knob at the path is set
    "evals.*.epochs=None"  the same of the entry that the knob belongs to
    "unit=span"            training or an evaluation selects this masking unit
    "kind=tag|span"        the objective over labels is one of these
    "objective=hybrid"     the knob belongs to the entry of this objective
    "labels"               a row of CONDITIONS
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from bert_jax.config.knobs import LABELLED, POOLED, Config
from bert_jax.config.table import ENTRIES, find_knob, list_knobs, read_section, write_flag
from bert_jax.errors import ConfigError


class Condition(NamedTuple):
    """A condition under which a knob acts."""

    text: str  # what the knob is for
    # Takes the resolved config, and the name of the entry in a section with named entries.
    holds: Callable[[Config, str], bool]
    hint: str = ""  # how to make it hold


class Idle(NamedTuple):
    """A knob that is set where it does nothing."""

    path: str
    value: Any
    default: Any
    condition: Condition

    def error(self, place: str = "") -> ConfigError:
        """Return the refusal of the knob; `place` says where it is set, if not in the config."""
        leave = f"leave it at its default, {write_flag(self.path, self.default)}"
        hint = self.condition.hint
        return ConfigError(
            f"{place}{self.path} = {self.value!r} does nothing: it is for {self.condition.text}",
            f"{hint}, or {leave}" if hint else leave,
        )


# --- conditions with a name -----------------------------------------------------------------------


def kind_of(c: Config) -> str:
    """Return the objective over labels; empty if there is none."""
    return next((name for name in c.objectives if name in LABELLED), "")


def is_labelled(c: Config) -> bool:
    """Tell whether the data is labelled, and not a corpus."""
    return bool(c.task.source or kind_of(c))


def masks_text(c: Config) -> bool:
    """Tell whether text is masked."""
    return not is_labelled(c) and "causal_lm" not in c.objectives


def _reads_source(c: Config, scheme: str) -> bool:
    """Tell whether the task's source is of a scheme, or not named yet."""
    return not c.task.source or c.task.source.startswith(scheme)


def _cuts_words(c: Config) -> bool:
    """Tell whether text is divided by a tokenizer that the config describes."""
    return not is_labelled(c) or bool(c.tokenizer.path)


def _predicts_words(c: Config) -> bool:
    return bool({"mlm", "causal_lm"} & {*c.heads})


def _pools(c: Config) -> bool:
    """Tell whether a head reads the vector of a text."""
    return bool({*POOLED} & {*c.objectives})


def _transforms(c: Config) -> bool:
    """Tell whether a head over labels has a dense layer, head_activation and LayerNorm."""
    over_labels = {*POOLED, *LABELLED} & {*c.objectives}
    return c.model.pooler == "transform" and c.model.features == 1 and bool(over_labels)


def _has_pooler(c: Config) -> bool:
    return _transforms(c) or (c.model.features == 1 and _pools(c))


def _activates_head(c: Config) -> bool:
    return (_predicts_words(c) and c.model.word_head != "matrix") or _transforms(c)


def _drops(c: Config) -> bool:
    m = c.model
    return bool(m.dropout or m.attention_dropout or (kind_of(c) and m.classifier_dropout))


def _shows_samples(c: Config) -> bool:
    return "validation" in c.evals and (is_labelled(c) or _predicts_words(c))


_VECTOR = f"heads over the vector of a text ({', '.join(POOLED)})"
CONDITIONS: dict[str, Condition] = {
    "labels": Condition(
        "labelled data",
        lambda c, _: is_labelled(c),
        "--config.task.source=files:PATTERN or tfds:NAME says where the data is",
    ),
    "text": Condition(
        "training on a corpus, not on labelled data", lambda c, _: not is_labelled(c)
    ),
    "masks": Condition("masked text, not labelled data or causal_lm", lambda c, _: masks_text(c)),
    "classes": Condition(
        "heads over labels", lambda c, _: bool(kind_of(c)), f"train one of: {', '.join(LABELLED)}"
    ),
    "files": Condition("task.source = files:…", lambda c, _: _reads_source(c, "files:")),
    "tfds": Condition("task.source = tfds:…", lambda c, _: _reads_source(c, "tfds:")),
    "vocabulary": Condition("a corpus or tokenizer.path", lambda c, _: _cuts_words(c)),
    "trained": Condition(
        "a vocabulary that is trained, on a corpus and without tokenizer.path",
        lambda c, _: not is_labelled(c) and not c.tokenizer.path,
    ),
    "mlm": Condition("the objective mlm", lambda c, _: "mlm" in c.heads),
    "random": Condition(
        "a share of random tokens in masking.replace", lambda c, _: c.masking.replace[1] > 0
    ),
    "words": Condition("the heads of mlm and causal_lm", lambda c, _: _predicts_words(c)),
    "head activation": Condition(
        "the heads of mlm and causal_lm without model.word_head = matrix, and model.pooler = "
        "transform",
        lambda c, _: _activates_head(c),
    ),
    "pooled": Condition(_VECTOR, lambda c, _: _pools(c)),
    "pooler": Condition(
        f"{_VECTOR}, or transform for others over labels, with model.features = 1",
        lambda c, _: _has_pooler(c),
    ),
    "encoder pooler": Condition(
        f"{_VECTOR}, with a pooler of the encoder and model.features = 1",
        lambda c, _: c.model.pooler != "transform" and _has_pooler(c),
    ),
    "dropout": Condition("dropout above 0", lambda c, _: _drops(c), "--config.model.dropout=0.1"),
    "samples": Condition(
        "evals.validation of labelled data, or of a corpus by mlm or causal_lm",
        lambda c, _: _shows_samples(c),
    ),
    "init_from": Condition(
        "init_from", lambda c, _: bool(c.init_from), "name the model that training starts from"
    ),
}


# --- conditions that a text describes -------------------------------------------------------------


def get_value(config: Config, path: str, entry: str = "") -> Any:
    """Return a knob of a config; * in the path stands for the entry."""
    value: Any = config
    for name in path.replace("*", entry).split("."):
        value = value[name] if isinstance(value, dict) else getattr(value, name)
    return value


@functools.cache
def read_condition(text: str) -> Condition:
    """Return the condition that a text of a declaration describes."""
    if text in CONDITIONS:
        return CONDITIONS[text]
    path, equals, listed = text.partition("=")
    values = listed.split("|")
    words = " or ".join(values)
    if path == "unit":
        return Condition(
            f"masking.unit = {words}, or that of an evaluation",
            lambda c, _: bool({c.masking.unit, *(e.unit for e in c.evals.values())} & {*values}),
            f"--config.masking.unit={values[0]}",
        )
    if path == "kind":
        return Condition(f"tasks of the kind {words}", lambda c, _: kind_of(c) in values)
    if path == "objective":
        return Condition(f"objective {words}", lambda c, entry: entry in values)
    if equals:
        hint = f"--config.{path}={values[0]}"
        return Condition(
            f"{path} = {words}",
            lambda c, entry: str(get_value(c, path, entry)) in values,
            hint if "*" not in path else "",
        )
    path, above, _ = text.partition(">")
    if above:
        usual = list_knobs()[path].default or "N"
        hint = f"--config.{path}={usual}"
        return Condition(f"{path} above 0", lambda c, _: get_value(c, path) > 0, hint)
    return Condition(path, lambda c, _: bool(get_value(c, path)), f"set {path}")


def list_unit_knobs() -> list[str]:
    """Return the names of the knobs of `masking` that define masking units."""
    return [
        path.partition(".")[2]
        for path, knob in list_knobs().items()
        if any(text.startswith("unit=") for text in knob.traits.when)
    ]


def list_conditions(path: str) -> list[Condition]:
    """Return the conditions of a knob: those of its section, and its own."""
    section = read_section(Config)[path.partition(".")[0]]
    texts = section.traits.when
    if "." in path:
        texts += find_knob(path).traits.when
    return [read_condition(text) for text in texts]


# --- the check ------------------------------------------------------------------------------------


def find_idle(written: Config, resolved: Config, defaults: Mapping[str, Any]) -> list[Idle]:
    """Return the knobs that differ from their defaults where they do nothing.

    `resolved` is the config that the user has `written` with dependent values filled in. Values by
    path in `defaults` are those of a preset, a task or a model, and count as defaults.
    """
    found = []
    for path, value in list_values(written):
        knob = find_knob(path)
        if value == knob.default or (path in defaults and value == defaults[path]):
            continue
        entry = path.split(".")[1] if path.partition(".")[0] in ENTRIES else ""
        conditions = list_conditions(path)
        failed = next((one for one in conditions if not one.holds(resolved, entry)), None)
        if failed and not _means_the_same(knob.traits, value, resolved):
            found.append(Idle(path, value, knob.default, failed))
    return found


def _means_the_same(traits: Any, value: Any, resolved: Config) -> bool:
    """Tell whether a value means the same as leaving the knob out."""
    if traits.same_as:
        return value == get_value(resolved, traits.same_as)
    return traits.idle is not None and value == traits.idle


def list_values(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield path and value of every knob of a config."""
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        path = f"{prefix}{field.name}"
        if dataclasses.is_dataclass(value):
            yield from list_values(value, f"{path}.")
        elif path in ENTRIES:
            for name, entry in value.items():
                yield from list_values(entry, f"{path}.{name}.")
        else:
            yield path, value
