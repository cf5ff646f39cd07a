"""`study sweep`: the study it stands for; the transcripts hold what it refuses."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from bert_jax.studies import sweep
from bert_jax.studies.definition import Study, expand

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def make(*axes: str, config: str = "tiny.py", **overrides: str) -> Study:
    """Make the study of a sweep; `a__b` is the knob a.b."""
    changes = [(path.replace("__", "."), text) for path, text in overrides.items()]
    return sweep.make_study(sweep.Sweep(f"{CONFIGS / config}", changes, axes, 3, None))


def test_values_are_crossed_with_one_another_and_seeds():
    """A value in brackets may hold commas."""
    splits, phases = "(0.8,0.1,0.1),(1,0,0)", '((0.5,0.3,"step"),(1.0,0.15,"linear")), ()'
    study = make("masking.rate=0.15,0.3", f"config.masking.replace={splits}", steps="2000")
    cells = expand(study)
    found = [(c.config.masking.rate, c.config.masking.replace, c.seed) for c in cells]
    replaced = ((0.8, 0.1, 0.1), (1.0, 0.0, 0.0))
    assert found == list(itertools.product((0.15, 0.3), replaced, (0, 1, 2)))
    assert {cell.config.steps for cell in cells} == {2000}
    compared = [(one.axis, one.baseline, one.metrics) for one in study.comparisons]
    loss = ("validation/mlm_loss",)
    assert compared == [("masking.rate", "15 %", loss), ("masking.replace", "80/10/10", loss)]
    (varied,) = make(f"masking.phases={phases}").axes
    falls = ((0.5, 0.3, "step"), (1.0, 0.15, "linear"))
    assert [dict(point.changes)["masking.phases"] for point in varied.points] == [falls, ()]


CAUSAL = {"pairs": "none", "model__causal": "true", "checkpoints__best": ""}
CAUSAL |= {"objectives__mlm__weight": "none", "objectives__causal_lm__weight": "1"}


@pytest.mark.parametrize(
    ("config", "overrides", "suite", "metric"),
    [
        ("pretrain.py:base", CAUSAL, "pretrain", "causal_lm_loss"),
        ("finetune.py:mrpc", {"task__source": "files:none.tsv"}, "task", "f1"),
    ],
)
def test_values_are_compared_by_what_is_trained(config, overrides, suite, metric):
    study = make("optim.learning_rate=2e-5,5e-5", config=config, **overrides)
    assert study.evaluations["validation"].name == suite
    assert study.comparisons[0].metrics == (f"validation/{metric}",)
