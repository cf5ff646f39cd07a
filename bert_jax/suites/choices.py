"""Choices between texts of which the first is right, such as minimal pairs: rules for ties.

A model chooses the option that it finds likeliest. If m options are equally likely, it draws one of
them at random. So the right option, if it is one of these, earns 1 / m. A model for which all
options are equal then has the accuracy of chance.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.errors import DataError
from bert_jax.suites.base import Progress
from bert_jax.suites.token_scores import TokenScorer


class Choice(NamedTuple):
    """A choice between options, of which the first is right."""

    where: str  # FILE:LINE, for messages
    options: tuple[str, ...]  # whole texts
    scored: tuple[str, ...]  # how each of them ends: the part that is scored
    groups: dict[str, str]  # by which results are reported


def score_options(score: TokenScorer, choices: Sequence[Choice], label: str) -> list[np.ndarray]:
    """Return an array for each choice: the log-probability of the scored end of each option.

    `label` is shown with the progress.
    """
    texts = [text for choice in choices for text in choice.options]
    ends = [(choice.where, part) for choice in choices for part in choice.scored]
    encoded = score.tokenizer.encode_with_offsets(texts)
    parts = []
    for (where, part), text, (ids, offsets) in zip(ends, texts, encoded, strict=True):
        begin = len(text) - len(part)
        first = sum(end <= begin for _, end in offsets)
        if first == len(ids):  # its sum would be 0, more than the sum of any other
            raise DataError(f"{where}: no token in {part[:80]!r}", "repair or leave out the row")
        parts.append((first, len(ids)))
    tokens = score([ids for ids, _ in encoded], Progress(f"{label}: tokens"), parts)
    sums = np.array([values.sum() for values in tokens])
    return np.split(sums, np.cumsum([len(choice.options) for choice in choices])[:-1])


def credit_choices(totals: Sequence[np.ndarray]) -> tuple[np.ndarray, int]:
    """Return the credit of each choice, float64 [N] from 0 to 1, and the number of ties.

    `totals` has an array for each choice, with the log-probability of each option.
    """
    equals = np.array([np.sum(values == values.max()) for values in totals])
    right = np.array([values[0] == values.max() for values in totals])
    return right / equals, int(np.sum(equals > 1))


def average_groups(choices: Sequence[Choice], credits: np.ndarray) -> dict[str, dict[str, float]]:
    """Return the mean credit of the choices with each value of each grouping.

    The result is {grouping: {value: mean}}, such as {"field": {"syntax": 0.8}}. A choice without a
    value of a grouping does not count there.
    """
    members: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for choice, credit in zip(choices, credits.tolist(), strict=True):
        for group, value in choice.groups.items():
            found = members[group]
            if value:
                found[value].append(credit)
    return {
        group: {value: float(np.mean(found[value])) for value in sorted(found)}
        for group, found in members.items()
    }
