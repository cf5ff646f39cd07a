"""Commands print what their transcripts say; `pytest --update-golden` writes the transcripts."""

import contextlib
import difflib
import shutil
import sys
from pathlib import Path

import pytest

from tests import texts
from tests.net import console
from tests.net.train_rows import write_folder

FOLDER = Path(__file__).parent / "transcripts"
TINY = """
import runpy


def get_config():
    config = runpy.run_path("base.py")["get_config"]()
    config.steps = 4
    config.optim.warmup_steps = 1
    config.logging.every = config.checkpoints.every = config.evals.validation.every = 2
    return config
"""
ON_ALL_DEVICES = ("plan", "plan_slow", "train_config")  # what they print tells their number
FIRST = "first"  # the transcript whose folder all others begin with
NAMES = [
    pytest.param(path.stem, marks=pytest.mark.slow if path.stem.endswith("_slow") else ())
    for path in sorted(FOLDER.glob("*.txt"))
    if path.stem != FIRST
]


def play(name: str, folder: Path, update: bool) -> None:
    """Play a transcript in a folder, and compare it with the file or write the file."""
    path = FOLDER / f"{name}.txt"
    frozen = path.read_text()
    found = console.play(frozen, folder)
    if update:
        path.write_text(found)
        return
    old, new = console.collapse(frozen), console.collapse(found)
    changes = list(difflib.unified_diff(old, new, f"{name}.txt", "printed now", n=2, lineterm=""))
    if changes:
        pytest.fail("\n".join(changes), pytrace=False)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """Write inputs, and train a run of four updates that is saved at 2 and 4."""
    folder = tmp_path_factory.mktemp("transcripts") / "first"
    write_folder(folder)
    (folder / "tiny.py").write_text(TINY)
    with texts.one_device():
        play(FIRST, folder, request.config.getoption("--update-golden"))
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_commands_print_what_their_transcript_says(name, prepared, tmp_path, request, monkeypatch):
    if name == "import":  # as if the extra were not installed; tensorflow_datasets looks for it too
        monkeypatch.setitem(sys.modules, "tensorflow", None)
    folder = shutil.copytree(prepared, tmp_path / "copy", symlinks=True)
    with contextlib.nullcontext() if name in ON_ALL_DEVICES else texts.one_device():
        play(name, folder, request.config.getoption("--update-golden"))
