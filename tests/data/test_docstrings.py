"""The embedded corpus: the prose of docstrings, by module."""

from bert_jax.config import knobs
from bert_jax.data import docstrings
from bert_jax.data.sentences import Item

SOURCE = '''
"""The module does a thing for you."""
class Large:
    """A class that is large. It has three of them. They are in the class."""
    def method(self):
        """Call the method of the class."""
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
FIRSTS = ["The module does", "A class that", "Call the method", "Return the long", "This is the"]
FIRSTS += ["Return the inner", "Return the name", "Return the part", "Return the last"]


def test_read_texts_gives_a_document_a_module(tmp_path):
    """In the order of the source; modules without prose or that are no Python are passed over."""
    (tmp_path / "a.py").write_text(SOURCE)
    (tmp_path / "b.py").write_text("x = 1")
    (tmp_path / "c.py").write_text("a template: {{ x }}")
    spec = tuple(str(tmp_path / name) for name in ("b.py", "a.py", "c.py", "a.py"))
    texts = list(docstrings.read_texts(Item("x", 0, spec), knobs.Corpus()))
    assert [" ".join(text.text.split()[:3]) for text in texts] == FIRSTS * 2
    assert [text.starts for text in texts] == ([True] + [False] * 8) * 2


def test_clean_keeps_english_and_nothing_else():
    sample = """
    Compute the mean of the values, see :func:`numpy.sum` or `the guide <https://x.org>`_ [1]_.

    Args:
      values: The values whose mean is computed, as
        an array of numbers.
      axis (int): int

    Here is code::

        x = mean([1, 2, 3])  # this is the mean of the values.

    >>> mean([1, 2])
    1.5
    """
    assert docstrings.clean(sample) == [
        "Compute the mean of the values, see numpy.sum or the guide.",
        "The values whose mean is computed, as an array of numbers.",
    ]
