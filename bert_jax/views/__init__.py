"""Pages that show the inside of a model: one file and one row of PAGES each."""

from __future__ import annotations

from collections.abc import Callable

from bert_jax.predictors.base import OfText
from bert_jax.views import attention, embeddings
from bert_jax.views.texts import Texts

# What reads and encodes a page's texts; and the page, of that, the rows, and flags of its own.
PAGES: dict[str, tuple[type[OfText], Callable[..., str]]] = {
    "attention": (Texts, attention.page),
    "embeddings": (OfText, embeddings.page),
}
