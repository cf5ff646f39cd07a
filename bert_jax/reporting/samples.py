"""Sections of a page from samples.jsonl: predictions for held-out sentences, or a task's mistakes.

For a fine-tuned run the sections show confusions, scores by class, outcomes of answers, and the
worst mistakes.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from html import escape
from typing import Any

from bert_jax.reporting import page as pages
from bert_jax.reporting import records
from bert_jax.reporting.formats import number
from bert_jax.reporting.metric_names import meaning
from bert_jax.reporting.page import render_section, render_table
from bert_jax.reporting.run_record import RunRecord, find_section

SHOWN = 12  # sentences or mistakes on a page
MOST = 20  # classes of a matrix; of more, the commonest confusions are listed
LISTED = 25  # confusions in a list
OUTCOMES = ("exact", "in part", "another text", "no answer")
ASKED = ("an answer", "no answer")
CUT = "(cut off)"  # the class predicted for a word that does not fit into the model
ABOUT = {
    "F1": meaning("f1"),
    "precision": meaning("class_precision"),
    "recall": meaning("class_recall"),
}
Counts = Counter[tuple[str, str]]  # right class and predicted class -> how often


# --- predictions -------------------------------------------------------------------------------


def render_predictions(run: RunRecord) -> str:
    """Render a section with predictions for held-out sentences.

    The predictions are from the step that is served, or from the last step if that step has none.
    The best guesses of earlier steps are listed too.
    """
    rows = records.read_sorted(run.folder / records.SAMPLES, "text", "predictions")
    if any(row["step"] == run.served for row in rows):
        rows = [row for row in rows if row["step"] <= (run.served or 0)]
    if not rows:
        return ""
    last = rows[-1]["step"]
    by_text: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_text[row["text"]].append(row)
    # Sentences of an earlier config of the run are left out.
    boxes = [_render_sentence(found) for found in by_text.values() if found[-1]["step"] == last]
    served = ", which is served" if last == run.served else ""
    said = f"Held-out sentences, and what the model expects there at step {last:,}{served}."
    shown = f'<div class="samples">{"".join(boxes[:SHOWN])}</div>'
    return render_section("Predictions", f'<p class="sub">{said}</p>{shown}')


def _render_sentence(rows: Sequence[dict[str, Any]]) -> str:
    """Render a sentence with its latest predictions as bars, and earlier steps' best guesses."""
    *before, latest = rows
    sentence = re.sub(r"\[MASK\]|…$", lambda gap: f"<mark>{gap[0]}</mark>", escape(latest["text"]))
    gaps = itertools.zip_longest(latest["predictions"], latest.get("answers") or [])
    bars = "".join(_render_bars(guesses[:5], answer) for guesses, answer in gaps if guesses)
    then = []
    for row in before[:: max(1, -(-len(before) // 5))]:
        tokens = " / ".join(guesses[0]["token"] for guesses in row["predictions"] if guesses)
        then.append(f"<span>step {row['step']:,}: {escape(tokens)}</span>")
    earlier = pages.wrap_body(" · ".join(then), "then")
    return f'<div class="box"><p>{sentence}</p>{bars}{earlier}</div>'


def _render_bars(guesses: Sequence[dict[str, Any]], answer: str | None) -> str:
    """Render a bar for each likely token of a mask, then the right token if no bar shows it."""
    lines = ""
    for guess in guesses:
        share = 100 * guess["probability"]
        right = ' class="right"' if guess["token"] == answer else ""
        lines += (
            f'<div class="bar"><span{right}>{escape(guess["token"])}</span>'
            f'<span><i style="width:{share:.1f}%"></i></span><span>{share:.1f} %</span></div>'
        )
    if answer is not None and all(guess["token"] != answer for guess in guesses):
        name = f'<span class="right">{escape(answer)}</span>'
        lines += f'<div class="bar">{name}<span>original token</span><span></span></div>'
    return f'<div class="gap">{lines}</div>'


# --- a task's right and wrong ------------------------------------------------------------------


def render_outcomes(run: RunRecord) -> str:
    """Render a section on a task's validation: scores, confusions and the worst mistakes.

    The numbers are from the step that is served, or from the last step if that step has none.
    """
    rows = records.read_sorted(run.folder / records.SAMPLES, "task", "mistakes")
    if not rows:
        return ""
    row = next((row for row in rows if row["step"] == run.served), rows[-1])
    counts: Counts = Counter()
    for right, predicted, count in row.get("counts") or ():
        counts[right, predicted or CUT] += count
    objective = find_section(find_section(run.recorded, "objectives"), row["task"])
    shown = ""
    if counts and row["task"] == "span":
        shown = _render_answers(counts)
    elif counts:
        what = "words" if row["task"] == "tag" else "examples"
        shown = _render_classes(counts, objective.get("labels") or (), what)
    if entities := [_score_class(*entity) for entity in row.get("entities") or ()]:
        shown += _render_box("Entities", _render_scores(entities, "entity", "entities"))
    shown = pages.wrap_body(shown, "boxes")
    if mistakes := "".join(_render_mistake(one) for one in row["mistakes"][:SHOWN]):
        shown += f'<h3>The worst mistakes</h3><div class="samples">{mistakes}</div>'
    served = ", which is served" if row["step"] == run.served else ""
    where = f'<p class="sub">The validation examples at step {row["step"]:,}{served}.</p>'
    return render_section("Right and wrong", shown and where + shown)


def _render_box(title: str, body: str) -> str:
    return f'<div class="box"><h3>{escape(title)}</h3>{body}</div>'


def _render_classes(counts: Counts, labels: Sequence[str], what: str) -> str:
    """Render the confusion matrix, or the commonest confusions, and the scores of each class."""
    seen = {name for pair in counts for name in pair} - {CUT}
    order = [name for name in labels if name in seen] + sorted(seen - {*labels})
    predicted = [*order, CUT] if any(b == CUT for _, b in counts) else order
    if len(order) <= MOST:
        right = {(name, name) for name in order}
        corner = "right class ↓<br>predicted →"
        shown = _render_matrix(counts, order, predicted, right, corner)
        boxes = _render_box(f"Confusion matrix, {what}", shown)
    else:
        wrong = [(a, b, n) for (a, b), n in counts.most_common() if a != b]
        lines = [[a, b, f"{n:,}"] for a, b, n in wrong[:LISTED]]
        shown = render_table(lines, ["right class", "taken for", what], numbers=True)
        boxes = _render_box("Commonest confusions", shown)
    found, there = Counter[str](), Counter[str]()
    for (right_class, predicted_class), count in counts.items():
        there[right_class] += count
        found[predicted_class] += count
    scores = [_score_class(name, counts[name, name], found[name], there[name]) for name in order]
    return boxes + _render_box(f"Scores by class, {what}", _render_scores(scores, "class", what))


def _render_answers(counts: Counts) -> str:
    """Render a matrix of outcomes of answers, by whether the text has an answer."""
    rows = [name for name in ASKED if any(a == name for a, _ in counts)]
    right = {("an answer", "exact"), ("no answer", "no answer")}
    corner = "the text has ↓<br>the model gives →"
    said = "Exact: a right answer once case, punctuation and articles are dropped. In part: it "
    said += "shares words with one."
    drawn = _render_matrix(counts, rows, OUTCOMES, right, corner)
    return _render_box("Answers", f'{drawn}<p class="note">{said}</p>')


def _render_matrix(
    counts: Counts,
    rows: Sequence[str],
    columns: Sequence[str],
    right: Collection[tuple[str, str]],
    corner: str,
) -> str:
    """Render how often each column was predicted for each row; `right` lists the correct pairs."""
    head = "".join(f"<th class=n>{escape(name)}</th>" for name in columns)
    lines = f"<tr><th>{corner}</th>{head}<th class=n>all</th></tr>"
    for a in rows:
        total = sum(counts[a, b] for b in columns)
        cells = ""
        for b in columns:
            count = counts[a, b]
            share = count / max(total, 1)
            said = f"{a}, predicted {b}: {count:,} of {total:,} ({number(share, True)})"
            kind = "hit" if (a, b) in right else "miss"
            look = f'class="n {kind}" style="--share:{share:.3f}" title="{escape(said)}"'
            cells += f"<td {look}>{f'{count:,}' if count else '·'}</td>"
        lines += f"<tr><th>{escape(a)}</th>{cells}<td class=n>{total:,}</td></tr>"
    return f'<div class="scroll"><table class="confusion">{lines}</table></div>'


def _score_class(name: str, right: int, predicted: int, there: int) -> list[str]:
    """Make a row of a class: its name, precision, recall, F1 and number of examples."""
    precision = right / max(predicted, 1)
    recall = right / max(there, 1)
    f1 = 2 * right / max(predicted + there, 1)
    return [name, *(number(share, True) for share in (precision, recall, f1)), f"{there:,}"]


def _render_scores(lines: list[list[str]], kind: str, what: str) -> str:
    """Render a table of the rows of `_score_class`."""
    head = [kind, "precision", "recall", "F1", what]
    return render_table(lines, head, numbers=True, about=ABOUT)


def _render_mistake(mistake: dict[str, Any]) -> str:
    """Render a text with its wrong words marked, or with what is right and what was predicted."""
    if words := mistake.get("words"):
        shown = " ".join(_render_word(*word) for word in words)
        wrong = int(mistake.get("wrong") or 0)
        said = f"{wrong:,} word{'s' * (wrong != 1)} wrong"
        return f'<div class="box mistake"><p>{shown}</p><div class="then">{said}</div></div>'
    lines = ""
    for name, text, share in (
        ("right", mistake.get("truth"), mistake.get("right")),
        ("predicted", mistake.get("predicted"), mistake.get("probability")),
    ):
        percent = number(share, True) if share is not None else ""
        shown = f"<span class={name}>{escape(text or 'no answer')}</span><span>{percent}</span>"
        lines += f"<div><span>{name}</span>{shown}</div>"
    pair = pages.wrap_body(escape(mistake.get("pair") or ""), "then", "p")
    text = f"<p>{escape(mistake.get('text') or '')}</p>"
    return f'<div class="box mistake">{text}{pair}<div class="verdict">{lines}</div></div>'


def _render_word(word: str, truth: str, predicted: str) -> str:
    if truth == predicted:
        return escape(word)
    said = f"{escape(truth)} → {escape(predicted or CUT)}"
    return f"<mark>{escape(word)}</mark><sub>{said}</sub>"
