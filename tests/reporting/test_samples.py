"""Predictions of sentences, and what the page says of a task: confusions, scores, mistakes."""

import pytest

from bert_jax.reporting import run_record, run_report
from tests.pages import keep_steps, write_run


def say(step: int, text: str, *guesses: str, **more: list[str]) -> dict:
    """A line of samples.jsonl: a sentence, and the same guesses for each of its gaps."""
    guessed = [{"token": token, "probability": 0.25} for token in guesses]
    return {"step": step, "text": text, "predictions": [guessed] * text.count("[MASK]"), **more}


def judge(task: str, counts: list[list], *mistakes: dict, **more: list[list]) -> dict:
    """A line of samples.jsonl: how often each class was predicted for each, and mistakes."""
    return {"step": 1, "task": task, "counts": counts, "mistakes": mistakes, **more}


SENTENCES = [  # those of the last step are shown, with what was guessed before
    say(30, "The [MASK] sat.", "cat"),
    say(10, "The [MASK] sat.", "the"),
    say(20, "The [MASK] sat.", "dog"),
    say(20, "Asked [MASK] longer.", "no"),
]
ANSWERED = [  # a right token among the guesses is marked, another one stands below
    say(1, "A [MASK], [MASK].", "cat", "dog", answers=["dog", "cow"]),
    say(1, "The cat …", answers=["cat"]) | {"predictions": [[{"token": "cat", "probability": 1}]]},
]
CLASSES = [["no", "no", 6], ["no", "yes", 2], ["yes", "no", 1], ["yes", "yes", 3]]
MANY = [[f"c{i}", f"c{i}", 1] for i in range(21)] + [["c1", "c2", 7], ["c3", "c4", 9]]
TAGS = [["O", "O", 9], ["B-PER", "", 1]]
TAGGED = {"words": [["Ada", "B-PER", "O"], ["met", "O", "O"]], "wrong": 1}
ENTITIES = [["LOC", 0, 0, 1], ["PER", 1, 2, 2]]
SPANS = [["an answer", "exact", 4], ["an answer", "no answer", 1], ["no answer", "no answer", 2]]
WRONG = {"text": "who?", "pair": "Ada did.", "truth": "Ada", "predicted": "", "probability": 0.5}
RUNS = {  # name -> samples, labels of the task, and the step that is served
    "sentences": (SENTENCES, [], 30),
    "sentences_served": (SENTENCES, [], 20),
    "answered": (ANSWERED, [], 1),
    "classes": ([judge("classify", CLASSES)], ["yes", "no", "never"], 1),
    "many_classes": ([judge("classify", MANY)], [], 1),
    "tags": ([judge("tag", TAGS, TAGGED, entities=ENTITIES)], ["B-PER", "O"], 1),
    "spans": ([judge("span", SPANS, WRONG)], [], 1),
}


@pytest.mark.parametrize("name", RUNS)
def test_page_says_what_is_frozen(name, tmp_path, check_frozen):
    samples, labels, served = RUNS[name]
    recorded = {}
    if task := samples[0].get("task"):
        recorded = {"objectives": {task: {"labels": labels}}, "task": {"source": "files:x.tsv"}}
    run = write_run(tmp_path / "run", recorded, [], samples)
    keep_steps(run, [(served, 0.5)])
    page = run_report.build_report(run_record.read_run(run))
    check_frozen(page, name)
