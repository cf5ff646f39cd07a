"""The embedded corpus: the prose of docstrings, by module."""

from __future__ import annotations

from bert_jax.config import knobs
from bert_jax.data import docstrings
from bert_jax.data.sentences import Item

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


def test_clean_keeps_english_and_nothing_else():
    assert docstrings.clean(SAMPLE) == [
        "Compute the mean of the given values along an axis.",
        "The mean is taken over the flattened array by default, see numpy.sum or the guide.",
        "The values whose mean is computed, as an array of numbers.",
        "Further arguments that are passed to the function.",
        "Array containing numbers whose mean is desired.",
        "The mean of the values, in the type of the input.",
        "This is fenced code that reads as a sentence of the text.",
        "Here we compute the mean of some of the values.",
    ]


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
if x:
    def last():
        """Return the last of the thing."""
'''


def test_a_module_is_a_document_in_the_order_of_its_source(tmp_path):
    path = tmp_path / "a.py"
    path.write_text(SOURCE)
    (tmp_path / "b.py").write_text("x = 1")
    (tmp_path / "c.py").write_text("a template: {{ x }}")
    spec = tuple(str(tmp_path / name) for name in ("b.py", "a.py", "c.py", "a.py"))
    texts = list(docstrings.read_texts(Item("x", 0, spec), knobs.Corpus()))
    assert [text.starts for text in texts] == ([True] + [False] * 10) * 2
    assert [text.text.split(".")[0] for text in texts[:11]] == [
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
        "Return the last of the thing",
    ]
