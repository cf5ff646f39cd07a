"""The studies of experiments/: each expands at both scales, into the cells its page promises."""

import argparse
import csv
import functools
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from bert_jax import cli
from bert_jax.config import override, resolve
from bert_jax.errors import DataError
from bert_jax.recipes import finetuning
from bert_jax.studies import definition, reuse
from bert_jax.studies.folder import StudyFolder
from bert_jax.studies.published import TABLES as PUBLISHED
from bert_jax.studies.report import answers, build
from bert_jax.studies.report.intervals import summarize_values
from tests import EXAMPLES
from tests.marks import mark_slow

FOLDER = Path(__file__).resolve().parents[1] / "experiments"
CELLS = {  # of each study, at cpu and at full scale
    "masking_rate": (9 * 2 * 3, 9 * 3 * 3),
    "corruption_split": (6 * 3, 6 * 3),
    "corruption_vs_prediction": (6 * 3, 10 * 3),
    "next_sentence": (5 * 3, 5 * 3),
    "static_vs_dynamic": (4 * 3, 4 * 3),
    "masking_unit": (4 * 3, 4 * 3),
    "schedule": (4 * 3, 4 * 3),
    "precision": (2 * 3, 2 * 3),
    "masking_laws": (11 * 3, 11 * 3),
    "best_rate": ((6 + 6 + 3) * 4 * 3, 3 * 6 * 4 * 3),
    "pretrain_mini": (2 * 6, 2 * 5),
}
ALONE = {"pretrain_mini"}  # of one seed
SUMMARIES = [*CELLS, "best_rate/learning_rate", "pretrain_mini/learning_rate"]
PAGES = {"masking_laws", "pretrain_mini", "best_rate"}  # of much and little, with records


def study(name: str, scale: str = "cpu") -> definition.Study:
    found, made = definition.load_study(f"{FOLDER / name}:{scale}")
    assert found == name
    return made


@functools.cache
def expand(name: str, scale: str = "cpu") -> list[definition.Cell]:
    return definition.expand(study(name, scale))


def test_every_study_is_counted_here():
    assert {path.parent.name for path in FOLDER.glob("*/study.py")} == set(CELLS)


@pytest.mark.parametrize("name", CELLS)
def test_study_has_the_cells_of_its_page(name):
    """Cells of one budget read the same number of tokens, and are evaluated on the same masks."""
    page = (FOLDER / name / "README.md").read_text()
    assert re.search(rf"\b{CELLS[name][0]}\s+cells", page)
    for scale, count in zip(("cpu", "full"), CELLS[name], strict=True):
        spec = name if scale == "cpu" else f"{name}:{scale}"
        assert f"bert-jax study run experiments/{spec} --workdir=" in page
        made, cells = study(name, scale), expand(name, scale)
        assert len(cells) == count
        assert {cell.seed for cell in cells} == ({0} if name in ALONE else {0, 1, 2})
        assert {cell.config.evals["validation"].rate for cell in cells} == {0.15}
        assert {cell.config.checkpoints.best for cell in cells} == {""}  # the last step of each
        assert set(made.published) <= set(PUBLISHED)
        read: dict[str, set[int]] = {}
        for cell in cells:
            update = cell.config.batch_size * cell.config.sequence_length
            read.setdefault(cell.labels.get("budget", ""), set()).add(cell.config.steps * update)
        assert all(len(numbers) == 1 for numbers in read.values())
        assert len(set.union(*read.values())) == len(read)
        for evaluation in made.evaluations.values():  # recipes whose knobs hold together
            if isinstance(evaluation, definition.Finetune):
                resolve(finetuning(evaluation.task, changes=dict(evaluation.changes)))


def copy_tables(name: str, folder: Path) -> None:
    """Copy the tables of a committed study."""
    for file in ("study.json", "results.csv", "curves.csv", "examples.npz"):
        if (FOLDER / name / file).exists():
            shutil.copy(FOLDER / name / file, folder / file)


@pytest.mark.parametrize("name", mark_slow(SUMMARIES, {*SUMMARIES} - {"best_rate"}))
def test_summary_follows_from_the_tables(name, tmp_path, monkeypatch, check_frozen):
    """Byte for byte in a checkout, and the words and numbers of PAGES, where "**" begins bold type.

    The page and figures of the others are drawn by `make test-all` alone, as that takes longer.
    """
    if name not in PAGES and not EXAMPLES:
        monkeypatch.setattr(build, "render_html", lambda blocks: "")
        monkeypatch.setattr(build.figure_files, "write_figures", lambda *_, **__: [])
    study = tmp_path / "experiments" / name
    for folder in (study, tmp_path / "bert_jax", tmp_path / "docs"):
        folder.mkdir(parents=True)
    (tmp_path / answers.METHODS).touch()
    copy_tables(name, study)
    for picture in (FOLDER / name).glob("*.png"):  # the summary links to those that are there
        (study / picture.name).touch()
    build.write_report(StudyFolder(study))
    for file in ("summary.md", "results.csv", "differences.csv"):
        assert (study / file).read_bytes() == (FOLDER / name / file).read_bytes()
    if name in PAGES:
        page = (study / "report.html").read_text().replace("<b>", "<b>**")
        page = page.replace(f' href="../../{answers.METHODS}"', "")
        check_frozen(re.sub(r" data-readings=(['\"]).*?\1", "", page), name)


def test_readme_names_studies_with_finished_cells(tmp_path):
    """Their tables have the cells that the study has now, with the same names."""
    known = set()
    for name in CELLS:
        cells = expand(name)
        recorded = {cell.id: cell for cell in StudyFolder(FOLDER / name).read_cells()}
        for cell in cells:
            then = recorded[cell.id]
            assert (then.labels, then.seed, then.trunk) == (cell.labels, cell.seed, cell.trunk)
        finished = reuse.find_finished(StudyFolder(tmp_path), cells, [], FOLDER / name)
        assert len(finished) in (0, len(cells))
        if finished:
            known.add(name)
    page = " ".join((FOLDER / "README.md").read_text().split())
    said = page.partition("The studies with such tables are ")[2]
    assert known == set(re.findall(r"\w+", said.partition(".")[0])) - {"and"}


def test_figures_beside_a_table_are_drawn_from_it(tmp_path):
    """Those that lie there, and that of the answer."""
    copy_tables("schedule", tmp_path)
    (tmp_path / "cross_rate.png").touch()
    build.write_report(StudyFolder(tmp_path))
    beside = sorted(path.name for path in tmp_path.glob("*.png"))
    assert beside == ["cross_rate.png", "schedule_validation_mlm_loss.png"]
    for name in beside:
        assert b"schedule: 12 of 12 cells done" in (tmp_path / name).read_bytes()


def test_study_without_its_text_is_refused_or_reported(tmp_path, monkeypatch, capsys):
    """It names a scale that runs here; cells that are finished need no text."""
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    shutil.copytree(FOLDER, checkout / "experiments", ignore=shutil.ignore_patterns("*.png"))
    (checkout / "configs").symlink_to(FOLDER.parent / "configs")
    monkeypatch.chdir(checkout)
    for module in [name for name in sys.modules if name.partition(".")[0] == "experiments"]:
        monkeypatch.delitem(sys.modules, module)  # those of this checkout

    command = ["study", "run", "experiments/masking_rate", "--workdir=w", "--dry-run"]
    assert cli.execute(command) == DataError.code
    error, hint = capsys.readouterr().err.splitlines()
    assert "'../shared/data/pretrain_text/*.gz' does not exist" in error
    named = hint.removeprefix("hint: ").split()[0]
    assert cli.execute([*command[:2], named, *command[3:]]) == 0
    out = capsys.readouterr().out
    assert "\ntext: docstrings\n" in out
    assert f"study masking_rate: {CELLS['masking_rate'][0]} cells" in out

    command[2] = "experiments/pretrain_mini"
    assert cli.execute(command) == 0
    out = capsys.readouterr().out
    assert "12 finished cells are taken from" in out
    assert "0 groups to do" in out


def pair_laws() -> np.ndarray:
    """Return the t interval [laws, 2] of each law's bound minus that of a constant 40 %."""
    with (FOLDER / "masking_laws" / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    bounds = {(row["law"], row["seed"]): float(row["bound/nats_per_token"]) for row in rows}
    laws = {row["law"] for row in rows}
    gaps = [[bounds[law, seed] - bounds["40 %", seed] for seed in "012"] for law in laws]
    return np.array([summarize_values(gap)[-2:] for gap in gaps])


@pytest.mark.parametrize(
    "name",
    [
        *("corruption_split", "corruption_vs_prediction", "masking_rate", "masking_unit"),
        *("masking_laws", "next_sentence", "precision", "schedule", "static_vs_dynamic"),
    ],
)
def test_intervals_of_a_readme_are_in_its_report(name):
    """Each "(a to b)", whichever way round, as rounded there, or in its differences.csv."""
    number = r"([-+]?\d+(?:\.\d+)?)"
    summary = (FOLDER / name / "summary.md").read_text().replace("\N{MINUS SIGN}", "-")
    summary = summary.replace(" nats", "").replace("\N{NO-BREAK SPACE}%", "")
    known = re.findall(f"{number} to {number}", summary)
    with (FOLDER / name / "differences.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["low"]]
    ends = np.array([(row["low"], row["high"]) for row in rows], float)
    pairs = pair_laws() if name == "masking_laws" else ends[:0]
    known = np.concatenate([np.array(known, float), ends, 100 * ends, pairs])  # shares in per cent
    known = np.concatenate([known, -known[:, ::-1]])
    readme = (FOLDER / name / "README.md").read_text()
    quoted = re.findall(rf"[(,]\s?{number}\s+to\s+{number}\)", readme)
    assert quoted
    for low, high in quoted:
        near = 0.51 * 10.0 ** -len(low.partition(".")[2])
        gaps = np.abs(known - [float(low), float(high)])
        assert (gaps <= near).all(-1).any(), (low, high)


def test_command_of_the_comparison_sets_its_recipe(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER / "finetune"))
    import compare

    folder = Path("nowhere")
    for task, recipe in compare.RECIPES.items():
        _, *flags = compare.command(argparse.Namespace(data=folder, workdir=folder), task, 0)
        tree = finetuning(compare.NAMES.get(task, task))
        for flag in flags:
            override(tree, *flag.removeprefix("--config.").split("=", 1))
        if recipe.kind == "tag":
            assert tree.objectives.tag.labels == recipe.labels
        assert tree.optim.learning_rate == recipe.rate
