"""The pages of `bert-jax inspect`, which show the inside of a model: a row of PAGES for each."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # --help does not wait for jax
    from bert_jax.predictors.base import OfText

TEXT = "Return a list of the names in the file."


class Page(NamedTuple):
    """Row of PAGES: what a page shows, and the form of its lines of input."""

    does: str
    takes: tuple[str, ...]


PAGES = {
    "attention": Page(
        "show the weights of every layer and head for a text or a pair",
        (
            TEXT,
            "He went out.<tab>It rained.",
            '{"text": "He went out.", "text_pair": "It rained."}',
        ),
    ),
    "embeddings": Page(
        "show a map of three or more texts, coloured by label, or of their words, and the "
        "neighbours of each",
        (TEXT, f'{{"text": "{TEXT}", "label": "files"}}'),
    ),
    "generation": Page(
        "play the rounds in which a masked model fills the masks of a text, or masks behind it",
        ("The name of the [MASK] to be read.", '{"text": "Return a list"}'),
    ),
}


def find_maker(page: str) -> "tuple[type[OfText], Callable[..., str]]":
    """Import what makes a page.

    The result is the class that reads and encodes texts, and a function from such a reader, rows
    and flags to HTML.
    """
    from bert_jax.predictors.base import OfText
    from bert_jax.views import attention, embeddings, generation, texts

    makers: dict[str, tuple[type[OfText], Callable[..., str]]] = {
        "attention": (texts.Texts, attention.make_attention_page),
        "embeddings": (texts.Labelled, embeddings.make_embeddings_page),
        "generation": (OfText, generation.make_generation_page),
    }
    return makers[page]
