"""The realised-mask ledger: what was selected and how it was replaced, held against what the config says."""

from __future__ import annotations

import math

from bert_jax import knobs
from bert_jax.errors import DivergedError


class Ledger:
    """Adds up the counts of every update and stops the run when they cannot be sampling any more."""

    def __init__(self, settings: knobs.Masking, totals: dict[str, float] | None = None):
        self.settings = settings
        fresh = dict.fromkeys(("eligible", "selected", "quota", "mask", "random", "kept", "nominal", "examples"), 0.0)
        self.totals = dict(totals) if totals else fresh

    def add(self, metrics: dict[str, tuple[float, float]], rate: float, examples: int, step: int) -> None:
        """Adds one update's and checks the totals so far."""
        selected, eligible = (float(x) for x in metrics["masked_fraction"])
        row = {
            "eligible": eligible,
            "selected": selected,
            "quota": float(metrics["quota_fraction"][0]),
            "mask": float(metrics["mask_token_fraction"][0]),
            "random": float(metrics["random_fraction"][0]),
            "kept": float(metrics["kept_fraction"][0]),
            "nominal": rate * eligible,
            "examples": float(examples),
        }
        self.totals = {name: self.totals[name] + value for name, value in row.items()}
        fault = self.fault()
        if fault:
            raise DivergedError(
                f"step {step}: the realised masks are not what the config says: {fault}",
                "this is a defect, not bad luck: the counts are over six standard deviations off",
            )

    def fault(self) -> str:
        """What in the totals cannot be sampling, in words; empty when all is as configured."""
        t = self.totals
        # Rounding moves an example's quota by a half at most, or from 0 to 1; [CLS] and [SEP] may count.
        allowed = t["examples"] * (1 if self.settings.count == "eligible" else 4)
        if abs(t["quota"] - t["nominal"]) > allowed:
            return f"quotas sum to {t['quota']:.0f}, and the rate times eligible tokens is {t['nominal']:.0f}"
        # A unit across the quota's edge is all in or all out, with mean error 0 and deviation at most half its size.
        units = self.settings.unit != "token"
        slack = 6 * 0.5 * self.settings.max_unit * math.sqrt(t["examples"]) if units else 0.5
        if abs(t["selected"] - t["quota"]) > slack:
            return f"{t['selected']:.0f} tokens selected, and the quotas sum to {t['quota']:.0f}"
        for name, share in zip(("mask", "random", "kept"), self.settings.replace, strict=True):
            deviation = math.sqrt(t["selected"] * share * (1 - share))
            if abs(t[name] - t["selected"] * share) > 6 * deviation + 1e-6 * t["selected"]:
                return (
                    f"the share '{name}' is {t[name] / max(t['selected'], 1):.4f} of {t['selected']:.0f}, not {share}"
                )
        return ""
