"""What the report says of a task: confusions, scores by class, entities, answers, mistakes."""

from __future__ import annotations

import json
import re
from pathlib import Path

from bert_jax.reporting import run_report
from tests.pages import HOSTILE, Checker


def page(folder: Path, kind: str, *rows: dict, labels=(), served: int | None = None) -> tuple:
    """The source and the text of the page of a fine-tuned run with such rows of samples."""
    recorded = {"objectives": {kind: {"labels": list(labels)}}, "task": {"source": "files:x.tsv"}}
    (folder / "config.json").write_text(json.dumps(recorded))
    steps = [row["step"] for row in rows]
    lines = [{"step": step, "time": step, "eval/validation/accuracy": 0.5} for step in steps]
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    made = [{"task": kind, "mistakes": []} | row for row in rows]
    (folder / "samples.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in made))
    source = run_report.write(
        folder, lambda _: [(served, 0.5)] if served is not None else []
    ).read_text()
    text = " ".join(" ".join(Checker(source).text).split())
    text = text.partition("The validation examples")[1:]  # behind the links on top
    return source, "".join(text).partition("Steps kept")[0]


COUNTS = [["no", "no", 6], ["no", "yes", 2], ["yes", "no", 1], ["yes", "yes", 3]]


def test_a_classifier_has_confusions_and_scores(tmp_path):
    source, text = page(
        tmp_path, "classify", {"step": 5, "counts": COUNTS}, labels=("yes", "no", "never")
    )
    assert "right class ↓ predicted → yes no all yes 3 1 4 no 2 6 8" in text
    assert 'class="n miss" style="--share:0.250" title="no, predicted yes: 2 of 8 (25.0' in source
    assert source.count('class="n hit"') == 2
    scores = re.search("class precision recall F1 examples (.*)", text)[1]
    assert scores.startswith("yes 60.0 % 75.0 % 66.7 % 4 no 85.7 % 75.0 % 80.0 % 8")


def test_what_is_shown_is_of_the_step_that_is_served(tmp_path):
    rows = [{"step": step, "counts": [["a", "a", step]]} for step in (1, 2, 3)]
    assert "at step 2, which is served" in page(tmp_path, "classify", *rows, served=2)[1]
    text = page(tmp_path, "classify", *rows, served=7)[1]
    assert "The validation examples at step 3. " in text
    assert "a 3 3" in text


def test_common_confusions_of_many_classes_are_listed(tmp_path):
    counts = [[f"c{i}", f"c{i}", 1] for i in range(40)] + [["c1", "c2", 7], ["c3", "c4", 9]]
    source, text = page(tmp_path, "classify", {"step": 1, "counts": counts})
    assert 'confusion"' not in source
    assert "right class taken for examples c3 c4 9 c1 c2 7" in text
    assert "15 more" in text


def test_a_tagger_has_entities_and_marked_words(tmp_path):
    row = {
        "step": 1,
        "counts": [["O", "O", 9], ["B-PER", "", 1]],
        "entities": [["LOC", 0, 0, 1], ["PER", 1, 2, 2]],
        "mistakes": [{"words": [["Ada", "B-PER", "O"], ["met", "O", "O"]], "wrong": 1}],
    }
    source, text = page(tmp_path, "tag", row, labels=("B-PER", "O"))
    assert "entity precision recall F1 entities LOC 0.0 % 0.0 % 0.0 % 1 PER 50.0 %" in text
    assert "predicted → B-PER O (cut off) all B-PER · · 1 1" in text
    assert "<mark>Ada</mark><sub>B-PER → O</sub> met" in source
    assert "1 word wrong" in text


def test_answers_are_counted_by_outcome(tmp_path):
    there, none = "an answer", "no answer"
    counts = [[there, "exact", 4], [there, none, 1], [none, none, 2]]
    wrong = {"text": "who?", "pair": "Ada did.", "truth": "Ada", "predicted": ""}
    row = {"step": 1, "counts": counts, "mistakes": [wrong | {"probability": 0.5}]}
    source, text = page(tmp_path, "span", row)
    assert "an answer 4 · · 1 5 no answer · · · 2 2" in text
    assert source.count('class="n hit"') == 2
    assert "who? Ada did. right Ada predicted no answer 50.0 %" in text


def test_numbers_and_options_have_their_worst_mistakes(tmp_path):
    wrong = [{"text": "a", "pair": "b", "truth": "3", "predicted": "1.5"}]
    text = page(tmp_path, "regress", {"step": 1, "mistakes": wrong})[1]
    assert "The worst mistakes a b right 3 predicted 1.5" in text
    wrong = [{"text": "q", "truth": "x", "predicted": "y", "probability": 0.9, "right": 0.05}]
    text = page(tmp_path, "choice", {"step": 1, "mistakes": wrong})[1]
    assert "q right x 5.0 % predicted y 90.0 %" in text


def test_texts_and_classes_are_escaped(tmp_path):
    row = {
        "step": 1,
        "counts": [[HOSTILE, HOSTILE, 1], [HOSTILE, "b", 1]],
        "entities": [[HOSTILE, 1, 1, 1]],
        "mistakes": [
            {"text": HOSTILE, "pair": HOSTILE, "truth": HOSTILE, "predicted": HOSTILE},
            {"words": [[HOSTILE, HOSTILE, "b"]], "wrong": 1},
        ],
    }
    source, text = page(tmp_path, "tag", row)
    assert source.count("<script") == 1
    assert "<img" not in source
    assert text.count("alert(1)") > 5


def test_broken_rows_are_left_out(tmp_path):
    source, text = page(tmp_path, "classify", {"step": 1, "counts": [["a", 3]]})
    assert "Right and wrong" not in source
    assert text == ""
