"""Windows over texts that are longer than a row, and the best window for each token."""

import numpy as np

from bert_jax.errors import ConfigError


def cut_windows(length: int, room: int, stride: int, meaning: str) -> np.ndarray:
    """Return windows of at most `room` tokens that cover a text of `length` tokens.

    The last window ends with the text. If `meaning` is "overlap", as in tokenizers, neighbours
    share `stride` tokens. If it is "step", as in run_squad.py, a window begins `stride` tokens
    after the start of the window before, but never after that window's end. `room` does not count
    special tokens. An empty text has one empty window.

    Returns:
      int64 [N, 2]: where each window begins and ends.
    """
    steps = {"step": min(stride, room), "overlap": room - stride}
    if room < 1:
        raise ConfigError(
            "special tokens leave windows no room for a text",
            "a model with a greater sequence_length (to train: --config.sequence_length=N)",
        )
    step = steps[meaning]
    if stride < 0 or step < 1:
        fits = room // 2 if meaning == "overlap" else max(1, room // 2)
        raise ConfigError(
            f"a stride of {stride} as {meaning} does not move windows of {room} tokens",
            f"--stride={fits} (to train: --config.task.stride={fits})",
        )
    count = 1 + -(-max(length - room, 0) // step)
    starts = np.arange(count, dtype=np.int64) * step
    return np.stack([starts, np.minimum(starts + room, length)], axis=1)  # [N, 2]


def choose_windows(spans: np.ndarray, length: int) -> np.ndarray:
    """Return for each token the number of the window with the most context: int64 [length].

    This is the rule of run_squad.py. A window has tokens to the left and to the right of a token.
    The window's score is the smaller of these two numbers, plus 0.01 for each token of the window.
    So the longer of two windows wins a tie, and the first of equal scores wins. Every token must
    lie in a window.
    """
    best = np.full(length, -1.0)
    chosen = np.full(length, -1, np.int64)
    for number, (start, end) in enumerate(spans.tolist()):
        tokens = np.arange(start, end)
        score = np.minimum(tokens - start, end - 1 - tokens) + 0.01 * (end - start)
        better = tokens[score > best[start:end]]
        best[better] = score[better - start]
        chosen[better] = number
    return chosen
