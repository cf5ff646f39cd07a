"""Records of finished cells: the same report from one small file, and nothing trained again."""

from __future__ import annotations

import dataclasses
import json
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

from bert_jax import cli
from bert_jax import config as configs
from bert_jax.errors import ConfigError, DataError
from bert_jax.studies import actions, definition, files, kept
from bert_jax.studies.definition import Budget, Comparison, Suite
from bert_jax.studies.folder import StudyFolder
from bert_jax.studies.identity import trained_knobs
from bert_jax.studies.report import build
from tests import corpora, study_workdir
from tests.study_workdir import masking_rate

ROOT = Path(__file__).resolve().parents[1]
EXPERIMENTS = ROOT / "experiments"
STUDY = """
from tests.test_kept import study


def get_study(_=""):
    return study()
"""


def study(**changes):
    settings = {"rates": (0.15, 0.4), "seeds": (0, 1), "budget": Budget("tokens", (1e6, 2e6))}
    settings |= {"comparisons": (Comparison("masking.rate", "15 %", ("validation/mlm_loss",)),)}
    settings |= {
        "evaluations": {"validation": Suite("pretrain"), "cross_rate": Suite("cross_rate")}
    }
    return masking_rate(**{**settings, **changes})


@pytest.fixture
def place(tmp_path) -> StudyFolder:
    return study_workdir.build(tmp_path / "w", study(), name="x", examples=50, lines=6)


def folder_of(tmp_path: Path, *archives: tuple[str, StudyFolder]) -> Path:
    """Write a study's folder with records of some workdirs."""
    folder = tmp_path / "x"
    folder.mkdir()
    (folder / "study.py").write_text(STUDY)
    for name, place in archives:
        kept.write(place, folder / kept.FOLDER / f"{name}.zip")
    return folder


@pytest.mark.slow
def test_the_report_of_records_is_that_of_the_cells(place, tmp_path):
    build.write(place)
    folder = folder_of(tmp_path, ("all", place))
    actions.report(folder)
    for file in ("results.csv", "summary.md"):
        assert (folder / file).read_text() == (place.workdir / file).read_text()
    drawn = {path.name for path in place.figures.glob("*.png")}
    assert {path.name for path in folder.glob("*.png")} == drawn
    held = sum(path.stat().st_size for path in place.workdir.glob("cells/**/*") if path.is_file())
    assert (folder / kept.FOLDER / "all.zip").stat().st_size < held


@pytest.mark.slow
def test_parts_make_one_study(place, tmp_path):
    """Each size is a study of its own; together they are the study of both."""
    build.write(place)
    parts = []
    for size, knobs in study_workdir.SIZES.items():
        part = study(sizes={size: knobs})
        name = f"part{len(parts)}"
        one = study_workdir.build(tmp_path / name, part, examples=50, lines=6)
        spec = f"experiments/x:cpu,{size}"
        files.write(
            one.study, one.read_study() | {"spec": spec, "command": ["b", "study", "run", spec]}
        )
        parts.append((name, one))
    folder = folder_of(tmp_path, *parts)
    actions.report(folder)
    assert "- 16 of 16 cells of the parts part0, part1 done" in (folder / "summary.md").read_text()
    assert "`bert-jax study run experiments/x:cpu --workdir=" in (folder / "summary.md").read_text()
    whole = sorted((place.workdir / "results.csv").read_text().splitlines())
    assert sorted((folder / "results.csv").read_text().splitlines()) == whole


def test_a_run_takes_them_as_finished(place, tmp_path, capsys):
    folder = folder_of(tmp_path, ("all", place))
    actions.run(str(folder), tmp_path / "run", dry_run=True)
    out = capsys.readouterr().out
    assert "16 trained cells are taken from" in out
    assert "0 groups to do" in out
    actions.run(str(folder), tmp_path / "run")
    again = StudyFolder(tmp_path / "run")
    assert {state.name for state in again.states().values()} == {"done"}
    assert not list(again.workdir.glob("logs/*"))
    shutil.move(folder / "records", tmp_path / "elsewhere")
    named = [tmp_path / "elsewhere" / "all.zip"]
    actions.run(str(folder), tmp_path / "named", reuse=named, dry_run=True)
    assert "16 trained cells are taken from" in capsys.readouterr().out


def test_cells_that_lack_a_result_are_not_taken(place, tmp_path, capsys):
    """There is no checkpoint to make it from."""
    folder = folder_of(tmp_path, ("all", place))
    more = STUDY.replace("study()\n", "study(evaluations={**study().evaluations, 'b': B})\n")
    more = f"from bert_jax.studies.definition import Suite\n{more}\nB = Suite('nelbo')\n"
    (folder / "study.py").write_text(more)
    actions.run(str(folder), tmp_path / "run", dry_run=True)
    assert "trained cells are taken" not in capsys.readouterr().out


def test_a_taken_cell_cannot_be_evaluated_anew(place, tmp_path, capsys):
    folder, run = folder_of(tmp_path, ("all", place)), tmp_path / "run"
    actions.run(str(folder), run)
    more = STUDY.replace("study()\n", "study(evaluations={**study().evaluations, 'b': B})\n")
    (folder / "study.py").write_text(
        f"from bert_jax.studies.definition import Suite\n{more}\nB = Suite('nelbo')\n"
    )
    capsys.readouterr()
    assert cli.execute(["study", "run", str(folder), f"--workdir={run}"]) == ConfigError.code
    error, hint = capsys.readouterr().err.splitlines()[-2:]
    assert "was taken from records, which have neither b nor a checkpoint" in error
    assert "another --workdir" in hint
    assert {state.name for state in StudyFolder(run).states().values()} == {"done"}


def test_records_of_different_texts_are_refused(place, tmp_path):
    """Their cells are compared with each other: under one name they must have read one text."""
    cells = [place.cell(cell.id) for cell in place.cells()]
    for cell in cells:
        said = files.read(cell / "environment.json") or {}
        files.write(cell / "environment.json", said | {"corpus": "1" * 64, "tokenizer": "2" * 64})
    folder = folder_of(tmp_path, ("all", place))
    actions.report(folder)
    said = files.read(cells[3] / "environment.json") or {}
    files.write(cells[3] / "environment.json", said | {"corpus": "0" * 64})
    kept.write(place, folder / kept.FOLDER / "all.zip")
    with pytest.raises(ConfigError, match="were trained on different data"):
        actions.report(folder)
    with pytest.raises(ConfigError, match="were trained on different data"):
        actions.run(str(folder), tmp_path / "run")


@pytest.mark.parametrize(
    "archive",
    sorted(EXPERIMENTS.glob("**/records/*.zip")),
    ids=lambda path: "/".join(path.relative_to(EXPERIMENTS).parts),
)
def test_committed_records_keep_their_names(archive):
    """Runs from before masking.rounding was a knob say nearest, and are named as they were.

    If nothing is masked, the knob does not count.
    """
    with zipfile.ZipFile(archive) as records:
        cells = [name for name in records.namelist() if name.endswith("/cell.json")]
        assert cells
        for name in cells:
            saved = json.loads(records.read(name))["config"]
            config = configs.recorded(saved)
            masked = "causal_lm" not in config.objectives
            assert config.masking.rounding == ("nearest" if masked else "unbiased")
            assert definition.identity(config) == name.partition("/")[0]
            there = dataclasses.replace(config.masking, rounding="unbiased")
            other = dataclasses.replace(config, masking=there)
            assert (definition.identity(other) != definition.identity(config)) == masked


def wsd_study():
    base = study_workdir.base()
    base.optim.schedule = "wsd"
    return study(base=base, trunk=True)


def test_a_plan_says_that_records_have_no_trunk_to_go_on_from(tmp_path, capsys):
    made = study_workdir.build(tmp_path / "w", wsd_study(), name="x", examples=5, lines=2)
    short = [cell.id for cell in made.cells() if not cell.trunk]
    shared = sum(cell.fork for cell in made.cells())
    files.write(made.study, (made.read_study() or {}) | {"cells": short})
    folder = folder_of(tmp_path, ("short", made))
    (folder / "study.py").write_text(
        STUDY.replace("study()\n", "wsd_study()\n").replace("import study", "import wsd_study")
    )
    actions.run(str(folder), tmp_path / "run", dry_run=True)
    said = f"8 cells are trained from their first update, {shared:,} more than the plan counts"
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        ("tiny", {"objectives.causal_lm.weight": 1, "model.causal": True, "checkpoints.best": ""}),
        ("finetune", {"task.source": "files:x", "init_from": "y"}),
    ],
)
def test_rounding_is_no_matter_where_nothing_is_masked(file, changes):
    """Runs of before the knob go on under their names, also in a study of masked runs."""
    tree = configs.load_file(str(ROOT / "configs" / f"{file}.py"))
    configs.assign(tree, changes)
    config = configs.settle(tree)[0]
    saved = configs.to_dict(config)
    del saved["masking"]["rounding"]
    assert configs.recorded(saved) == config
    configs.assign(tree, {"masking.rounding": "nearest"})
    assert configs.settle(tree)[0] == config
    assert "masking.rounding" not in trained_knobs(config)
    assert "masking.rounding" in trained_knobs(corpora.config())


def test_only_finished_cells_are_kept(tmp_path):
    half = study_workdir.build(
        tmp_path / "w", study(), lambda cell: "done" if cell.seed == 0 else "halfway", "x", 50, 6
    )
    assert kept.write(half, tmp_path / "half.zip") == 8
    none = study_workdir.build(tmp_path / "n", study(), lambda cell: "halfway", "x", 50, 6)
    with pytest.raises(ConfigError, match="no finished cell"):
        kept.write(none, tmp_path / "none.zip")


def test_the_same_records_are_the_same_bytes(place, tmp_path):
    for name in ("a", "b"):
        kept.write(place, tmp_path / f"{name}.zip")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_the_command_keeps_them(place, tmp_path, capsys):
    words = ["study", "report", f"--workdir={place.workdir}", f"--keep={tmp_path / 'r' / 'x.zip'}"]
    assert cli.execute(words) == 0
    assert "16 finished cells are kept in" in capsys.readouterr().err
    assert zipfile.is_zipfile(tmp_path / "r" / "x.zip")


def test_parts_that_were_not_judged_alike_are_refused(place, tmp_path):
    other = study_workdir.build(tmp_path / "o", study(), name="x", examples=50, lines=6)
    changed = {"budget": {"kind": "tokens", "amount": [1]}}
    files.write(other.study, other.read_study() | changed)
    folder = folder_of(tmp_path, ("a", place), ("b", other))
    with pytest.raises(DataError, match=r"b\.zip has other budget than .*a\.zip"):
        actions.report(folder)


def test_of_a_cell_in_two_files_the_first_counts(place, tmp_path):
    (cell, *_) = place.cells()
    kept.write(place, tmp_path / "a.zip")
    trained = place.cell(cell.id) / "trained.json"
    first = trained.read_text()
    trained.write_text(first.replace('"outcome": "done"', '"outcome": "failed"') + " ")
    assert trained.read_text() != first
    kept.write(place, tmp_path / "b.zip")
    both = StudyFolder(tmp_path / "both")
    kept.unpack([tmp_path / "a.zip", tmp_path / "b.zip"], both)
    assert (both.cell(cell.id) / "trained.json").read_text() == first


def test_unpack_names_the_texts_of_all_parts(place, tmp_path):
    for name, texts in (("a", ["books", "wiki"]), ("b", ["web", "wiki"])):
        files.write(place.study, place.read_study() | {"texts": texts})
        kept.write(place, tmp_path / f"{name}.zip")
    both = StudyFolder(tmp_path / "both")
    kept.unpack([tmp_path / "a.zip", tmp_path / "b.zip"], both)
    assert both.read_study()["texts"] == ["books", "wiki", "web"]


def test_what_is_made_of_records_cannot_be_kept(place, tmp_path, capsys):
    folder = folder_of(tmp_path, ("all", place))
    output = tmp_path / "again.zip"
    assert cli.execute(["study", "report", f"--workdir={folder}", f"--keep={output}"]) == 2
    assert "is made of records; --keep" in capsys.readouterr().err
    assert not output.exists()


def test_damaged_records_are_one_line(place, tmp_path, capsys):
    folder = folder_of(tmp_path, ("all", place))
    file = folder / kept.FOLDER / "all.zip"
    file.write_bytes(file.read_bytes()[:-100])
    words = ["study", "run", str(folder), f"--workdir={tmp_path / 'run'}", "--dry-run"]
    assert cli.execute(words) == DataError.code
    error, hint = capsys.readouterr().err.splitlines()[-2:]
    assert error.startswith(f"error: {file}")
    assert hint.startswith("hint: ")


def extract(file: Path, cell: str, target: Path) -> None:
    with kept.opened(file) as archive:
        kept.extract(archive, cell, target)


def test_no_flipped_bit_is_taken_for_a_record(place, tmp_path):
    """Each is noticed, or stands where nothing is read, as in the date of a part."""
    file, cell = tmp_path / "x.zip", place.cells()[0].id
    kept.write(place, file)
    whole = file.read_bytes()
    extract(file, cell, tmp_path / "right")
    right = {p.name: p.read_bytes() for p in (tmp_path / "right").rglob("*") if p.is_file()}
    noticed, rng = 0, np.random.default_rng(0)
    for number in range(150):
        data = bytearray(whole)
        data[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
        file.write_bytes(data)
        out = tmp_path / f"out{number}"
        try:
            extract(file, cell, out)
        except DataError:
            noticed += 1
            continue
        found = {p.name: p.read_bytes() for p in out.rglob("*") if p.is_file()}
        assert found.items() <= right.items()
    assert noticed > 100
    for data in (b"", b"text", whole[: len(whole) // 2]):
        file.write_bytes(data)
        with pytest.raises(DataError, match="holds no records"):
            extract(file, cell, tmp_path / "none")


def test_names_that_leave_the_folder_are_refused(place, tmp_path):
    file = tmp_path / "evil.zip"
    kept.write(place, file)
    cell = place.cells()[0].id
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr(f"{cell}/../../evil", b"")
    with pytest.raises(DataError, match="no record of a cell"):
        extract(file, cell, tmp_path / "out")
    assert not (tmp_path / "evil").exists()


def test_an_empty_folder_of_records_is_none(place):
    (place.workdir / kept.FOLDER).mkdir()
    assert kept.beside(place.workdir) == []
