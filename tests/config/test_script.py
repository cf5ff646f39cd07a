"""A user's Python file: an error is reported as its own, and it disturbs no output.

What is said of each kind of file is held by tests/net/transcripts/train_config.txt.
"""

import pytest

from bert_jax.config import script
from bert_jax.errors import ConfigError


@pytest.mark.fault(26)
def test_call_file_names_the_file_of_a_syntax_error(tmp_path, monkeypatch):
    file, helper = tmp_path / "mine.py", tmp_path / "helper_of_mine.py"
    helper.write_text("\n\nx = (\n")
    monkeypatch.syspath_prepend(tmp_path)
    places = {"import helper_of_mine": rf"^{helper}:3", "eval('1 +')": r"mine\.py:1"}
    for line, place in places.items():
        file.write_text(f"{line}\n")
        with pytest.raises(ConfigError, match=f"{place}: SyntaxError"):
            script.call_file(str(file))
