"""Sections of a page from samples.jsonl: predictions for held-out sentences, or a task's mistakes.

For a fine-tuned run the sections show confusions, scores by class, outcomes of answers, and the
worst mistakes.
"""

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from bert_jax.reporting import records
from bert_jax.reporting.formats import number
from bert_jax.reporting.metric_names import find_meaning
from bert_jax.reporting.page import Cell, Table
from bert_jax.reporting.run_record import RunRecord, find_section

SHOWN = 12  # sentences or mistakes on a page
MOST = 20  # classes of a matrix; of more, the commonest confusions are listed
LISTED = 25  # confusions in a list
OUTCOMES = ("exact", "in part", "another text", "no answer")
ASKED = ("an answer", "no answer")
CUT = "(cut off)"  # the class predicted for a word that does not fit into the model
EMPTY = dict.fromkeys(  # a mistake, which has some of these
    ("text", "pair", "truth", "right", "predicted", "probability", "words", "wrong")
)
ABOUT = {
    "F1": find_meaning("f1"),
    "precision": find_meaning("class_precision"),
    "recall": find_meaning("class_recall"),
}
Counts = Counter[tuple[str, str]]  # right class and predicted class -> how often


# --- predictions -------------------------------------------------------------------------------


class Sentence(NamedTuple):
    """A held-out sentence, divided at its gaps, and the tokens that a model expects there."""

    step: int
    pieces: list[str]
    gaps: list[tuple[list[dict[str, Any]], str | None]]  # likeliest tokens, the right one if known
    earlier: list[tuple[int, str]]  # steps, and the best guesses there


def read_sentences(run: RunRecord) -> list[Sentence]:
    """Read a run's predictions for held-out sentences.

    The predictions are from the step that is served, or from the last step if that step has none.
    The best guesses of earlier steps are listed too.
    """
    rows = records.read_sorted(run.folder / records.SAMPLES, "text", "predictions")
    if any(row["step"] == run.served for row in rows):
        rows = [row for row in rows if row["step"] <= (run.served or 0)]
    by_text: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_text[row["text"]].append(row)
    # Sentences of an earlier config of the run are left out.
    found = [of_text for of_text in by_text.values() if of_text[-1]["step"] == rows[-1]["step"]]
    return [_read_sentence(of_text) for of_text in found[:SHOWN]]


def _read_sentence(rows: Sequence[dict[str, Any]]) -> Sentence:
    *before, latest = rows
    gaps = itertools.zip_longest(latest["predictions"], latest.get("answers") or [])
    earlier = []
    for row in before[:: max(1, -(-len(before) // 5))]:
        tokens = " / ".join(guesses[0]["token"] for guesses in row["predictions"] if guesses)
        earlier.append((row["step"], tokens))
    return Sentence(
        latest["step"],
        re.split(r"(\[MASK\]|…$)", latest["text"]),
        [(guesses[:5], answer) for guesses, answer in gaps if guesses],
        earlier,
    )


# --- a task's right and wrong ------------------------------------------------------------------


def read_outcomes(run: RunRecord) -> dict[str, Any]:
    """Read the results of a task's validation: scores, confusions and the worst mistakes.

    The result is {"step": …, "boxes": [tables], "mistakes": […]}; {} if there is nothing to show.
    It is from the step that is served, or from the last step if that step has none.
    """
    rows = records.read_sorted(run.folder / records.SAMPLES, "task", "mistakes")
    if not rows:
        return {}
    row = next((row for row in rows if row["step"] == run.served), rows[-1])
    counts: Counts = Counter()
    for right, predicted, count in row.get("counts") or ():
        counts[right, predicted or CUT] += count
    objective = find_section(find_section(run.recorded, "objectives"), row["task"])
    boxes = []
    if counts and row["task"] == "span":
        boxes.append(_tabulate_answers(counts))
    elif counts:
        what = "words" if row["task"] == "tag" else "examples"
        boxes += _tabulate_classes(counts, objective.get("labels") or (), what)
    if entities := [_score_class(*entity) for entity in row.get("entities") or ()]:
        boxes.append(_tabulate_scores("Entities", entities, "entity", "entities"))
    mistakes = [EMPTY | mistake for mistake in row["mistakes"][:SHOWN]]
    found = {"step": row["step"], "boxes": boxes, "mistakes": mistakes}
    return found if boxes or mistakes else {}


def _tabulate_classes(counts: Counts, labels: Sequence[str], what: str) -> list[Table]:
    """Tabulate the confusion matrix, or the commonest confusions, and the scores of each class."""
    seen = {name for pair in counts for name in pair} - {CUT}
    order = [name for name in labels if name in seen] + sorted(seen - {*labels})
    predicted = [*order, CUT] if any(b == CUT for _, b in counts) else order
    if len(order) <= MOST:
        head = ["right class ↓\npredicted →", *predicted, "all"]
        rows = _list_counts(counts, order, predicted, {(name, name) for name in order})
        first = Table(head, rows, look="confusion", title=f"Confusion matrix, {what}")
    else:
        wrong = [(a, b, n) for (a, b), n in counts.most_common() if a != b]
        lines = [[a, b, f"{n:,}"] for a, b, n in wrong[:LISTED]]
        first = Table(["right class", "taken for", what], lines, title="Commonest confusions")
    found, there = Counter[str](), Counter[str]()
    for (right_class, predicted_class), count in counts.items():
        there[right_class] += count
        found[predicted_class] += count
    scores = [_score_class(name, counts[name, name], found[name], there[name]) for name in order]
    return [first, _tabulate_scores(f"Scores by class, {what}", scores, "class", what)]


def _tabulate_answers(counts: Counts) -> Table:
    """Tabulate outcomes of answers, by whether the text has an answer."""
    asked = [name for name in ASKED if any(a == name for a, _ in counts)]
    right = {("an answer", "exact"), ("no answer", "no answer")}
    rows = _list_counts(counts, asked, OUTCOMES, right)
    head = ["the text has ↓\nthe model gives →", *OUTCOMES, "all"]
    said = "Exact: a right answer once case, punctuation and articles are dropped. In part: it "
    said += "shares words with one."
    return Table(head, rows, look="confusion", title="Answers", note=said)


def _list_counts(
    counts: Counts, names: Sequence[str], columns: Sequence[str], right: Collection[tuple[str, str]]
) -> list[list[Any]]:
    """Make a row for each name with the counts of predictions in each column.

    `right` lists the pairs (name, column) of correct predictions.
    """
    rows: list[list[Any]] = []
    for a in names:
        total = sum(counts[a, b] for b in columns)
        cells = []
        for b in columns:
            count = counts[a, b]
            share = count / max(total, 1)
            said = f"{a}, predicted {b}: {count:,} of {total:,} ({number(share, True)})"
            kind = "n hit" if (a, b) in right else "n miss"
            cells.append(Cell(f"{count:,}" if count else "·", kind, share, said))
        rows.append([a, *cells, f"{total:,}"])
    return rows


def _score_class(name: str, right: int, predicted: int, there: int) -> list[str]:
    """Make a row of a class: its name, precision, recall, F1 and number of examples.

    `right`, `predicted` and `there` count right predictions, all predictions, and examples of the
    class.
    """
    precision = right / max(predicted, 1)
    recall = right / max(there, 1)
    f1 = 2 * right / max(predicted + there, 1)
    return [name, *(number(share, True) for share in (precision, recall, f1)), f"{there:,}"]


def _tabulate_scores(title: str, lines: list[list[str]], kind: str, what: str) -> Table:
    head = [kind, "precision", "recall", "F1", what]
    return Table(head, lines, about=ABOUT, title=title)
