"""A run that goes on is the run it was: what may change, and what is refused.

That it ends with the same bits after a kill is held by tests/net, test_run.py and test_runs.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bert_jax.config import knobs, to_dict
from bert_jax.errors import ConfigError
from bert_jax.training import resume
from tests import toy

PRINTS = {"corpus": "a" * 64, "tokenizer": "b" * 64, "batches": "c" * 64}


def check(
    now: knobs.Config, *allowed: str, best: float | None = None, prints: dict | None = None
) -> dict:
    """Resume a run of the toy config, at whose best step the loss was `best`, as another one."""
    before = {"config": to_dict(toy.config()), **PRINTS, "best": best, "ledger": {"masked": 1}}
    after = {"config": to_dict(now), **PRINTS, **(prints or {})}
    return resume.check_same(before, after, allowed, Path("run"))


@pytest.mark.fault(7)
def test_resume_refuses_another_config_by_name():
    with pytest.raises(ConfigError, match=r"masking.rate: 0.15 -> 0.4") as caught:
        check(toy.config(masking__rate=0.4))
    assert "--allow-change=masking.rate" in caught.value.hint
    other = {"batches": "d" * 64}
    assert check(toy.config(masking__rate=0.4), "masking.rate", prints=other)["ledger"] is None
    assert check(toy.config(logging__every=3))["ledger"] == {"masked": 1}  # free to change
    longer = toy.config(steps=200, optim__warmup_fraction=0.1)
    assert check(longer, "steps", "optim.warmup_fraction")


@pytest.mark.fault(7)
@pytest.mark.parametrize(
    ("kind", "allowed", "refused"),
    [
        ("corpus", (), True),
        ("tokenizer", ("steps",), True),
        ("batches", ("masking.rate",), False),
        ("corpus", ("masking.rate",), True),
    ],
)
def test_resume_refuses_other_data(kind, allowed, refused):
    prints = {kind: "d" * 64}
    now = toy.config(masking__rate=0.4) if "masking.rate" in allowed else toy.config()
    if not refused:
        check(now, *allowed, prints=prints)
        return
    with pytest.raises(ConfigError, match=f"another {kind}: .* -> dddddddddddd"):
        check(now, *allowed, prints=prints)


@pytest.mark.fault(7)
@pytest.mark.parametrize(("knob", "value"), [("rate", 0.3), ("unit", "word"), ("seed", 1)])
def test_resume_refuses_another_measure_of_the_best(knob, value):
    """The best step would be chosen among numbers of two measures."""
    now = toy.config(**{f"evals__validation__{knob}": value})
    with pytest.raises(ConfigError, match=rf"evals\.validation\.{knob}: .* are ranked by") as error:
        check(now, f"evals.validation.{knob}", best=1.0)
    assert error.value.hint.startswith(f"--config.evals.validation.{knob}=")
    assert check(toy.config(evals__validation__batch_size=16), best=1.0)["best"] == 1.0
