"""Configs as users write them, and the values that follow; files and records of configs."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path

import pytest

from bert_jax import config, recipes
from bert_jax.config import knobs
from bert_jax.config.presets import PRESETS
from bert_jax.errors import ConfigError
from bert_jax.studies.definition import Budget, Study, axis, expand, variants
from tests.config.settings import CAUSAL, write
from tests.net import config_rows

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
ABLATIONS = runpy.run_path(str(CONFIGS / "ablations.py"))["ABLATIONS"]


def override(*changes: tuple[str, str]):
    """Return the default config with the knobs of a command line."""
    tree = config.default()
    config.overrides(tree, changes)
    return tree


@pytest.mark.fault(20)
def test_default_cannot_be_misspelt():
    for path in ("masking.rat", "evls", "evals.validation.evry"):
        tree = config.default()
        *sections, name = path.split(".")
        for section in sections:
            tree = tree[section]
        with pytest.raises((AttributeError, KeyError), match=name):
            setattr(tree, name, 1)
    for bad in ({"maskin": {}}, {"masking": 3}, {"evals": []}, {"evals": {"v": {"evry": 1}}}):
        with pytest.raises(ConfigError):
            config.resolve(bad)


# --- entries --------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["attribute", "item", "update", "command line"])
def test_evaluation_is_added_from_the_defaults(form):
    tree = config.default()
    if form == "attribute":
        tree.evals.extra = {"rate": 0.4}
    elif form == "item":
        tree.evals["extra"] = {"rate": 0.4}
    elif form == "update":
        tree.update({"evals": {"extra": {"rate": 0.4}}})
    else:
        config.override(tree, "evals.extra.rate", "0.4")
    evals = config.resolve(tree).evals
    assert evals == {"validation": knobs.Eval(), "extra": knobs.Eval(rate=0.4)}


def test_entries_are_deleted_and_replaced():
    tree = config.default()
    del tree.objectives["nsp"]
    assert [*config.resolve(tree).objectives] == ["mlm"]
    tree.evals = {"other": {"rate": 0.4}}
    tree.checkpoints.best = ""
    assert config.resolve(tree).evals == {"other": knobs.Eval(rate=0.4)}


def test_configs_share_no_section():
    one = knobs.Config()
    one.objectives["mlm"] = knobs.Objective(weight=7.0)
    one.evals["other"] = knobs.Eval()
    one.task.files["train"] = "x.tsv"
    assert knobs.Config().objectives["mlm"].weight is None
    assert list(knobs.Config().evals) == ["validation"]
    assert knobs.Config().task.files == {}


# --- values that follow ---------------------------------------------------------------------------


def test_derived_shape_follows_the_size():
    tree = override(("model.size", "small"), ("model.activation", "relu"))
    model = config.resolve(tree).model
    assert (model.shape, model.head_activation) == ((4, 512, 8, 2048), "relu")
    config.overrides(tree, [("model.hidden", "64"), ("model.head_activation", "silu")])
    model = config.resolve(tree).model
    assert (model.shape, model.head_activation) == ((4, 64, 8, 256), "silu")


@pytest.mark.parametrize(
    ("pairs", "weights", "active"),
    [
        ("nsp", {}, {"mlm": 1.0, "nsp": 1.0}),
        ("sop", {}, {"mlm": 1.0, "sop": 1.0}),
        ("none", {}, {"mlm": 1.0}),
        ("nsp", {"mlm": 0.5, "nsp": 0.0}, {"mlm": 0.5, "nsp": 0.0}),
        ("none", {"nsp": 1.0}, None),
        ("sop", {"nsp": 0.0}, None),
    ],
)
def test_pair_objectives_follow_pairs(pairs, weights, active):
    tree = override(("pairs", pairs))
    for name, weight in weights.items():
        config.override(tree, f"objectives.{name}.weight", str(weight))
    if active is None:
        with pytest.raises(ConfigError, match=r"but config\.pairs"):
            config.resolve(tree)
    else:
        assert {name: o.weight for name, o in config.resolve(tree).objectives.items()} == active


def test_pairs_none_drops_what_belongs_to_nsp(caplog):
    tree = config.default()
    tree.objectives.nsp.weight, tree.examples.truncate = 0.3, "front"
    tree.model.pooler, tree.checkpoints.best = "gelu", "nsp_accuracy"
    config.overrides(tree, [("pairs", "none")])
    found = config.resolve(tree)
    assert (found.examples.truncate, found.checkpoints.best) == ("either", "mlm_loss")
    assert found.model.pooler == "gelu"  # of the model, not of this training
    for said in ("objectives.nsp.weight = 0.3", "truncate = front", "best = nsp_accuracy"):
        assert said in caplog.text


def test_command_line_resets_what_it_replaces():
    tree = write({"optim.warmup_steps": 7, "tokenizer.vocab_size": 500, "model.layers": 3})
    changes = {"optim.warmup_fraction": "0.1", "tokenizer.path": "v.txt", "model.size": "mini"}
    config.overrides(tree, changes.items())
    found = config.resolve(tree)
    assert (found.optim.warmup_steps, found.model.layers) == (100_000, 4)
    # Of one command line, both are meant.
    config.overrides(tree, [("model.layers", "1"), ("model.size", "small")])
    assert config.resolve(tree).model.shape[:2] == (1, 512)
    config.overrides(tree, [("optim.warmup_steps", "5"), ("optim.warmup_fraction", "0.1")])
    with pytest.raises(ConfigError, match="warmup_steps = 5 does nothing"):
        config.resolve(tree)


# --- knobs that a preset or a model has set -------------------------------------------------------


def test_preset_values_count_as_defaults():
    tree = config.default("google_2018")  # units of up to 512 tokens, whatever the unit
    assert config.resolve(tree).masking.max_unit == 512
    tree.masking.max_unit = 8
    with pytest.raises(ConfigError, match="max_unit = 8 does nothing"):
        config.resolve(tree)
    units = axis("masking.max_unit", (16, 512))  # the default, and the preset's value
    with pytest.raises(ConfigError, match="max_unit = 512 does nothing"):
        expand(Study("?", config.default("google_2018"), (units,), (0,), {}))


def test_finetuning_takes_the_whole_shape_of_a_model():
    model = {"position": "rotary", "max_positions": 64, "head_activation": "relu"}
    start = config.settle({"model": model})[0]
    tree = recipes.finetuning("classify", "run", {"task.source": "files:x"}, start)
    found = config.resolve(tree).model
    assert (found.max_positions, found.head_activation) == (64, "relu")


def test_recorded_config_may_have_idle_knobs():
    tree = write(CAUSAL | {"masking.rate": 0.4})
    with pytest.raises(ConfigError, match=r"masking.rate"):
        config.resolve(tree)
    assert config.recorded(tree.to_dict()).masking.rate == 0.4


def test_axis_that_changes_nothing_is_refused():
    rates = axis("masking.rate", (0.15, 0.3))
    with pytest.raises(ConfigError, match=r"masking.rate 30 %: masking.rate = 0.3 does nothing"):
        expand(Study("?", write(CAUSAL), (rates,), (0,), {}))
    base = write({"masking.span_max": 8, "pairs": "none"})
    units = variants("unit", {unit: {"masking.unit": unit} for unit in ("token", "span")})
    assert len(expand(Study("?", base, (units,), (0,), {}))) == 2  # it acts in one of them
    with pytest.raises(ConfigError, match=r"in every cell, masking.span_max = 8 does nothing"):
        expand(Study("?", base, (rates,), (0,), {}))


def test_point_replaces_what_the_base_has():
    shares = axis("optim.warmup_fraction", (0.1, 0.2))
    base = write({"optim.warmup_steps": 7})
    cells = expand(Study("?", base, (shares,), (0,), {}, budget=Budget("steps", 100)))
    assert [cell.config.optim.warmup_steps for cell in cells] == [10, 20]


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", sorted(CONFIGS.glob("*.py")), ids=lambda file: file.stem)
def test_shipped_config_says_how_to_run_it(file):
    docstring = ast.get_docstring(ast.parse(file.read_text())) or ""
    assert f"--config=configs/{file.name}" in docstring


@pytest.mark.parametrize("name", PRESETS)
def test_preset_names_only_what_differs(name):
    defaults = config.flat(config.to_dict(knobs.Config()))
    for path, value in PRESETS[name].items():
        assert defaults.get(path, "absent") != value, path
        config.checked(path, value)
    assert name in (CONFIGS.parent / "docs" / "presets.md").read_text()


def test_ablations_take_numbers_and_a_size():
    """Their values by default are frozen by tests/net."""
    assert sorted(ABLATIONS) == sorted(config_rows.ABLATIONS)
    found = config.resolve(config.load_file(f"{CONFIGS}/ablations.py:masking_rate,0.25,mini"))
    assert (found.masking.rate, found.model.shape[1]) == (0.25, 256)
    for arguments, hint in (
        ("maskin_rate,0.2", "did you mean 'masking_rate'? one of: "),
        ("no_nsp,smal", "did you mean 'small'? "),
        ("views,0.1,0.4,base,3", "one of: tiny, "),
    ):
        with pytest.raises(ConfigError) as caught:
            config.load_file(f"{CONFIGS}/ablations.py:{arguments}")
        assert caught.value.hint.startswith(hint)


# --- resume ---------------------------------------------------------------------------------------


def test_differences_name_every_changed_path():
    old = {"a": 1, "b": {"c": 1, "d": 2}, "e": [1]}
    new = {"a": 1, "b": {"c": 3}, "e": [1], "f": None, "g": 0, "h": {"i": 1}}
    changes = {"b.c": (1, 3), "b.d": (2, None), "g": (None, 0), "h": (None, {"i": 1})}
    assert config.differences(old, new) == changes
    assert config.differences(old, old) == {}


@pytest.mark.parametrize(
    ("path", "free"),
    [
        *(("loader.prefetch", True), ("corpus.workers", True), ("evals.validation.every", True)),
        *(("checkpoints.keep", True), ("checkpoints.at", True), ("model.attention", True)),
        *(("branch_from", False), ("corpus.path", False), ("seed", False), ("model.size", False)),
        ("checkpoints.best", False),  # steps scored by one metric are not comparable with another's
        ("corpus.workers_of_another_kind", False),
    ],
)
def test_free_on_resume_knows_what_changes_no_run(path, free):
    assert config.free_on_resume(path) == free
