"""What a fine-tuned model gets wrong: the confusions of its classes, and its worst mistakes.

An evaluation of a task writes both as one row of samples.jsonl. Long texts are cut, so that the row
is small whatever the data. The counts depend on the kind of task:

    classify   `counts`: [right class, predicted class, number]
    tag        `counts` of words, as for classify; "" is predicted for a word that was cut off
               `entities`, if labels mark them: [type, right, predicted, in the data]
    span       `counts`: ["an answer" or "no answer", outcome, number]
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from bert_jax.data.examples import Example
from bert_jax.evaluation import scores, squad

TEXT = 300  # characters of a text
WORD = 40  # characters of a word
BEFORE, AFTER = 10, 30  # words around the first wrong one
AROUND = 120  # characters of the context on either side of an answer
ANSWERS = 3  # right answers of a question

Known = Sequence[tuple[Example, Any]]  # examples that have a label, and what is predicted of them
# Counts, and each mistake after what it is ranked by: the worst has the lowest rank.
Found = tuple[dict[str, Any], list[tuple[Any, dict[str, Any]]]]


def list_mistakes(
    kind: str,
    examples: Sequence[Example],
    predictions: Sequence[Any],
    labels: Sequence[str],
    most: int,
) -> list[dict[str, Any]]:
    """Return in a list the row of a task in samples.jsonl: its counts and its worst mistakes.

    The counts tell how often each right answer got which prediction. The row has at most `most`
    mistakes. The list is empty if `most` is 0 or no example has a label. Predictions come from
    `answers.decode_outputs`.
    """
    pairs = zip(examples, predictions, strict=True)
    known = [(example, output) for example, output in pairs if example.label is not None]
    if not most or not known:
        return []
    find = {"regress": _rank_numbers, "tag": _rank_tags, "span": _rank_spans}.get(
        kind, _rank_choices
    )
    counted, ranked = find(known, labels)
    worst = [mistake for _, mistake in sorted(ranked, key=lambda pair: pair[0])[:most]]
    return [{"task": kind, **counted, "mistakes": worst}]


def _rank_choices(known: Known, labels: Sequence[str]) -> Found:
    """Count confusions of classes; rank mistakes by the probability of the right answer."""
    counts: Counter[tuple[str, str]] = Counter()
    ranked = []
    for example, shares in known:
        names = example.options or labels
        chosen = int(shares.argmax())
        if not example.options:
            counts[names[example.label], names[chosen]] += 1
        if chosen != example.label:
            right = float(shares[example.label])
            mistake = _cut_texts(example) | {
                "truth": _cut(names[example.label]),
                "predicted": _cut(names[chosen]),
                "probability": _round_share(shares[chosen]),
                "right": _round_share(right),
            }
            ranked.append((right, mistake))
    return ({"counts": _list_counts(counts)} if counts else {}), ranked


def _rank_numbers(known: Known, labels: Sequence[str]) -> Found:
    """Rank mistakes by the distance of the predicted number from the right number."""
    ranked = []
    for example, value in known:
        if value != example.label:
            said = {"truth": f"{example.label:.6g}", "predicted": f"{value:.6g}"}
            ranked.append((-abs(value - example.label), _cut_texts(example) | said))
    return {}, ranked


def _rank_tags(known: Known, labels: Sequence[str]) -> Found:
    """Count confusions of labels and entities; rank texts by their number of wrong words."""
    from seqeval.metrics.sequence_labeling import get_entities

    counts: Counter[tuple[str, str]] = Counter()
    entities: Counter[tuple[str, int]] = Counter()
    names = (*labels, "")  # -1 is a word that was cut off
    of_entities, ranked = scores.is_entities(labels), []
    for example, tags in known:
        truth = [labels[i] for i in example.label]
        chosen = [names[i] for i in tags]
        counts.update(zip(truth, chosen, strict=True))
        if of_entities:
            there = set(get_entities(truth))
            predicted = set(get_entities([tag or "O" for tag in chosen]))
            for place, found in enumerate((there & predicted, predicted, there)):
                entities.update((entity[0], place) for entity in found)
        wrong = [i for i, tag in enumerate(truth) if tag != chosen[i]]
        if wrong:
            part = slice(max(0, wrong[0] - BEFORE), wrong[0] + AFTER)
            shown = zip(example.words[part], truth[part], chosen[part], strict=True)
            words = [[_cut(word, WORD), a, b] for word, a, b in shown]
            ranked.append((-len(wrong), {"words": words, "wrong": len(wrong)}))
    counted: dict[str, Any] = {"counts": _list_counts(counts)}
    if of_entities:
        types = sorted({name for name, _ in entities})
        counted["entities"] = [[name, *(entities[name, i] for i in range(3))] for name in types]
    return counted, ranked


def _rank_spans(known: Known, labels: Sequence[str]) -> Found:
    """Count outcomes, and rank mistakes by the words they share with a right answer.

    Of mistakes that share equally many words, the more probable one is worse.
    """
    counts: Counter[tuple[str, str]] = Counter()
    ranked = []
    for example, span in known:
        right = [answer for answer in example.label if squad.normalize(answer.text)]
        shared = max((squad.f1(answer.text, span.text) for answer in right), default=0.0)
        if not span.text:
            outcome = "no answer"
        elif any(squad.exact(answer.text, span.text) for answer in right):
            outcome = "exact"
        else:
            outcome = "in part" if shared else "another text"
        counts["an answer" if right else "no answer", outcome] += 1
        if outcome != ("exact" if right else "no answer"):
            place = right[0] if right else span
            share = next((c.probability for c in span.n_best if c.text == span.text), math.nan)
            mistake = {
                "text": _cut(example.text),
                "pair": _cut_around(example.pair or "", place.start, len(place.text)),
                "truth": " / ".join(dict.fromkeys(_cut(a.text) for a in right[:ANSWERS])),
                "predicted": _cut(span.text),
                "probability": _round_share(share),
            }
            ranked.append(((shared, -share), mistake))
    return {"counts": _list_counts(counts)}, ranked


def _list_counts(counts: Counter[tuple[str, str]]) -> list[list[Any]]:
    return [[*pair, count] for pair, count in sorted(counts.items())]


def _round_share(value: float) -> float | None:
    """Round a probability for the file; return None for a number that is not finite."""
    return round(float(value), 6) if math.isfinite(value) else None


def _cut_texts(example: Example) -> dict[str, Any]:
    pair = {} if example.pair is None else {"pair": _cut(example.pair)}
    return {"text": _cut(example.text), **pair}


def _cut(text: str, most: int = TEXT) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _cut_around(text: str, start: int, length: int) -> str:
    """Cut a text to an answer and its surroundings."""
    first = max(0, start - AROUND)
    last = min(len(text), start + length + AROUND)
    return f"{'…' if first else ''}{text[first:last]}{'…' if last < len(text) else ''}"
