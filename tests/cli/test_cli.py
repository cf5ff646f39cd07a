"""The command line: what it passes on, and how each kind of failure ends."""

import importlib
import runpy
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from bert_jax import cli, study, train
from bert_jax.config import knobs
from bert_jax.errors import CheckpointError, ConfigError, DataError, DivergedError, Stopped
from bert_jax.predictors import TASKS
from bert_jax.studies import actions
from bert_jax.system import allocator
from bert_jax.views import PAGES
from tests.texts import ROOT, run_python

PARTS = [
    *([name] for name in sorted(cli.COMMANDS)),
    *(["predict", task] for task in TASKS),
    *(["inspect", page] for page in PAGES),
    *(["study", action] for action in study.ACTIONS if action != study.WORK),
]


def fail_with(monkeypatch, error: BaseException, command: str = "doctor") -> None:
    monkeypatch.setattr(f"bert_jax.{command}.run", mock.Mock(side_effect=error))


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


def test_train_gets_its_knobs_and_flags(monkeypatch):
    called = mock.Mock()  # in place of what the command calls
    monkeypatch.setattr("bert_jax.train.run", called.train)
    monkeypatch.setattr(allocator, "retain_memory", called.retain)
    argv = ["train", "--config=pretrain:mini", "--workdir=w", "--config.masking.rate=0.4"]
    argv += ["--config.seed", "7", "--dry-run"]
    more = ["--allow-change=config.steps", "--allow-change", "objectives.nsp", "--debug"]
    assert cli.execute([*argv, *more]) == 0
    retain, (_, (found, workdir), settings) = called.mock_calls
    assert (found.model.size, found.masking.rate, found.seed) == ("mini", 0.4, 7)
    assert (retain, workdir) == (mock.call.retain(), Path("w"))
    assert settings["dry_run"] is True
    assert settings["allow_change"] == ("steps", "objectives.nsp")
    assert settings["command"][: len(argv) + 1] == ["bert-jax", *argv]


def test_train_refuses_to_allow_an_unknown_knob(tmp_path):
    """A notebook calls it without the command line."""
    with pytest.raises(ConfigError, match="config has no knob 'stpes'") as caught:
        train.run(knobs.Config(), tmp_path, allow_change=("stpes",), command=[])
    assert caught.value.hint.startswith("did you mean 'steps'?")


@pytest.mark.parametrize(
    ("flags", "on_terminal", "in_a_pipe"),
    [("", False, True), ("--format=json", True, True), ("--format=text", False, False)],
)
def test_status_is_for_people_or_programs(flags, on_terminal, in_a_pipe, monkeypatch):
    show = mock.Mock()
    monkeypatch.setattr(actions, "show_status", show)
    for is_terminal, as_json in ((True, on_terminal), (False, in_a_pipe)):
        monkeypatch.setattr("sys.stdout.isatty", lambda given=is_terminal: given)
        assert cli.execute(["study", "status", "--workdir=w", *flags.split()]) == 0
        assert show.call_args.kwargs["as_json"] == as_json


def test_dry_run_on_a_terminal_leaves_the_config_out(tmp_path, capsys, monkeypatch):
    config = f"--config={ROOT / 'configs' / 'tiny.py'}"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert cli.execute(["train", config, f"--workdir={tmp_path / 'w'}", "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    shown = ["parameters", "memory/device", "devices", "steps", "config"]
    assert [line.split()[0] for line in lines] == shown


# --- how failures end -----------------------------------------------------------------------------


@pytest.mark.fault(4, 18, 23)
@pytest.mark.parametrize(
    ("error", "code", "said", "hint"),
    [
        (ConfigError("what:\n  3 values", "try\nthis"), 2, "what: 3 values", "try this"),
        (DataError("moves a cursor: \x1b[2J", "\x07"), 3, r"moves a cursor: \x1b[2J", r"\x07"),
        (CheckpointError("a", "b"), 4, "a", "b"),
        (DivergedError("a", "b"), 5, "a", "b"),
        (Stopped("a", "b"), 75, "a", "b"),
        (OSError(28, "No space left", "/tmp/file"), 4, "disk full: /tmp/file needs", "free some"),
        (RuntimeError("RESOURCE_EXHAUSTED: 8 bytes.\nmore"), 2, "out of memory on a", "fewer rows"),
        (OSError(36, "File name too long", "x" * 300), 2, "x" * 200 + ": File name", "check the"),
    ],
)
def test_error_is_one_line_one_hint_and_its_code(monkeypatch, capsys, error, code, said, hint):
    fail_with(monkeypatch, error)
    found, line, hinted = read_failure(capsys, ["doctor"])
    assert (found, line[: len(said)], hinted[: len(hint)]) == (code, said, hint)
    with pytest.raises(SystemExit) as caught:
        cli.main(["doctor"])
    assert caught.value.code == code


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
        (f"train --config={ROOT}/configs/tiny.py --workdir=w", 75, "the same command continues"),
        (f"prepare --config={ROOT}/configs/tiny.py", 75, "the same command continues"),
        (f"train --config={ROOT}/configs/tiny.py --workdir=w --dry-run", 130, ""),
        ("study status --workdir=w", 130, ""),
        ("evaluate --model=m", 130, ""),
    ],
)
def test_interrupt_is_resumable_or_130(monkeypatch, capsys, words, code, hint):
    argv = words.split()
    place = {"study": "study.main"}.get(argv[0], f"{argv[0]}.run")
    monkeypatch.setattr(f"bert_jax.{place}", mock.Mock(side_effect=KeyboardInterrupt))
    assert read_failure(capsys, argv) == (code, "interrupted", hint)


# --- help and processes ---------------------------------------------------------------------------


@pytest.mark.parametrize("words", PARTS, ids=" ".join)
def test_help_shows_an_example_that_parses(capsys, words):
    """The help of each command, and of each task, page and action."""
    assert cli.execute([*words, "--help"]) == 0
    described, _, shown = capsys.readouterr().out.partition("example:\n")
    assert max(map(len, described.splitlines())) < 80
    example = shown.split()
    assert example[: len(words) + 1] == ["bert-jax", *words]
    parser = cli.Parser(prog=words[0])
    importlib.import_module(f"bert_jax.{words[0]}").add_flags(parser)
    parser.strict(cli.split_overrides(example[2:])[0])


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_module_is_the_same_command(name, monkeypatch):
    main = mock.Mock()
    monkeypatch.setattr(cli, "main", main)
    monkeypatch.setattr(sys, "argv", ["file", "--help"])
    runpy.run_path(f"{ROOT}/bert_jax/{name}.py", run_name="__main__")
    main.assert_called_once_with([name, "--help"])


def test_module_is_a_process():
    command = [sys.executable, "-m", "bert_jax.import", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("usage: bert-jax import ")
    assert (done.returncode, done.stderr) == (0, "")


def test_help_loads_no_jax():
    source = (
        "import sys\nfrom bert_jax import cli\n"
        "for words in ([], ['study', 'run'], *([name] for name in cli.COMMANDS)):\n"
        "    assert cli.execute([*words, '--help']) == 0\n"
        "    assert 'jax' not in sys.modules, words"
    )
    done = run_python(source)
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
    done = run_python(source, MPLBACKEND="no_such_backend")
    assert done.returncode == 0, done.stderr
