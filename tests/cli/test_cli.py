"""The command line: what it passes on, and how each kind of failure ends."""

from __future__ import annotations

import importlib
import os
import platform
import subprocess
import sys
import types
from pathlib import Path

import pytest

from bert_jax import cli
from bert_jax.errors import CheckpointError, ConfigError, DataError, DivergedError, Stopped
from bert_jax.predictors.options import Options
from bert_jax.system import allocator, machine
from bert_jax.system.allocator import retain  # before tests are kept from it
from bert_jax.system.arguments import Part

CONFIG = """
from bert_jax.config import default

def get_config(size="tiny"):
    config = default()
    config.model.size = size
    return config
"""


@pytest.fixture
def config(tmp_path) -> str:
    file = tmp_path / "config.py"
    file.write_text(CONFIG)
    return str(file)


@pytest.fixture
def calls(monkeypatch):
    """Replaces what the commands call, and lists the calls; `raises` is raised by all of them."""
    seen = types.SimpleNamespace(calls=[], raises=None, order=[])

    def record(name):
        def run(*args, **kwargs):
            seen.order.append(name)
            seen.calls.append((name, args, kwargs))
            if seen.raises is not None:
                raise seen.raises

        return run

    for name in ("prepare", "train", "evaluate", "predict", "doctor"):
        monkeypatch.setattr(f"bert_jax.{name}.run", record(name))
    monkeypatch.setattr(allocator, "retain", lambda: seen.order.append("retain"))
    return seen


def _fails(capsys, argv) -> tuple[int, str, str]:
    """Exit code, error and hint of a command line that ends in exactly those two lines."""
    code = cli.execute(argv)
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert lines[0].startswith("error: ")
    assert len(lines) == 1 or (len(lines) == 2 and lines[1].startswith("hint: "))
    return code, lines[0].removeprefix("error: "), "".join(lines[1:]).removeprefix("hint: ")


# --- what is passed on ----------------------------------------------------------------------------


def test_train(calls, config):
    argv = [
        "train",
        f"--config={config}:mini",
        "--workdir=w",
        "--config.masking.rate=0.4",
        "--config.seed",
        "7",
    ]
    assert (
        cli.execute(
            [*argv, "--dry-run", "--allow-change=config.steps", "--allow-change", "seed", "--debug"]
        )
        == 0
    )
    ((_, args, kwargs),) = calls.calls
    found, workdir = args
    assert (found.model.size, found.masking.rate, found.seed, workdir) == (
        "mini",
        0.4,
        7,
        Path("w"),
    )
    assert kwargs["dry_run"] is True
    assert kwargs["allow_change"] == ("steps", "seed")
    assert kwargs["command"][: len(argv) + 1] == ["bert-jax", *argv]
    assert calls.order == ["retain", "train"]


def test_prepare_does_not_keep_memory(calls, config):
    assert cli.execute(["prepare", "--config", config, "--config.corpus.source=files"]) == 0
    ((_, (found,), _),) = calls.calls
    assert (found.model.size, found.corpus.source) == ("tiny", "files")
    assert calls.order == ["prepare"]


@pytest.mark.parametrize("flag", ["--checkpoint", "--model"])
def test_evaluate(calls, config, tmp_path, flag):
    output = tmp_path / "new" / "out.json"
    assert cli.execute(["evaluate", f"{flag}=runs/x"]) == 0
    assert (
        cli.execute(["evaluate", flag, "runs/x", f"--config={config}", f"--output={output}"]) == 0
    )
    (_, _, first), (_, _, second) = calls.calls
    for asked in (first, second):
        assert asked.pop("checkpoint") == "runs/x"
        assert asked.pop("suite") == asked.pop("tokenizer") == ""
    assert second.pop("config").model.size == "tiny"
    assert second.pop("output") == output
    assert first.pop("changes") == second.pop("changes") == []
    assert first == second == {}  # all is up to the suite
    assert calls.order == ["retain", "evaluate"] * 2
    assert not output.exists()  # trying whether it can be written leaves nothing behind


@pytest.mark.parametrize("flag", ["--checkpoint", "--model"])
def test_predict(calls, flag):
    assert cli.execute(["predict", "nsp", f"{flag}=runs/x"]) == 0
    words = ["fill-mask", flag, "y", "--input=a.txt", "--top-k=3", "--batch-size=2"]
    assert cli.execute(["predict", *words]) == 0
    (_, _, first), (_, _, second) = calls.calls
    names = ("task", "checkpoint", "input", "tokenizer")
    assert [first.pop(name) for name in names] == ["nsp", "runs/x", None, ""]
    assert [second.pop(name) for name in names] == ["fill-mask", "y", Path("a.txt"), ""]
    asked = Options(**first), Options(**second)  # every one by its name
    assert asked == (Options(), Options(top_k=3, batch_size=2))


def test_doctor(calls):
    assert cli.execute(["doctor"]) == 0
    assert cli.execute(["doctor", "--json"]) == 0
    assert cli.execute(["doctor", "--preset-diff", "a", "b"]) == 0
    assert [args for _, args, _ in calls.calls] == [(False, ()), (True, ()), (False, ["a", "b"])]


def test_overrides_are_taken_out_in_order():
    argv = ["a", "--config.x.y=1=2", "--config=f", "--config.n", "-1", "--config.e=", "--z"]
    assert cli.split_overrides(argv) == (
        ["a", "--config=f", "--z"],
        [("x.y", "1=2"), ("n", "-1"), ("e", "")],
    )


# --- how failures end -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "code"),
    [(ConfigError, 2), (DataError, 3), (CheckpointError, 4), (DivergedError, 5), (Stopped, 75)],
)
def test_user_error_is_one_line_one_hint_and_its_code(calls, capsys, kind, code):
    calls.raises = kind("what, where:\n  3 values", "try\nthis")
    assert _fails(capsys, ["doctor"]) == (code, "what, where: 3 values", "try this")
    calls.raises = kind("bare")
    assert _fails(capsys, ["doctor"]) == (code, "bare", "")


@pytest.mark.parametrize("error", [ValueError("inside"), OSError(5, "input/output")])
def test_error_that_nobody_foresaw_is_raised(calls, error):
    calls.raises = error
    with pytest.raises(type(error)):
        cli.execute(["doctor"])


@pytest.mark.fault(23)
def test_lack_of_device_memory_is_one_line(calls, capsys):
    calls.raises = RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes.\nmore")
    code, message, hint = _fails(capsys, ["doctor"])
    assert (code, hint) == (2, "fewer rows a step")
    assert message == (
        "out of memory on a device: RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes."
    )


@pytest.mark.fault(4)
def test_a_full_disk_wherever_it_is_met_is_said_as_such(calls, capsys, tmp_path):
    calls.raises = OSError(28, "No space left on device", str(tmp_path / "file"))
    code, message, hint = _fails(capsys, ["doctor"])
    assert code == 4
    assert message.startswith(f"disk full: {tmp_path / 'file'} needs more than ")
    assert message.endswith(f" are free in {tmp_path}")
    assert hint.startswith("free some space")


@pytest.mark.parametrize("error", [ConfigError("inside"), KeyboardInterrupt("inside")])
@pytest.mark.parametrize("argv", [["--debug", "doctor"], ["doctor", "--debug"]])
def test_debug_shows_the_traceback(calls, capsys, error, argv):
    calls.raises = error
    assert cli.execute(argv) == {ConfigError: 2, KeyboardInterrupt: 130}[type(error)]
    err = capsys.readouterr().err
    assert "Traceback (most recent call last)" in err
    assert "inside" in err


@pytest.mark.parametrize(
    ("argv", "code", "hint"),
    [
        (["train", "--config=CONFIG", "--workdir=w"], 75, "the same command continues"),
        (["prepare", "--config=CONFIG"], 75, "the same command continues"),
        (["evaluate", "--model=m"], 130, ""),
        (["doctor"], 130, ""),
    ],
)
def test_an_interrupt_is_resumable_where_the_command_is(calls, capsys, config, argv, code, hint):
    calls.raises = KeyboardInterrupt()
    words = [word.replace("CONFIG", config) for word in argv]
    assert _fails(capsys, words) == (code, "interrupted", hint)


def test_main_exits_with_the_code(calls):
    calls.raises = DataError("no")
    with pytest.raises(SystemExit) as caught:
        cli.main(["doctor"])
    assert caught.value.code == 3


# --- help -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(cli.COMMANDS))
def test_help_shows_an_example_that_parses(capsys, calls, name):
    assert cli.execute([name, "--help"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "--debug" in out
    example = out.partition("example:\n")[2].split()
    assert example[:2] == ["bert-jax", name]
    parser = cli.Parser(prog=name)
    importlib.import_module(f"bert_jax.{name}").flags(parser)
    parser.strict(cli.split_overrides(example[2:])[0])


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        ("predict tga", "invalid choice: 'tga'", "did you mean 'tag'?"),
        ("predict nsp --modl=x", "predict nsp has no flag --modl", "did you mean --model?"),
        ("predict nsp --top-k=3", "predict nsp has no flag --top-k", "fill-mask, answer, generate"),
        ("predict nsp", "required: --model", "see bert-jax predict nsp --help"),
        ("train --masking.rate=3", "train has no flag", "--config.masking.rate=VALUE"),
        ("study", "required: ACTION", "see bert-jax study --help"),
    ],
)
def test_wrong_word_is_refused_with_the_nearest(capsys, words, message, hint):
    code, said, hinted = _fails(capsys, words.split())
    assert code == 2
    assert message in said
    assert hint in hinted


def test_part_takes_the_defaults_of_flags_of_others():
    parser = cli.Parser(prog="bert-jax x")
    parser.add_parts("task", {"a": Part("one", "--n=1"), "b": Part("other"), "hidden": Part("")})
    parser.add_argument("--shared", default="s")
    parser.add_for({"a": "a number"}, "--n", type=int, default=3)
    assert vars(parser.strict(["b"])) == {"task": "b", "shared": "s", "n": 3}
    assert parser.strict(["a", "--n=5"]).n == 5
    assert "hidden" not in parser.format_help()
    assert parser.strict(["hidden"]).task == "hidden"


# --- real processes -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(cli.COMMANDS))
def test_python_dash_m_is_the_same_command(name):
    done = subprocess.run(
        [sys.executable, "-m", f"bert_jax.{name}", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"usage: bert-jax {name} " in done.stdout
    assert done.stderr == ""


def test_a_closed_pipe_is_quiet():
    source = (
        "from bert_jax import cli, doctor\n"
        "doctor.run = lambda *_: print('line\\n' * 10**6)\n"
        "cli.main(['doctor'])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", source], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"line\n"
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(timeout=60) == cli.BROKEN_PIPE


def test_machine_leaves_the_allocator_alone(monkeypatch):
    """A description changes nothing in the process that asks for it."""
    called = []
    monkeypatch.setattr(allocator, "retain", lambda: called.append("retain") or "")
    for name in [name for name in os.environ if name.startswith("MALLOC_")]:
        monkeypatch.delenv(name)
    described = machine.machine()["allocator"]
    assert called == []
    if platform.libc_ver()[0] == "glibc" and "GLIBC_TUNABLES" not in os.environ:
        assert described == "keeps its memory while training"
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    assert machine.machine()["allocator"] == "$MALLOC_ARENA_MAX is set, and is left as it is"


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_retained_memory_is_not_faulted_in_again():
    """Taking and freeing 64 MB again costs no page faults, which by default it costs each time."""
    source = (
        "import resource, sys\nimport numpy as np\nfrom bert_jax.system import allocator\n"
        "if sys.argv[1] == 'retain':\n    assert allocator.retain() == ''\n"
        "faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "for i in range(4):\n    before = faults()\n    np.ones(8 * 2**20)\n"
        "    last = faults() - before\n"
        "print(last)"
    )
    last = {}
    for mode in ("default", "retain"):
        done = subprocess.run(
            [sys.executable, "-c", source, mode], capture_output=True, text=True, check=True
        )
        last[mode] = int(done.stdout)
    assert last["retain"] < 10
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MALLOC_ARENA_MAX", "2")
        assert retain() == "$MALLOC_ARENA_MAX is set, and is left as it is"
    assert last["default"] > 10 * max(last["retain"], 1)
