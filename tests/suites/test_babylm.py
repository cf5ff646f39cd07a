"""BabyLM's tasks: choices and scores equal to those of its own pipeline, and what is refused.

tests/golden/make_babylm.py made the data, and ran the pipeline on it.
"""

from __future__ import annotations

import functools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from bert_jax import suites
from bert_jax.config import knobs
from bert_jax.errors import ConfigError, DataError
from bert_jax.interop import runs
from bert_jax.suites import reading
from bert_jax.suites.token_scores import TokenScorer
from tests import texts
from tests.suites import asking

SLOW = pytest.mark.slow
ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
VOCABULARY = GOLDEN / "huggingface" / "pretraining" / "vocab.txt"
DATA = GOLDEN / "babylm" / "full_eval"
PLACES = {  # task -> the pipeline's place of its predictions
    "blimp": "blimp/blimp_filtered",
    "supplement": "blimp/supplement_filtered",
    "ewok": "ewok/ewok_filtered",
    "entity_tracking": "entity_tracking/entity_tracking",
    "wug_adj": "wug_adj/wug_adj_nominalization",
    "wug_past": "wug_past/wug_past_tense",
    "comps": "comps/comps",
    "reading": "reading",
}


@functools.cache
def model(backend: str) -> runs.TrainedModel:
    """The model that the pipeline ran with a backend."""
    name = "causal_lm" if backend == "causal" else "masked_lm"
    opened = runs.open_run(str(GOLDEN / "huggingface" / name), tokenizer=str(VOCABULARY))
    if backend == "mntp":
        return opened.changed(objectives={"mlm": knobs.Objective(weight=1.0, shift=True)})
    return opened


def ask(run: runs.TrainedModel, source: Path, **asked: Any) -> dict[str, Any]:
    """What the suite finds."""
    return asking.ask(run, "babylm", source=str(source), batch_size=64, **asked)


# --- beside the pipeline --------------------------------------------------------------------------


@pytest.fixture(
    scope="module", params=["mlm", *(pytest.param(b, marks=SLOW) for b in ("causal", "mntp"))]
)
def beside(request) -> dict[str, tuple]:
    """What the suite finds, and what the pipeline has, by task."""
    with texts.one_device():
        found = ask(model(request.param), DATA)
    outputs = json.loads((GOLDEN / "babylm" / "outputs.json").read_text())[request.param]
    return {task: (found[task], outputs[place]) for task, place in PLACES.items()} | {"all": found}


def report_pairs(task: str, predictions: dict[str, Any]) -> dict[str, Any]:
    """The pipeline's report in per cent, but pairs whose tokens are equal are half right."""
    encode = model("mlm").tokenizer.encode_batch
    report: dict[str, dict[str, list[float]]] = {"UID": {}}
    for file in sorted((DATA / f"{task}_filtered").glob("*.jsonl")):
        for row in map(json.loads, file.read_text().splitlines()):
            pair = [row["sentence_good"], row["sentence_bad"]]
            groups = {"UID": file.stem}
            if task == "blimp":
                names = ("UID", "field", "linguistics_term")
                groups = {name.upper(): row[name].replace("/", "_") for name in names}
            number = len(report["UID"].get(groups["UID"], ()))
            chosen = predictions[groups["UID"]]["predictions"][number]["pred"]
            first, second = encode(pair)
            credit = 50.0 if first == second else 100.0 * (chosen == pair[0])
            for group, value in groups.items():
                report.setdefault(group, {}).setdefault(value, []).append(credit)
    shares = {g: {v: np.mean(c) for v, c in of.items()} for g, of in report.items()}
    return shares | {"AVERAGE": np.mean([*shares["UID"].values()])}


@pytest.mark.parametrize("task", ["blimp", "supplement", "ewok", "entity_tracking", "comps"])
def test_babylm_shares_are_those_of_the_pipeline(beside, task):
    found, outputs = beside[task]
    report = dict(outputs["report"])
    if task in ("blimp", "supplement"):
        assert found["ties"]  # which the pipeline takes as right
        report |= report_pairs(task, outputs["predictions"])
    else:
        assert not found["ties"]
    assert 100 * found["accuracy"] == pytest.approx(report.pop("AVERAGE"), abs=0.0051)
    if task == "supplement":  # the pipeline writes "supplement" for both of all rows
        assert {*report.pop("FIELD"), *report.pop("LINGUISTICS_TERM")} == {task}
    splits = found.get("split", {})
    groups = {n.upper(): of for n, of in found.items() if isinstance(of, dict) and n != "split"}
    groups["UID"] = groups["UID"] | splits
    assert groups.keys() == report.keys()
    for group, shares in groups.items():
        wanted = {key.replace("/", "_"): share / 100 for key, share in report[group].items()}
        assert shares == pytest.approx(wanted, abs=5.1e-5)


@pytest.mark.parametrize("task", ["wug_adj", "wug_past"])
def test_babylm_preferences_are_those_of_the_pipeline(beside, task):
    found, outputs = beside[task]
    wanted = [row["prob"] for row in outputs["predictions"][task]["predictions"]]
    (file,) = (DATA / PLACES[task].partition("/")[2]).iterdir()
    people = [json.loads(line)["ratio"] for line in file.read_text().splitlines()]
    assert found["spearman"] == pytest.approx(stats.spearmanr(wanted, people).statistic)


def test_babylm_reading_is_that_of_the_pipeline(beside):
    found, outputs = beside["reading"]
    explained = dict(outputs["explained"])
    assert found["self_paced_reading"] == pytest.approx(explained.pop(reading.SELF_PACED), rel=1e-4)
    assert found["explained"] == pytest.approx(explained, rel=1e-4)


def test_surprisals_are_those_of_the_pipeline(one_device):
    outputs = json.loads((GOLDEN / "babylm" / "outputs.json").read_text())["mlm"]["reading"]
    words = reading.load(DATA / "reading", 12)
    scorer = TokenScorer(model("mlm"), suites.Options("babylm", 64))
    found = reading.compute_surprisals(scorer, [word.read for word in words])
    wanted = [row["pred"] for row in outputs["predictions"]["reading"]["predictions"][:12]]
    np.testing.assert_allclose([found[word.read] for word in words], wanted, rtol=1e-5)


def test_babylm_counts_ties_as_blimp(tmp_path, one_device):
    row = {"sentence_good": "the cat .", "sentence_bad": "The cat ."}  # equal in lower case
    row |= {"UID": "x", "field": "syntax", "linguistics_term": "y"}
    (tmp_path / "blimp_filtered").mkdir()
    (tmp_path / "blimp_filtered" / "x.jsonl").write_text(3 * f"{json.dumps(row)}\n")
    run, source = model("mlm"), tmp_path / "blimp_filtered"
    for found in (suites.evaluate(run, "blimp", source=str(source)), ask(run, source)["blimp"]):
        assert (found["ties"], found["accuracy"]) == (3, 0.5)


# --- the source -----------------------------------------------------------------------------------


def test_babylm_scores_the_tasks_that_are_there(tmp_path, caplog, one_device):
    (tmp_path / "supplement_fast").symlink_to(DATA / "supplement_filtered")
    (tmp_path / "wug_past_tense").symlink_to(DATA / "wug_past_tense")
    found = ask(model("mlm"), tmp_path, limit=3)
    assert list(found) == ["macro_average", "supplement", "wug_past"]
    assert (found["supplement"]["examples"], found["wug_past"]["examples"]) == (6, 3)
    alone = ask(model("mlm"), tmp_path / "wug_past_tense", limit=3)
    assert alone == {"macro_average": alone["wug_past"]["spearman"], "wug_past": found["wug_past"]}


GOOD = {
    "blimp_filtered": {
        "sentence_good": "the cat .",
        "sentence_bad": "the dog .",
        "UID": "x",
        "field": "syntax",
        "linguistics_term": "y",
    },
    "entity_tracking": {"numops": 0, "input_prefix": "1 is ", "options": ["a .", "b ."]},
    "wug_past_tense": {"sentences": "the cat\tthe dog", "ratio": 0.5},
}
BAD_ROWS = [
    ("blimp_filtered", {"UID": ...}, "no row of BabyLM's blimp: KeyError"),
    ("blimp_filtered", {"sentence_good": "\u0301"}, "no token in "),
    ("entity_tracking", {"options": ["a ."]}, "fewer than two options"),
    ("wug_past_tense", {"ratio": "half"}, "no row of .*could not convert string to float"),
    ("wug_past_tense", {"sentences": None}, "no row of BabyLM's wug_past: AttributeError"),
]


@pytest.mark.fault(12)
@pytest.mark.parametrize(("folder", "change", "said"), BAD_ROWS)
def test_babylm_names_a_bad_row(tmp_path, folder, change, said):
    row = {key: value for key, value in (GOOD[folder] | change).items() if value is not ...}
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "a.jsonl").write_text(f"{json.dumps(GOOD[folder])}\n{json.dumps(row)}\n")
    with pytest.raises(DataError, match=rf"a\.jsonl:2: {said}"):
        ask(model("mlm"), tmp_path)


@pytest.mark.fault(12)
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("prev_length", "length_before", r"data\.csv:2: no column 'prev_length'"),
        ("\n0,", "\n0", r"data\.csv:2: not as many columns as the first line"),
        ("\n1,", ",0\n1,", r"data\.csv:2: not as many columns as the first line"),
        ("\n1,", '\n1,"', r"data\.csv:\d+: "),
        (",1,", ",one,", r"data\.csv:2: could not convert string to float: 'one'"),
    ],
)
def test_reading_load_names_a_damaged_row(tmp_path, old, new, said):
    text = (DATA / "reading" / reading.FILE).read_text()
    (tmp_path / reading.FILE).write_text(text.replace(old, new, 1))
    with pytest.raises(DataError, match=said):
        reading.load(tmp_path)


def test_babylm_refuses_a_source_without_tasks(tmp_path):
    with pytest.raises(ConfigError, match="suite babylm needs --source"):
        suites.evaluate(model("mlm"), "babylm")
    (tmp_path / "comps").mkdir()
    for source, said in (
        (tmp_path / "nowhere", "no folder "),
        (tmp_path.parent, "has none of the folders blimp_filtered, blimp_fast, "),
        (tmp_path, "comps has no rows"),
    ):
        with pytest.raises(DataError, match=said):
            ask(model("mlm"), source)


# --- scores ---------------------------------------------------------------------------------------


def test_explain_variance_is_a_partial_correlation():
    rng = np.random.default_rng(0)
    controls = [*rng.normal(size=(2, 80))]
    surprisal = rng.normal(size=80) + controls[0]
    times = 3 + 2 * controls[1] - controls[0] * controls[1] + surprisal + rng.normal(size=80)
    times[7] = controls[1][9] = np.nan
    kept = np.isfinite(times + controls[1])
    a, b = (values[kept] for values in controls)
    basis = np.linalg.qr(np.stack([np.ones(78), a, b, a * b], 1))[0]
    rest = [v - basis @ (basis.T @ v) for v in (times[kept], surprisal[kept])]
    wanted = np.corrcoef(*rest)[0, 1] ** 2
    assert reading.explain_variance(times, controls, surprisal) == pytest.approx(wanted)
    few = [values[:5] for values in (times, *controls, surprisal)]
    assert math.isnan(reading.explain_variance(few[0], few[1:3], few[3]))


# --- the config -----------------------------------------------------------------------------------
