"""Predictions of sentences, and what the page says of a task: confusions, scores, mistakes."""

from __future__ import annotations

import re
from pathlib import Path

from bert_jax.reporting import run_report
from tests.pages import keep_steps, read_page, write_run

COUNTS = [["no", "no", 6], ["no", "yes", 2], ["yes", "no", 1], ["yes", "yes", 3]]


def show(folder: Path, samples: list[dict], recorded=None, served: int | None = None) -> tuple:
    """The source and the text of the page of a run with some samples."""
    write_run(folder, recorded or {}, [], samples)
    keep_steps(folder, [(served, 0.5)] if served is not None else [])
    source = run_report.write_report(folder).read_text()
    return source, read_page(source)


def show_task(folder: Path, kind: str, *rows: dict, labels=(), served: int | None = None) -> tuple:
    """The source and the text of the page of a fine-tuned run."""
    recorded = {"objectives": {kind: {"labels": list(labels)}}, "task": {"source": "files:x.tsv"}}
    samples = [{"step": 1, "task": kind, "mistakes": []} | row for row in rows]
    return show(folder, samples, recorded, served)


# --- predictions ----------------------------------------------------------------------------------


def guess(*tokens: str) -> list[dict]:
    return [{"token": token, "probability": 0.25} for token in tokens]


def test_sentences_show_the_latest_guess_and_earlier(tmp_path):
    samples = [
        {"step": step, "text": text, "predictions": [guess(token)]}
        for step, text, token in [
            (30, "The [MASK] sat.", "cat"),
            (10, "The [MASK] sat.", "the"),
            (20, "The [MASK] sat.", "dog"),
            (20, "Asked [MASK] longer.", "no"),
        ]
    ]
    source, text = show(tmp_path, samples)
    assert "<mark>[MASK]</mark>" in source
    assert "sat. cat 25.0 % step 10: the · step 20: dog" in text
    assert "longer" not in text
    source, text = show(tmp_path, samples, served=20)
    assert "at step 20, which is served" in text
    assert "dog 25.0 % step 10: the" in text


def test_right_tokens_are_among_the_guesses_or_below(tmp_path):
    likely = guess("cat", "dog")
    samples = [
        {"step": 1, "text": "A [MASK], [MASK].", "answers": ["dog", "cow"]},
        {"step": 1, "text": "The cat …", "answers": ["cat"]},
    ]
    samples = [row | {"predictions": [likely] * len(row["answers"])} for row in samples]
    source, _ = show(tmp_path, samples)
    right = re.findall(r'class="right">(\w+)</span>\s*<span>(original token)?', source)
    assert right == [("dog", ""), ("cow", "original token"), ("cat", "")]
    assert source.count("<mark>[MASK]</mark>") == 2
    assert "<mark>…</mark>" in source


# --- tasks ----------------------------------------------------------------------------------------


def test_classifier_has_confusions_and_scores(tmp_path):
    source, text = show_task(
        tmp_path, "classify", {"counts": COUNTS}, labels=("yes", "no", "never")
    )
    assert "right class ↓ predicted → yes no all yes 3 1 4 no 2 6 8" in text
    assert 'confusion"' in source
    assert 'class="n miss" style="--share:0.250" title="no, predicted yes: 2 of 8 (25.0' in source
    assert source.count('class="n hit"') == 2
    scores = re.search("class precision recall F1 examples (.*)", text)[1]
    assert scores.startswith("yes 60.0 % 75.0 % 66.7 % 4 no 85.7 % 75.0 % 80.0 % 8")


def test_common_confusions_of_many_classes_are_listed(tmp_path):
    counts = [[f"c{i}", f"c{i}", 1] for i in range(40)] + [["c1", "c2", 7], ["c3", "c4", 9]]
    source, text = show_task(tmp_path, "classify", {"counts": counts})
    assert 'confusion"' not in source
    assert "right class taken for examples c3 c4 9 c1 c2 7" in text


def test_tagger_has_entities_and_marked_words(tmp_path):
    row = {
        "counts": [["O", "O", 9], ["B-PER", "", 1]],
        "entities": [["LOC", 0, 0, 1], ["PER", 1, 2, 2]],
        "mistakes": [{"words": [["Ada", "B-PER", "O"], ["met", "O", "O"]], "wrong": 1}],
    }
    source, text = show_task(tmp_path, "tag", row, labels=("B-PER", "O"))
    assert "entity precision recall F1 entities LOC 0.0 % 0.0 % 0.0 % 1 PER 50.0 %" in text
    assert "predicted → B-PER O (cut off) all B-PER · · 1 1" in text
    assert "<mark>Ada</mark><sub>B-PER → O</sub> met" in source
    assert "1 word wrong" in text


def test_answers_are_counted_by_outcome(tmp_path):
    there, none = "an answer", "no answer"
    counts = [[there, "exact", 4], [there, none, 1], [none, none, 2]]
    wrong = {"text": "who?", "pair": "Ada did.", "truth": "Ada", "predicted": ""}
    row = {"counts": counts, "mistakes": [wrong | {"probability": 0.5}]}
    source, text = show_task(tmp_path, "span", row)
    assert "an answer 4 · · 1 5 no answer · · · 2 2" in text
    assert source.count('class="n hit"') == 2
    assert "who? Ada did. right Ada predicted no answer 50.0 %" in text
