"""Knobs that committed records of studies hold and no longer exist, with the only value read."""

from __future__ import annotations

from typing import Any

GONE: dict[str, Any] = {
    "task.quoting": False,
    "task.extra_columns": False,
    "task.on_bad_row": "fail",
    "corpus.on_bad_text": "replace",
    "corpus.on_bad_row": "fail",
    "corpus.max_document_tokens": 1_000_000,
    "corpus.shard_tokens": 16_000_000,
    "tokenizer.characters": "auto",
    "loader.threads": 1,
    "loader.workers": 0,
    "masking.schedule": "constant",
    "masking.final_rate": None,
    "masking.draw_share": 0.5,
}
