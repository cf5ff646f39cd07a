"""The pages of `bert-jax inspect`, which show the inside of a model: a row of PAGES for each."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # --help does not wait for jax
    from bert_jax.predictors.base import OfText

TEXT = "Return a list of the names in the file."


class Page(NamedTuple):
    """Row of PAGES: what a page shows, the form of its lines of input, and what makes the page."""

    does: str
    takes: tuple[str, ...]
    # Imports the class that reads and encodes texts, and the function from such a reader, rows and
    # flags to HTML.
    find_maker: "Callable[[], tuple[type[OfText], Callable[..., str]]]"


def _find_attention() -> "tuple[type[OfText], Callable[..., str]]":
    from bert_jax.views import attention, texts

    return texts.Texts, attention.make_attention_page


def _find_embeddings() -> "tuple[type[OfText], Callable[..., str]]":
    from bert_jax.views import embeddings, texts

    return texts.Labelled, embeddings.make_embeddings_page


def _find_generation() -> "tuple[type[OfText], Callable[..., str]]":
    from bert_jax.predictors import base
    from bert_jax.views import generation

    return base.OfText, generation.make_generation_page


PAGES = {
    "attention": Page(
        "show the weights of every layer and head for a text or a pair",
        (
            TEXT,
            "He went out.<tab>It rained.",
            '{"text": "He went out.", "text_pair": "It rained."}',
        ),
        _find_attention,
    ),
    "embeddings": Page(
        "show a map of three or more texts, coloured by label, or of their words, and the "
        "neighbours of each",
        (TEXT, f'{{"text": "{TEXT}", "label": "files"}}'),
        _find_embeddings,
    ),
    "generation": Page(
        "play the rounds in which a masked model fills the masks of a text, or masks behind it",
        ("The name of the [MASK] to be read.", '{"text": "Return a list"}'),
        _find_generation,
    ),
}
