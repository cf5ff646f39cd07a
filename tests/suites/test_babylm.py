"""BabyLM's tasks: choices and scores equal to those of its own pipeline, and what is refused.

tests/golden/make_babylm.py made the data, and ran the pipeline on it.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from bert_jax import cli, config, suites
from bert_jax.config import knobs
from bert_jax.errors import ConfigError, DataError
from bert_jax.interop import runs
from bert_jax.suites import reading
from bert_jax.suites.token_scores import make_scorer
from bert_jax.training.data import gather
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


def written(folder: Path, backend: str, tasks: dict[str, str] = PLACES) -> dict[str, Any]:
    """The predictions that the suite has written, by task."""
    files = {task: folder / "zero_shot" / backend / place for task, place in tasks.items()}
    return {
        task: json.loads((file / "predictions.json").read_text()) for task, file in files.items()
    }


# --- beside the pipeline --------------------------------------------------------------------------


@pytest.fixture(
    scope="module", params=["mlm", *(pytest.param(b, marks=SLOW) for b in ("causal", "mntp"))]
)
def beside(request, tmp_path_factory) -> dict[str, tuple]:
    """Result and predictions of the suite, and what the pipeline has, by task."""
    folder = tmp_path_factory.mktemp("results")
    with texts.one_device():
        found = ask(model(request.param), DATA, submission=str(folder))
    outputs = json.loads((GOLDEN / "babylm" / "outputs.json").read_text())[request.param]
    predictions = written(folder, request.param)
    rows = {
        task: (found[task], predictions[task], outputs[place]) for task, place in PLACES.items()
    }
    return rows | {"all": found}


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
def test_choices_are_those_of_the_pipeline(beside, task):
    found, predictions, outputs = beside[task]
    assert predictions == outputs["predictions"]
    report = outputs["report"]
    if task in ("blimp", "supplement"):
        assert found["ties"]  # which the pipeline takes as right
        report |= report_pairs(task, predictions)
    else:
        assert not found["ties"]
    assert 100 * found["accuracy"] == pytest.approx(report.pop("AVERAGE"), abs=0.0051)
    if task == "supplement":  # the pipeline writes "supplement" for both of all rows
        assert {*report.pop("FIELD"), *report.pop("LINGUISTICS_TERM")} == {task}
    splits = found.pop("split", {})
    groups = {name.upper(): of for name, of in found.items() if isinstance(of, dict)}
    groups["UID"] |= splits
    assert groups.keys() == report.keys()
    for group, shares in groups.items():
        wanted = {key.replace("/", "_"): share / 100 for key, share in report[group].items()}
        assert shares == pytest.approx(wanted, abs=5.1e-5)


@pytest.mark.parametrize("task", ["wug_adj", "wug_past"])
def test_wug_preferences_equal_the_pipeline(beside, task):
    found, predictions, outputs = beside[task]
    ours, theirs = (of[task]["predictions"] for of in (predictions, outputs["predictions"]))
    given, wanted = ([row.pop("prob") for row in rows] for rows in (ours, theirs))
    assert ours == theirs
    np.testing.assert_allclose(given, wanted, rtol=1e-4)
    (file,) = (DATA / PLACES[task].partition("/")[2]).iterdir()
    people = [json.loads(line)["ratio"] for line in file.read_text().splitlines()]
    assert found["spearman"] == pytest.approx(stats.spearmanr(wanted, people).statistic)
    assert found["spearman"] == pytest.approx(outputs["report"]["AVERAGE"], abs=0.0051)


def test_reading_surprisals_equal_the_pipeline(beside):
    found, predictions, outputs = beside["reading"]
    ours, theirs = (of["reading"]["predictions"] for of in (predictions, outputs["predictions"]))
    assert [row["id"] for row in ours] == [row["id"] for row in theirs]
    for name in ("pred", "prev_pred"):  # NaN where there is no word before
        given, wanted = (np.array([row[name] for row in rows], float) for rows in (ours, theirs))
        np.testing.assert_allclose(given, wanted, rtol=1e-5)
    assert np.isnan(given).sum() > 5
    explained = outputs["explained"]
    assert found["self_paced_reading"] == pytest.approx(explained.pop(reading.SELF_PACED), rel=1e-4)
    assert found["explained"] == pytest.approx(explained, rel=1e-4)
    assert outputs["report"] == [
        f"EYE TRACKING SCORE: {100 * found['eye_tracking']:.2f}",
        f"SELF-PACED READING SCORE: {100 * found['self_paced_reading']:.2f}",
    ]


def test_the_macro_average_is_that_of_all_scores(beside):
    keys = dict.fromkeys(PLACES, "accuracy") | {
        "wug_adj": "spearman",
        "wug_past": "spearman",
    }
    del keys["reading"]
    scores = [beside[task][0][key] for task, key in keys.items()]
    scores += [beside["reading"][0][key] for key in ("eye_tracking", "self_paced_reading")]
    assert beside["all"]["macro_average"] == pytest.approx(np.mean(scores))


def test_equal_options_are_counted(beside):
    files = [DATA / "supplement_filtered" / f"{name}.jsonl" for name in ("hypernym", "turn_taking")]
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    same = sum(row["sentence_good"].lower() == row["sentence_bad"].lower() for row in rows)
    assert beside["supplement"][0]["ties"] == same > 0


def test_ties_are_half_right_in_both_suites(tmp_path, one_device):
    row = {"sentence_good": "the cat .", "sentence_bad": "The cat ."}  # equal in lower case
    row |= {"UID": "x", "field": "syntax", "linguistics_term": "y"}
    (tmp_path / "blimp_filtered").mkdir()
    (tmp_path / "blimp_filtered" / "x.jsonl").write_text(3 * f"{json.dumps(row)}\n")
    run, source = model("mlm"), tmp_path / "blimp_filtered"
    for found in (suites.evaluate(run, "blimp", source=str(source)), ask(run, source)["blimp"]):
        assert (found["ties"], found["accuracy"]) == (3, 0.5)


# --- the source -----------------------------------------------------------------------------------


def copy(folder: Path, *names: str) -> Path:
    """Copy tasks of the data; `a=b` copies a as b."""
    for name in names:
        old, _, new = name.partition("=")
        shutil.copytree(DATA / old, folder / (new or old))
    return folder


def test_the_command_scores_the_tasks_that_are_there(tmp_path, capsys, one_device):
    source = copy(tmp_path / "fast_eval", "supplement_filtered=supplement_fast", "wug_past_tense")
    words = ["evaluate", f"--model={GOLDEN / 'huggingface' / 'masked_lm'}", "--suite=babylm"]
    words += [f"--tokenizer={VOCABULARY}", f"--source=files:{source}", "--limit=3"]
    assert cli.execute(words) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)["babylm"]
    assert list(found) == ["macro_average", "supplement", "wug_past"]
    assert (found["supplement"]["examples"], found["wug_past"]["examples"]) == (6, 3)
    assert "no folder for blimp, ewok, entity_tracking, wug_adj, comps, reading" in err


def test_the_folder_of_one_task_is_a_source(tmp_path, one_device):
    source = copy(tmp_path, "wug_past_tense") / "wug_past_tense"
    found = ask(model("mlm"), source)
    assert list(found) == ["macro_average", "wug_past"]
    assert found["macro_average"] == found["wug_past"]["spearman"]


def test_a_hybrid_model_answers_both_ways(tmp_path, one_device):
    source = copy(tmp_path / "data", "wug_past_tense")
    hybrid = dataclasses.replace(model("mlm"), from_left=model("causal"))
    found = ask(hybrid, source, submission=str(tmp_path))
    assert found["left_to_right"] == ask(model("causal"), source)
    place = {"wug_past": PLACES["wug_past"]}
    assert written(tmp_path, "mlm", place) != written(tmp_path, "causal", place)


def test_forms_that_nobody_prefers_have_no_correlation(tmp_path, one_device):
    row = {"sentences": "the cat sat .\tthe dog sat .", "ratio": "0.5"}  # a number as a text
    (tmp_path / "wug_past_tense").mkdir()
    (tmp_path / "wug_past_tense" / "a.jsonl").write_text(2 * f"{json.dumps(row)}\n")
    assert math.isnan(ask(model("mlm"), tmp_path)["wug_past"]["spearman"])


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
    ("blimp_filtered", {"sentence_bad": None}, "sentence_bad is None, not a text"),
    ("blimp_filtered", {"UID": ...}, "the whole has no 'UID'"),
    ("blimp_filtered", {"sentence_good": "\u0301"}, "no token in "),
    ("entity_tracking", {"options": "a ."}, "options is 'a .', not a list"),
    ("entity_tracking", {"options": ["a ."]}, "fewer than two options"),
    ("entity_tracking", {"numops": "0"}, "numops is '0', not a whole number"),
    ("wug_past_tense", {"ratio": True}, "ratio is True, not a finite number or a text"),
    ("wug_past_tense", {"ratio": "half"}, "could not convert string to float: 'half'"),
    ("wug_past_tense", {"sentences": "the cat"}, "fewer than two options"),
]


@pytest.mark.parametrize(("folder", "change", "said"), BAD_ROWS)
def test_a_row_that_is_no_row_of_its_task(tmp_path, folder, change, said):
    row = {key: value for key, value in (GOOD[folder] | change).items() if value is not ...}
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "a.jsonl").write_text(f"{json.dumps(GOOD[folder])}\n{json.dumps(row)}\n")
    with pytest.raises(DataError, match=rf"a\.jsonl:2: {said}") as caught:
        ask(model("mlm"), tmp_path)
    assert caught.value.hint


READING = "reading_data.csv"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("prev_length", "length_before", r"data\.csv: no column 'prev_length'"),
        ("\n0,", "\n0,0,", r"data\.csv:2: not as many columns as the first line"),
        ("\n1,", '\n1,"', r"data\.csv:\d+: (unexpected end|',' expected)"),
        (",1,", ",one,", r"data\.csv:2: context_length is 'one', not a number"),
        (",1,", ",inf,", r"data\.csv:2: context_length is 'inf', not a number"),
    ],
)
def test_a_table_of_reading_times_that_is_damaged(tmp_path, old, new, said):
    text = (DATA / "reading" / READING).read_text()
    changed = text.replace(old, new, 1)
    assert changed != text
    (tmp_path / READING).write_text(changed)
    with pytest.raises(DataError, match=said):
        reading.load(tmp_path)


def test_reading_load_needs_rows_and_words(tmp_path):
    with pytest.raises(DataError, match=r"no .*data\.csv"):
        reading.load(tmp_path)
    head, first, *_ = (DATA / "reading" / READING).read_text().splitlines()
    (tmp_path / READING).write_text(head)
    with pytest.raises(DataError, match="has no rows"):
        reading.load(tmp_path)
    cells = first.split(",")
    cells[2] = " "
    (tmp_path / READING).write_text(f"{head}\n{','.join(cells)}\n")
    with pytest.raises(DataError, match=r"data\.csv:2: no word"):
        reading.load(tmp_path)
    (tmp_path / READING).write_bytes(f"{head}\n".encode() + b"\xff\n")
    with pytest.raises(DataError, match=r"data\.csv:2: invalid UTF-8"):
        reading.load(tmp_path)


def test_a_source_without_any_task(tmp_path, capsys):
    with pytest.raises(ConfigError, match="suite babylm needs --source"):
        suites.evaluate(model("mlm"), "babylm")
    words = ["evaluate", f"--model={GOLDEN / 'huggingface' / 'masked_lm'}", "--suite=babylm"]
    words += [f"--tokenizer={VOCABULARY}"]
    (tmp_path / "full_eval").mkdir()
    for source, said in (
        (tmp_path / "nowhere", "no folder "),
        (tmp_path, "has none of the folders blimp_filtered, blimp_fast, "),
        (tmp_path / "full_eval", "has none of the folders "),
    ):
        assert cli.execute([*words, f"--source={source}"]) == 3
        error, hint = capsys.readouterr().err.splitlines()
        assert error.startswith("error: ")
        assert said in error
        assert hint.startswith("hint: ")
    (tmp_path / "comps").mkdir()
    with pytest.raises(DataError, match=r"comps has no \.jsonl file"):
        ask(model("mlm"), tmp_path)
    (tmp_path / "comps" / "comps_base.jsonl").write_text("\n")
    with pytest.raises(DataError, match=r"comps_base\.jsonl is empty"):
        ask(model("mlm"), tmp_path)


# --- scores ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["mlm", "causal"])
def test_a_part_of_a_text_is_scored_as_in_the_whole(backend, one_device):
    sentences = ["the cat sat on the mat .", "big red dog", "the cat sat on the mat ."]
    score = make_scorer(model(backend), suites.Options("babylm", 8))
    encoded = model(backend).tokenizer.encode_batch(sentences)
    parts = [(2, 5), (3, 3), (0, 1)]
    found = score(encoded, parts=parts)
    for whole, part, values in zip(score(encoded), parts, found, strict=True):
        np.testing.assert_allclose(values, whole[slice(*part)], rtol=1e-6)
    assert [values.tolist() for values in score(encoded, parts=[(0, 0)] * 3)] == [[], [], []]


def test_explained_is_a_squared_partial_correlation():
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
    assert reading.explained(times, controls, surprisal) == pytest.approx(wanted)
    few = [values[:5] for values in (times, *controls, surprisal)]
    assert math.isnan(reading.explained(few[0], few[1:3], few[3]))


# --- the config -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("track", "last"), [("strict-small", 100), ("strict", 1_000)])
def test_babylm_config_keeps_the_checkpoints_of_a_track(track, last, tmp_path):
    folder = tmp_path / "text"
    folder.mkdir()
    (folder / "a.train").write_text(300 * "the cat walks to the dog, and the dog runs.\n\n")
    (folder / "a.dev").write_text("other text\n")
    tree = config.load_file(f"{ROOT}/configs/babylm.py:{track},{folder},tiny")
    asked = [*range(1, 10), *range(10, 100, 10), *range(100, 1_001, 100)]
    kept = [words // 1_000_000 for words in tree.checkpoints.at_words]
    assert [*kept, last] == [words for words in asked if words <= last]  # the end is the last
    words = [("tokenizer.vocab_size", "60"), ("batch_size", "8"), ("corpus.cache", str(tmp_path))]
    words += [("checkpoints.at_words", "(2700,)"), ("corpus.deduplicate", "false")]
    config.overrides(tree, words)
    found = gather(config.resolve(tree))
    rows = found.source.rows_per_epoch
    assert found.config.steps == 10 * rows // 8
    (step,) = found.config.checkpoints.at
    assert step < found.config.steps / 9
