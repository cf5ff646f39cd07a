"""A user's Python file: whatever it does is reported as its own, and disturbs nothing of a
command's.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bert_jax import cli, config
from bert_jax.config import script
from bert_jax.errors import ConfigError

pytestmark = pytest.mark.fault(50)
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
def test_a_file_that_exits_ends_in_a_usage_error(exits, top, tmp_path, capsys):
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


def test_what_a_file_prints_goes_to_standard_error(tmp_path):
    """What a program that it starts prints, too; and it has nothing to read."""
    lines = "import os, sys; print('mine'); sys.stdin.read(); os.system('echo its child; cat')"
    file = write(tmp_path, GOOD.format(lines) + "print('top')\n")
    call = f"from bert_jax.config import script; script.call({file!r}); print('result')"
    done = subprocess.run(
        [sys.executable, "-c", call], input="typed", capture_output=True, text=True, check=True
    )
    assert done.stdout == "result\n"
    assert sorted(done.stderr.split("\n")) == ["", "its child", "mine", "top"]


def test_a_file_that_takes_long_is_named_and_one_that_never_ends_is_ended(
    tmp_path, capfd, monkeypatch
):
    monkeypatch.setattr(script, "PATIENCE", 0.2)
    file = write(tmp_path, GOOD.format("import time; time.sleep(0.6)"))
    script.call(file)
    assert f"{file}:4 still runs, after 0.2 s" in capfd.readouterr().err
    monkeypatch.setattr(script, "LIMIT", 0.5)
    with pytest.raises(ConfigError, match=r"mine\.py:4: the file still runs after 0\.5 s"):
        script.call(write(tmp_path, GOOD.format("import time; time.sleep(60)")))


def test_a_plain_dict_is_a_config_too(tmp_path):
    found = config.load_file(write(tmp_path, "def get_config():\n    return {'steps': 3}\n"))
    config.override(found, "masking.rate", "0.3")
    assert (config.resolve(found).steps, config.resolve(found).masking.rate) == (3, 0.3)


# --- standard streams -----------------------------------------------------------------------------


def shell(command: str) -> subprocess.CompletedProcess:
    line = f"exec {sys.executable} -m bert_jax.cli {command}"
    return subprocess.run(["sh", "-c", line], stderr=subprocess.PIPE, text=True, check=False)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
@pytest.mark.parametrize("command", ["--help", "train --help"])
def test_standard_output_without_room(command):
    done = shell(f"{command} > /dev/full")
    assert done.returncode == 2
    assert done.stderr.startswith(
        "error: standard output cannot be written: No space left on device\nhint: "
    )
    assert done.stderr.count("\n") == 2


def test_standard_output_that_is_closed():
    done = shell("--version >&-")
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, "error: standard output is closed")


def test_standard_input_and_error_that_are_closed(tmp_path):
    done = shell(f"--version <&- 2>&- > {tmp_path / 'out'}")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "out").read_text().startswith("bert-jax ")
