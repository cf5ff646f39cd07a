"""What a person sees: the help of each task, page and action, and results and prompts on a
terminal.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import pytest

from bert_jax import cli, inspect, predict, study
from bert_jax.interop import runs
from bert_jax.predictors import TASKS
from bert_jax.predictors.base import Model, OfText
from bert_jax.predictors.options import Options
from bert_jax.studies import actions
from bert_jax.views import PAGES
from tests import texts, variants
from tests.terminals import terminal

GOLDEN = variants.GOLDEN / "huggingface"
MODEL = GOLDEN / "pretraining"

# --- flags of each part ---------------------------------------------------------------------------

# Flags that a part has beside those of the whole command, with a value that is one.
WINDOWS = "--long=windows --stride=8 --stride-as=step"
DRAWN = "--max-tokens=3 --temperature=1 --top-p=0.9 --seed=3 --steps=2 --order=random --top-k=4"
CELLS = (
    "--engine=ray --engine-option=a=1 --jobs=2 --fuse=never --reuse=x --dry-run "
    "--flops-per-second=3e14"
)
OWN = {
    "predict": {
        "fill-mask": f"--top-k=3 {WINDOWS}",
        "nsp": "--long=cut",
        "classify": "--long=cut",
        "tag": f"--entities {WINDOWS}",
        "answer": f"--top-k=3 --no-answer-threshold=0.1 {WINDOWS}",
        "embed": "--pooling=cls --normalize --long=cut",
        "generate": f"{DRAWN} --show-steps --long=refuse",
    },
    "inspect": {
        "attention": "--text-pair=b",
        "embeddings": "--layer=0 --pooling=cls --points=words --method=tsne --neighbours=2",
        "generation": DRAWN,
    },
    "study": {
        "run": f"{CELLS} --only=seed=1",
        "sweep": f"{CELLS} --config=configs/tiny.py --axis=masking.rate=0.1,0.2 --seeds=2 "
        "--tokens=1e6 --flops=1e12",
        "status": "--verbose --format=text",
        "report": "",
    },
}
SHARED = {
    "predict": "--model=m --checkpoint=m --tokenizer= --input=in.txt --format=json --batch-size=2 "
    "--on-bad-row=skip",
    "inspect": "--model=m --checkpoint=m --tokenizer= --text=a --input= --output=p.html --long=cut",
    "study": "--workdir=w",
}
PARTS = [(command, part) for command in OWN for part in OWN[command]]


def names(flags: str) -> set[str]:
    return {word.partition("=")[0] for word in flags.split()}


def helped(capsys, *words: str) -> str:
    assert cli.execute([*words]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


@pytest.fixture
def calls(monkeypatch):
    """What the commands would do is listed instead."""
    seen: list = []
    for module in (predict, inspect):
        monkeypatch.setattr(module, "run", lambda **settings: seen.append(settings))
    for name in ("run", "status", "report"):
        monkeypatch.setattr(actions, name, lambda *_, **settings: seen.append(settings))
    monkeypatch.setattr("bert_jax.studies.sweep.run", lambda *_: seen.append({}))
    return seen


@pytest.mark.parametrize(("command", "part"), PARTS)
def test_the_help_of_a_part_shows_its_own_flags_and_an_example(command, part, capsys, calls):
    out = helped(capsys, command, part, "--help")
    assert out.startswith(f"usage: bert-jax {command} {part} ")
    expected = names(OWN[command][part]) | names(SHARED[command]) | {"--help", "--debug"}
    shown = set(re.findall(r"^  (?:-h, )?(--[a-z-]+)", out, re.MULTILINE))
    assert shown | set(re.findall(r"--model.*, (--checkpoint)", out)) == expected
    usage = out.partition("\n\n")[0]
    assert set(re.findall(r"(--[a-z-]+)", usage)) == expected - {"--help", "--checkpoint"}
    assert out == helped(capsys, command, part, "-h")
    title, rest = out.split("\n\n", 2)[1:]
    assert rest.startswith(("input", "output"))
    assert "output" in rest
    assert all(
        len(line) <= 79 for line in f"{title}\n{rest}".partition("\nexample:")[0].split("\n")
    )
    example = out.partition("example:\n")[2].split()
    assert example[:3] == ["bert-jax", command, part]
    assert cli.execute(example[1:]) == 0
    assert len(calls) == 1


@pytest.mark.parametrize("command", OWN)
def test_help_of_a_command_lists_its_parts(command, capsys):
    parts = re.split(r"^\w+s:$", helped(capsys, command, "--help"), flags=re.MULTILINE)[-1]
    assert re.findall(r"^    (\S+)", parts.partition("\nexample:")[0], re.MULTILINE) == [
        *OWN[command]
    ]


def test_a_word_that_is_no_part_is_refused_with_those_that_are_shown(capsys):
    assert cli.execute(["study", "sweeps", "--workdir=w"]) == 2
    hint = capsys.readouterr().err.splitlines()[1]
    assert hint == "hint: did you mean 'sweep'? one of: run, sweep, status, report"


@pytest.mark.parametrize(("command", "part"), PARTS)
def test_part_takes_its_flags_and_refuses_those_of_others(command, part, calls, capsys):
    needed = {"predict": ["--model=m"], "inspect": ["--model=m"], "study": ["--workdir=w"]}[command]
    own = [word for word in OWN[command][part].split() if word != "--flops=1e12"]  # or --tokens
    if part == "sweep":
        needed += ["--config=configs/tiny.py"]
    for words in ([*needed, *own], [*own, *needed]):
        assert cli.execute([command, part, *words]) == 0
    assert calls[0] == calls[1] or command == "study"  # which records its command
    every = {
        word.partition("=")[0]: word for flags in OWN[command].values() for word in flags.split()
    }
    for flag in every.keys() - names(OWN[command][part]):
        assert cli.execute([command, part, *needed, every[flag]]) == 2
        error, hint = capsys.readouterr().err.splitlines()
        assert error == f"error: {command} {part} has no flag {flag}"
        owners = [one for one, flags in OWN[command].items() if flag in names(flags)]
        have = "have" if owners[1:] else "has"
        assert hint == f"hint: {command} {', '.join(owners)} {have} it"
    assert len(calls) == 2


@pytest.mark.parametrize("action", ["status", "report"])
def test_knobs_are_of_what_runs_alone(action, calls, capsys):
    assert cli.execute(["study", action, "--workdir=w", "--config.steps=7"]) == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert error == f"error: study {action} has no flag --config.steps"
    assert hint == "hint: study run, sweep have it"
    assert calls == []


def test_help_of_launchers_loads_no_jax():
    source = (
        "import sys\nfrom bert_jax import cli\n"
        "for words in ([], ['study', 'run']):\n"
        "    assert cli.execute([*words, '--help']) == 0\n"
        "sys.exit(any(name in sys.modules for name in ('jax', 'numpy')))"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, check=False)
    assert done.returncode == 0


# --- the shapes that the help shows ---------------------------------------------------------------


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """A golden model by name, with a vocabulary."""
    root = tmp_path_factory.mktemp("models")

    def of(name: str) -> runs.TrainedModel:
        if not (root / name).exists():
            shutil.copytree(GOLDEN / name, root / name)
            shutil.copy(MODEL / "vocab.txt", root / name)
        return runs.open_run(str(root / name))

    return of


def test_every_task_and_page_has_a_help():
    assert list(TASKS) == list(OWN["predict"])
    assert list(inspect.PAGES) == list(PAGES)
    assert list(study.ACTIONS) == [*OWN["study"], study.WORK]


@pytest.mark.parametrize("page", inspect.PAGES)
def test_the_lines_that_a_page_shows_are_read(page, opened):
    reader = PAGES[page][0](Model(opened("pretraining"), Options()))
    assert isinstance(reader, OfText)
    for line in inspect.PAGES[page].takes:
        assert all(reader.read(1, line.replace("<tab>", "\t")).fields.values())


# --- on a terminal --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "on_terminal", "in_a_pipe"),
    [
        ("", False, True),
        ("--format=json", True, True),
        ("--format=text", False, False),
        ("--verbose", False, False),
        ("--verbose --format=json", True, True),
    ],
)
def test_the_status_of_a_study_is_for_people_or_programs(flags, on_terminal, in_a_pipe, calls):
    words = ["study", "status", "--workdir=w", *flags.split()]
    with terminal([]):
        assert cli.execute(words) == 0
    assert cli.execute(words) == 0
    assert [call["as_json"] for call in calls] == [on_terminal, in_a_pipe]


def test_a_dry_run_on_a_terminal_shows_four_lines(tmp_path, capsys, monkeypatch):
    """In a pipe the config follows them: see test_train.py."""
    words = [
        "train",
        f"--config={texts.ROOT / 'configs' / 'tiny.py'}",
        f"--workdir={tmp_path / 'w'}",
        "--dry-run",
    ]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    lines = helped(capsys, *words).splitlines()
    shown = ["parameters", "memory/device", "devices", "steps", "config"]
    assert [line.split()[0] for line in lines] == shown
