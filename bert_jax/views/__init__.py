"""The pages of `bert-jax inspect`, which show the inside of a model: a row of PAGES for each."""

import pkgutil
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # --help does not wait for jax
    from bert_jax.predictors.base import OfText

TEXT = "Return a list of the names in the file."


class Page(NamedTuple):
    """Row of PAGES: what a page shows, the form of its lines of input, and what makes the page."""

    does: str
    takes: tuple[str, ...]
    reader: str  # MODULE:NAME of the class that reads and encodes texts
    maker: str  # MODULE:NAME of the function from such a reader, rows and flags to HTML

    def find_maker(self) -> "tuple[type[OfText], Callable[..., str]]":
        """Import the reader and the maker of the page."""
        return pkgutil.resolve_name(self.reader), pkgutil.resolve_name(self.maker)


PAGES = {
    "attention": Page(
        "show the weights of every layer and head for a text or a pair",
        (
            TEXT,
            "He went out.<tab>It rained.",
            '{"text": "He went out.", "text_pair": "It rained."}',
        ),
        "bert_jax.views.texts:Texts",
        "bert_jax.views.attention:make_attention_page",
    ),
    "embeddings": Page(
        "show a map of three or more texts, coloured by label, or of their words, and the "
        "neighbours of each",
        (TEXT, f'{{"text": "{TEXT}", "label": "files"}}'),
        "bert_jax.views.texts:Labelled",
        "bert_jax.views.embeddings:make_embeddings_page",
    ),
    "generation": Page(
        "play the rounds in which a masked model fills the masks of a text, or masks behind it",
        ("The name of the [MASK] to be read.", '{"text": "Return a list"}'),
        "bert_jax.predictors.base:OfText",
        "bert_jax.views.generation:make_generation_page",
    ),
}
