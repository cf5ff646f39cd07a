"""Rules between knobs, where tests/net/transcripts/train_config.txt does not hold them."""

import pytest

from bert_jax import config
from bert_jax.config import validation
from bert_jax.errors import ConfigError
from tests.config.settings import DIFFUSION, MASK_ONLY, REPLACED, write


def test_views_of_tokens_go_with_any_preset():
    tree = config.default("google_2018")  # whose overflow does nothing to units of one token
    config.assign(tree, {"masking.prediction_rate": 0.4, "batch_size": 300})
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
