"""The conditions under which knobs act, and the refusal of knobs that do nothing.

A knob that is set but does nothing would misrepresent a run, and a study would compare runs that
are the same.

The declaration of a knob lists its conditions, all of which must hold, in these forms:

    "pairs=nsp|sop"        the knob at the path has one of the values
    "model.window>0"       the number at the path is above 0
    "task.no_answer"       the knob at the path is set
    "evals.*.epochs=None"  * is the entry that the knob belongs to
    "unit=span"            training or an evaluation selects this masking unit
    "kind=tag|span"        the objective over labels is one of these
    "objective=hybrid"     the knob belongs to the entry of this objective
    "labels"               a row of CONDITIONS
"""

import dataclasses
import functools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from bert_jax.config.knobs import LABELLED, POOLED, Config
from bert_jax.config.table import ENTRIES, Knob, find_knob, list_knobs, read_section, write_flag
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
        """Return the error that refuses the knob.

        `place` says where the knob is set, if not in the config.
        """
        leave = f"leave it at its default, {write_flag(self.path, self.default)}"
        hint = self.condition.hint
        return ConfigError(
            f"{place}{self.path} = {self.value!r} does nothing: it is for {self.condition.text}",
            f"{hint}, or {leave}" if hint else leave,
        )


# --- conditions with a name -----------------------------------------------------------------------


def _reads_task(c: Config, scheme: str) -> bool:
    """Tell whether `task.source` begins with a scheme such as `tfds:`, or is still empty."""
    return not c.task.source or c.task.source.startswith(scheme)


def names_splits(source: str) -> bool:
    """Tell whether a `task.source` names the file of each split, as in files:{split}.tsv."""
    return re.match(r"files:(.*\{split\}|(train|valid|val|dev|test)\w*=)", source) is not None


def _reads_table(c: Config) -> bool:
    """Tell whether a task's file may be tsv or csv, by `task.format` or the end of its name."""
    if c.task.format != "auto":
        return c.task.format in ("tsv", "csv")
    others = r"\.(jsonl?|conllu?|iob2|parquet)(\.gz|\.zst)?$"
    return re.search(others, c.task.source, re.IGNORECASE) is None


def _predicts_words(c: Config) -> bool:
    return bool({"mlm", "causal_lm"} & {*c.heads})


def _reads_vector(c: Config) -> bool:
    """Tell whether a head reads the vector of a text."""
    return bool({*POOLED} & {*c.objectives})


def _has_transform(c: Config) -> bool:
    """Tell whether the head over labels has the dense layer, activation and norm of an MLM head."""
    over_labels = {*POOLED, *LABELLED} & {*c.objectives}
    return c.model.pooler == "transform" and c.model.features == 1 and bool(over_labels)


def _has_pooler(c: Config) -> bool:
    return _has_transform(c) or (c.model.features == 1 and _reads_vector(c))


def _uses_dropout(c: Config, _: str) -> bool:
    m = c.model
    return bool(m.dropout or m.attention_dropout or (c.kind and m.classifier_dropout))


def _shows_samples(c: Config, _: str) -> bool:
    return "validation" in c.evals and (c.labelled or _predicts_words(c))


_VECTOR = f"heads over texts ({', '.join(POOLED)})"
_SOURCE = "--config.task.source=files:PATTERN or tfds:NAME says where the data is"
CONDITIONS: dict[str, Condition] = {
    "labels": Condition("labelled data", lambda c, _: c.labelled, _SOURCE),
    "text": Condition("a corpus, not labelled data", lambda c, _: not c.labelled),
    "masks": Condition("masked text, not labels or causal_lm", lambda c, _: c.masked),
    "classes": Condition("heads over labels", lambda c, _: bool(c.kind)),
    "files": Condition("task.source=files:…", lambda c, _: _reads_task(c, "files:")),
    "unsplit": Condition(
        "task.source=files:FOLDER or files:FILE",
        lambda c, _: _reads_task(c, "files:") and not names_splits(c.task.source),
    ),
    "table": Condition(
        "a tsv or csv file", lambda c, _: _reads_table(c), "--config.task.format=tsv"
    ),
    "tfds": Condition("task.source=tfds:…", lambda c, _: _reads_task(c, "tfds:")),
    "vocabulary": Condition(
        "a corpus or tokenizer.path", lambda c, _: not c.labelled or bool(c.tokenizer.path)
    ),
    "trained": Condition(
        "a corpus without tokenizer.path", lambda c, _: not c.labelled and not c.tokenizer.path
    ),
    "mlm": Condition("objective mlm", lambda c, _: "mlm" in c.heads),
    "random": Condition("random tokens in masking.replace", lambda c, _: c.masking.replace[1] > 0),
    "words": Condition("heads of mlm and causal_lm", lambda c, _: _predicts_words(c)),
    "head activation": Condition(
        "heads of words without word_head=matrix, or pooler=transform",
        lambda c, _: (_predicts_words(c) and c.model.word_head != "matrix") or _has_transform(c),
    ),
    "pooled": Condition(_VECTOR, lambda c, _: _reads_vector(c)),
    "pooler": Condition(
        f"{_VECTOR}, or transform for other heads over labels, with model.features=1",
        lambda c, _: _has_pooler(c),
    ),
    "encoder pooler": Condition(
        f"{_VECTOR}, without pooler=transform and with model.features=1",
        lambda c, _: c.model.pooler != "transform" and _has_pooler(c),
    ),
    "dropout": Condition("dropout above 0", _uses_dropout, "--config.model.dropout=0.1"),
    "samples": Condition("evals.validation of labelled data, mlm or causal_lm", _shows_samples),
}


# --- conditions that a text describes -------------------------------------------------------------


def get_value(config: Config, path: str, entry: str = "") -> Any:
    """Return the value of a knob; a * in its path is replaced by `entry`.

    `entry` is the name of one entry of a section, such as an evaluation in `evals.*.epochs`.
    """
    value: Any = config
    for name in path.replace("*", entry).split("."):
        value = value[name] if isinstance(value, dict) else getattr(value, name)
    return value


@functools.cache
def read_condition(text: str) -> Condition:
    """Return the Condition that a text in a knob's declaration stands for."""
    if text in CONDITIONS:
        return CONDITIONS[text]
    path, equals, listed = text.partition("=")
    values = listed.split("|")
    hint = "" if "*" in path else f"--config.{path}={values[0]}"
    if path == "unit":
        said = f"masking.unit={listed}, in training or evals"
        hint = f"--config.masking.unit={values[0]}"
        return Condition(said, lambda c, _: bool({*list_units(c)} & {*values}), hint)
    if path == "kind":
        return Condition(f"tasks of {', '.join(values)}", lambda c, _: c.kind in values)
    if path == "objective":
        return Condition(f"objective {', '.join(values)}", lambda c, entry: entry in values)
    if equals:
        return Condition(text, lambda c, entry: str(get_value(c, path, entry)) in values, hint)
    path, above, _ = text.partition(">")
    if above:
        hint = f"--config.{path}={list_knobs()[path].default or 'N'}"
        return Condition(f"{path} above 0", lambda c, _: get_value(c, path) > 0, hint)
    return Condition(path, lambda c, _: bool(get_value(c, path)), f"set {path}")


def list_units(c: Config) -> list[str]:
    """List the names of the masking units that training and evaluations use, such as "word"."""
    return [c.masking.unit, *(one.unit for one in c.evals.values())]


def list_unit_knobs() -> list[str]:
    """List the names of the knobs of `masking` that define masking units, such as "max_unit"."""
    return [
        path.partition(".")[2]
        for path, knob in list_knobs().items()
        if any(text.startswith("unit=") for text in knob.traits.when)
    ]


def list_conditions(path: str) -> list[Condition]:
    """Return the conditions of a knob: the conditions of its section, then its own."""
    texts = read_section(Config)[path.partition(".")[0]].traits.when
    if "." in path:
        texts += find_knob(path).traits.when
    return [read_condition(text) for text in texts]


# --- the check ------------------------------------------------------------------------------------


def find_idle(written: Config, resolved: Config, defaults: Mapping[str, Any]) -> list[Idle]:
    """Return the knobs that are set to other values than their defaults, but do nothing.

    Args:
      written: the config as the user wrote it.
      resolved: the same config with dependent values filled in.
      defaults: the values of a preset, a task or a model by path, which count as defaults too.
    """
    found = []
    for path, value in list_values(written):
        knob = find_knob(path)
        if value in (knob.default, defaults.get(path, knob.default)):
            continue
        entry = path.split(".")[1] if path.partition(".")[0] in ENTRIES else ""
        conditions = list_conditions(path)
        failed = next((one for one in conditions if not one.holds(resolved, entry)), None)
        if failed and not _means_the_same(knob, value, resolved):
            found.append(Idle(path, value, knob.default, failed))
    return found


def _means_the_same(knob: Knob, value: Any, resolved: Config) -> bool:
    """Tell whether setting a knob to this value means the same as leaving the knob out."""
    if knob.traits.same_as:
        return value == get_value(resolved, knob.traits.same_as)
    return knob.traits.idle is not None and value == knob.traits.idle


def list_values(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (path, value) of every knob of a config."""
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
