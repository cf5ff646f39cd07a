"""The predictor of the likeliest tokens of every [MASK], or <mask>: one token a mask.

A gap of several tokens needs as many masks, each predicted as if the others stayed; a masked model
cannot tell how many there should be. A causal model generates text of any length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from bert_jax.data.windows import choose_windows, cut_windows
from bert_jax.predictors.base import Model, OfText, Row, Work, indented, percent

# What a gap is also written as.
LIKE_MASK = re.compile(r"\[mask\]|<mask>|\{mask\}|_{2,}", re.IGNORECASE)
STRIDE = 64  # tokens that windows share, or half a window if that is less
SLOTS = 4  # masks of a row are padded to a multiple of this, so that few shapes are compiled


class FillMask(OfText):
    """Results {"text", "masks": [[{"token", "probability"}, …], …]}, the best token first."""

    example = '{"text": "Paris is the [MASK] of France."}'
    windows = True

    def __init__(self, model: Model):
        super().__init__(model)
        self.maskless: dict[int, str] = {}  # number of a line without a mask -> its other gap
        self.mask = model.run.tokenizer.mask
        top_k = min(model.options.top_k or 5, model.run.tokenizer.size)

        def top_tokens(logits: jax.Array) -> Sequence[jax.Array]:
            return jax.lax.top_k(jax.nn.softmax(logits, -1), top_k)  # [B, K, top] each

        self.apply = model.head("mlm", top_tokens)

    def remarks(self) -> list[str]:
        """Count the texts with nothing to fill, and name one that has another gap instead."""
        if not self.maskless:
            return []
        gaps = ((n, gap) for n, gap in self.maskless.items() if gap)
        number, gap = next(gaps, (min(self.maskless), ""))
        instead = f" has {gap!r}, and" if gap else ""
        count = len(self.maskless)
        texts = "text has" if count == 1 else "texts have"
        return [
            f"{count} {texts} no {self.mask}: line {number}{instead} is answered with no tokens"
        ]

    def text(self, result: dict[str, Any]) -> str:
        """Write a table of candidates, or that there is nothing to fill."""
        masks = result["masks"]
        if not masks:
            like = LIKE_MASK.search(result["text"])
            instead = f"in place of {like[0]}" if like else "where a token is missing"
            return f"  no {self.mask} in this text: write {self.mask} {instead}"
        rows = [
            ("" if rank else f"mask {number}", one["token"], percent(one["probability"]))
            for number, candidates in enumerate(masks, 1)
            for rank, one in enumerate(candidates)
        ]
        return indented(rows if len(masks) > 1 else [row[1:] for row in rows])

    def encode(self, rows: Sequence[Row]) -> Work:
        """Encode each window of a text as one row of the model."""
        encoded, mask = self.ids(rows, escape=False), self.model.run.tokenizer.special.mask
        for row, ids in zip(rows, encoded, strict=True):
            if mask not in ids:
                like = LIKE_MASK.search(row.fields["text"])
                self.maskless[row.number] = like[0] if like else ""
        views = [
            (r, *view)
            for r, (row, ids) in enumerate(zip(rows, encoded, strict=True))
            for view in self.views(row, ids)
        ]
        texts = [[encoded[r][start:end]] for r, start, end, _ in views]
        places = [  # in the text, of the masks that each window fills
            [at for at in range(start, end) if chosen[at] and encoded[r][at] == mask]
            for r, start, end, chosen in views
        ]

        def compute(chosen: np.ndarray, length: int, size: int) -> Any:
            batch = self.batch([texts[i] for i in chosen], length, size)
            slots = -(-max(1, *(len(places[i]) for i in chosen), 1) // SLOTS) * SLOTS
            batch["predict_positions"] = np.zeros((size, slots), np.int32)
            for k, i in enumerate(chosen):
                columns = [at - views[i][1] + 1 for at in places[i]]  # after [CLS]
                batch["predict_positions"][k, : len(columns)] = columns
            return self.apply(batch)

        shown = self.model.run.tokenizer.shown

        def results(outputs: list[Any]) -> Iterator[dict[str, Any]]:
            # For each line, the tokens of its masks by their place in the text.
            filled: list[dict[int, list[dict[str, Any]]]] = [{} for _ in rows]
            for (r, *_), at_places, (values, indices) in zip(views, places, outputs, strict=True):
                for at, probabilities, ids in zip(at_places, values, indices, strict=False):
                    filled[r][at] = [
                        {"token": shown[i], "probability": float(p)}
                        for p, i in zip(probabilities, ids, strict=True)
                    ]
            for row, masks in zip(rows, filled, strict=True):
                yield {"text": row.fields["text"], "masks": [masks[at] for at in sorted(masks)]}

        kept = np.zeros(len(rows), np.int64)
        np.maximum.at(kept, [r for r, *_ in views], [end for _, _, end, _ in views])
        cut = sum(int(k) < len(ids) for k, ids in zip(kept, encoded, strict=True))
        return Work(self.count_tokens(texts), compute, results, cut)

    def views(self, row: Row, ids: list[int]) -> Iterator[tuple[int, int, np.ndarray]]:
        """Yield the windows of a text: where each begins and ends, and which tokens it predicts."""
        room, options = self.limit - 2, self.model.options
        if len(ids) <= room or options.long != "windows":
            end = len(self.fit(row, [ids])[0])
            yield 0, end, np.ones(end, bool)
            return
        stride = min(STRIDE, room // 2) if options.stride is None else options.stride
        spans = cut_windows(len(ids), room, stride, options.stride_as or "overlap")
        best = choose_windows(spans, len(ids))
        for number, (start, end) in enumerate(spans.tolist()):
            yield start, end, best == number
