"""A user's Python file: whatever it does is reported as its own, and disturbs no output.

What is said of each kind of file is held by tests/net/transcripts/train_config.txt.
"""

from __future__ import annotations

import pytest

from bert_jax import config
from bert_jax.config import script
from bert_jax.errors import ConfigError

pytestmark = pytest.mark.fault(26)
GOOD = (
    "from bert_jax.config import default\n\ndef get_config(arg='x'):\n    {}\n"
    "    return default()\n"
)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise SystemExit('enough')", "mine.py:4: the file exits ('enough')"),
        ("1 / 0", "mine.py:4: ZeroDivisionError"),
        ("input()", "mine.py:4: EOFError"),
        ("default().masking.rat = 1", "mine.py:4: no knob 'rat'"),
        ("return (", "SyntaxError"),
    ],
)
def test_call_names_file_and_line_of_an_error(body, said, tmp_path):
    (tmp_path / "mine.py").write_text(GOOD.format(body))
    with pytest.raises(ConfigError) as caught:
        script.call_file(f"{tmp_path}/mine.py")
    assert said in str(caught.value)
    assert caught.value.hint


def test_call_sends_prints_to_standard_error(tmp_path, capsys):
    file = tmp_path / "mine.py"
    file.write_text(GOOD.format("print('mine')") + "print('top')\n")
    script.call_file(str(file))
    assert capsys.readouterr() == ("", "top\nmine\n")


def test_load_file_takes_a_plain_dict(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("def get_config():\n    return {'steps': 3}\n")
    found = config.load_file(str(file))
    config.override(found, "masking.rate", "0.3")
    assert (config.resolve(found).steps, config.resolve(found).masking.rate) == (3, 0.3)
