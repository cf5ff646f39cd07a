"""Configs as users write them, and the values that follow; files and records of configs."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from bert_jax import config
from bert_jax.config import knobs, validation
from bert_jax.errors import ConfigError

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def write(values: dict[str, Any]) -> Any:
    """Return a ConfigDict with knobs set by path, whatever they might replace."""
    tree = config.default()
    for path, value in values.items():
        config.put(tree, path.split("."), value)
    return tree


def override(*changes: tuple[str, str]) -> Any:
    """Return the default config with the knobs of a command line."""
    tree = config.default()
    config.overrides(tree, changes)
    return tree


def test_config_file_cannot_misspell_a_knob():
    tree = config.default()
    with pytest.raises((AttributeError, KeyError), match="Did you mean"):
        tree.masking.rat = 0.4
    for bad in ({"maskin": {}}, {"masking": 3}, {"evals": []}, {"evals": {"v": {"evry": 1}}}):
        with pytest.raises(ConfigError):
            config.resolve(bad)


# --- entries --------------------------------------------------------------------------------------


def test_extra_evaluation_starts_from_the_defaults():
    found = config.resolve(override(("evals.extra.rate", "0.4"))).evals
    assert found == {"validation": knobs.Eval(), "extra": knobs.Eval(rate=0.4)}


@pytest.mark.parametrize("form", ["attribute", "item", "update", "command line"])
def test_evaluation_is_added_as_a_dict(form):
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
def test_entry_that_is_added_is_checked(section, entry, message):
    tree = config.default()
    tree[section].extra = entry
    with pytest.raises(ConfigError) as caught:
        config.resolve(tree)
    assert message in str(caught.value)


def test_entries_are_deleted_and_replaced():
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


# --- values that follow ---------------------------------------------------------------------------


def test_derived_values_are_written_out():
    tree = override(("model.size", "small"))
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
def test_pair_objectives_follow_pairs(pairs, weights, active):
    tree = override(("pairs", pairs))
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


def test_command_line_resets_what_it_replaces():
    shape = {"model.layers": 3, "model.hidden": 48}
    tree = write({"optim.warmup_steps": 7, "tokenizer.vocab_size": 500} | shape)
    config.overrides(
        tree,
        [("optim.warmup_fraction", "0.1"), ("tokenizer.path", "vocab.txt"), ("model.size", "mini")],
    )
    found = config.resolve(tree)
    assert (found.optim.warmup_steps, found.model.layers, found.model.hidden) == (100_000, 4, 256)
    # Of one command line, both are meant.
    config.overrides(tree, [("model.layers", "1"), ("model.size", "small")])
    assert (config.resolve(tree).model.layers, config.resolve(tree).model.hidden) == (1, 512)
    config.overrides(tree, [("optim.warmup_steps", "5"), ("optim.warmup_fraction", "0.1")])
    with pytest.raises(ConfigError, match="warmup_steps = 5 does nothing"):
        config.resolve(tree)


@pytest.mark.parametrize(
    ("objectives", "message"),
    [
        ({}, "objectives is empty"),
        ({"classify": {"labels": ("a", "b")}}, "classify needs labelled data"),
    ],
)
def test_trainable_needs_something_to_learn(objectives, message):
    found = config.resolve({"objectives": objectives, "checkpoints": {"best": ""}})
    with pytest.raises(ConfigError, match=message):
        validation.trainable(found)


@pytest.mark.parametrize("prng", ["rbg", "unsafe_rbg"])
def test_trainable_needs_threefry_under_vmap(prng):
    tree = config.default()
    config.override(tree, "parallel.arms", "vmap")
    validation.trainable(config.resolve(tree))
    config.override(tree, "parallel.prng", prng)
    said = f"'vmap' with parallel.prng = '{prng}' would drop other elements"
    with pytest.raises(ConfigError, match=said):
        validation.trainable(config.resolve(tree))
    config.override(tree, "parallel.arms", "auto")
    validation.trainable(config.resolve(tree))


def test_warn_of_a_run_that_ends_in_its_warm_up(capsys):
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


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", sorted(CONFIGS.glob("*.py")), ids=lambda file: file.stem)
def test_shipped_config_says_how_to_run_it(file):
    docstring = ast.get_docstring(ast.parse(file.read_text())) or ""
    assert f"--config=configs/{file.name}" in docstring


def test_file_takes_an_argument_and_builds_on_another(tmp_path):
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


def test_differences_name_every_changed_path():
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
def test_free_knobs_do_not_change_the_run(path, free):
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
