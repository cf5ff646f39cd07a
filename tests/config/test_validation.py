"""Rules between knobs: each refuses what would spoil a run, before anything is made.

The commonest rules are held by tests/net/transcripts/train_config.txt.
"""

import math
import re

import pytest

from bert_jax import config
from bert_jax.config import validation
from bert_jax.errors import ConfigError
from tests.config.settings import CLASSIFY, DIFFUSION, HYBRID, MASK_ONLY, REPLACED, task, write

GENERATOR = REPLACED | MASK_ONLY | {"objectives.replaced.generator": 0.25}
VIEWS = {"masking.prediction_rate": 0.4}
RULES = [  # settings, and what is said of them
    ({"masking.rate": "0.4"}, "config.masking.rate must be float, got '0.4'"),
    ({"optim.clip_norm": math.inf}, "must be float, got inf"),
    ({"init_from": "run", "init_fresh_layers": 13}, "exceeds model.layers = 12"),
    ({"tokenizer.kind": "bpe", "tokenizer.vocab_size": 261}, "no piece of two bytes"),
    (CLASSIFY | {"task.values": ("0",)}, "1 and objectives.classify.labels 2 entries"),
    (task("choice") | {"task.options": ()}, "task.options is empty"),
    ({"objectives": {"classify": {}}, "checkpoints.best": ""}, "no labelled data says them"),
    (CLASSIFY | {"model.features": 13}, "model.features = 13"),
    ({"model.scan": True, "model.layer_weights": True}, "layers differ"),
    ({"model.attention": "splash", "model.position": "alibi"}, "takes no bias"),
    ({"model.attention": "cudnn", "model.dtype": "float32"}, "computes in bfloat16"),
    ({"model.position": "relative", "model.position_buckets": 1024}, "reach model.max_positions"),
    ({"evals": {"a b": {}, "validation": {}}}, "config.evals has 'a b'"),
    ({"evals": {"other": {}}}, "needs evals.validation"),
    ({"masking.phases": ((0.5, 0.1, "stp"),)}, "Invalid enum value 'stp'"),
    ({"masking.phases": ((0.5, 0.1, "step"), (0.5, 0.2, "step"))}, "masking.phases end at"),
    ({"masking.phases": ((1.0, 0.1, "step"),)}, "a step at the end"),
    ({"masking.draw": "uniform", "masking.draw_low": 0.5, "masking.draw_high": 0.1}, "draw_low"),
    ({"evals.validation.unit": "span", "masking.span_max": 3}, "span_mean = 3.8 cannot be reached"),
    (VIEWS | {"masking.unit": "word", "masking.overflow": "skip"}, "selections are not nested"),
    (VIEWS | {"masking.phases": ((0.5, 0.3, "step"),)}, "exceeds the lowest rate, 0.15"),
    (DIFFUSION | {"masking.unit": "word"}, "counts tokens"),
    (DIFFUSION | {"masking.weights": "frequency"}, "equally likely"),
    (DIFFUSION | {"masking.draw_high": 0.5}, "cannot occur"),
    (DIFFUSION | {"sequence_length": 2049, "model.position": "rotary"}, "a table of"),
    (DIFFUSION | {"objectives.hybrid.weight": 1.0}, "has both"),
    (HYBRID | {"pairs": "nsp"}, "single texts"),
    (HYBRID | {"model.causal": True}, "decides by example"),
    (HYBRID | {"masking.prediction_rate": 0.3}, "once"),
    (HYBRID | {"model.attention": "splash"}, "its blocks are causal"),
    (REPLACED | DIFFUSION, "replaced beside objectives.diffusion"),
    (GENERATOR | {"masking.replace": (0.8, 0.1, 0.1)}, "fills in what is hidden"),
    (GENERATOR | {"masking.prediction_rate": 0.1}, "leaves some"),
    (GENERATOR | {"objectives.replaced.generator": 0.15}, "heads of a width"),
    (GENERATOR | {"objectives": {"replaced": {"generator": 0.25}}}, "which is left out"),
    # What can be evaluated, and not trained.
    ({"objectives": {}}, "objectives is empty"),
    ({"objectives": CLASSIFY["objectives"]}, "needs labelled data"),
    ({"model.attention": "cudnn", "model.dtype": "bfloat16"}, "cannot drop probabilities"),
    ({"parallel.arms": "vmap", "parallel.prng": "rbg"}, "would drop other elements"),
]


@pytest.mark.fault(20)
@pytest.mark.parametrize(("settings", "said"), RULES, ids=[said for _, said in RULES])
def test_rule_refuses_what_would_spoil_a_run(settings, said):
    if "objectives" in settings:  # the entry first, then what others set in it
        settings = {"checkpoints.best": ""} | settings
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        validation.check_trainable(config.resolve(write(settings)))
    assert caught.value.hint


def test_views_of_tokens_go_with_any_preset():
    tree = config.default("google_2018")  # whose overflow does nothing to units of one token
    config.assign(tree, VIEWS | {"batch_size": 300})
    assert config.resolve(tree).masking.overflow == "skip"


@pytest.mark.parametrize(
    ("settings", "change"),
    [
        ({"optim.weight_decay": 0.0, "optim.no_decay": "bias$"}, "optim.weight_decay=0.01"),
        ({"masking.phases": ((0.5, 0.1, "step"),), "masking.draw": "beta"}, "masking.draw=fixed"),
        (
            DIFFUSION | {"pairs": "none", "masking.replace": (0.8, 0.1, 0.1)},
            "masking.replace=1,0,0",
        ),
        (REPLACED | MASK_ONLY | {"evals": {}, "checkpoints.best": ""}, "masking.replace=0,1,0"),
    ],
)
def test_hint_mends_the_config_when_pasted(settings, change):
    tree = write(settings)
    with pytest.raises(ConfigError) as caught:
        config.resolve(tree)
    assert f"--config.{change}" in caught.value.hint
    config.override(tree, *change.split("="))
    config.resolve(tree)


def test_evaluation_reads_the_knobs_of_units():
    """What it refuses is held by tests/net/transcripts/evaluate.txt."""
    validation.check_evaluation("masking.span_max")


def test_warn_says_that_a_run_ends_in_its_warm_up(capsys):
    found = config.resolve(write({"steps": 5, "optim.warmup_steps": 100}))
    validation.warn_of_warmup(found, found, config.resolve(config.default()))
    said = capsys.readouterr().err
    assert said.count("warmup_steps = 100 exceeds steps = 5") == 1
    assert "ends at 0.04 of its peak" in said


@pytest.mark.parametrize(
    ("changes", "lost"),
    [
        ({"evals.validation.every": 150}, True),
        ({"evals.validation.every": 150, "checkpoints.patience": 3}, False),
        ({"evals.validation.every": 150, "checkpoints.best": ""}, False),
        ({"evals.validation.every": 150, "steps": 150}, False),
        ({"evals.validation.every": 200}, False),
        ({"evals.validation.every": 0}, False),
    ],
)
def test_warn_says_that_the_best_step_may_be_lost(changes, lost, capsys):
    tree = write({"steps": 1000, "checkpoints.every": 100, "optim.warmup_steps": 0} | changes)
    validation.warn_of_lost_best(config.resolve(tree))
    said = "evals.validation.every = 150 and checkpoints.every = 100"
    assert capsys.readouterr().err.count(said) == lost
