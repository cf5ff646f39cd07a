"""The pages of `bert-jax inspect`, which show the inside of a model: a row of PAGES for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # --help does not wait for jax
    from bert_jax.predictors.base import OfText

    # A class that reads and encodes texts, and a function from such a reader, rows and flags to
    # HTML.
    Maker = tuple[type[OfText], Callable[..., str]]

TEXT = "Return a list of the names in the file."


class Page(NamedTuple):
    """Row of PAGES: what a page shows, the form of its lines of input, and what makes it."""

    does: str
    takes: tuple[str, ...]
    find_maker: Callable[[], Maker]


def find_attention() -> Maker:
    """Import what makes the attention page.

    The result is the class that reads texts, and the function that makes the page of them.
    """
    from bert_jax.views import attention, texts

    return texts.Texts, attention.make_attention_page


def find_embeddings() -> Maker:
    """Import what makes the embeddings page.

    The result is the class that reads texts, and the function that makes the page of them.
    """
    from bert_jax.views import embeddings, texts

    return texts.Labelled, embeddings.make_embeddings_page


def find_generation() -> Maker:
    """Import what makes the generation page.

    The result is the class that reads texts, and the function that makes the page of them.
    """
    from bert_jax.predictors.base import OfText
    from bert_jax.views import generation

    return OfText, generation.make_generation_page


PAGES = {
    "attention": Page(
        "show the weights of every layer and head for a text or a pair",
        (
            TEXT,
            "He went out.<tab>It rained.",
            '{"text": "He went out.", "text_pair": "It rained."}',
        ),
        find_attention,
    ),
    "embeddings": Page(
        "show a map of three or more texts, coloured by label, or of their words, and the "
        "neighbours of each",
        (TEXT, f'{{"text": "{TEXT}", "label": "files"}}'),
        find_embeddings,
    ),
    "generation": Page(
        "play the rounds in which a masked model fills the masks of a text, or masks behind it",
        ("The name of the [MASK] to be read.", '{"text": "Return a list"}'),
        find_generation,
    ),
}
