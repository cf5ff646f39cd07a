"""Where a run branches off another one, and from where on others may branch off it."""

from __future__ import annotations

from bert_jax.config import knobs


def trunk(config: knobs.Config) -> tuple[str, int]:
    """Return the run that `branch_from` names and its step; "" and 0 where it names none."""
    run, _, step = config.branch_from.rpartition("@")
    return run, int(step) if step.isdecimal() else 0


def stable_until(settings: knobs.Optim, steps: int) -> int:
    """Return the number of updates before the decay of `wsd`, which depend on no later one."""
    return max(settings.warmup_steps, steps - round(settings.decay_fraction * steps))
