"""The ledger of realised masks: sums over all updates, checked against the config.

Each check compares a sum over the updates with the sum that the config predicts. A run stops if the
two differ by more than chance explains.
"""

import collections
import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from bert_jax.config import knobs
from bert_jax.errors import DivergedError
from bert_jax.masking import drawn_quotas, rates
from bert_jax.masking.drawn_quotas import DECILES

LIMIT = 6  # standard deviations
COUNTS = 3  # beyond six deviations: rare events have a longer tail than a normal distribution
ROUNDING = 1e-6  # relative: sums of float32


class Check(NamedTuple):
    """A realised sum over all updates, its expected value, and the allowed difference."""

    what: str
    realised: float
    expected: float
    deviation: float = 0.0  # the standard deviation that chance gives the sum, at most
    slack: float = 0.0  # how far it may be off for certain, such as by rounding

    @property
    def holds(self) -> bool:
        """Tell whether chance explains the difference; if the sum is NaN, it does not."""
        return abs(self.realised - self.expected) <= LIMIT * self.deviation + self.slack


@dataclasses.dataclass
class Ledger:
    """The sums of what was masked in all updates; `add` refuses sums that chance cannot explain."""

    settings: knobs.Masking
    distinct: float = math.inf  # examples with masks of their own: static masks repeat
    totals: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    length: int = 0  # tokens of an example at most, where rates are drawn
    share: float | None = None  # of the examples, which a hybrid model reads causally

    def add(
        self, metrics: Mapping[str, tuple[float, float]], rate: float, examples: int, step: int
    ) -> None:
        """Add the metrics of an update, and check the sums so far."""
        views = rates.count_views(self.settings)
        if views > 1:  # the prediction rate is selected in all views together
            assert self.settings.prediction_rate is not None
            rate = self.settings.prediction_rate / views
        row = {"eligible": metrics["masked_fraction"][1], "examples": examples}
        row["nominal"] = rate * metrics["asked_fraction"][1]
        if self.share is not None:
            row["read"] = metrics["causal_fraction"][1]
        for name, (total, count) in metrics.items():
            if name.endswith("_fraction") or "_decile_" in name:
                row[name.removesuffix("_fraction")] = total
            if name.startswith("asked_decile_"):
                row[name.replace("asked", "expected")] = count
        self.totals.update({name: float(value) for name, value in row.items()})
        for check in self.list_checks():
            if not check.holds:
                raise DivergedError(
                    f"step {step}: the realised masks are not what the config says: {check.what} "
                    f"sum to {check.realised:.0f}, and {check.expected:.0f} are expected",
                    "this is a defect, not bad luck: the counts are over six standard deviations "
                    "off",
                )

    def list_checks(self) -> Iterator[Check]:
        """Yield the checks of the sums so far."""
        settings = self.settings
        sums = self.totals
        examples = sums["examples"]
        # The same draws over and over: a deviation grows with the repeats, not with their root.
        repeats = max(1.0, examples / self.distinct)

        if settings.draw == "fixed":
            # Rounding moves an example's quota by less than one.
            yield Check("quotas", sums["asked"], sums["nominal"], slack=examples)
        else:
            yield from self._check_draws(repeats)
        if "expected" in sums and settings.draw == "fixed":
            # A draw rounds the quota of an example with a deviation of at most a half.
            deviation = 0.5 * math.sqrt(examples * repeats)
            slack = ROUNDING * sums["expected"]
            yield Check("quotas", sums["asked"], sums["expected"], deviation, slack)
        if rates.count_views(settings) > 1:
            yield Check("tokens selected in all views", sums["distinct"], sums["masked"])

        # A unit across the edge of a quota is all in or all out, with mean error 0 and a deviation
        # of at most half its size. Skipping never exceeds a quota, and lacks less of it than the
        # smallest unit left out: then the middle of these two bounds is expected.
        deviation = 0.5 * settings.max_unit * math.sqrt(examples * repeats)
        if settings.unit == "token" or settings.overflow == "skip":
            deviation = 0.0
        for what, name, prefix in (
            ("tokens selected", "masked", ""),
            ("tokens predicted", "predicted", "predict_"),
        ):
            half = 0.5 * sums[f"{prefix}shortfall"]  # 0 unless units are skipped
            yield Check(what, sums[name], sums[f"{prefix}quota"] - half, deviation, half + 0.5)

        shares = [
            (f"tokens '{name}'", sums[name], sums["masked"], share)
            for name, share in zip(("mask_token", "random", "kept"), settings.replace, strict=True)
        ]
        if self.share is not None:
            shares.append(("causal examples", sums["causal"], sums["read"], self.share))
        for what, count, whole, share in shares:
            deviation = math.sqrt(whole * repeats * share * (1 - share))
            slack = COUNTS * repeats + ROUNDING * whole
            yield Check(what, count, whole * share, deviation, slack)

    def _check_draws(self, repeats: float) -> Iterator[Check]:
        """Yield a Check of the sum of quotas in each tenth of the drawn rates."""
        mean, variance = drawn_quotas.quota_moments(self.settings, self.length)
        # At most so much variance for each token expected, whatever the lengths.
        most = (variance[:, 1:] / mean[:, 1:]).max(axis=1)
        for decile in range(DECILES):
            drawn = self.totals[f"asked_decile_{decile}"]
            expected = self.totals[f"expected_decile_{decile}"]
            deviation = math.sqrt(expected * most[decile] * repeats)
            # One example may draw what is rarer than the moments know.
            slack = self.length * repeats + ROUNDING * expected
            yield Check(f"quotas of draws in decile {decile}", drawn, expected, deviation, slack)
