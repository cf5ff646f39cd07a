"""Configs as users write them, and the values that follow; files and records of configs."""

import pytest

from bert_jax import config, recipes
from bert_jax.config import knobs
from bert_jax.errors import ConfigError
from bert_jax.studies.definition import Study, axis, expand, variants
from tests.config.settings import CAUSAL, write


def test_entries_are_added_deleted_and_replaced():
    """What an entry does not say is the default."""
    added = {"validation": knobs.Eval(), "extra": knobs.Eval(rate=0.4)}
    tree = config.default()
    tree.evals.extra = {"rate": 0.4}
    assert config.resolve(tree).evals == added
    from_flags = config.default()
    config.override(from_flags, "evals.extra.rate", "0.4")
    assert config.resolve(from_flags).evals == added
    del tree.objectives["nsp"]
    assert [*config.resolve(tree).objectives] == ["mlm"]
    tree.evals = {"other": {"rate": 0.4}}
    tree.checkpoints.best = ""
    assert config.resolve(tree).evals == {"other": knobs.Eval(rate=0.4)}


def test_finetuning_takes_the_whole_shape_of_a_model():
    model = {"position": "rotary", "max_positions": 64, "head_activation": "relu"}
    start = config.resolve_and_list_idle({"model": model})[0]
    tree = recipes.finetuning("classify", "run", {"task.source": "files:x"}, start)
    found = config.resolve(tree).model
    assert (found.max_positions, found.head_activation) == (64, "relu")


def test_recorded_config_may_have_idle_knobs():
    tree = write(CAUSAL | {"masking.rate": 0.4})
    with pytest.raises(ConfigError, match=r"masking.rate"):
        config.resolve(tree)
    saved = tree.to_dict() | {"loader": {"prefetch": 4}}  # a constant by now
    saved["task"]["n_best"] = 20
    assert config.read_recorded(saved).masking.rate == 0.4
    saved["task"]["n_best"] = 5
    with pytest.raises(ConfigError, match="has no knob 'n_best'"):
        config.read_recorded(saved)


def test_knob_that_acts_in_no_cell_is_refused():
    base = write({"masking.span_max": 8, "pairs": "none"})
    units = variants("unit", {unit: {"masking.unit": unit} for unit in ("token", "span")})
    assert len(expand(Study("?", base, (units,), (0,), {}))) == 2  # it acts in one of them
    rates = axis("masking.rate", (0.15, 0.3))
    with pytest.raises(ConfigError, match=r"in every cell, masking.span_max = 8 does nothing"):
        expand(Study("?", base, (rates,), (0,), {}))


def test_differences_name_every_changed_path():
    old = {"a": 1, "b": {"c": 1, "d": 2}, "e": [1]}
    new = {"a": 1, "b": {"c": 3}, "e": [1], "f": None, "g": 0, "h": {"i": 1}}
    changes = {"b.c": (1, 3), "b.d": (2, None), "g": (None, 0), "h": (None, {"i": 1})}
    assert config.differences(old, new) == changes
    assert config.differences(old, old) == {}


def test_source_with_splits_replaces_what_named_them():
    tree = recipes.finetuning("classify")
    tree.task.update(source="files:rows", validation_fraction=0.1)
    tree.task.update(format="tsv", columns=("text", "label"))
    config.put(tree, ["task", "files"], {"train": "all.tsv"})
    config.resolve(config.copy_with_source(tree, "files:other"))
    for source in ("files:train=a.tsv,validation=b.tsv", "tfds:glue/sst2"):
        named = config.resolve(config.copy_with_source(tree, source))
        assert (named.task.validation_fraction, named.task.files) == (0.2, {})
    assert (named.task.format, named.task.columns) == ("auto", ())


def test_free_on_resume_knows_what_changes_no_run():
    free = ("logging.every", "corpus.workers", "evals.validation.every", "checkpoints.keep")
    for path in (*free, "checkpoints.at", "model.attention"):
        assert config.free_on_resume(path), path
    # Steps that were scored by one metric are not comparable with those of another one.
    for path in ("branch_from", "corpus.path", "seed", "model.size", "checkpoints.best"):
        assert not config.free_on_resume(path), path
