"""Selection of one example in plain loops, and settings whose rates are known by hand."""

from itertools import chain

import numpy as np
from hypothesis import strategies as st

from bert_jax.config.knobs import Masking
from bert_jax.masking import rates
from tests import tiny

Unit = list[int]  # its columns
BATCHES = st.builds(
    tiny.batch,
    rows=st.just(3),
    length=st.just(32),
    seed=st.integers(0, 10_000),
    examples=st.just(2),
    longest_unit=st.integers(1, 6),
)
PHASES = Masking(
    rate=0.3, phases=((0.25, 0.15, "step"), (0.5, 0.45, "linear"), (1.0, 0.05, "cosine"))
)
LAWS = {
    "uniform": Masking(draw="uniform", draw_low=0.1, draw_high=0.5),
    "beta": Masking(draw="beta", draw_alpha=3.0, draw_beta=9.0),
    "cosine_low": Masking(draw="cosine_low"),
    "cosine_high": Masking(draw="cosine_high"),
}


def read_law(settings: Masking, u: np.ndarray) -> np.ndarray:
    """Return the rates at u, by the table of cells."""
    cell = np.asarray(u) * rates.CELLS
    start, end = np.moveaxis(rates.law_table(settings)[cell.astype(int)], -1, 0)
    return start + cell % 1 * (end - start)


def list_units(b, scores: np.ndarray) -> list[tuple[int, int, list[Unit]]]:
    """Return (row, example, units in the order of their scores)."""
    found = []
    for row, slot in np.ndindex(b["example_ids"].shape):
        ids = np.where(b["segment_ids"][row] == slot + 1, b["unit_ids"][row], -1)
        begins = sorted({*ids[ids >= 0].tolist()}, key=lambda c: (scores[row, c], c))
        found.append((row, slot, [np.flatnonzero(ids == c).tolist() for c in begins]))
    return found


def take_fairly(units: list[Unit], quota: int, boundary: np.ndarray) -> list[Unit]:
    """Take units in order; one that crosses the quota by the chance of the part that fits."""
    taken, before = [], 0
    for unit in units:
        u = (int(boundary[unit[0]]) >> 16) / 2**16
        if before + u * len(unit) < quota:
            taken.append(unit)
        before += len(unit)
    return taken


def take_as_the_original(candidates: list[Unit], quota: int) -> list[Unit]:
    """The loop of create_masked_lm_predictions, for candidates that do not overlap."""
    masked, taken = 0, []
    for unit in candidates:
        if masked >= quota:
            break
        if masked + len(unit) > quota:
            continue
        masked += len(unit)
        taken.append(unit)
    return taken


def mark(b, taken: list[tuple[int, list[Unit]]]) -> np.ndarray:
    """Mark the tokens of units by row, bool [B, L]."""
    hit = np.zeros(b["tokens"].shape, bool)
    for row, units in taken:
        hit[row, [*chain(*units)]] = True
    return hit


def count_by_example(b, hit: np.ndarray) -> np.ndarray:
    """Count the tokens that are hit in each example, [B, S]."""
    slots = range(1, b["example_ids"].shape[1] + 1)
    return np.stack([(hit & (b["segment_ids"] == slot)).sum(1) for slot in slots], axis=1)


def repeat_views(b, count: int):
    """Return each row in `count` views, one after the other."""
    repeated = {key: np.repeat(value, count, axis=0) for key, value in b.items()}
    numbers = np.tile(np.arange(count, dtype=np.int32), len(b["tokens"]))
    return repeated | {"views": np.repeat(numbers[:, None], b["example_ids"].shape[1], axis=1)}


def list_words(tokens: np.ndarray, eligible: np.ndarray, continuation: np.ndarray) -> list:
    """Return the segments of a row, each a list of words."""
    segments: list[list[Unit]] = []
    for column in np.flatnonzero(eligible).tolist():
        if column == 0 or not eligible[column - 1]:
            segments.append([])
        if not continuation[tokens[column]] or not segments[-1]:
            segments[-1].append([])
        segments[-1][-1].append(column)
    return segments


def name_groups(groups: list[list[Unit]], length: int, longest: int) -> list[int]:
    """Return the unit ids of groups of words, cut after `longest` tokens."""
    ids = [-1] * length
    for group in groups:
        columns = [*chain(*group)]
        for place, column in enumerate(columns):
            ids[column] = columns[place - place % longest]
    return ids


def equal_rows(count: int, length: int):
    """Return rows of the same tokens, of which all but the first and the last are eligible."""
    b = {key: np.zeros_like(value) for key, value in tiny.batch(count, length).items()}
    b["tokens"][:], b["segment_ids"][:], b["unit_ids"][:] = 7, 1, -1
    b["positions"][:] = np.arange(length)
    b["unit_ids"][:, 1:-1] = np.arange(1, length - 1)
    return b | {"example_ids": np.arange(count, dtype=np.int32)[:, None]}
