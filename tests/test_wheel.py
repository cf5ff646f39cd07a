"""Configs and studies are found by name from any folder, in a checkout and in a wheel."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from bert_jax import cli
from bert_jax.config import load_file, shipped
from bert_jax.errors import ConfigError

ROOT = Path(__file__).resolve().parents[1]
MINE = "def get_config():\n    return {'steps': 3}\n"


@pytest.fixture
def empty(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def texts_of(file: Path) -> list[str]:
    """The strings of a source, those within f-strings too."""
    nodes = ast.walk(ast.parse(file.read_text()))
    return [n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)]


def printed(text: str) -> tuple[set[str], set[str]]:
    """The configs and the studies that a text names as a user would on the command line."""
    configs = re.findall(r"configs/[\w/]+\.py(?::[a-z]\w*)?|(?<=--config=)[a-z]\w*(?![\w/.])", text)
    studies = re.findall(r"(?<!=)experiments/\w+(?=[\s:,]|$)", text)
    return set(configs), set(studies)


HINTS = "\n".join(
    text for file in sorted((ROOT / "bert_jax").rglob("*.py")) for text in texts_of(file)
)


# --- names ----------------------------------------------------------------------------------------


def test_every_config_is_found_by_path_and_by_name(empty):
    files = sorted((ROOT / "configs").glob("*.py"))
    assert len(files) > 8
    for file in files:
        path = str(file.relative_to(ROOT))
        assert [shipped.find_config(name) for name in (path, file.stem)] == [file, file]


def test_every_study_is_found_by_path_and_by_name(empty):
    files = sorted((ROOT / "experiments").glob("*/study.py"))
    assert len(files) > 8
    for file in files:
        path = f"experiments/{file.parent.name}"
        for name in (path, f"{path}/", f"{path}/study.py", file.parent.name):
            assert shipped.find_study(name) == file


def test_printed_names_are_found_anywhere(empty):
    configs, studies = printed(HINTS)
    assert {"configs/tiny.py", "configs/pretrain.py:base", "configs/finetune.py:stsb"} <= configs
    assert "experiments/masking_rate" in studies
    for name in configs:
        assert shipped.find_config(name.partition(":")[0]).is_file()
    for name in studies:
        assert shipped.find_study(name.partition(":")[0]).is_file()


def test_what_is_here_comes_before_what_is_shipped(empty):
    (empty / "configs").mkdir()
    for name in ("configs/tiny.py", "tiny"):
        (empty / name).write_text(MINE)
        assert shipped.find_config(name) == Path(name)
    study = empty / "masking_rate"
    study.mkdir()
    (study / "study.py").write_text("")
    assert shipped.find_study("masking_rate") == Path("masking_rate/study.py")


def test_a_folder_hides_neither_config_nor_study(empty):
    """Such as a workdir of that name."""
    for name in ("tiny", "masking_rate"):
        (empty / name).mkdir()
    assert shipped.find_config("tiny") == ROOT / "configs/tiny.py"
    assert shipped.find_study("masking_rate") == ROOT / "experiments/masking_rate/study.py"


@pytest.mark.parametrize(
    ("find", "name", "meant"),
    [
        (shipped.find_config, "tinny", "'tiny'"),
        (shipped.find_config, "tiny.py", "'tiny'"),
        (shipped.find_config, "config/tiny.py", "'configs/tiny.py'"),
        (shipped.find_config, "./configs/tiny.py", "'configs/tiny.py'"),
        (shipped.find_study, "masking_rat", "'masking_rate'"),
        (shipped.find_study, "experiments/masking_rates", "'experiments/masking_rate'"),
    ],
)
def test_misspelt_name_is_refused_with_the_nearest(find, name, meant, empty):
    with pytest.raises(ConfigError) as caught:
        find(name)
    assert repr(name) in str(caught.value)
    assert caught.value.hint.startswith(f"did you mean {meant}?")


def test_which_file_a_name_means_is_said(empty, capfd):
    assert cli.execute(["train", "--config=tiny", "--dry-run", "--workdir=w"]) == 0
    assert f"tiny: {ROOT / 'configs/tiny.py'}\n" in capfd.readouterr().err


def test_a_file_beside_another_is_no_name(empty):
    """A study that asks for its neighbour never gets another config."""
    with pytest.raises(ConfigError, match="tiny does not exist"):
        load_file("tiny", beside=str(empty / "study.py"))


def test_sweep_of_a_name_goes_on_from_its_file(empty, capsys):
    command = "study sweep --config=tiny --axis masking.rate=0.1,0.2 --workdir=w --dry-run"
    assert cli.execute(command.split()) == 0
    assert "study w: 6 cells" in capsys.readouterr().out


# --- the wheel ------------------------------------------------------------------------------------


def build(folder: Path, target: str) -> set[str]:
    """Build a wheel, and list its files."""
    words = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        return set(wheel.namelist())


def test_a_wheel_holds_configs_and_studies(tmp_path):
    patterns = ["configs/*.py", "experiments/scales.py"]
    patterns += [f"experiments/*/{name}" for name in ("study.py", "study.json", "summary.md")]
    expected = {str(f.relative_to(ROOT)) for pattern in patterns for f in ROOT.glob(pattern)}
    found = build(tmp_path, "wheel")
    assert {f"bert_jax/_shipped/{name}" for name in expected} <= found
    assert not [name for name in found if name.endswith((".png", ".zip", ".gz"))]
    assert {name.partition("/")[0] for name in found if ".dist-info" not in name} == {"bert_jax"}


def test_an_editable_installation_copies_no_config(tmp_path):
    """A copy would be read in place of the file that its user edits."""
    assert [n for n in build(tmp_path, "wheel:editable") if ".dist-info/" not in n] == [
        "_bert_jax.pth"
    ]


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The folder of the commands of a fresh environment with a wheel, and this one's packages."""
    pytest.importorskip("ensurepip")
    folder = tmp_path_factory.mktemp("wheel")
    venv.create(folder / "env", with_pip=True)
    packages = sysconfig.get_path("purelib")
    bin_ = folder / "env" / "bin"

    def pip(*words: str) -> None:
        command = [str(bin_ / "python"), "-m", "pip", *words, "--no-deps", "--no-index", "--quiet"]
        env = os.environ | {"PYTHONPATH": packages if words[0] == "wheel" else ""}
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    pip("wheel", str(ROOT), "--no-build-isolation", "--wheel-dir", str(folder))
    pip("install", str(next(folder.glob("*.whl"))))
    site = next((folder / "env" / "lib").glob("python*/site-packages"))
    (site / "environment.pth").write_text(packages)
    return bin_


@pytest.mark.slow
def test_a_wheel_works_from_an_empty_folder(installed, empty):
    """Every name that help and hints print is found there, and it is the wheel's own."""
    home = str(installed.parent)
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*words: str) -> subprocess.CompletedProcess:
        command = [str(installed / "bert-jax"), *words]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)

    done = run("train", "--config=tiny", "--dry-run", "--workdir=w")
    assert (done.returncode, done.stderr.startswith(f"tiny: {home}")) == (0, True), done.stderr
    helps = [run(*command.split(), "--help").stdout for command in [*cli.COMMANDS, *PARTS]]
    configs, studies = printed("\n".join([*helps, HINTS]))
    assert {"configs/tiny.py", "configs/pretrain.py:base"} <= printed("\n".join(helps))[0]
    for name in configs:
        done = run("train", f"--config={name}", "--dry-run", "--workdir=w")
        file = name.partition(":")[0]
        assert f"{file}: {home}" in done.stderr
        needed = "name the model it starts from" if "finetune" in file else ""
        assert needed in done.stderr
        assert done.returncode == (2 if needed else 0), done.stderr
    for name in [*studies, "masking_rate"]:
        study = name.partition(":")[0]
        done = run("study", "run", f"{study}:docstrings", "--dry-run", "--workdir=w")
        assert (done.returncode, f"{study}: {home}" in done.stderr) == (0, True), done.stderr
        assert "study masking_rate: 54 cells" in done.stdout
    assert list(empty.iterdir()) == []


PARTS = ("study run", "study sweep", "predict fill-mask", "inspect attention")
