"""BabyLM's tasks: choices and scores equal to those of its own pipeline, and what is refused.

The data in golden/babylm has its form, with sentences drawn at random from 24 words.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from bert_jax.config import knobs
from bert_jax.interop import runs
from bert_jax.suites import babylm, reading
from tests import texts
from tests.predictors.drawing import open_golden
from tests.suites import asking

SLOW = pytest.mark.slow
GOLDEN = Path(__file__).parents[1] / "golden"
DATA = GOLDEN / "babylm" / "full_eval"


def open_model(backend: str) -> runs.TrainedModel:
    """Open the model that the pipeline ran with a backend."""
    opened = open_golden("causal_lm" if backend == "causal" else "masked_lm")
    if backend == "mntp":
        return opened.replace_sections(objectives={"mlm": knobs.Objective(weight=1.0, shift=True)})
    return opened


def ask(source: Path, backend: str = "mlm", **asked: Any) -> dict[str, Any]:
    """Return what the suite finds."""
    return asking.ask(open_model(backend), "babylm", source=str(source), batch_size=64, **asked)


# --- beside the pipeline --------------------------------------------------------------------------


def count_ties_as_right(totals: Sequence[np.ndarray]) -> tuple[np.ndarray, int]:
    """The pipeline's rule, where choices.py divides the point."""
    return np.array([float(values[0] == values.max()) for values in totals]), 0


@pytest.fixture(
    scope="module", params=["mlm", *(pytest.param(b, marks=SLOW) for b in ("causal", "mntp"))]
)
def beside(request) -> dict[str, tuple]:
    """What the suite finds by the pipeline's rule of ties, and what the pipeline has, by task."""
    with texts.one_device(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(babylm, "credit_choices", count_ties_as_right)
        found = ask(DATA, request.param)
    outputs = json.loads((GOLDEN / "babylm" / "outputs.json").read_text())[request.param]
    del found["macro_average"]  # the tasks are in the pipeline's order
    return dict(zip(found, zip(found.values(), outputs.values(), strict=True), strict=True))


@pytest.mark.parametrize("task", ["blimp", "supplement", "ewok", "entity_tracking", "comps"])
def test_babylm_shares_are_those_of_the_pipeline(beside, task):
    found, outputs = beside[task]
    report = dict(outputs["report"])
    assert 100 * found["accuracy"] == pytest.approx(report.pop("AVERAGE"), abs=0.0051)
    if task == "supplement":  # the pipeline writes "supplement" for both of all rows
        assert {*report.pop("FIELD"), *report.pop("LINGUISTICS_TERM")} == {task}
    groups = {n.upper(): of for n, of in found.items() if isinstance(of, dict)}
    groups["UID"] = groups["UID"] | groups.pop("SPLIT", {})
    assert groups.keys() == report.keys()
    for group, shares in groups.items():
        wanted = {key.replace("/", "_"): share / 100 for key, share in report[group].items()}
        assert shares == pytest.approx(wanted, abs=5.1e-5)


@pytest.mark.parametrize("task", ["wug_adj", "wug_past"])
def test_babylm_preferences_are_those_of_the_pipeline(beside, task):
    found, outputs = beside[task]
    wanted = [row["prob"] for row in outputs["predictions"][task]["predictions"]]
    (file,) = DATA.glob(f"{task}_*/*")
    people = [json.loads(line)["ratio"] for line in file.read_text().splitlines()]
    assert found["spearman"] == pytest.approx(stats.spearmanr(wanted, people).statistic)


def test_babylm_reading_is_that_of_the_pipeline(beside):
    found, outputs = beside["reading"]
    explained = dict(outputs["explained"])
    assert found["self_paced_reading"] == pytest.approx(explained.pop(reading.SELF_PACED), rel=1e-4)
    assert found["explained"] == pytest.approx(explained, rel=1e-4)


# --- the source -----------------------------------------------------------------------------------


def test_babylm_scores_the_tasks_that_are_there(tmp_path, one_device):
    (tmp_path / "supplement_fast").symlink_to(DATA / "supplement_filtered")
    (tmp_path / "wug_past_tense").symlink_to(DATA / "wug_past_tense")
    found = ask(tmp_path, limit=3)
    assert list(found) == ["macro_average", "supplement", "wug_past"]
    assert (found["supplement"]["examples"], found["wug_past"]["examples"]) == (6, 3)
    alone = ask(tmp_path / "wug_past_tense", limit=3)
    assert alone == {"macro_average": alone["wug_past"]["spearman"], "wug_past": found["wug_past"]}


def test_explain_variance_needs_more_rows_than_terms():
    few = np.arange(5.0)
    assert np.isnan(reading.explain_variance(few, [few**2, few**3], few**4))
