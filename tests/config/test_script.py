"""A user's Python file: an error is reported as its own, and it disturbs no output.

What is said of each kind of file is held by tests/net/transcripts/train_config.txt.
"""

import pytest

from bert_jax.config import script
from bert_jax.errors import ConfigError

pytestmark = pytest.mark.fault(26)


def test_call_file_names_file_and_line(tmp_path, capsys):
    """Of an error, also where other code raises it; what the file prints is no output."""
    file = tmp_path / "mine.py"
    body = "    print('mine')\n    {}['rate']\n"
    file.write_text(f"print('top')\n\n\ndef get_config():\n{body}")
    with pytest.raises(ConfigError, match=r"mine\.py:6: KeyError: 'rate'") as caught:
        script.call_file(str(file))
    assert caught.value.hint
    assert capsys.readouterr() == ("", "top\nmine\n")
