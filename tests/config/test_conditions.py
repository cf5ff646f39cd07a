"""A knob acts where its conditions hold, and is refused where it is set and does nothing.

Which conditions each knob has is in configs/KNOBS.md, which tests/cli/test_knobs.py holds; rules
between knobs are held by tests/net/transcripts/train_config.txt.
"""

import json

import pytest

from bert_jax import config
from bert_jax.config import conditions, validation
from bert_jax.errors import ConfigError
from tests.config.settings import CAUSAL, CLASSIFY, HYBRID, MASK_ONLY, NSP, SPAN, TAG, write

OF_TFDS = CLASSIFY | {"task.source": "tfds:x"}
NAMED = CLASSIFY | {"task.source": "files:train=a.tsv,validation=b.tsv"}
SPLIT = CLASSIFY | {"task.source": "files:data/{split}.tsv"}
NO_PAIRS, EVAL = {"pairs": "none"}, "evals.validation"
ROTARY, WINDOW = {"model.position": "rotary"}, {"model.window": 8}
ROWS: list[tuple[dict, dict, dict]] = [  # where knobs act, where not, and a value
    # Each row of CONDITIONS
    ({}, CLASSIFY, {"pairs": "sop", "tokenizer.kind": "bpe"}),
    (CLASSIFY, {}, {"task.rows": 5, "model.features": 2}),
    (CLASSIFY, OF_TFDS, {"task.format": "tsv"}),
    (CLASSIFY, NAMED, {"task.files": {"train": "a"}, "task.validation_fraction": 0.5}),
    (CLASSIFY, SPLIT, {"task.validation_fraction": 0.5}),
    (CLASSIFY, CLASSIFY | {"task.format": "jsonl"}, {"task.columns": ("a", "text")}),
    (SPLIT, CLASSIFY | {"task.source": "files:a.JSONL.gz"}, {"task.columns": ("a", "text")}),
    (OF_TFDS, CLASSIFY, {"task.tfds_dir": "x"}),
    ({}, CAUSAL, {"masking.count": "all"}),
    ({}, NSP, {"masking.prediction_rate": 0.1, "model.word_head": "matrix", "logging.samples": 5}),
    ({}, {"tokenizer.path": "v.txt"}, {"tokenizer.vocab_size": 500}),
    ({}, {"tokenizer.kind": "bpe"}, {"tokenizer.lowercase": False}),
    ({}, MASK_ONLY, {"masking.random_from": "regular"}),
    ({}, {"model.word_head": "matrix"}, {"model.head_activation": "relu"}),
    ({}, NO_PAIRS, {"model.pooling": "mean", "model.pooler": "gelu"}),
    ({}, TAG, {"model.pooler_bias": False}),
    ({}, {"model.dropout": 0.0, "model.attention_dropout": 0.0}, {"parallel.prng": "rbg"}),
    # Each form of the others
    ({}, {"epochs": 3.0}, {"steps": 50}),
    ({"init_from": "run"}, {}, {"init_vocab": "remap"}),
    (SPAN | {"task.no_answer": True}, SPAN, {"task.no_answer_threshold": 0.5}),
    (SPAN, CLASSIFY, {"task.stride": 5}),
    ({"masking.unit": "span"}, {"masking.unit": "word"}, {"masking.span_max": 8}),
    ({f"{EVAL}.unit": "span"}, {}, {"masking.span_max": 8}),
    (ROTARY | WINDOW, ROTARY, {"model.rotary_base_near": 1e3}),
    (ROTARY | WINDOW, WINDOW, {"model.rotary_base_near": 1e3}),
    ({}, {"optim.schedule": "constant"}, {"optim.final_fraction": 0.1}),
    (CLASSIFY, CLASSIFY | {f"{EVAL}.epochs": 1.0}, {f"{EVAL}.every": 5}),
]
CASES = [(knob, row[2][knob], row[0], row[1]) for row in ROWS for knob in row[2]]


def check_taken(knob: str, value: object, where: dict) -> None:
    resolved = config.resolve(write(where | {knob: value}))
    assert conditions.get_value(resolved, knob) == value
    recorded = json.loads(json.dumps(config.to_dict(resolved)))
    assert config.read_recorded(recorded) == resolved


def check_refused(knob: str, value: object, where: dict) -> None:
    tree = write(where | {knob: value})
    (error,) = [one.error() for one in config.resolve_and_list_idle(tree)[1] if one.path == knob]
    assert f"{knob} = " in str(error)
    assert f"--config.{knob}=" in error.hint
    with pytest.raises(ConfigError, match="does nothing: it is for "):
        config.resolve(tree)


@pytest.mark.fault(20, 21)
@pytest.mark.parametrize(("knob", "value", "acts", "idle"), CASES)
def test_knob_is_taken_only_where_it_acts(knob, value, acts, idle):
    check_taken(knob, value, acts)
    check_refused(knob, value, idle)


@pytest.mark.fault(21)
def test_knob_of_an_objective_is_refused_in_others():
    check_taken("objectives.classify.labels", ("x", "y"), CLASSIFY)
    check_refused("objectives.mlm.labels", ("x", "y"), {})
    check_taken("objectives.hybrid.share", 0.4, HYBRID)
    check_refused("objectives.mlm.share", 0.4, {})


def test_value_that_means_the_same_is_taken():
    values = [("pairs", "none", CLASSIFY), ("model.head_activation", "gelu", CLASSIFY)]
    values += [("optim.warmup_steps", 100_000, {"optim.warmup_fraction": 0.1})]
    values += [("logging.samples", 0, NSP)]
    for path, value, other in values:
        assert config.resolve_and_list_idle(write(other | {path: value}))[1] == [], path


def test_every_row_of_conditions_is_held():
    held = {condition for knob, *_ in CASES for condition in conditions.list_conditions(knob)}
    assert {*conditions.CONDITIONS.values()} <= held


def test_evaluation_reads_the_knobs_of_units():
    """What it refuses is held by tests/net/transcripts/evaluate.txt."""
    validation.check_evaluation("masking.span_max")
