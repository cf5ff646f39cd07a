"""Choices between texts of which the first is right, such as minimal pairs: one rule for all.

A model chooses the option that it finds likeliest. If m options are equally likely, it has to draw
lots: the right option, if it is one of them, earns 1 / m. So a model that tells nothing apart has
the accuracy of chance, and ties favour neither side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax.errors import DataError
from bert_jax.suites.base import Progress
from bert_jax.suites.token_scores import CausalScorer, MaskedScorer

Groups = dict[str, dict[str, Any]]


class Choice(NamedTuple):
    """A choice between options, of which the first is right."""

    where: str  # FILE:LINE, for messages
    options: tuple[str, ...]  # whole texts
    scored: tuple[str, ...]  # how each of them ends: the part that is scored
    groups: dict[str, str]  # by which results are reported


def score_options(
    score: MaskedScorer | CausalScorer, choices: Sequence[Choice], label: str
) -> list[np.ndarray]:
    """Return the log-probability of the scored part of each option of each choice."""
    options = [
        (choice.where, text, part)
        for choice in choices
        for text, part in zip(choice.options, choice.scored, strict=True)
    ]
    encoded = score.tokenizer.encode_with_offsets([text for _, text, _ in options])
    parts = []
    for (where, text, part), (ids, offsets) in zip(options, encoded, strict=True):
        begin = len(text) - len(part)
        first = sum(end <= begin for _, end in offsets)
        if first == len(ids):  # its sum would be 0, more than that of any other
            raise DataError(f"{where}: no token in {part[:80]!r}", "repair or leave out the row")
        parts.append((first, len(ids)))
    tokens = score([ids for ids, _ in encoded], Progress(f"{label}: tokens"), parts)
    sums = np.array([values.sum() for values in tokens])
    return np.split(sums, np.cumsum([len(choice.options) for choice in choices])[:-1])


def credit_choices(totals: Sequence[np.ndarray]) -> tuple[np.ndarray, int]:
    """Return the credit of each choice, float64 [N] from 0 to 1, and the number of ties."""
    equals = [int(np.sum(values == values.max())) for values in totals]
    right = [float(values[0] == values.max()) for values in totals]
    return np.array(right) / equals, sum(count > 1 for count in equals)


def average_groups(choices: Sequence[Choice], credits: np.ndarray) -> Groups:
    """Return the mean credit by group and by value of the group; a choice may lack a group."""
    members: Groups = {}
    for choice, credit in zip(choices, credits.tolist(), strict=True):
        for group, value in choice.groups.items():
            found = members.setdefault(group, {})
            if value:
                found.setdefault(value, []).append(credit)
    return {
        group: {value: float(np.mean(credits)) for value, credits in sorted(found.items())}
        for group, found in members.items()
    }
