"""What the page, the figures and the summary of a study say alike, computed once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bert_jax.studies.report import answers, compare, grid, judged, optimum
from bert_jax.studies.report.aggregate import View
from bert_jax.studies.report.compare import Difference
from bert_jax.studies.report.judged import Judged
from bert_jax.studies.report.optimum import Best


class Findings(NamedTuple):
    """Differences and best values by the number of the comparison, and verdicts on claims."""

    gaps: Mapping[int, Sequence[Difference]]
    best: Mapping[int, Sequence[Best]]  # by the study's budget, and at equal FLOPs
    claims: Sequence[Judged]

    def answer(self, view: View) -> str:
        """Answer the study as the terminal shows it, a line for each comparison."""
        leads = [self.lead(view, number) for number in range(len(view.comparisons))]
        return "\n".join(filter(None, [grid.best_cell(view), grid.table(view), *leads]))

    def lead(self, view: View, number: int) -> str:
        """Answer a comparison of the study, in at most 60 words."""
        best = self.best[number][0].answer() if self.best[number] else ""
        return answers.lead(view, view.comparisons[number], self.gaps[number], best)


def find(view: View) -> Findings:
    """Compare, fit and judge all that a study states."""
    gaps: dict[int, Sequence[Difference]] = {}
    best: dict[int, Sequence[Best]] = {}
    for i, comparison in enumerate(view.comparisons):
        axis, baseline = comparison["axis"], comparison["baseline"]
        families = view.families(axis)
        gaps[i] = compare.differences(
            view.place, families, baseline, comparison["metrics"], count=view.family_count
        )
        best[i] = optimum.find(view, comparison)
    return Findings(gaps, best, judged.judge(view))
