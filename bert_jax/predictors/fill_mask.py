"""The likeliest tokens of every [MASK] of every text: one token a mask.

A gap of several tokens is as many masks, each predicted as if the others stayed; a masked model has no way to say how
many there should be. What is to go on for as long as it takes, a causal model generates.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from bert_jax.data.windows import best_windows, windows
from bert_jax.predictors.base import Model, OfText, Row, Work, lengths

LIKE_MASK = re.compile(
    r"\[mask\]|<mask>|\{mask\}|_{2,}", re.IGNORECASE
)  # what else a gap is written as
SLOTS = 4  # masks of a row are padded to a multiple of this, so that few shapes are compiled


class FillMask(OfText):
    """{"text", "masks": [[{"token", "probability"}, …], …]}: one list for each [MASK], best first."""

    example = '{"text": "Paris is the [MASK] of France."}'
    windows = True

    def __init__(self, model: Model):
        super().__init__(model)
        self.whole: dict[
            int, str
        ] = {}  # number of a line without [MASK] -> what it has in place of one
        top_k = min(model.options.top_k or 5, model.run.tokenizer.size)
        self.apply = model.head(
            "mlm", lambda logits: jax.lax.top_k(jax.nn.softmax(logits, -1), top_k)
        )  # [B, K, top]

    def remarks(self) -> list[str]:
        """How many texts have nothing to fill, and what the first of them has instead."""
        if not self.whole:
            return []
        number, like = next(
            ((n, like) for n, like in self.whole.items() if like), (min(self.whole), "")
        )
        instead = f" has {like!r}, and" if like else ""
        gaps = "text has" if len(self.whole) == 1 else "texts have"
        return [
            f"{len(self.whole)} {gaps} no [MASK]: line {number}{instead} is answered with no tokens"
        ]

    def encode(self, rows: Sequence[Row]) -> Work:
        """One row of the model for each window of a text."""
        encoded, mask = self.ids(rows, escape=False), self.model.run.tokenizer.special.mask
        for row, ids in zip(rows, encoded, strict=True):
            if mask not in ids:
                like = LIKE_MASK.search(row.fields["text"])
                self.whole[row.number] = like[0] if like else ""
        views = [
            (r, *view)
            for r, (row, ids) in enumerate(zip(rows, encoded, strict=True))
            for view in self.views(row, ids)
        ]
        texts = [[encoded[r][start:end]] for r, start, end, _ in views]
        places = [  # in the text, of the masks that each window answers for
            [at for at in range(start, end) if seen[at] and encoded[r][at] == mask]
            for r, start, end, seen in views
        ]

        def compute(chosen: np.ndarray, length: int, size: int) -> Any:
            batch = self.batch([texts[i] for i in chosen], length, size)
            slots = -(-max(1, *(len(places[i]) for i in chosen), 1) // SLOTS) * SLOTS
            batch["predict_positions"] = np.zeros((size, slots), np.int32)
            for k, i in enumerate(chosen):
                batch["predict_positions"][k, : len(places[i])] = [
                    at - views[i][1] + 1 for at in places[i]
                ]  # [CLS]
            return self.apply(batch)

        def results(outputs: list[Any]) -> Iterator[dict[str, Any]]:
            masks: list[dict[int, list[dict[str, Any]]]] = [
                {} for _ in rows
            ]  # by where they stand in the text
            for (r, *_), at_places, (values, indices) in zip(views, places, outputs, strict=True):
                for at, probabilities, ids in zip(at_places, values, indices, strict=False):
                    masks[r][at] = self.likeliest(probabilities, ids)
            for row, found in zip(rows, masks, strict=True):
                yield {"text": row.fields["text"], "masks": [found[at] for at in sorted(found)]}

        kept = np.zeros(len(rows), np.int64)
        np.maximum.at(kept, [r for r, *_ in views], [end for _, _, end, _ in views])
        cut = sum(int(k) < len(ids) for k, ids in zip(kept, encoded, strict=True))
        return Work(lengths(texts), compute, results, cut)

    def views(self, row: Row, ids: list[int]) -> Iterator[tuple[int, int, np.ndarray]]:
        """Parts of a text that fit: where each begins and ends, and which tokens of the text it is to answer for."""
        room, options = self.limit - 2, self.model.options
        if len(ids) <= room or options.long != "windows":
            end = len(self.fit(row, [ids])[0])
            yield 0, end, np.ones(end, bool)
            return
        stride = 64 if options.stride is None else options.stride
        spans = windows(len(ids), room, stride, options.stride_as or "overlap")
        best = best_windows(spans, len(ids))
        for number, (start, end) in enumerate(spans.tolist()):
            yield start, end, best == number

    def likeliest(self, probabilities: np.ndarray, ids: np.ndarray) -> list[dict[str, Any]]:
        """What is written of one [MASK]."""
        vocab = self.model.run.tokenizer.vocab
        return [
            {"token": vocab[i], "probability": float(p)}
            for p, i in zip(probabilities, ids, strict=True)
        ]
