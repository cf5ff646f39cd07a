"""What a fine-tuned model gets wrong: confusions, scores by class, and the worst mistakes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from html import escape
from typing import Any

from bert_jax.reporting import records
from bert_jax.reporting.formats import number
from bert_jax.reporting.metric_names import meaning
from bert_jax.reporting.page import SAMPLES, section, table
from bert_jax.reporting.run_record import RunRecord, subtree

MOST = 20  # classes of a matrix; of more, the commonest confusions are listed
LISTED = 25  # confusions, or classes, in a list
OUTCOMES = ("exact", "in part", "another text", "no answer")
ASKED = ("an answer", "no answer")
CUT = "(cut off)"  # the class predicted for a word that does not fit into the model
Counts = Mapping[tuple[str, str], int]


def write(run: RunRecord) -> str:
    """Write the section of a task's validation at the step that is served, else at the last."""
    path = run.folder / records.SAMPLES
    rows = list(records.rows(path, records.TASK_SAMPLE)) if path.exists() else []
    if not rows:
        return ""
    row = next((row for row in reversed(rows) if row["step"] == run.served), rows[-1])
    counts = {(a, b or CUT): n for a, b, n in row.get("counts") or ()}
    shown = "".join(
        (
            _answers(counts) if row["task"] == "span" else _classes(run, row, counts),
            _entities(row.get("entities") or []),
            _mistakes(row),
        )
    )
    served = ", which is served" if row["step"] == run.served else ""
    where = f'<p class="sub">The validation examples at step {row["step"]:,}{served}.</p>'
    return section("Right and wrong", shown and where + shown)


def _box(title: str, body: str) -> str:
    return f'<div class="box"><h3>{escape(title)}</h3>{body}</div>' if body else ""


# --- classes -----------------------------------------------------------------------------------


def _classes(run: RunRecord, row: dict[str, Any], counts: Counts) -> str:
    """Show the confusion matrix and the scores of each class."""
    if not counts:
        return ""
    objective = subtree(subtree(run.recorded, "objectives"), row["task"])
    seen = {name for pair in counts for name in pair} - {CUT}
    order = [name for name in objective.get("labels") or () if name in seen]
    order += sorted(seen - set(order))
    predicted = [*order, *([CUT] if any(b == CUT for _, b in counts) else [])]
    what = "words" if row["task"] == "tag" else "examples"
    boxes = _box(f"Scores by class, {what}", _by_class(counts, order, what))
    if len(order) <= MOST:
        right, corner = {(name, name) for name in order}, "right class ↓<br>predicted →"
        drawn = matrix(counts, order, predicted, right, corner)
        boxes = _box(f"Confusion matrix, {what}", drawn) + boxes
    wrong = sorted(((n, a, b) for (a, b), n in counts.items() if a != b), key=lambda t: -t[0])
    if len(order) > MOST and wrong:
        lines = [[a, b, f"{n:,}"] for n, a, b in wrong[:LISTED]]
        boxes += _box(
            "Commonest confusions", table(lines, ["right class", "taken for", what], True)
        )
    return f'<div class="boxes">{boxes}</div>'


def matrix(
    counts: Counts,
    rows: Sequence[str],
    columns: Sequence[str],
    right: Collection[tuple[str, str]],
    corner: str,
) -> str:
    """Write how often each column was predicted for each row; `right` are the pairs that are."""
    head = "".join(f"<th class=n>{escape(name)}</th>" for name in columns)
    lines = []
    for a in rows:
        total = sum(counts.get((a, b), 0) for b in columns)
        cells = ""
        for b in columns:
            n = counts.get((a, b), 0)
            share = n / max(total, 1)
            said = f"{a}, predicted {b}: {n:,} of {total:,} ({number(share, True)})"
            kind, shown = "hit" if (a, b) in right else "miss", f"{n:,}" if n else "·"
            look = f'class="n {kind}" style="--share:{share:.3f}" title="{escape(said)}"'
            cells += f"<td {look}>{shown}</td>"
        lines.append(f"<tr><th>{escape(a)}</th>{cells}<td class=n>{total:,}</td></tr>")
    top = f"<tr><th>{corner}</th>{head}<th class=n>all</th></tr>"
    return f'<div class="scroll"><table class="confusion">{top}{"".join(lines)}</table></div>'


def _by_class(counts: Counts, order: Sequence[str], what: str) -> str:
    lines = []
    for name in order:
        found = counts.get((name, name), 0)
        predicted = sum(n for (_, b), n in counts.items() if b == name)
        there = sum(n for (a, _), n in counts.items() if a == name)
        lines.append(_scores(name, found, predicted, there))
    return _folded(lines, ["class", "precision", "recall", "F1", what])


def _scores(name: str, found: int, predicted: int, there: int) -> list[str]:
    """Return a line of precision, recall, F1 and the number of examples."""
    shares = (
        found / predicted if predicted else 0.0,
        found / there if there else 0.0,
        2 * found / (predicted + there) if predicted + there else 0.0,
    )
    return [name, *(number(share, True) for share in shares), f"{there:,}"]


def _folded(lines: list[list[str]], head: list[str]) -> str:
    """Write a table with scores; of many lines, the first are shown and the others folded."""
    shown = _scored(lines[:LISTED], head)
    rest = lines[LISTED:]
    if not rest:
        return shown
    return f"{shown}<details><summary>{len(rest)} more</summary>{_scored(rest, head)}</details>"


def _scored(lines: list[list[str]], head: list[str]) -> str:
    about = {"F1": "f1", "precision": "class_precision", "recall": "class_recall"}
    return table(lines, head, True, {word: meaning(about[word]) for word in head if word in about})


def _entities(entities: Sequence[Sequence[Any]]) -> str:
    """Show the scores of each type of entity."""
    lines = [_scores(*line) for line in entities]
    body = _folded(lines, ["entity", "precision", "recall", "F1", "entities"]) if lines else ""
    return f'<div class="boxes">{_box("Entities", body)}</div>' if body else ""


def _answers(counts: Counts) -> str:
    """Show how many answers are right, by whether there is one."""
    rows = [name for name in ASKED if any(a == name for a, _ in counts)]
    right = {("an answer", "exact"), ("no answer", "no answer")}
    corner = "the text has ↓<br>the model gives →"
    drawn = matrix(counts, rows, OUTCOMES, right, corner) if rows else ""
    said = '<p class="note">Exact: a right answer once case, punctuation and articles are dropped. '
    said += "In part: it shares words with one.</p>"
    return f'<div class="boxes">{_box("Answers", drawn and drawn + said)}</div>'


# --- mistakes ----------------------------------------------------------------------------------


def _mistakes(row: dict[str, Any]) -> str:
    """Show the worst mistakes, the worst first."""
    boxes = "".join(_mistake(mistake) for mistake in row["mistakes"][:SAMPLES])
    if not boxes:
        return ""
    return f'<h3>The worst mistakes</h3><div class="samples">{boxes}</div>'


def _mistake(mistake: dict[str, Any]) -> str:
    parts = []
    if words := mistake.get("words"):
        parts.append(f"<p>{' '.join(_word(*word) for word in words)}</p>")
        wrong = int(mistake.get("wrong") or 0)
        parts.append(f'<div class="then">{wrong:,} word{"s" * (wrong != 1)} wrong</div>')
    else:
        for key, kind in (("text", ""), ("pair", ' class="then"')):
            if text := mistake.get(key):
                parts.append(f"<p{kind}>{escape(text)}</p>")
        parts.append(_verdict(mistake))
    return f'<div class="box mistake">{"".join(parts)}</div>'


def _word(word: str, truth: str, predicted: str) -> str:
    if truth == predicted:
        return escape(word)
    said = f"{escape(truth)} → {escape(predicted or CUT)}"
    return f"<mark>{escape(word)}</mark><sub>{said}</sub>"


def _verdict(mistake: dict[str, Any]) -> str:
    """Write what is right and what was predicted, with their probabilities."""
    lines = []
    for name, key, share in (
        ("right", "truth", "right"),
        ("predicted", "predicted", "probability"),
    ):
        probability = mistake.get(share)
        percent = number(probability, True) if probability is not None else ""
        text = mistake.get(key) or "no answer"
        lines.append(
            f"<div><span>{name}</span><span class={name}>{escape(text)}</span>"
            f"<span>{percent}</span></div>"
        )
    return f'<div class="verdict">{"".join(lines)}</div>'
