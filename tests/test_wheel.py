"""Configs and studies are found by name from any folder, in a checkout and in a wheel."""

import ast
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from bert_jax.config import load_file, shipped
from bert_jax.errors import ConfigError
from tests.texts import ROOT

CONFIG, STUDY = ROOT / "configs/tiny.py", ROOT / "experiments/masking_rate/study.py"


@pytest.fixture
def empty(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


# --- names ----------------------------------------------------------------------------------------


def test_shipped_files_are_found_by_path_and_name(empty):
    configs, studies = ROOT.glob("configs/*.py"), ROOT.glob("experiments/*/study.py")
    for file in configs:
        for name in (f"configs/{file.name}", file.stem):
            assert shipped.find_config(name) == file
    for file in studies:
        path = f"experiments/{file.parent.name}"
        for name in (path, f"{path}/", f"{path}/study.py", file.parent.name):
            assert shipped.find_study(name) == file


def test_names_that_hints_print_are_found(empty):
    """Every string of the package is read, those within f-strings too."""
    trees = (ast.parse(file.read_text()) for file in (ROOT / "bert_jax").rglob("*.py"))
    nodes = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant))
    text = "\n".join(node.value for node in nodes if isinstance(node.value, str))
    name = r"configs/[\w/]+\.py(?::[a-z]\w*)?|(?<=--config=)[a-z]\w*(?![\w/.])"
    configs = set(re.findall(name, text))
    studies = set(re.findall(r"(?<!=)experiments/\w+(?=[\s:,]|$)", text))
    assert {"configs/tiny.py", "configs/pretrain.py:base", "configs/finetune.py:stsb"} <= configs
    assert "experiments/masking_rate" in studies
    for name in configs:
        assert shipped.find_config(name.partition(":")[0]).is_file()
    for name in studies:
        assert shipped.find_study(name.partition(":")[0]).is_file()


def test_user_files_come_before_shipped_ones(empty):
    """A folder of that name, such as a workdir, hides neither config nor study."""
    for name in ("tiny", "masking_rate", "configs"):
        (empty / name).mkdir()
    assert shipped.find_config("tiny") == CONFIG
    assert shipped.find_study("masking_rate") == STUDY
    (empty / "tiny").rmdir()
    for name in ("configs/tiny.py", "tiny"):
        (empty / name).write_text("")
        assert shipped.find_config(name) == Path(name)
    (empty / "masking_rate" / "study.py").write_text("")
    assert shipped.find_study("masking_rate") == Path("masking_rate/study.py")
    with pytest.raises(ConfigError, match="pretrain does not exist"):  # a study's neighbour
        load_file("pretrain", beside=str(empty / "study.py"))


# --- the wheel ------------------------------------------------------------------------------------


def build(folder: Path, target: str) -> set[str]:
    """Build a wheel, and list its files."""
    words = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        return {name for name in wheel.namelist() if ".dist-info/" not in name}


def test_wheel_holds_configs_and_studies(tmp_path):
    patterns = ["configs/*.py", "experiments/scales.py"]
    patterns += [f"experiments/*/{name}" for name in ("study.py", "study.json", "summary.md")]
    expected = {str(f.relative_to(ROOT)) for pattern in patterns for f in ROOT.glob(pattern)}
    found = build(tmp_path, "wheel")
    assert {f"bert_jax/_shipped/{name}" for name in expected} <= found
    kinds = (".js", ".css", ".html", ".csv")
    assets = [file for file in (ROOT / "bert_jax").rglob("*.*") if file.suffix in kinds]
    assert {str(file.relative_to(ROOT)) for file in assets} <= found
    assert not [name for name in found if name.endswith((".png", ".zip", ".gz"))]
    assert {name.partition("/")[0] for name in found} == {"bert_jax"}


def test_editable_installation_copies_no_config(tmp_path):
    """A copy would be read in place of the file that its user edits."""
    assert build(tmp_path, "wheel:editable") == {"_bert_jax.pth"}


@pytest.mark.slow
def test_wheel_works_from_an_empty_folder(tmp_path, empty):
    """Unpacked, as pip does; the config and the study are the wheel's own."""
    build(tmp_path / "built", "wheel")
    with zipfile.ZipFile(next((tmp_path / "built").glob("*.whl"))) as wheel:
        wheel.extractall(tmp_path / "site")
    for name, words, said in (
        ("tiny", "train --config=tiny", '"masking": {'),
        ("masking_rate", "study run masking_rate:docstrings", "study masking_rate: 54 cells"),
    ):
        command = [sys.executable, "-m", "bert_jax.cli", *words.split(), "--dry-run", "--workdir=w"]
        env = os.environ | {"PYTHONPATH": str(tmp_path / "site")}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        assert f"{name}: {tmp_path / 'site'}" in done.stderr
        assert said in done.stdout
    assert not Path("w").exists()
