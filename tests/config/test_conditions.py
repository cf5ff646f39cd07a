"""Every knob acts where its condition holds, and is refused where it is set and does nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from bert_jax import cli, config, recipes
from bert_jax.config import conditions, default, recorded, resolve, table
from bert_jax.errors import ConfigError
from bert_jax.studies.definition import Budget, Study, Suite, axis, expand, variants

ROOT = Path(__file__).resolve().parents[2]


def task(kind: str, **changes: Any) -> dict[str, Any]:
    labels = ("a", "b") if kind in ("classify", "tag") else ()
    options = {"task.options": ("one", "two")} if kind == "choice" else {}
    objectives = {
        "objectives": {kind: {"weight": 1.0, "labels": labels}},
        "checkpoints.best": "loss",
    }
    where = {"task.source": "files:data.tsv", "init_from": "run", "pairs": "none"}
    return (
        objectives
        | where
        | options
        | {name.replace("__", "."): value for name, value in changes.items()}
    )


CAUSAL = {
    "objectives.causal_lm.weight": 1.0,
    "model.causal": True,
    "pairs": "none",
    "checkpoints.best": "causal_lm_loss",
}
TEXT: dict[str, Any] = {}
DIFFUSION = {
    "objectives.diffusion.weight": 1.0,
    "masking.draw": "uniform",
    "masking.replace": (1.0, 0.0, 0.0),
}
HYBRID = {"objectives.hybrid.weight": 1.0, "pairs": "none"}
REPLACED = {
    "objectives.replaced.weight": 50.0,
    "masking.replace": (1.0, 0.0, 0.0),
    "evals.validation.replace": (1.0, 0.0, 0.0),
}
UNIFORM = {"masking.draw": "uniform"}
NSP = {"objectives": {"nsp": {"weight": 1.0}}, "checkpoints.best": "nsp_loss"}

# A value away from the default, a config in which it has an effect, and configs in which it has
# none.
FILES = {"corpus.source": "files"}
TFDS = {"corpus.source": "tfds"}
INIT = {"init_from": "run"}
TAG, SPAN, CLASSIFY, CHOICE = (task(kind) for kind in ("tag", "span", "classify", "choice"))
CASES: dict[str, tuple[Any, dict[str, Any], list[dict[str, Any]]]] = {
    "steps": (200_000, TEXT, [task("classify", epochs=3.0), {"epochs": 3.0}]),
    "packing": (2, TEXT, []),  # in a task it is a rule: rows would be wrong
    "pairs": ("sop", TEXT, [CLASSIFY]),
    "init_fresh": ("^nsp/", INIT, [TEXT]),
    "init_fresh_layers": (1, INIT, [TEXT]),
    "init_vocab": ("remap", INIT, [TEXT]),
    "corpus.source": ("files", TEXT, [CLASSIFY]),
    "corpus.path": ("/my/text", FILES, [TEXT, CLASSIFY, CLASSIFY | FILES]),
    "corpus.tfds_dir": ("there", TFDS, [TEXT, FILES]),
    "corpus.split": ("test", TFDS, [TEXT, FILES]),
    "corpus.revision": ("v1", {"corpus.source": "hub"}, [TEXT, FILES, TFDS]),
    "corpus.text_field": ("body", FILES, [TEXT, CLASSIFY]),
    "corpus.sentences": ("lines", TEXT, [CLASSIFY]),
    "corpus.language": ("de", TEXT, [{"corpus.sentences": "lines"}, CLASSIFY]),
    "corpus.deduplicate": (False, TEXT, [CLASSIFY]),
    "corpus.validation_fraction": (0.1, TEXT, [CLASSIFY]),
    "corpus.cache": ("there", TEXT, [CLASSIFY]),
    "corpus.workers": (2, TEXT, [CLASSIFY]),
    "task.name": ("mine", CLASSIFY, [TEXT]),
    "task.files": ({"train": "a.tsv"}, CLASSIFY, [TEXT, task("classify", task__source="tfds:x")]),
    "task.tfds_dir": ("there", task("classify", task__source="tfds:x"), [TEXT, CLASSIFY]),
    "task.format": ("tsv", CLASSIFY, [TEXT, task("classify", task__source="tfds:x")]),
    "task.columns": (("text", "label"), CLASSIFY, [TEXT, task("classify", task__format="jsonl")]),
    "task.id": ("id", CLASSIFY, [TEXT]),
    "task.text": ("body", CLASSIFY, [TEXT]),
    "task.text_pair": ("second", CLASSIFY, [TEXT, TAG]),
    "task.label": ("class", CLASSIFY, [TEXT]),
    "task.options": (("a", "b", "c"), CHOICE, [TEXT, CLASSIFY]),
    "task.values": (("0", "1"), CLASSIFY, [TEXT]),
    "task.validation_fraction": (0.1, CLASSIFY, [TEXT, task("classify", task__source="tfds:x")]),
    "task.rows": (10, CLASSIFY, [TEXT]),
    "task.long": ("refuse", CLASSIFY, [TEXT]),
    "task.stride": (64, SPAN, [TEXT, CLASSIFY, task("span", task__long="cut")]),
    "task.stride_as": ("overlap", TAG, [TEXT, CHOICE, task("tag", task__long="refuse")]),
    "task.question_tokens": (32, SPAN, [TEXT, CLASSIFY]),
    "task.answer_tokens": (10, SPAN, [TEXT, TAG]),
    "task.n_best": (5, SPAN, [TEXT, CLASSIFY]),
    "task.no_answer": (True, SPAN, [TEXT, CLASSIFY]),
    "task.no_answer_threshold": (1.0, task("span", task__no_answer=True), [TEXT, SPAN, CLASSIFY]),
    "task.metrics": (("accuracy",), CLASSIFY, [TEXT]),
    "task.pad": ("full", CLASSIFY, [TEXT]),
    "task.group": ("length", CLASSIFY, [TEXT, task("classify", task__pad="full")]),
    "tokenizer.kind": ("bpe", TEXT, [CLASSIFY]),
    "tokenizer.vocab_size": (1_000, TEXT, [{"tokenizer.path": "vocab.txt"}, CLASSIFY]),
    "tokenizer.lowercase": (False, TEXT, [{"tokenizer.path": "vocab.txt"}, CLASSIFY]),
    "tokenizer.max_word_length": (50, TEXT, [CLASSIFY, {"tokenizer.kind": "bpe"}]),
    "examples.short_probability": (0.2, TEXT, [{"pairs": "none"}, CLASSIFY]),
    "examples.random_next_probability": (
        0.2,
        TEXT,
        [{"pairs": "none"}, {"pairs": "sop"}, CLASSIFY],
    ),
    "examples.truncate": ("front", {"pairs": "sop"}, [{"pairs": "none"}, CLASSIFY]),
    "masking.rate": (0.4, TEXT, [CAUSAL, CLASSIFY, UNIFORM]),
    "masking.prediction_rate": (0.1, TEXT, [CAUSAL, CLASSIFY, NSP, UNIFORM]),
    "masking.replace": ((1.0, 0.0, 0.0), TEXT, [CAUSAL, CLASSIFY]),
    "masking.unit": ("word", TEXT, [CAUSAL, CLASSIFY]),
    "masking.max_unit": (4, {"masking.unit": "word"}, [TEXT, CAUSAL]),
    "masking.overflow": ("skip", {"masking.unit": "span"}, [TEXT, CAUSAL]),
    "masking.span_mean": (2.0, {"masking.unit": "span"}, [TEXT, {"masking.unit": "pmi"}, CAUSAL]),
    "masking.span_max": (8, {"masking.unit": "span"}, [TEXT, {"masking.unit": "word"}, CAUSAL]),
    "masking.pmi_words": (3, {"masking.unit": "pmi"}, [TEXT, {"masking.unit": "span"}, CAUSAL]),
    "masking.pmi_count": (3, {"masking.unit": "pmi"}, [TEXT, {"masking.unit": "span"}]),
    "masking.pmi_coverage": (0.3, {"masking.unit": "pmi"}, [TEXT, {"masking.unit": "span"}]),
    "masking.dupe_factor": (10, TEXT, [CAUSAL, CLASSIFY]),
    "masking.phases": (((0.5, 0.3, "step"),), TEXT, [UNIFORM, CAUSAL]),
    "masking.draw": ("cosine_low", TEXT, [CAUSAL, CLASSIFY]),
    "masking.draw_low": (0.1, UNIFORM, [TEXT, {"masking.draw": "beta"}]),
    "masking.draw_high": (0.5, UNIFORM, [TEXT, {"masking.draw": "cosine_low"}]),
    "masking.draw_alpha": (2.0, {"masking.draw": "beta"}, [TEXT, UNIFORM]),
    "masking.draw_beta": (2.0, {"masking.draw": "beta"}, [TEXT, UNIFORM]),
    "masking.weights": ("frequency", TEXT, [CAUSAL, CLASSIFY]),
    "masking.weights_power": (-1.0, {"masking.weights": "frequency"}, [TEXT, CAUSAL]),
    "masking.count": ("all", TEXT, [CAUSAL, CLASSIFY]),
    "masking.rounding": ("nearest", TEXT, [CAUSAL, CLASSIFY]),
    "masking.random_from": ("regular", TEXT, [{"masking.replace": (1.0, 0.0, 0.0)}, CAUSAL]),
    "model.max_positions": (256, TEXT, [{"model.position": "rotary"}]),
    "model.first_position": (2, TEXT, [{"model.position": "rotary"}]),
    "model.position_buckets": (16, {"model.position": "relative"}, [TEXT]),
    "model.rotary_base": (500.0, {"model.position": "rotary"}, [TEXT]),
    "model.rotary_base_near": (
        500.0,
        {"model.position": "rotary", "model.window": 8},
        [TEXT, {"model.position": "rotary"}, {"model.window": 8}],
    ),
    "model.first_norm": (False, {"model.norm": "pre"}, [TEXT]),
    "model.pooling": ("mean", CLASSIFY, [{"pairs": "none"}, TAG]),
    "model.pooler": (
        "transform",
        TAG,
        [{"pairs": "none"}, CLASSIFY | {"model.features": 2}],
    ),
    "model.head_activation": ("relu", TEXT, [CLASSIFY, NSP, {"model.word_head": "matrix"}]),
    "model.word_head": ("matrix", TEXT, [CLASSIFY, NSP]),
    "model.pooler_bias": (False, CLASSIFY, [TAG, {"pairs": "none"}]),
    "model.features": (2, CLASSIFY, [TEXT]),
    "model.global_every": (2, {"model.window": 8}, [TEXT]),
    "model.classifier_dropout": (0.5, CLASSIFY, [TEXT]),
    "objectives.classify.labels": (("x", "y"), CLASSIFY, []),
    "objectives.causal_lm.end": (False, CAUSAL, []),
    "objectives.diffusion.gamma": (0.5, DIFFUSION, []),
    "objectives.hybrid.share": (0.25, HYBRID, []),
    "objectives.hybrid.shift": (True, HYBRID, []),
    "objectives.replaced.generator": (0.25, REPLACED, []),
    "optim.warmup_steps": (5, TEXT, [{"optim.warmup_fraction": 0.1}]),
    "optim.decay_fraction": (0.1, {"optim.schedule": "wsd"}, [TEXT]),
    "optim.final_fraction": (
        0.1,
        TEXT,
        [{"optim.schedule": "constant"}, {"optim.schedule": "linear2018"}],
    ),
    "optim.no_decay": ("bias$", TEXT, [{"optim.weight_decay": 0.0}]),
    "parallel.prng": ("rbg", TEXT, [{"model.dropout": 0.0, "model.attention_dropout": 0.0}]),
    "checkpoints.every": (5, TEXT, [task("classify", checkpoints__epochs=1.0)]),
    "checkpoints.epochs": (1.0, CLASSIFY, [TEXT]),
    "checkpoints.at_words": ((1_000,), TEXT, [CLASSIFY]),
    "checkpoints.patience": (2, TEXT, [{"checkpoints.best": ""}]),
    "evals.validation.every": (5, TEXT, [task("classify", evals__validation__epochs=1.0)]),
    "evals.validation.epochs": (1.0, CLASSIFY, [TEXT]),
    "evals.validation.split": ("test", CLASSIFY, [TEXT]),
    "evals.validation.rate": (0.4, TEXT, [CAUSAL, CLASSIFY]),
    "evals.validation.replace": ((1.0, 0.0, 0.0), TEXT, [CAUSAL, CLASSIFY]),
    "evals.validation.unit": ("word", TEXT, [CAUSAL, CLASSIFY]),
    "evals.validation.seed": (1, CAUSAL, [CLASSIFY]),
    "logging.samples": (3, TEXT, [NSP]),
}


def write(values: dict[str, Any]) -> Any:
    """Return the ConfigDict of a file that sets knobs, whatever they might replace."""
    tree = default()
    for path, value in sorted(values.items(), key=lambda one: one[0] != "objectives"):
        config.put(tree, path.split("."), value)
    return tree


# --- declarations ---------------------------------------------------------------------------------


def test_every_condition_reads_and_has_an_example():
    conditional = set()
    for path, knob in table.list_knobs().items():
        section = table.read_section(table.Config)[path.partition(".")[0]]
        for text in section.traits.when + knob.traits.when:
            conditions.read_condition(text).holds(resolve(default()), "validation")
            conditional.add(path)
    known = {table.generalize(path) for path in CASES}
    assert conditional - known == {"task.source"}  # which makes it a task


def test_named_conditions_are_used():
    sections = table.read_section(table.Config).values()
    used = [text for knob in sections for text in knob.traits.when]
    used += [text for knob in table.list_knobs().values() for text in knob.traits.when]
    assert conditions.CONDITIONS.keys() - set(used) == set()


def test_unit_knobs_are_those_that_units_read():
    found = conditions.list_unit_knobs()
    assert found[:3] == ["max_unit", "span_mean", "span_max"]
    assert all(name.startswith("pmi_") for name in found[3:])


# --- the check ------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", CASES)
def test_knob_is_taken_where_it_acts(path):
    value, acts, _ = CASES[path]
    found = config.to_dict(resolve(write(acts | {path: value})))
    for name in path.split("."):
        found = found[name]
    assert found == json.loads(json.dumps(value))


IN_VAIN = [(path, value, other) for path, (value, _, idle) in CASES.items() for other in idle]
IN_VAIN += [("objectives.mlm.labels", ("x", "y"), TEXT), ("objectives.mlm.end", False, TEXT)]
IN_VAIN += [("objectives.mlm.gamma", 0.5, TEXT), ("objectives.mlm.share", 0.25, TEXT)]
IN_VAIN += [("objectives.mlm.shift", True, TEXT), ("objectives.mlm.generator", 0.25, TEXT)]


@pytest.mark.parametrize(
    ("path", "value", "other"), IN_VAIN, ids=lambda one: one if isinstance(one, str) else ""
)
@pytest.mark.fault(20)
@pytest.mark.fault(21)
def test_knob_is_refused_where_it_does_nothing(path, value, other):
    with pytest.raises(ConfigError, match="does nothing: it is for ") as caught:
        resolve(write(other | {path: value}))
    # The other knob may do as little.
    assert re.match(rf"({'|'.join((path, *other))}) = ", str(caught.value))
    assert "--config." in caught.value.hint
    _, idle = config.settle(write(other | {path: value}))
    assert path in [one.path for one in idle]


@pytest.mark.parametrize(
    ("path", "value", "other"),
    [
        ("pairs", "none", CLASSIFY),
        ("tokenizer.kind", "wordpiece", CLASSIFY),
        ("tokenizer.lowercase", False, {"tokenizer.kind": "bpe"}),
        ("model.head_activation", "gelu", CLASSIFY),
        ("model.classifier_dropout", 0.1, TEXT),
        ("optim.warmup_steps", 100_000, {"optim.warmup_fraction": 0.1}),
        ("logging.samples", 0, NSP),
    ],
)
def test_value_that_means_the_same_is_taken(path, value, other):
    assert config.settle(write(other | {path: value}))[1] == []


def test_preset_values_count_as_defaults_until_changed():
    tree = default("google_2018")  # units of up to 512 tokens, whatever the unit
    assert resolve(tree).masking.max_unit == 512
    tree.masking.max_unit = 8
    with pytest.raises(ConfigError, match="max_unit = 8 does nothing"):
        resolve(tree)
    tree.masking.unit = "word"
    assert resolve(tree).masking.max_unit == 8


def test_fine_tuning_takes_the_whole_shape_of_a_model():
    model = {"position": "rotary", "max_positions": 64, "head_activation": "relu"}
    start = config.settle({"model": model})[0]
    found = resolve(recipes.finetuning("classify", "run", {"task.source": "files:x"}, start))
    assert (found.model.max_positions, found.model.head_activation) == (64, "relu")


def test_recorded_config_may_have_idle_knobs():
    tree = write(CAUSAL | {"masking.rate": 0.4})
    with pytest.raises(ConfigError, match=r"masking.rate"):
        resolve(tree)
    assert recorded(tree.to_dict()).masking.rate == 0.4


STEPS = {"masking.phases": ((0.5, 0.15, "step"),)}
ALONE = {"pairs": "none", "objectives.nsp.weight": None, "checkpoints.best": "mlm_loss"}
UNMASKED = {"objectives.diffusion.weight": 1.0, "masking.draw": "uniform"} | ALONE
FOUND = {"objectives.replaced.weight": 50.0, "evals.validation.replace": (0.0, 1.0, 0.0)}


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        (STEPS | {"masking.draw": "uniform"}, "--config.masking.draw=fixed"),
        ({"optim.weight_decay": 0.0, "optim.no_decay": "bias$"}, "--config.optim.weight_decay"),
        (UNMASKED, "--config.masking.replace=1,0,0"),
        (FOUND | {"masking.replace": (1.0, 0.0, 0.0)}, "--config.masking.replace=0,1,0"),
    ],
)
def test_hint_mends_the_config_when_pasted(settings, hint):
    tree = default()
    config.assign(tree, settings)
    with pytest.raises(ConfigError) as caught:
        resolve(tree)
    assert hint in caught.value.hint
    flag = re.search(r"--config\.(\S+?)=([^\s,]*[\d,]*\w)", caught.value.hint)
    assert flag is not None
    config.overrides(tree, [(flag[1], flag[2])])
    resolve(tree)


# --- studies and commands -------------------------------------------------------------------------


def study(base: dict[str, Any], *axes: Any, **more: Any) -> Study:
    return Study("?", write(base), axes, (0,), {"validation": Suite("pretrain")}, **more)


def test_axis_that_changes_nothing_is_refused():
    rates = axis("masking.rate", (0.15, 0.3, 0.4))
    with pytest.raises(ConfigError, match=r"masking.rate 30 %: masking.rate = 0.3 does nothing"):
        expand(study(CAUSAL, rates))
    arms = variants("objective", {"masked": {}, "left to right": CAUSAL})
    with pytest.raises(
        ConfigError, match=r"left to right, masking.rate 30 %: masking.rate = 0.3 does nothing"
    ):
        expand(study({"pairs": "none"}, arms, rates))
    kept = study(
        {"pairs": "none"},
        *(arms, rates),
        keep=lambda points: (
            points["objective"].label == "masked" or points["masking.rate"].value == 0.15
        ),
    )
    assert len(expand(kept)) == 4


def test_axis_over_an_idle_preset_value_is_refused():
    base = default("google_2018")
    units = axis("masking.max_unit", (16, 512))  # the default, and the preset's value
    with pytest.raises(ConfigError, match="max_unit = 512 does nothing"):
        expand(Study("?", base, (units,), (0,), {}))


def test_base_knob_must_act_in_some_cell():
    base = {"masking.span_max": 8, "pairs": "none"}
    units = variants("unit", {unit: {"masking.unit": unit} for unit in ("token", "span")})
    assert [cell.config.masking.span_max for cell in expand(study(base, units))] == [8, 8]
    with pytest.raises(ConfigError, match=r"in every cell, masking.span_max = 8 does nothing"):
        expand(study(base, axis("masking.rate", (0.15, 0.3))))


def test_point_replaces_what_the_base_has():
    shares = axis("optim.warmup_fraction", (0.1, 0.2))
    cells = expand(study({"optim.warmup_steps": 7}, shares, budget=Budget("steps", 100)))
    assert [cell.config.optim.warmup_steps for cell in cells] == [10, 20]


@pytest.mark.fault(20)
def test_command_ends_before_anything_is_made(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    for change, hint in (
        ("--config.corpus.path=/my/text", "--config.corpus.source=files"),
        ("--config.masking.span_max=8", "--config.masking.unit=span"),
    ):
        words = ["train", "--config=configs/tiny.py", change, f"--workdir={tmp_path / 'run'}"]
        assert cli.execute(words) == 2
        said = capsys.readouterr().err
        assert "does nothing: it is for " in said
        assert hint in said
    assert not list(tmp_path.iterdir())
