"""Text made up by a seeded grammar, and runs on it: what end-to-end tests train on."""

import contextlib
import os
import subprocess
import sys
import textwrap
import types
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bert_jax import sharding
from bert_jax.config import knobs, load_file
from bert_jax.training import runs
from tests import FEWER_PARTS, updates
from tests.config.settings import set_and_resolve

ROOT = Path(__file__).resolve().parents[1]
SUBJECTS = [
    "the cat",
    "a small dog",
    "my old friend",
    "the quiet river",
    "every child",
    "that green bird",
]
VERBS = ["sees", "follows", "likes", "finds", "remembers", "hears"]
PLACES = ["in the garden", "near the sea", "under a tree", "on the long road", "behind the house"]


def document(random: np.random.Generator, sentences: int) -> list[str]:
    """Sentences about one subject in one place: the verb follows from the subject, the next
    sentence from this one.
    """
    subject, place = int(random.integers(len(SUBJECTS))), PLACES[random.integers(len(PLACES))]
    others = [SUBJECTS[random.integers(len(SUBJECTS))] for _ in range(sentences)]
    return [f"{SUBJECTS[subject]} {VERBS[subject]} {other} {place}." for other in others]


def write(folder: Path, documents: int = 120, seed: int = 0) -> Path:
    """One sentence a line, blank lines between documents."""
    random = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    texts = ["\n".join(document(random, int(random.integers(3, 9)))) for _ in range(documents)]
    (folder / "text.txt").write_text("\n\n".join(texts) + "\n")
    return folder


CONFIG = '''"""A run of a few seconds on {path}."""
from bert_jax.config import default


def get_config():
    config = default()
    config.corpus.update(source="files", path={path!r}, workers=1, validation_fraction=0.2)
    config.tokenizer.vocab_size = 120
    config.model.update(size="tiny", layers=1, hidden=64, heads=2)
    config.update(steps=30, batch_size=16, sequence_length=32)
    config.optim.update(warmup_steps=5, learning_rate=5e-3)
    config.logging.update(every=5, trackers=())
    config.logging.samples = 0  # a program more to compile
    config.checkpoints.every = config.evals.validation.every = 10
    return config
'''


def config_file(folder: Path) -> Path:
    """The config of a small run on its own small corpus."""
    corpus = write(folder / "corpus")
    file = folder / "config.py"
    file.write_text(CONFIG.format(path=str(corpus)))
    return file


def configure(base: Path, **overrides: object) -> knobs.Config:
    """The resolved config of a file; keys use __ for the dots of a path."""
    return set_and_resolve(load_file(str(base)), overrides)


@contextlib.contextmanager
def one_device() -> Iterator[None]:
    """Runs in this process take one of the eight devices: all take twice as long, and often show
    nothing more.
    """
    mesh = updates.make_mesh(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sharding, "make_mesh", lambda *_: mesh)
        yield


@contextlib.contextmanager
def short_reports() -> Iterator[None]:
    """Trainings of this process end with an empty page: its figures take a third of a short run."""

    def write_report(workdir: Path, *_: object) -> Path:
        path = workdir / "report.html"
        path.write_text("<!doctype html>\n")
        return path

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "run_report", types.SimpleNamespace(write_report=write_report))
        yield


def as_a_user() -> dict[str, str]:
    """The variables of this process without those that tests set or read (see conftest.py)."""
    foreign = ("XLA_FLAGS", "JAX_", "OMP_", "PYTEST_", "BERT_JAX_EXAMPLES", "BERT_JAX_GPU")
    return {name: value for name, value in os.environ.items() if not name.startswith(foreign)}


def start(*words: object, devices: int = 1, fault: str = "", **variables: str) -> subprocess.Popen:
    """`bert-jax WORDS` as a process of its own, with a fault as tests/fault_points.py has them."""
    flags = f"--xla_force_host_platform_device_count={devices} {FEWER_PARTS}"
    environment = {**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": str(ROOT), **variables}
    program = ["tests.fault_points", fault] if fault else ["bert_jax.cli"]
    command = [sys.executable, "-m", *program, *map(str, words)]
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(
    *words: object, stdin: str = "", timeout: float = 300, **settings: object
) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of `bert-jax WORDS`."""
    process = start(*words, **settings)  # type: ignore[arg-type]  # devices or environment variables
    out, err = process.communicate(stdin, timeout=timeout)
    return process.returncode, out, err


def run_python(source: str, *words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the text of a program in a process of its own, at the root of the checkout."""
    command = [sys.executable, "-c", textwrap.dedent(source), *map(str, words)]
    settings = {"env": os.environ | variables, "cwd": ROOT, "timeout": 300}
    return subprocess.run(command, capture_output=True, text=True, check=False, **settings)
