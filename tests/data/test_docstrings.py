"""The embedded corpus: the prose of docstrings, by module, from all that is required."""

from __future__ import annotations

import ast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.config import knobs
from bert_jax.data.sentences import Item
from bert_jax.data.text import docstrings, prose


def test_near_copies_share_a_band_and_others_do_not():
    base = (
        "The quick brown fox jumps over the lazy dog while seven wizards mix a potion of "
        "great power in the old tower"
    )
    near = base.replace("seven", "eleven") + " again"
    bands = docstrings.bands(base)
    assert len(set(bands.tolist())) == docstrings.BANDS
    assert (bands == docstrings.bands(base.upper() + "!")).all()
    assert (bands == docstrings.bands(near)).any()
    assert not (
        bands
        == docstrings.bands("Return the number of characters that were written to the given stream")
    ).any()
    assert (docstrings.bands("Return x.") == docstrings.bands("return X")).all()


# --- docstrings -----------------------------------------------------------------------------------

SAMPLE = """
    Compute the mean of the given values along an axis.

    The mean is taken over the flattened array by default, see :func:`numpy.sum` or
    `the guide <https://example.org/x>`_ [1]_.

    Args:
      values: The values whose mean is computed, as
        an array of numbers.
      axis (int): int
      *args: Further arguments that are passed to the function.

    Parameters
    ----------
    a : array_like, of the shape of the input.
        Array containing numbers whose mean is desired.

    Returns:
      The mean of the values, in the type of the input.

    Here is code::

        x = mean([1, 2, 3])  # this is the mean of the values.

    === =====
    a   b
    === =====

    .. code-block:: python

        the_code = "is in a block of the text."

    .. note:: The **result** may be inexact on some machines.

    >>> mean([1, 2])
    1.5

    ```
    This is fenced code that reads as a sentence of the text.
    ```

    Examples
    --------
    Here we compute the mean of some of the values.
    """


def test_prose_keeps_english_and_nothing_else():
    assert prose.paragraphs(SAMPLE) == [
        "Compute the mean of the given values along an axis.",
        "The mean is taken over the flattened array by default, see sum or the guide.",
        "The values whose mean is computed, as an array of numbers.",
        "Further arguments that are passed to the function.",
        "Array containing numbers whose mean is desired.",
        "The mean of the values, in the type of the input.",
        "The result may be inexact on some machines.",
    ]


@given(st.text("ab \n`*:.>-=|[]()_~^ \t", max_size=200))
def test_prose_takes_any_docstring(source):
    for paragraph in prose.paragraphs(source):
        assert paragraph
        assert "\n" not in paragraph


SOURCE = '''
"""The module does a thing for you."""
def short():
    """Return the short of the thing."""
class Large:
    """A class that is large. It has three of them. They are in the class."""
    def method(self):
        """Call the method of the class."""
class Small:
    """A class that is small."""
def long():
    """Return the long of the thing.

    This is the second sentence of it. And here is the third of them.
    """
    def inner():
        """Return the inner of the function."""
add_newdoc("module", "name", """Return the name of the thing.""")
add_newdoc("module", "name", ("part", """Return the part of the thing."""))
add_newdoc(*names)
'''


def test_a_module_is_a_document_in_the_order_of_its_source():
    texts = list(docstrings._read_module(ast.parse(SOURCE), "a.py"))
    assert [text.starts for text in texts] == [True] + [False] * (len(texts) - 1)
    assert [line.split(".")[0] for text in texts for line in text.text.split("\n")] == [
        "The module does a thing for you",
        "Return the short of the thing",
        "A class that is large",
        "Call the method of the class",
        "A class that is small",
        "Return the long of the thing",
        "This is the second sentence of it",
        "Return the inner of the function",
        "Return the name of the thing",
        "Return the part of the thing",
    ]
    assert not list(docstrings._read_module(ast.parse("x = 1"), "a.py"))


def test_docstring_items_cover_python_and_the_requirements_but_not_this_project():
    items, _ = docstrings.list_items(knobs.Corpus(), None)
    owners = {item.name for item in items}
    assert {"python", "numpy", "jax", "flax", "pytest"} <= owners
    assert "bert-jax" not in owners
    paths = [path for item in items for path in item.spec]
    assert len(paths) == len(set(paths))
    assert not any("/tests/" in path for path in paths)
    identity = docstrings.identify(knobs.Corpus(), None)
    assert identity["numpy"] == np.__version__
    argparse = next(path for path in paths if path.endswith("/argparse.py"))
    texts = list(docstrings.read_texts(Item("python", 0, (argparse,)), knobs.Corpus()))
    assert any(
        line.startswith("The main entry point for command-line parsing.")
        for line in texts[0].text.split("\n")
    )
    assert len(texts) > 10


@pytest.mark.slow
def test_the_whole_corpus_is_large_enough_to_learn_from():
    settings = knobs.Corpus()
    seen: set[tuple[int, int]] = set()
    kept = words = 0
    for item in docstrings.list_items(settings, None)[0]:
        for text in docstrings.read_texts(item, settings):
            bands = set(enumerate(docstrings.bands(text.text).tolist()))
            if not seen & bands:
                kept, words = kept + 1, words + len(text.text.split())
            seen |= bands
    assert kept > 33_000
    assert words > 1_300_000
