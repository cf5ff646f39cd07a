"""Finished training examples, ours and the published ones: made, measured alike and compared.

Every token of a text has an id of its own, so finished examples show by themselves where their text
was taken from and what truncation cost it. `measure` gives, for each pass over the text, eighty
numbers or more, and counts what must never occur. Passes are independent draws, whatever is
correlated inside one, so two samples of passes are compared by Welch's t-test, number by number.
"""

import dataclasses
import functools
import random
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy import stats

from bert_jax.config import knobs
from bert_jax.data import pipeline
from bert_jax.data.corpus import Split
from bert_jax.masking import corrupt, quotas
from bert_jax.training.step import compute_inputs
from tests import corpora, published
from tests.corpora import FIRST, SPECIAL

FALSE_ALARM = 1e-5  # of one verdict
AGAIN = 10  # further epochs, which tell static masks from dynamic ones
ROWS = 512  # of a batch
OUTPUTS = ("tokens", "type_ids", "inputs", "predict_positions", "predict_targets")
OUTPUTS += ("predict_weights", "labels")


# --- a text whose tokens are all different --------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Text:
    """Documents, and what is known of each token by its place in the text."""

    split: Split
    begins: np.ndarray  # bool [T + 1], a sentence begins here
    document: np.ndarray  # int [T]
    continues: np.ndarray  # bool [V], of ids: a piece that goes on with a word

    @property
    def vocabulary(self) -> int:
        return len(self.continues)


def text_of(documents: Sequence[Sequence[int]], continues: np.ndarray) -> Text:
    """Documents as lists of sentence lengths, with ids that tell tokens apart; `continues` is by
    place, [T].
    """
    split = corpora.make_split(documents)
    lengths = np.concatenate(documents)
    ends = np.cumsum(lengths)
    begins = np.isin(np.arange(ends[-1] + 1), [*(ends - lengths), ends[-1]])
    sentences = [len(document) for document in documents]
    document = np.repeat(np.repeat(np.arange(len(documents)), sentences), lengths)
    ids = np.concatenate([np.zeros(FIRST, bool), continues & ~begins[:-1]])
    return Text(split, begins, document, ids)


def made_up(documents: int, sentences: float, tokens: float, seed: int = 0) -> Text:
    """Geometric numbers of sentences and tokens, in two parts; two tokens of five go on with a
    word.
    """
    structure = corpora.random_documents(documents // 2, seed, sentences, tokens)
    structure += corpora.random_documents(documents // 2, seed + 1, sentences, tokens)
    going = np.random.default_rng(seed).random(sum(map(sum, structure))) < 0.4
    return text_of(structure, going)


# --- finished examples, ours and the published ones -----------------------------------------------


class Case(NamedTuple):
    """What is compared."""

    text: Callable[[], Text]
    length: int
    passes: int = 60
    rate: float = 0.15
    most: int = 20  # max_predictions_per_seq
    mode: str = "nsp"
    words: bool = False
    static: bool = True  # passes are copies that come back; else every epoch draws anew

    @property
    def epochs(self) -> int:
        return self.passes + AGAIN * self.static

    @property
    def lag(self) -> int:
        """Epochs after which masks are compared."""
        return self.passes if self.static else 1


@dataclasses.dataclass
class Finished:
    """Examples as a model reads them."""

    tokens: np.ndarray  # [N, L]
    type_ids: np.ndarray  # [N, L]
    inputs: np.ndarray  # [N, L]
    positions: np.ndarray  # [N, K]
    targets: np.ndarray  # [N, K]
    weights: np.ndarray  # bool [N, K]
    labels: np.ndarray  # [N]
    epochs: np.ndarray  # [N]

    def at(self, rows: np.ndarray) -> "Finished":
        return Finished(*(getattr(self, field.name)[rows] for field in dataclasses.fields(self)))


def theirs(text: Text, case: Case, seed: int = 1) -> "Finished":
    """What the published construction makes, pass by pass; static copies come back."""
    rng = random.Random(seed)
    continues = set(np.flatnonzero(text.continues).tolist()) if case.words else None
    masks = published.Masks(case.rate, case.most, text.vocabulary, SPECIAL, continues)
    documents = corpora.list_documents(text.split)
    copies = [
        published.instances(documents, case.length, 0.1, masks, rng, case.mode)
        for _ in range(case.passes)
    ]
    rows = [(epoch, one) for epoch in range(case.epochs) for one in copies[epoch % case.passes]]

    def padded(name: str, width: int, value: int = 0) -> np.ndarray:
        found = np.full((len(rows), width), value, np.int32)
        for at, (_, one) in enumerate(rows):
            values = getattr(one, name)
            found[at, : len(values)] = values
        return found

    positions = padded("positions", case.length, -1)
    return Finished(
        *(padded(name, case.length) for name in ("tokens", "segment_ids", "inputs")),
        np.maximum(positions, 0),
        padded("targets", case.length),
        positions >= 0,
        np.array([one.label for _, one in rows]),
        np.array([epoch for epoch, _ in rows]),
    )


@functools.lru_cache
def masker(settings: knobs.Masking, vocabulary: int, slots: int) -> Callable:
    rules = {"settings": settings, "special": SPECIAL, "vocab_size": vocabulary, "slots": slots}
    return jax.jit(lambda batch, step_inputs: corrupt.corrupt_batch(batch, step_inputs, **rules)[0])


def ours(folder: Path, text: Text, case: Case) -> "Finished":
    """What a run reads."""
    settings = {
        "batch_size": ROWS,
        "sequence_length": case.length,
        "pairs": case.mode,
        "masking__rate": case.rate,
        "masking__unit": "word" if case.words else "token",
        "masking__count": "all",
        "masking__rounding": "nearest",
        "masking__random_from": "all",
        "masking__overflow": "skip" if case.words else "fair",
        "masking__dupe_factor": case.passes if case.static else 0,
    }
    config = corpora.config(**settings)
    prepared = corpora.prepared(folder, text.split)
    tokenizer: Any = types.SimpleNamespace(special=SPECIAL, continuation=text.continues)
    source = pipeline.TextStream(
        dataclasses.replace(prepared, tokenizer=tokenizer), "train", config
    )
    step_inputs = compute_inputs(config, 0)
    # What is a step input, or not read, must not compile anew.
    plain = dataclasses.replace(config.masking, rate=0.15, replace=(0.8, 0.1, 0.1), dupe_factor=0)
    mask = masker(plain, text.vocabulary, quotas.count_slots(config.masking, case.length))
    parts = []
    for epoch in range(case.epochs):
        # A run would read as many rows in each epoch as in the first. Passes are compared whole.
        plan = source._plan(epoch % source._copies if source._copies else epoch)
        source.rows_per_epoch = source.batch_size = len(plan)
        parts.append(source.batch(epoch))
    epochs = np.repeat(np.arange(case.epochs), [len(part["tokens"]) for part in parts])
    whole = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    found = []
    for start in range(0, len(epochs), ROWS):
        batch = {
            key: np.take(value, np.arange(start, start + ROWS), axis=0, mode="wrap")
            for key, value in whole.items()
        }
        output = {key: np.asarray(value) for key, value in mask(batch, step_inputs).items()}
        output["predict_weights"] = output["predict_weights"] > 0
        output["labels"] = output["labels"][:, 0]
        found.append([output[name] for name in OUTPUTS])
    return Finished(*(np.concatenate(c)[: len(epochs)] for c in zip(*found, strict=True)), epochs)


# --- what is measured -----------------------------------------------------------------------------

Measured = tuple[dict[str, np.ndarray], dict[str, int]]


def measure(found: Finished, text: Text, case: Case) -> Measured:
    """Numbers, one a pass each, and how many examples show what must never occur.

    Where truncation lets B begin inside a word, the original takes its first pieces for the end of
    A's last word. Ours are a unit of their own, so masks of whole words are compared on the other
    examples.
    """
    every = Parts(
        found.at(np.lexsort((found.tokens[:, 1], found.epochs))), text, case
    )  # in the order of the text
    alike = every
    if case.words:
        alike = Parts(
            every.e.at(np.flatnonzero(~text.continues[FIRST + every.b_first])), text, case
        )
    return {**shapes(every), **masks(alike)}, faults(every)


class Parts:
    """Examples taken apart: where A and B lie in the row and in the text, what is selected."""

    def __init__(self, e: Finished, text: Text, case: Case):
        self.e, self.text, self.case = e, text, case
        rows = np.arange(len(e.tokens))
        self.columns = columns = np.arange(case.length)
        real = e.tokens != SPECIAL.pad
        self.length = case.length - real[:, ::-1].argmax(1)  # to the last token that is no padding
        self.a = (e.tokens == SPECIAL.sep).argmax(1) - 1  # lengths
        self.b = np.maximum(self.length - self.a - 3, 0)
        self.in_a = (columns > 0) & (columns <= self.a[:, None])
        self.in_b = (columns >= self.a[:, None] + 2) & (columns < self.length[:, None] - 1)
        self.eligible = self.in_a | self.in_b
        self.place = np.clip(e.tokens - FIRST, 0, len(text.document) - 1)  # in the text
        ends = (1, self.a, np.minimum(self.a + 2, case.length - 1), np.maximum(self.length - 2, 0))
        self.a_first, self.a_last, self.b_first, self.b_last = (
            self.place[rows, column] for column in ends
        )
        self.chosen = np.zeros_like(real)
        self.chosen[np.nonzero(e.weights)[0], e.positions[e.weights]] = True
        self.apart = text.document[self.a_first] != text.document[self.b_first]
        fresh = ~np.pad(self.eligible, ((0, 0), (1, 0)))[:, :-1]  # text begins after [CLS] or [SEP]
        self.word = np.cumsum(fresh | ~text.continues[e.tokens], axis=1) + rows[:, None] * (
            case.length + 1
        )

    def mean(self, values: np.ndarray, among: Any = True) -> np.ndarray:
        """The mean of values, by pass; nan where there is none."""
        values, among = np.broadcast_arrays(np.asarray(values, float), np.asarray(among, float))
        rows = (x.reshape(len(x), -1).sum(1) for x in (values * among, among))
        total, count = (
            np.bincount(self.e.epochs, x, self.case.epochs)[: self.case.passes] for x in rows
        )
        return np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0)


def then(values: np.ndarray) -> np.ndarray:
    """Of the example that follows in the text; the last one is followed by the first."""
    return np.roll(values, -1)


def shapes(p: Parts) -> dict[str, np.ndarray]:
    """Lengths, labels, truncation, and where in the text A and B lie."""
    e, text, limit = p.e, p.text, p.case.length - 3
    drawn, true, pair = e.labels == 1, e.labels == 0, p.b > 0
    places, sentences = np.arange(len(text.document)), np.flatnonzero(text.begins)
    after = np.searchsorted(sentences, places, "right")
    begin, end = sentences[after - 1], sentences[after]  # of each token's sentence
    starts = np.flatnonzero(np.diff(text.document, prepend=-1))  # of documents
    sizes = np.diff(np.append(starts, len(places)))
    relative = (places - starts[text.document]) / sizes[text.document]
    used = np.zeros((p.case.epochs, len(places)), bool)
    counted = p.in_a | (p.in_b & (true | (p.case.mode == "sop"))[:, None])
    used[np.broadcast_to(e.epochs[:, None], counted.shape)[counted], p.place[counted]] = True
    full = p.length == p.case.length
    document = text.document[p.a_first]
    following = (then(document) == document) & (then(e.epochs) == e.epochs)
    found = {
        "examples": np.bincount(e.epochs, minlength=p.case.epochs)[: p.case.passes].astype(float),
        "label 1": p.mean(drawn),
        "length": p.mean(p.length),
        "product of A and B": p.mean(p.a * p.b),
        "full": p.mean(full),
        "short again after short": p.mean(
            ~then(full), ~full & following & then(following) & true & then(true)
        ),
        "label 1 after label 1": p.mean(drawn & then(drawn), following),
        "text lost between A and B": p.mean(p.b_first - p.a_last - 1, true),
        "place of random B in its document": p.mean(relative[p.b_first], drawn),
        "document of random B": p.mean(text.document[p.b_first], drawn),
        "place of A in its document": p.mean(relative[p.a_first]),
        "text used": used[: p.case.passes].mean(1),
    }
    sides = (("A", p.a, p.a_first, p.a_last, True), ("B", p.b, p.b_first, p.b_last, pair))
    for side, size, first, last, there in sides:
        found[f"length of {side}"] = p.mean(size, there)
        found[f"square of {side}"] = p.mean(size**2)
        found[f"{side} of random"] = p.mean(size, drawn)
        found[f"{side} of true"] = p.mean(size, true)
        found[f"{side} lost its front"] = p.mean(first != begin[first], there)
        found[f"{side} lost its end"] = p.mean(last + 1 != end[last], there)
        found[f"front that {side} lost"] = p.mean(first - begin[first], there)
        found[f"end that {side} lost"] = p.mean(end[last] - last, there)
        for tenth in range(1, 10):
            found[f"{side} up to {tenth}/10"] = p.mean(size <= tenth / 10 * limit, there)
    for tenth in range(1, 10):
        found[f"length up to {tenth}/10"] = p.mean(p.length <= tenth / 10 * p.case.length)
    return found


def masks(p: Parts) -> dict[str, np.ndarray]:
    """How many are predicted, which ones, and what replaces them."""
    e, chosen, eligible = p.e, p.chosen, p.eligible
    as_mask, kept = chosen & (e.inputs == SPECIAL.mask), chosen & (e.inputs == e.tokens)
    drawn = chosen & ~as_mask & ~kept
    rank = (np.cumsum(eligible, axis=1) - 0.5) / np.maximum(eligible.sum(1, keepdims=True), 1)
    nearest = eligible & (np.pad(eligible, ((0, 0), (0, 1)))[:, 1:])  # another one follows
    after = np.pad(chosen, ((0, 0), (0, 1)))[:, 1:]
    found = {
        "predictions": p.mean(e.weights.sum(1)),
        "square of predictions": p.mean(e.weights.sum(1) ** 2),
        "selected": p.mean(chosen, eligible),
        "selected in A": p.mean(chosen, p.in_a),
        "selected in B": p.mean(chosen, p.in_b),
        "first token selected": p.mean(chosen[:, 1]),
        "last token selected": p.mean(chosen[np.arange(len(chosen)), p.length - 2]),
        "neighbour of selected": p.mean(after, chosen & nearest),
        "[MASK]": p.mean(as_mask, chosen),
        "random": p.mean(drawn, chosen),
        "kept": p.mean(kept, chosen),
        "[MASK] beside [MASK]": p.mean(np.pad(as_mask, ((0, 0), (0, 1)))[:, 1:], as_mask & after),
        "special among random": p.mean(e.inputs < FIRST, drawn),
        "id of random": p.mean(e.inputs / p.text.vocabulary, drawn),
        "square of random's id": p.mean((e.inputs / p.text.vocabulary) ** 2, drawn),
        "position selected again": repeated(p),
    }
    for tenth in range(10):
        found[f"predictions in tenth {tenth + 1}"] = p.mean(
            (rank * 10).astype(int) == tenth, chosen
        )
    if p.case.words:
        size, hit = word_sizes(p)
        for count in range(1, 5):
            found[f"words of {count} selected"] = p.mean(hit, size == count)
        found["words of more selected"] = p.mean(hit, size > 4)
    return found


def word_sizes(p: Parts) -> tuple[np.ndarray, np.ndarray]:
    """For each word, at its first piece [N, L]: its pieces, and whether all are selected."""
    pieces = np.bincount(p.word[p.eligible], minlength=p.word.max() + 1)
    hits = np.bincount(p.word[p.eligible & p.chosen], minlength=p.word.max() + 1)
    first = p.eligible & (np.diff(p.word, axis=1, prepend=-1) != 0)
    return np.where(first, pieces[p.word], 0), first & (pieces == hits)[p.word]


def repeated(p: Parts) -> np.ndarray:
    """Of the positions selected in the n-th example of a pass, how many are again in that of a
    later pass.
    """
    by_epoch = np.split(p.chosen, np.cumsum(np.bincount(p.e.epochs, minlength=p.case.epochs))[:-1])
    found = np.full(p.case.passes, np.nan)
    for epoch in range(min(p.case.passes, p.case.epochs - p.case.lag)):
        count = min(len(by_epoch[epoch]), len(by_epoch[epoch + p.case.lag]))
        one, two = by_epoch[epoch][:count], by_epoch[epoch + p.case.lag][:count]
        found[epoch] = (one & two).sum() / max(one.sum(), 1)
    return found


def faults(p: Parts) -> dict[str, int]:
    """Examples that break a rule."""
    e, text, case = p.e, p.text, p.case
    columns, length, a = p.columns, p.length[:, None], p.a[:, None]
    ends = (columns == a + 1) | (columns == length - 1)
    special = ((e.tokens < FIRST) & p.eligible) | ((e.tokens != SPECIAL.sep) & ends)
    special[:, 0] |= e.tokens[:, 0] != SPECIAL.cls
    broken = np.diff(e.tokens, axis=1) != 1
    broken &= (p.in_a[:, 1:] & p.in_a[:, :-1]) | (p.in_b[:, 1:] & p.in_b[:, :-1])
    halves = (
        text.document[p.a_first] != text.document[p.a_last],
        text.document[p.b_first] != text.document[p.b_last],
    )
    swapped = (e.labels == 1) & (case.mode == "sop")
    last, first = np.where(swapped, p.b_last, p.a_last), np.where(swapped, p.a_first, p.b_first)
    next_to = ~p.apart & ((first == last + 1) | ((first > last) & (p.length == case.length)))
    in_order = (e.labels == 0) | swapped
    counted = p.in_a | (p.in_b & in_order[:, None])
    uses = np.zeros((case.epochs, len(text.document)), int)
    np.add.at(
        uses, (np.broadcast_to(e.epochs[:, None], counted.shape)[counted], p.place[counted]), 1
    )
    rows = np.arange(len(e.tokens))[:, None]
    number, eligible = e.weights.sum(1), p.eligible.sum(1)
    masks = published.Masks(case.rate, case.most, text.vocabulary, SPECIAL)
    table = np.array([published.quota(n, masks) for n in range(case.length + 1)])
    quota = np.minimum(table[p.length], eligible)
    found = {
        "special tokens elsewhere than in [CLS] A [SEP] B [SEP]": special.any(1),
        "segment ids": (e.type_ids != ((columns > a + 1) & (columns < length))).any(1),
        "A or B is not one piece of one document": broken.any(1)
        | halves[0]
        | (halves[1] & (p.b > 0)),
        "B does not go on where A ends": in_order & ~next_to,
        "random B from A's document": (e.labels == 1) & (case.mode == "nsp") & ~p.apart,
        "no B": (p.b < 1) & (e.labels >= 0),
        "text used twice": uses > 1,
        "special selected": (p.chosen & ~p.eligible & (columns < length)).any(1),
        "padding selected": (p.chosen & (columns >= length)).any(1),
        "selected twice": number != p.chosen.sum(1),
        "target is not the token": ((e.targets != e.tokens[rows, e.positions]) & e.weights).any(1),
        "changed without being selected": ((e.inputs != e.tokens) & ~p.chosen).any(1),
        "number of predictions": number > quota if case.words else number != quota,
    }
    if case.words:
        size, hit = word_sizes(p)
        selected = np.where(size > 0, hit * size, 0).sum(1)
        found["word selected in part"] = selected != (p.chosen & p.eligible).sum(1)
    return {name: int(values.sum()) for name, values in found.items()}


def verdict(here: Measured, there: Measured) -> dict[str, str]:
    """What of ours is not as published, in words; empty when all agrees."""
    (numbers, broken), (expected, _) = here, there
    found = {name: f"{count} times" for name, count in broken.items() if count}
    for name in expected:
        one, two = (side[name][~np.isnan(side[name])] for side in (numbers, expected))
        chance = welch(one, two)
        if chance < FALSE_ALARM / len(expected):
            ours, theirs = (x.mean() if len(x) else np.nan for x in (one, two))
            found[name] = f"{ours:.4f} here, {theirs:.4f} published, p = {chance:.0e}"
    return found


def welch(one: np.ndarray, two: np.ndarray) -> float:
    """The chance of means that differ at least so much, when the distributions do not."""
    if min(len(one), len(two)) < 2:
        return float(len(one) == len(two))
    if one.var() / len(one) + two.var() / len(two) < 1e-24:
        return float(abs(one.mean() - two.mean()) < 1e-9)
    # From means and deviations: given the numbers, scipy warns if all of one side are equal.
    known = [n for side in (one, two) for n in (side.mean(), side.std(ddof=1), len(side))]
    return float(stats.ttest_ind_from_stats(*known, equal_var=False).pvalue)
