"""A user's Python file: whatever it does is reported as its own, and disturbs nothing of a
command's.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bert_jax import cli, config
from bert_jax.config import script
from bert_jax.errors import ConfigError

pytestmark = pytest.mark.fault(26)
GOOD = (
    "from bert_jax.config import default\n\ndef get_config(arg='x'):\n    {}\n"
    "    return default()\n"
)


def write(folder: Path, text: str, name: str = "mine.py") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


@pytest.mark.parametrize(
    "exits", ["sys.exit()", "sys.exit(3)", "raise SystemExit('enough')", "exit()"]
)
@pytest.mark.parametrize("top", [True, False])
def test_call_refuses_a_file_that_exits(exits, top, tmp_path, capsys):
    file = write(tmp_path, f"import sys\n{exits}\n" if top else GOOD.format(f"import sys; {exits}"))
    assert cli.execute(["train", f"--config={file}", f"--workdir={tmp_path / 'run'}"]) == 2
    said = capsys.readouterr().err
    assert f"mine.py:{2 if top else 4}: the file exits" in said
    assert "hint: " in said
    folder = tmp_path / "study"
    folder.mkdir()
    write(folder, f"import sys\n{exits}\n", "study.py")
    assert cli.execute(["study", "run", str(folder), f"--workdir={tmp_path / 'study run'}"]) == 2
    assert "study.py:2: the file exits" in capsys.readouterr().err


def test_call_sends_prints_to_standard_error(tmp_path, capsys):
    file = write(tmp_path, GOOD.format("print('mine')") + "print('top')\n")
    script.call(file)
    assert capsys.readouterr() == ("", "top\nmine\n")
    asks = write(tmp_path, GOOD.format("input()"))
    with pytest.raises(ConfigError, match=r"mine\.py:4: the file reads standard input"):
        script.call(asks)


def test_load_file_takes_a_plain_dict(tmp_path):
    found = config.load_file(write(tmp_path, "def get_config():\n    return {'steps': 3}\n"))
    config.override(found, "masking.rate", "0.3")
    assert (config.resolve(found).steps, config.resolve(found).masking.rate) == (3, 0.3)
