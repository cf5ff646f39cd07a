"""Pages of `bert-jax inspect`, which show the inside of a model: a file and a row of PAGES each."""

from __future__ import annotations

from collections.abc import Callable

from bert_jax.predictors.base import OfText
from bert_jax.views import attention, embeddings, generation
from bert_jax.views.texts import Labelled, Texts

# Page -> class that reads and encodes its texts, and function from such a reader, rows and flags
# to HTML.
PAGES: dict[str, tuple[type[OfText], Callable[..., str]]] = {
    "attention": (Texts, attention.make_attention_page),
    "embeddings": (Labelled, embeddings.make_embeddings_page),
    "generation": (OfText, generation.make_generation_page),
}
