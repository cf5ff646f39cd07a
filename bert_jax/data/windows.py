"""Texts longer than the model: windows over their tokens, and the window in which each token is best seen."""

from __future__ import annotations

import numpy as np

from bert_jax.errors import ConfigError


def windows(length: int, room: int, stride: int, meaning: str) -> np.ndarray:
    """Windows of up to `room` tokens that cover a text, the last one ending with it.

    Args:
      length: tokens of the text; an empty one has one empty window.
      room: tokens a window holds, special ones left out.
      stride: what `meaning` says of it.
      meaning: step, as in run_squad.py: the next window begins so many tokens later, or where this one ends if that
        comes first; overlap, as in tokenizers: neighbours share so many tokens.

    Returns:
      int64 [N, 2], where each begins and ends.
    """
    step = {"step": min(stride, room), "overlap": room - stride}
    if meaning not in step:
        raise ConfigError(f"no meaning {meaning!r} of a stride", "one of: step, overlap")
    if room < 1 or stride < 0 or step[meaning] < 1:
        raise ConfigError(
            f"a stride of {stride} as {meaning} does not move windows of {room} tokens",
            "step: 1 or more; overlap: from 0 to less than a window",
        )
    count = 1 + -(-max(length - room, 0) // step[meaning])
    starts = np.arange(count, dtype=np.int64) * step[meaning]
    return np.stack([starts, np.minimum(starts + room, length)], axis=1)  # [N, 2]


def best_windows(spans: np.ndarray, length: int) -> np.ndarray:
    """For each token the window that shows most of what is around it, the first of equals: int64 [length].

    The rule of run_squad.py: the smaller of what is left and right of the token, plus 0.01 for each of the window's
    tokens, so that the longer of two windows wins a tie. Every token must lie in a window.
    """
    best = np.full(length, -1.0)
    chosen = np.full(length, -1, np.int64)
    for number, (start, end) in enumerate(spans.tolist()):
        tokens = np.arange(start, end)
        score = np.minimum(tokens - start, end - 1 - tokens) + 0.01 * (end - start)
        better = score > best[start:end]
        best[start:end][better], chosen[start:end][better] = score[better], number
    return chosen
