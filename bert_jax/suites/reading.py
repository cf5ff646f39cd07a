"""Reading times: how much better they are predicted with a model's surprisal than without it.

The rules come from the BabyLM evaluation pipeline, after de Varda et al. (2023). A word's surprisal
is minus the sum of the log-probabilities of its pieces, from left to right. A masked model reads
the text before a piece, then three [MASK], and predicts the piece at the first [MASK] (Samuel,
2024). A causal model reads the text before a piece with the special tokens of its vocabulary, so
that the last token it sees is [SEP]. As in the pipeline, the context, the word and each piece are
joined as text, and the text is tokenized anew for each piece.

Linear regressions predict a reading time from the word's frequency, length and place, and from
products of two of these. For self-paced reading, the length and surprisal of the word before are
predictors too. Adding the word's own surprisal explains a share of the variance that these
regressions leave. This share is the score. For eye tracking it is the mean over four measures.
"""

import csv
import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bert_jax.data.rows import read_lines
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.errors import DataError
from bert_jax.suites import Result
from bert_jax.suites.base import Progress
from bert_jax.suites.token_scores import TokenScorer

FILE = "reading_data.csv"
AGAIN = "fetch the evaluation data again"
SCORES = ("eye_tracking", "self_paced_reading")
MASKS = 3
EYE_TRACKING = ("RTfirstfix", "RTfirstpass", "RTgopast", "RTrightbound")
SELF_PACED = "self_paced_reading_time"
OWN = ("Subtlex_log10", "length", "context_length")  # of a word
NUMBERS = (*EYE_TRACKING, SELF_PACED, *OWN, "prev_length")
# What the pipeline takes for a missing value: some of those of pandas.
MISSING = {"", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"}


class Word(NamedTuple):
    """A word with the text before it, the word before it, and how long people read it."""

    read: tuple[str, str]  # context and word
    before: tuple[str, str] | None  # the same of the word before
    numbers: dict[str, float]  # NUMBERS; NaN where missing


def load_words(folder: Path, limit: int = 0) -> list[Word]:
    """Read the words and their reading times from reading_data.csv in a folder.

    The file comes from the BabyLM evaluation pipeline. With a `limit`, only the first words are
    read.
    """
    path = folder / FILE
    words = []
    try:
        reader = csv.DictReader((line for _, line in read_lines(path)), strict=True)
        for row in itertools.islice(reader, limit or None):
            if None in row or None in row.values():
                raise csv.Error("not as many columns as the first line")
            words.append(_read_word(f"{path}:{reader.line_num}", row))
    except (csv.Error, KeyError, ValueError) as error:
        problem = f"no column {error}" if isinstance(error, KeyError) else error
        hint = f"repair the file, or {AGAIN}"
        raise DataError(f"{path}:{reader.line_num}: {problem}", hint) from error
    if not words:
        raise DataError(f"{path} has no rows", AGAIN)
    return words


def _read_word(where: str, row: dict[str, Any]) -> Word:
    # The pipeline reads a context that looks missing, such as "None", as the text None.
    context = "None" if row["item"] in MISSING else row["item"]
    before = None if row["prev_item"] in MISSING else (row["prev_item"], row["prev_word"])
    if not all(text.strip() for text in (row["word"], *(before or ()))):
        raise DataError(f"{where}: no word", "repair or leave out the row")
    texts = {name: row[name].strip() for name in NUMBERS}
    numbers = {name: math.nan if t in MISSING else float(t) for name, t in texts.items()}
    return Word((context, row["word"]), before, numbers)


def evaluate_words(scorer: TokenScorer, words: Sequence[Word]) -> Result:
    """Return the scores {"eye_tracking": …, "self_paced_reading": …}, which the module describes.

    The result also has the number of words, and the share for each measure of eye tracking.
    """
    asked = [pair for word in words for pair in (word.read, word.before) if pair]
    found = compute_surprisals(scorer, asked)
    own = np.array([found[word.read] for word in words])
    before = np.array([found[word.before] if word.before else math.nan for word in words])
    column = {name: np.array([word.numbers[name] for word in words]) for name in NUMBERS}
    controls = [column[name] for name in OWN]
    eyes = {name: explain_variance(column[name], controls, own) for name in EYE_TRACKING}
    spillover = [*controls, column["prev_length"], before]
    return {
        "examples": len(words),
        "eye_tracking": float(np.mean([*eyes.values()])),
        "self_paced_reading": explain_variance(column[SELF_PACED], spillover, own),
        "explained": eyes,
    }


def compute_surprisals(
    scorer: TokenScorer, asked: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], float]:
    """Compute the surprisal of the word in each pair (context, word), as {pair: nats}."""
    pairs = list(dict.fromkeys(asked))
    rows = [list(_list_pieces(scorer, *pair)) for pair in pairs]
    texts, places = zip(*itertools.chain.from_iterable(rows), strict=True)
    parts = [(place, place + 1) for place in places]
    found = -np.concatenate(scorer(texts, Progress("babylm, reading: tokens"), parts))
    sums = np.split(found, np.cumsum([len(row) for row in rows])[:-1])
    return {pair: float(nats.sum()) for pair, nats in zip(pairs, sums, strict=True)}


def _list_pieces(scorer: TokenScorer, context: str, word: str) -> Iterator[tuple[list[int], int]]:
    """Yield the ids of a text for each piece of a word, and the place of this piece in the text."""
    tokenizer = scorer.tokenizer
    for number, piece in enumerate(_encode_piece(tokenizer, word)):
        text = tokenizer.decode([piece])
        target = _encode_piece(tokenizer, text)[0] if number else piece
        if scorer.causal:
            ids = [*_encode_text(tokenizer, context), tokenizer.special.sep, target]
            yield ids, len(ids) - 1
        else:
            ids = _encode_text(tokenizer, context + MASKS * tokenizer.vocab[tokenizer.special.mask])
            ids[-MASKS] = target
            yield ids, len(ids) - MASKS
        context += text


def _encode_text(tokenizer: Tokenizer, text: str) -> list[int]:
    """Return the ids of a text, in which "[MASK]" or another special token becomes its id."""
    return tokenizer.encode_batch([text], escape=False)[0]


def _encode_piece(tokenizer: Tokenizer, text: str) -> list[int]:
    if ids := _encode_text(tokenizer, text):
        return ids
    raise DataError(f"reading: no token in {text[:80]!r}", "repair or leave out the row")


def explain_variance(
    times: np.ndarray, controls: Sequence[np.ndarray], surprisal: np.ndarray
) -> float:
    """Regress `times` on `controls`; return the share of what is left that surprisal explains.

    What is left is the sum of squared residuals. All arrays are [N]. Rows with a missing value are
    left out. The result is NaN if too few rows are left.
    """
    rows = np.isfinite(np.stack([times, surprisal, *controls])).all(0)
    products = [a * b for a, b in itertools.combinations(controls, 2)]
    without = np.stack([np.ones_like(times), *controls, *products], axis=1)[rows]  # [n, K]
    design = np.column_stack([without, surprisal[rows]])
    if rows.sum() <= design.shape[1]:
        return math.nan
    left, rest = (_sum_residuals(matrix, times[rows]) for matrix in (without, design))
    return (left - rest) / left if left > 0 else math.nan


def _sum_residuals(design: np.ndarray, values: np.ndarray) -> float:
    """Return the sum of squared residuals of a linear regression."""
    weights = np.linalg.lstsq(design, values, rcond=None)[0]
    return float(((values - design @ weights) ** 2).sum())
