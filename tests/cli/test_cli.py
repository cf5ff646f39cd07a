"""The command line: what it passes on, and how each kind of failure ends."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bert_jax import cli
from bert_jax.errors import CheckpointError, ConfigError, DataError, DivergedError, Stopped
from bert_jax.system import allocator
from bert_jax.system.arguments import Part

CONFIG = """
from bert_jax.config import default

def get_config(size="tiny"):
    config = default()
    config.model.size = size
    return config
"""
Calls = list[tuple[str, tuple, dict]]


@pytest.fixture
def config(tmp_path) -> str:
    file = tmp_path / "config.py"
    file.write_text(CONFIG)
    return str(file)


@pytest.fixture
def calls(monkeypatch) -> Calls:
    """List what the commands would do, in order."""
    seen: Calls = []

    def replace(name: str) -> None:
        def run(*words, **settings) -> None:
            seen.append((name, words, settings))

        monkeypatch.setattr(f"bert_jax.{name}.run", run)

    for name in ("train", "evaluate", "predict"):
        replace(name)
    monkeypatch.setattr(allocator, "retain_memory", lambda: seen.append(("retain", (), {})))
    return seen


def fail_with(monkeypatch, error: BaseException, command: str = "doctor") -> None:
    def run(*_, **__):
        raise error

    monkeypatch.setattr(f"bert_jax.{command}.run", run)
    monkeypatch.setattr(allocator, "retain_memory", lambda: "")


def read_failure(capsys, argv: list[str]) -> tuple[int, str, str]:
    """Run a command that ends in an error and perhaps a hint: exit code, error and hint."""
    code = cli.execute(argv)
    out, err = capsys.readouterr()
    error, *hint = err.splitlines()
    assert out == ""
    assert error.startswith("error: ")
    assert not hint or (len(hint) == 1 and hint[0].startswith("hint: "))
    return code, error.removeprefix("error: "), "".join(hint).removeprefix("hint: ")


# --- what is passed on ----------------------------------------------------------------------------


def test_train_gets_its_knobs_and_flags(calls, config):
    argv = ["train", f"--config={config}:mini", "--workdir=w", "--config.masking.rate=0.4"]
    argv += ["--config.seed", "7", "--dry-run"]
    more = ["--allow-change=config.steps", "--allow-change", "seed", "--debug"]
    assert cli.execute([*argv, *more]) == 0
    (retain, _, _), (_, (found, workdir), settings) = calls
    assert (found.model.size, found.masking.rate, found.seed) == ("mini", 0.4, 7)
    assert (retain, workdir) == ("retain", Path("w"))
    assert settings["dry_run"] is True
    assert settings["allow_change"] == ("steps", "seed")
    assert settings["command"][: len(argv) + 1] == ["bert-jax", *argv]


@pytest.mark.parametrize("flag", ["--checkpoint", "--model"])
def test_model_and_checkpoint_are_synonyms(calls, config, flag):
    assert cli.execute(["evaluate", flag, "runs/x", f"--config={config}"]) == 0
    assert cli.execute(["predict", "fill-mask", f"{flag}=runs/x", "--top-k=3"]) == 0
    evaluated, predicted = (settings for _, _, settings in calls if settings)
    assert evaluated["checkpoint"] == predicted["checkpoint"] == "runs/x"
    assert evaluated["config"].model.size == "tiny"
    assert (predicted["task"], predicted["top_k"]) == ("fill-mask", 3)


def test_split_overrides_takes_knobs_in_order():
    argv = ["a", "--config.x.y=1=2", "--config=f", "--config.n", "-1", "--config.e="]
    argv += ["--noconfig.model.gated", "--config.model.causal", "--config.model.scan", "false"]
    assert cli.split_overrides([*argv, "--z"]) == (
        ["a", "--config=f", "--z"],
        [
            *(("x.y", "1=2"), ("n", "-1"), ("e", "")),
            *(("model.gated", "false"), ("model.causal", "true"), ("model.scan", "false")),
        ],
    )
    with pytest.raises(ConfigError, match="seed has no value"):
        cli.split_overrides(["--config.seed", "--z"])


def test_part_takes_the_defaults_of_flags_of_others():
    parser = cli.Parser(prog="bert-jax x")
    parser.add_parts("task", {"a": Part("one", "--n=1"), "b": Part("other"), "hidden": Part("")})
    parser.add_argument("--shared", default="s")
    parser.add_for({"a": "a number"}, "--n", type=int, default=3)
    assert vars(parser.strict(["b"])) == {"task": "b", "shared": "s", "n": 3}
    assert parser.strict(["a", "--n=5"]).n == 5
    assert "hidden" not in parser.format_help()
    assert parser.strict(["hidden"]).task == "hidden"


# --- how failures end -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "code"),
    [(ConfigError, 2), (DataError, 3), (CheckpointError, 4), (DivergedError, 5), (Stopped, 75)],
)
def test_user_error_is_one_line_one_hint_and_its_code(monkeypatch, capsys, kind, code):
    fail_with(monkeypatch, kind("what, where:\n  3 values", "try\nthis"))
    assert read_failure(capsys, ["doctor"]) == (code, "what, where: 3 values", "try this")
    with pytest.raises(SystemExit) as caught:
        cli.main(["doctor"])
    assert caught.value.code == code


@pytest.mark.fault(18)
def test_error_moves_no_cursor(monkeypatch, capsys):
    """Names in a file of others may hold control characters."""
    fail_with(monkeypatch, CheckpointError("a\x1b[2Jb", "c\x07"))
    assert read_failure(capsys, ["doctor"]) == (4, "a\\x1b[2Jb", "c\\x07")


@pytest.mark.fault(4, 23)
@pytest.mark.parametrize(
    ("error", "code", "message", "hint"),
    [
        (OSError(28, "No space left", "/tmp/file"), 4, "disk full: /tmp/file needs", "free some"),
        (RuntimeError("RESOURCE_EXHAUSTED: 8 bytes.\nmore"), 2, "out of memory on a", "fewer rows"),
        (OSError(36, "File name too long", "x" * 300), 2, "x" * 200 + ": File name", "check the"),
    ],
)
def test_lack_of_room_is_one_line(monkeypatch, capsys, error, code, message, hint):
    fail_with(monkeypatch, error)
    found, said, hinted = read_failure(capsys, ["doctor"])
    assert found == code
    assert said.startswith(message)
    assert hinted.startswith(hint)


@pytest.mark.parametrize("error", [ValueError("inside"), OSError(5, "input/output")])
def test_unforeseen_error_is_raised(monkeypatch, error):
    fail_with(monkeypatch, error)
    with pytest.raises(type(error)):
        cli.execute(["doctor"])


@pytest.mark.parametrize("error", [ConfigError("inside"), KeyboardInterrupt("inside")])
@pytest.mark.parametrize("argv", [["--debug", "doctor"], ["doctor", "--debug"]])
def test_debug_shows_the_traceback(monkeypatch, capsys, error, argv):
    fail_with(monkeypatch, error)
    assert cli.execute(argv) == {ConfigError: 2, KeyboardInterrupt: 130}[type(error)]
    err = capsys.readouterr().err
    assert "Traceback (most recent call last)" in err
    assert "inside" in err


@pytest.mark.parametrize(
    ("words", "code", "hint"),
    [
        ("train --config={} --workdir=w", 75, "the same command continues"),
        ("prepare --config={}", 75, "the same command continues"),
        ("evaluate --model=m", 130, ""),
    ],
)
def test_interrupt_is_resumable_or_130(monkeypatch, capsys, config, words, code, hint):
    argv = words.format(config).split()
    fail_with(monkeypatch, KeyboardInterrupt(), argv[0])
    assert read_failure(capsys, argv) == (code, "interrupted", hint)


# --- help and processes ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(cli.COMMANDS))
def test_help_shows_an_example_that_parses(capsys, name):
    assert cli.execute([name, "--help"]) == 0
    example = capsys.readouterr().out.partition("example:\n")[2].split()
    assert example[:2] == ["bert-jax", name]
    parser = cli.Parser(prog=name)
    importlib.import_module(f"bert_jax.{name}").add_flags(parser)
    parser.strict(cli.split_overrides(example[2:])[0])


def test_module_is_the_same_command():
    command = [sys.executable, "-m", "bert_jax.import", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "usage: bert-jax import " in done.stdout
    assert done.stderr == ""


def test_help_loads_no_jax():
    source = (
        "import sys\nfrom bert_jax import cli\n"
        "for words in ([], ['study', 'run'], *([name] for name in cli.COMMANDS)):\n"
        "    assert cli.execute([*words, '--help']) == 0\n"
        "    assert not {'jax', 'numpy'} & set(sys.modules), words"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_closed_pipe_is_quiet():
    source = (
        "from bert_jax import cli, doctor\n"
        "doctor.run = lambda *_: print('line\\n' * 10**6)\n"
        "cli.main(['doctor'])"
    )
    command = [sys.executable, "-c", source]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"line\n"
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(timeout=60) == cli.BROKEN_PIPE


def test_backend_of_a_notebook_is_not_asked_for():
    """Jupyter names one in the environment, and matplotlib refuses what it cannot import."""
    source = (
        "from bert_jax import cli, doctor\n"
        "doctor.run = lambda *_: __import__('bert_jax.reporting.drawing')\n"
        "cli.main(['doctor'])"
    )
    named = {"MPLBACKEND": "no_such_backend"}
    command = [sys.executable, "-c", source]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | named)
    assert done.returncode == 0, done.stderr
