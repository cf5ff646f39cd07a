"""The ledger of realised masks: counts of masked tokens, checked against the config."""

from __future__ import annotations

import math

from bert_jax.config import knobs
from bert_jax.errors import DivergedError
from bert_jax.masking import drawn_quotas, rates
from bert_jax.masking.drawn_quotas import DECILES


class Ledger:
    """The counts of all updates; it stops a run whose deviations sampling cannot explain."""

    def __init__(
        self,
        settings: knobs.Masking,
        distinct: float = math.inf,
        totals: dict[str, float] | None = None,
        length: int = 0,
        share: float | None = None,
    ):
        """Begin with the totals of an earlier attempt, or with zeros.

        Where masks are static they repeat, and `distinct` examples have masks of their own. Where
        rates are drawn, examples have up to `length` tokens. Of a hybrid model a `share` of them is
        causal.
        """
        self.settings, self.distinct, self.length, self.share = settings, distinct, length, share
        self.views = rates.count_views(settings)
        names = (
            *("eligible", "selected", "quota", "shortfall"),
            *("predicted", "predict_quota", "predict_shortfall"),
            *("mask", "random", "kept", "asked", "nominal", "examples"),
        )
        self.totals = dict.fromkeys(names, 0.0)
        if settings.draw != "fixed":
            self.totals |= {f"{n}_{d}": 0.0 for n in ("drawn", "expected") for d in range(DECILES)}
        elif settings.rounding == "unbiased":
            self.totals["mean"] = 0.0  # of all draws that round quotas
        self.totals |= {"distinct": 0.0} if self.views > 1 else {}
        if share is not None:
            self.totals |= {"causal": 0.0, "read": 0.0}
        self.totals |= totals or {}

    def add(
        self, metrics: dict[str, tuple[float, float]], rate: float, examples: int, step: int
    ) -> None:
        """Add the counts of an update, and check the totals so far."""
        selected, eligible = metrics["masked_fraction"]
        asked, countable = metrics["asked_fraction"]
        names = ["quota", "predicted", "predict_quota", "random", "kept"]
        names += ["shortfall", "predict_shortfall"] if self.settings.overflow == "skip" else []
        if self.views > 1:  # in all of which the prediction rate is selected
            assert self.settings.prediction_rate is not None
            rate = self.settings.prediction_rate / self.views
            names.append("distinct")
        row = {name: metrics[f"{name}_fraction"][0] for name in names} | {
            "eligible": eligible,
            "selected": selected,
            "mask": metrics["mask_token_fraction"][0],
            "asked": asked,
            "nominal": rate * countable,
            "examples": examples,
        }
        if "mean" in self.totals:
            row["mean"] = metrics["expected_fraction"][0]
        if self.settings.draw != "fixed":
            for decile in range(DECILES):
                pair = metrics[f"asked_decile_{decile}"]
                row[f"drawn_{decile}"], row[f"expected_{decile}"] = pair
        if self.share is not None:
            row["causal"], row["read"] = metrics["causal_fraction"]
        self.totals |= {name: self.totals[name] + float(value) for name, value in row.items()}
        fault = self.fault()
        if fault:
            raise DivergedError(
                f"step {step}: the realised masks are not what the config says: {fault}",
                "this is a defect, not bad luck: the counts are over six standard deviations off",
            )

    def fault(self) -> str:
        """Name what in the totals sampling cannot explain; return "" if all is as configured."""
        t = self.totals
        # The same draws over and over: the deviation grows with the repeats, not with their root.
        repeats = max(1.0, t["examples"] / self.distinct)
        if self.settings.draw != "fixed":
            if fault := self._fault_of_draws(repeats):
                return fault
        # Rounding moves an example's quota by less than one.
        elif abs(t["asked"] - t["nominal"]) > t["examples"]:
            return (
                f"quotas sum to {t['asked']:.0f}, "
                f"and the rate times the tokens counted is {t['nominal']:.0f}"
            )
        # A draw rounds the quota of an example with a deviation of at most a half.
        elif "mean" in t:
            slack = 6 * 0.5 * math.sqrt(t["examples"] * repeats) + 1e-6 * t["mean"]
            if abs(t["asked"] - t["mean"]) > slack:
                return f"quotas sum to {t['asked']:.0f}, and {t['mean']:.0f} are expected"
        if self.views > 1 and t["distinct"] != t["selected"]:
            return (
                f"{t['selected']:.0f} tokens selected, and the {self.views} views of all examples "
                f"have {t['distinct']:.0f} together"
            )
        # A unit across the edge of the quota is all in or all out, with mean error 0 and a
        # deviation of at most half its size.
        exact = self.settings.unit == "token" or self.settings.overflow == "skip"
        slack = (
            0.5 if exact else 6 * 0.5 * self.settings.max_unit * math.sqrt(t["examples"] * repeats)
        )
        for verb, prefix in (("selected", ""), ("predicted", "predict_")):
            # Skipping never exceeds a quota, and lacks less of it than the smallest unit left out:
            # both are certain.
            quota, short = t[f"{prefix}quota"], t[f"{prefix}shortfall"]
            error = t[verb] - quota
            if error > slack or error < -slack - short:
                allowed = f", of which units too large may leave {short:.0f}" if short else ""
                return f"{t[verb]:.0f} tokens {verb}, and the quotas sum to {quota:.0f}{allowed}"
        for name, share in zip(("mask", "random", "kept"), self.settings.replace, strict=True):
            deviation = math.sqrt(t["selected"] * repeats * share * (1 - share))
            if abs(t[name] - t["selected"] * share) > 6 * deviation + 1e-6 * t["selected"]:
                realised = t[name] / max(t["selected"], 1)
                return f"the share '{name}' is {realised:.4f} of {t['selected']:.0f}, not {share}"
        share = self.share or 0.0
        deviation = math.sqrt(t.get("read", 0.0) * repeats * share * (1 - share))
        if abs(t.get("causal", 0.0) - t.get("read", 0.0) * share) > 6 * deviation + 1e-3:
            return (
                f"{t['causal']:.0f} of {t['read']:.0f} examples are causal, not {share:g} of them"
            )
        return ""

    def _fault_of_draws(self, repeats: float) -> str:
        """Name the tenth of the draws whose quotas sum to another number than the law says."""
        mean, variance = drawn_quotas.quota_moments(self.settings, self.length)
        # At most so much variance for each token expected, whatever the lengths.
        most = (variance[:, 1:] / mean[:, 1:]).max(axis=1)
        for decile in range(DECILES):
            drawn, expected = (self.totals[f"{name}_{decile}"] for name in ("drawn", "expected"))
            deviation = math.sqrt(expected * most[decile] * repeats)
            # One example may draw what is rarer than the moments know.
            slack = self.length * repeats + 1e-6 * expected
            if abs(drawn - expected) > 6 * deviation + slack:
                return (
                    f"in decile {decile} of the draws quotas sum to {drawn:.0f}, "
                    f"and masking.draw = {self.settings.draw!r} expects {expected:.0f}"
                )
        return ""
