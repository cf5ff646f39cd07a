"""Configs: what is accepted comes back as written, what is not is refused in one line that names
the knob.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import math
import types
import typing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax import cli, config
from bert_jax.config import knobs, validation
from bert_jax.config.presets import PRESETS
from bert_jax.errors import ConfigError

CONFIGS = Path(__file__).resolve().parents[1] / "configs"


NAMED = {"objectives": "mlm", "evals": "validation"}


def _knobs(kind=knobs.Config, prefix=""):
    """(path, field, type) of every knob, sections of named entries included."""
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        path, hint = f"{prefix}{field.name}", hints[field.name]
        if dataclasses.is_dataclass(hint):
            yield from _knobs(hint, f"{path}.")
        elif typing.get_origin(hint) is dict:
            entry = typing.get_args(hint)[1]
            if dataclasses.is_dataclass(
                entry
            ):  # else a mapping, which is set as a whole or by its keys
                yield from _knobs(entry, f"{path}.{NAMED[field.name]}.")
        else:
            yield path, field, hint


KNOBS = list(_knobs())
IDS = [path for path, _, _ in KNOBS]


def _set(path: str, text: str):
    tree = config.default()
    config.override(tree, path, text)
    return tree


def _walk(tree, names: list[str]):
    for name in names:
        tree = tree[name]
    return tree


# --- knobs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("path", "field", "hint"), KNOBS, ids=IDS)
def test_every_knob_is_documented_and_its_default_is_allowed(path, field, hint):
    assert field.metadata.get("doc"), path
    default = _walk(config.to_dict(knobs.Config()), path.split("."))
    low, high, choices = (field.metadata[k] for k in ("low", "high", "choices"))
    for item in default if isinstance(default, list) else [default]:
        if item is not None:
            assert low is None or item >= low
            assert high is None or item <= high
            assert not choices or item in choices
    if hint is str and choices:
        assert len(set(choices)) == len(choices)


@pytest.mark.parametrize(
    ("path", "field", "hint"),
    [k for k in KNOBS if k[1].metadata["low"] is not None or k[1].metadata["high"] is not None],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_number_outside_its_range_is_refused_with_the_range(path, field, hint):
    low, high = field.metadata["low"], field.metadata["high"]
    for value in ([] if low is None else [low - max(1, abs(low))]) + (
        [] if high is None else [high + 1]
    ):
        text = str((value,) * 3) if typing.get_origin(hint) is tuple else str(value)
        with pytest.raises(ConfigError, match="out of range") as caught:
            config.resolve(_set(path, text))
        assert f"config.{path}" in str(caught.value)
        assert field.metadata["doc"] in caught.value.hint


@pytest.mark.parametrize(
    ("path", "field", "hint"),
    [k for k in KNOBS if k[1].metadata["choices"]],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_word_that_is_no_choice_is_refused_with_the_choices(path, field, hint):
    with pytest.raises(ConfigError, match="is not a choice") as caught:
        config.resolve(_set(path, field.metadata["choices"][0] + "x"))
    assert f"did you mean {field.metadata['choices'][0]!r}" in caught.value.hint
    assert all(choice in caught.value.hint for choice in field.metadata["choices"])


def test_a_config_file_cannot_misspell_a_knob():
    tree = config.default()
    with pytest.raises((AttributeError, KeyError), match="Did you mean"):
        tree.masking.rat = 0.4
    for bad in (
        {"maskin": {}},
        {"masking": 3},
        {"evals": []},
        {"evals": {"validation": {"evry": 1}}},
    ):
        with pytest.raises(ConfigError):
            config.resolve(bad)


# --- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "text", "value"),
    [
        ("masking.rate", "0.4", 0.4),
        ("masking.rate", "1", 1.0),
        ("optim.learning_rate", "1e-3", 1e-3),
        ("masking.prediction_rate", "None", None),
        ("masking.prediction_rate", "0.1", 0.1),
        ("masking.replace", "(1,0,0)", (1.0, 0.0, 0.0)),
        ("masking.replace", "[1,0,0]", (1.0, 0.0, 0.0)),
        ("masking.replace", "1,0,0", (1.0, 0.0, 0.0)),
        ("model.scan", "true", True),
        ("model.scan", "False", False),
        ("model.layers", "3", 3),
        ("steps", "10_000_000", 10_000_000),
        ("tokenizer.path", "true", "true"),
        ("tokenizer.path", "3", "3"),
        ("tokenizer.path", "", ""),
        ("model.attention_bias", "-1e9", -1e9),
        ("evals.extra.rate", "0.4", 0.4),
    ],
)
def test_text_of_a_flag_is_read_as_the_type_of_its_knob(path, text, value):
    found = config.resolve(_set(path, text))
    for name in path.split("."):
        found = found[name] if isinstance(found, dict) else getattr(found, name)
    assert found == value
    assert type(found) is type(value)


def test_an_extra_evaluation_starts_from_the_defaults():
    found = config.resolve(_set("evals.extra.rate", "0.4")).evals
    assert found == {"validation": knobs.Eval(), "extra": knobs.Eval(rate=0.4)}


@pytest.mark.parametrize("form", ["attribute", "item", "update", "command line"])
def test_an_evaluation_is_added_as_a_dict(form):
    tree = config.default()
    if form == "attribute":
        tree.evals.extra = {"rate": 0.4}
    elif form == "item":
        tree.evals["extra"] = {"rate": 0.4}
    elif form == "update":
        tree.update({"evals": {"extra": {"rate": 0.4}}})
    else:
        config.override(tree, "seed", "1")  # which unlocks and locks no section
        tree.evals.extra = {}
        config.override(tree, "evals.extra.rate", "0.4")
    evals = config.resolve(tree).evals
    assert evals == {"validation": knobs.Eval(), "extra": knobs.Eval(rate=0.4)}


@pytest.mark.parametrize(
    ("section", "entry", "message"),
    [
        ("evals", {"rat": 0.4}, "config.evals.extra has no knob 'rat'"),
        ("evals", {"rate": 7.0}, "config.evals.extra.rate = 7.0 is out of range"),
        ("evals", {"rate": "half"}, "config.evals.extra.rate must be float"),
        ("evals", 3, "config.evals.extra must be a section"),
        ("objectives", {"weight": 1.0}, "config.objectives has no 'extra'"),
    ],
)
def test_an_entry_that_is_added_is_checked(section, entry, message):
    tree = config.default()
    tree[section].extra = entry
    with pytest.raises(ConfigError) as caught:
        config.resolve(tree)
    assert message in str(caught.value)


def test_entries_are_deleted_and_replaced_and_knobs_are_not():
    tree = config.default()
    del tree.objectives["nsp"]
    assert [*config.resolve(tree).objectives] == ["mlm"]
    tree.evals = {"other": {"rate": 0.4}}
    tree.checkpoints.best = ""
    assert config.resolve(tree).evals == {"other": knobs.Eval(rate=0.4)}
    with pytest.raises(AttributeError, match="locked"):
        del tree.steps
    with pytest.raises(AttributeError, match="evls"):
        tree.evls = {}
    with pytest.raises(AttributeError, match="evry"):
        config.default().evals.validation.evry = 1


@pytest.mark.parametrize(
    ("words", "rest", "path", "value"),
    [
        (["--config.logging.tensorboard"], [], "logging.trackers", ["tensorboard"]),
        (["--config.logging.tensorboard", "x"], ["x"], "logging.trackers", ["tensorboard"]),
        (["--config.logging.tensorboard", "--x"], ["--x"], "logging.trackers", ["tensorboard"]),
        (["--config.logging.tensorboard", "False", "x"], ["x"], "logging.trackers", []),
        (["--config.logging.tensorboard=false", "x"], ["x"], "logging.trackers", []),
        (["--noconfig.logging.tensorboard", "x"], ["x"], "logging.trackers", []),
        (["--config.model.scan"], [], "model.scan", True),
        (["--config.model.scan", "None"], [], "model.scan", None),
        (["--noconfig.model.scan"], [], "model.scan", False),
    ],
)
def test_a_command_line_switches_knobs_that_are_true_or_false(words, rest, path, value):
    others, overrides = cli.split_overrides(words)
    assert others == rest
    tree = config.default()
    config.overrides(tree, overrides)
    assert _walk(config.to_dict(config.resolve(tree)), path.split(".")) == value


@pytest.mark.parametrize("word", ["--noconfig.steps", "--noconfig.model.scan=1", "--noconfig.x"])
def test_no_other_knob_is_switched_off(word):
    assert cli.split_overrides([word]) == ([word], [])


def test_derived_values_are_written_out():
    tree = _set("model.size", "small")
    config.override(tree, "model.activation", "relu")
    model = config.resolve(tree).model
    assert (model.layers, model.hidden, model.heads, model.mlp, model.head_activation) == (
        4,
        512,
        8,
        2048,
        "relu",
    )
    config.override(tree, "model.hidden", "64")
    config.override(tree, "model.head_activation", "silu")
    model = config.resolve(tree).model
    assert (model.layers, model.hidden, model.heads, model.mlp, model.head_activation) == (
        4,
        64,
        8,
        256,
        "silu",
    )


@pytest.mark.parametrize(
    ("pairs", "weights", "active"),
    [
        ("nsp", {}, {"mlm": 1.0, "nsp": 1.0}),
        ("sop", {}, {"mlm": 1.0, "sop": 1.0}),
        ("none", {}, {"mlm": 1.0}),
        ("nsp", {"nsp": 0.0}, {"mlm": 1.0, "nsp": 0.0}),
        ("nsp", {"mlm": 0.5, "nsp": 2.0}, {"mlm": 0.5, "nsp": 2.0}),
        ("none", {"nsp": 1.0}, None),
        ("none", {"nsp": 0.0}, None),
        ("sop", {"nsp": 1.0}, None),
    ],
)
def test_pair_objectives_follow_pairs_and_asking_for_both_is_an_error(pairs, weights, active):
    tree = _set("pairs", pairs)
    for name, weight in weights.items():
        config.override(tree, f"objectives.{name}.weight", str(weight))
    if active is None:
        with pytest.raises(ConfigError, match=r"but config\.pairs"):
            config.resolve(tree)
    else:
        assert {name: o.weight for name, o in config.resolve(tree).objectives.items()} == active


@pytest.mark.parametrize(
    "name", ["tiny.py", "local.py", "pretrain.py", "fast.py", "ablations.py:sop"]
)
def test_pairs_none_leaves_nsp_out_of_any_config(name, caplog):
    """What the file sets for its pair objective is dropped, and said."""
    tree = config.load_file(str(CONFIGS / name))
    weight = tree.objectives.nsp.weight
    config.overrides(tree, [("pairs", "none")])
    assert config.resolve(tree).objectives.keys() == {"mlm"}
    assert (f"leaves out objectives.nsp.weight = {weight}" in caplog.text) == bool(weight)


def test_pairs_none_drops_all_that_belongs_to_nsp(caplog):
    tree = config.default()
    tree.objectives.nsp.weight, tree.examples.truncate = 0.3, "front"
    tree.model.pooler, tree.checkpoints.best = "gelu", "nsp_accuracy"
    config.overrides(tree, [("pairs", "none")])
    found = config.resolve(tree)
    assert (found.examples.truncate, found.checkpoints.best) == ("either", "mlm_loss")
    assert found.model.pooler == "gelu"  # of the model, not of this training
    for said in ("objectives.nsp.weight = 0.3", "truncate = front", "best = nsp_accuracy"):
        assert said in caplog.text


def test_pairs_and_nsp_by_hand_are_refused_together():
    tree = config.load_file(str(CONFIGS / "tiny.py"))
    config.overrides(tree, [("pairs", "none"), ("objectives.nsp.weight", "0.1")])
    with pytest.raises(ConfigError, match=r"but config\.pairs = 'none'"):
        config.resolve(tree)


@pytest.mark.parametrize(
    ("objectives", "message"),
    [
        ({}, "objectives is empty"),
        ({"classify": {"labels": ("a", "b")}}, "classify needs labelled data"),
    ],
)
def test_a_model_without_anything_to_learn_from_text_is_no_training_run(objectives, message):
    found = config.resolve({"objectives": objectives, "checkpoints": {"best": ""}})
    with pytest.raises(ConfigError, match=message):
        validation.trainable(found)


@pytest.mark.parametrize("prng", ["rbg", "unsafe_rbg"])
def test_all_arms_at_once_need_bits_that_vmap_leaves_alone(prng):
    tree = config.default()
    config.override(tree, "parallel.arms", "vmap")
    validation.trainable(config.resolve(tree))
    config.override(tree, "parallel.prng", prng)
    with pytest.raises(
        ConfigError, match=f"'vmap' with parallel.prng = '{prng}' would drop other elements"
    ):
        validation.trainable(
            config.resolve(tree)
        )  # which an older run may be read with all the same
    config.override(tree, "parallel.arms", "auto")
    validation.trainable(config.resolve(tree))


def test_a_run_may_end_while_it_warms_up(capsys):
    tree = config.default()
    for path, text in (("steps", "5"), ("optim.warmup_steps", "100")):
        config.override(tree, path, text)
    found = config.resolve(tree)
    validation.warn(found, dataclasses.replace(found, seed=1), config.resolve(config.default()))
    said = (
        "warning: optim.warmup_steps = 100 exceeds steps = 5: the learning rate ends at 0.04 "
        "of its peak\n"
    )
    assert capsys.readouterr().err == said


def test_classes_need_names():
    with pytest.raises(ConfigError, match=r"classify\.labels is empty"):
        config.resolve({"objectives": {"classify": {}}, "checkpoints": {"best": ""}})


def _values(field: dataclasses.Field, hint) -> st.SearchStrategy:
    """Any value a knob allows."""
    low, high, choices = (field.metadata[k] for k in ("low", "high", "choices"))
    if isinstance(hint, types.UnionType):
        inner = next(option for option in typing.get_args(hint) if option is not type(None))
        return st.none() | _values(field, inner)
    if choices:
        one = st.sampled_from(choices)
        several = st.lists(one, max_size=3, unique=True).map(tuple)
        return several if hint == tuple[str, ...] else one
    if hint == tuple[str, ...]:
        return st.lists(st.text(st.characters(codec="utf-8"), max_size=8), max_size=3).map(tuple)
    if hint == tuple[int, ...]:
        return st.lists(st.integers(low, 2**31), max_size=3).map(tuple)
    if hint == tuple[tuple[float, float, str], ...]:  # phases
        return st.just(())
    if typing.get_origin(hint) is tuple:
        return st.just((0.5, 0.25, 0.25))
    least, most = -math.inf if low is None else low, math.inf if high is None else high
    return {
        bool: st.booleans(),
        str: st.text(st.characters(codec="utf-8"), max_size=8),
        int: st.integers(math.ceil(max(least, -(2**31))), math.floor(min(most, 2**31))),
        float: st.floats(
            None if low is None else low,
            None if high is None else high,
            allow_nan=False,
            allow_infinity=False,
        ),
    }[hint]


@given(st.data())
def test_every_allowed_value_survives_the_round_trip(data):
    path, field, hint = data.draw(st.sampled_from(KNOBS))
    value = data.draw(_values(field, hint))
    if path == "logging.tensorboard":  # read into logging.trackers
        return
    tree = config.to_dict(knobs.Config())
    *parents, leaf = path.split(".")
    _walk(tree, parents)[leaf] = value
    try:
        found = config.settle(tree)[0]
    except ConfigError as error:
        if any(words in str(error) for words in ("must be", "out of range", "not a choice")):
            raise
        return  # a rule over several knobs, never the value by itself
    again = config.to_dict(found)
    assert config.recorded(json.loads(json.dumps(again, allow_nan=False))) == found
    if value is not None and path in IDS and parents[:1] != ["objectives"]:
        assert _walk(again, path.split(".")) == (list(value) if isinstance(value, tuple) else value)


# --- files ----------------------------------------------------------------------------------------


def _arguments(file: Path) -> list[str]:
    presets = [*PRESETS, *(f"{name},tiny" for name in PRESETS)]
    arguments = {"pretrain": ["", *knobs.SIZES], "preset": ["", *presets], "ablations": ["sop"]}
    return arguments.get(file.stem, [""])


@pytest.mark.parametrize(
    "spec",
    [
        f"{file}{':' * bool(a)}{a}"
        for file in sorted(CONFIGS.glob("*.py"))
        if file.stem != "adapt"  # which needs a model: test_adapt.py
        for a in _arguments(file)
    ],
    ids=lambda spec: str(Path(spec).relative_to(CONFIGS)),
)
def test_every_config_builds_and_says_how_to_run_it(spec):
    found = config.resolve(config.load_file(spec))
    assert config.recorded(config.to_dict(found)) == found
    file = Path(spec.partition(":")[0])
    docstring = ast.get_docstring(ast.parse(file.read_text())) or ""
    assert f"--config=configs/{file.relative_to(CONFIGS)}" in docstring


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def get_config(:", "SyntaxError"),
        ("x = 1", "broken.py defines no get_config"),
        ("def get_config():\n    return 1 / 0", ":2: ZeroDivisionError"),
        (
            "from bert_jax.config import default\n\ndef get_config():\n    c = default()\n"
            "    c.sed = 1",
            ":5: no knob 'sed'",
        ),
    ],
)
def test_a_broken_config_file_is_named_with_its_line(tmp_path, source, message):
    file = tmp_path / "broken.py"
    file.write_text(source)
    with pytest.raises(ConfigError) as caught:
        config.load_file(str(file))
    assert str(file) in str(caught.value)
    assert message in str(caught.value)


def test_a_config_file_takes_an_argument_and_may_build_on_another(tmp_path):
    (tmp_path / "base.py").write_text(
        "from bert_jax.config import default\n"
        "def get_config(seed='0'):\n    c = default()\n    c.seed = int(seed)\n    return c\n"
    )
    (tmp_path / "diff.py").write_text(
        "from bert_jax.config import load_file\n"
        "def get_config():\n    c = load_file('base.py:7', beside=__file__)\n"
        "    c.masking.rate = 0.4\n    return c\n"
    )
    found = config.resolve(config.load_file(f"{tmp_path}/diff.py"))
    assert (found.seed, found.masking.rate) == (7, 0.4)
    assert config.differences(
        config.to_dict(config.resolve(config.default())), config.to_dict(found)
    ) == {
        "seed": (0, 7),
        "masking.rate": (0.15, 0.4),
    }


# --- resume ---------------------------------------------------------------------------------------


def test_differences_name_added_removed_and_changed_paths():
    old, new = (
        {"a": 1, "b": {"c": 1, "d": 2}, "e": [1]},
        {"a": 1, "b": {"c": 3}, "e": [1], "f": None, "g": 0},
    )
    assert config.differences(old, new) == {"b.c": (1, 3), "b.d": (2, None), "g": (None, 0)}
    assert config.differences(old, old) == {}


@pytest.mark.parametrize(
    ("path", "free"),
    [
        ("loader.prefetch", True),
        ("corpus.workers", True),
        ("evals.validation.every", True),
        ("checkpoints.keep", True),
        ("checkpoints.at", True),
        ("checkpoints.at_words", True),
        ("branch_from", False),
        ("checkpoints.best", False),  # steps scored by one metric are not comparable with another's
        ("corpus.path", False),
        ("corpus.workers_of_another_kind", False),
        ("seed", False),
        ("model.size", False),
        ("model.attention", True),
    ],
)
def test_only_what_does_not_change_the_run_is_free_on_resume(path, free):
    assert config.free_on_resume(path) == free


def test_configs_share_no_section():
    """What is added to the objectives or evaluations of one is not in those of another."""
    one = knobs.Config()
    one.objectives["mlm"] = knobs.Objective(weight=7.0)
    one.evals["other"] = knobs.Eval()
    one.task.files["train"] = "x.tsv"
    assert knobs.Config().objectives["mlm"].weight is None
    assert list(knobs.Config().evals) == ["validation"]
    assert knobs.Config().task.files == {}
