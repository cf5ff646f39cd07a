"""The studies of experiments/: each expands at both scales, into the cells its page promises."""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bert_jax import cli
from bert_jax.config import resolve
from bert_jax.errors import ConfigError, DataError
from bert_jax.recipes import finetuning
from bert_jax.studies import definition
from bert_jax.studies.folder import StudyFolder
from bert_jax.studies.identity import identity
from bert_jax.studies.report import build, collect
from bert_jax.studies.report.published import TABLES as PUBLISHED
from experiments.scales import get_scale

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
SWEPT = ("best_rate", "pretrain_mini")  # whose learning rates were tried beforehand


def study(name: str, scale: str = "cpu") -> definition.Study:
    found, made = definition.load(f"{FOLDER / name}:{scale}")
    assert found == name
    return made


def test_every_study_is_counted_here():
    assert {path.parent.name for path in FOLDER.glob("*/study.py")} == set(CELLS)


@pytest.mark.parametrize("scale", ["cpu", "docstrings", "full"])
@pytest.mark.parametrize("name", CELLS)
def test_a_study_expands(name, scale):
    made = study(name, scale)
    cells = definition.expand(made)
    assert len(cells) == CELLS[name][scale == "full"]
    assert {cell.seed for cell in cells} == ({0} if name in ALONE else {0, 1, 2})
    evaluated = {cell.config.evals["validation"].rate for cell in cells}
    assert evaluated == {0.15}  # whatever a cell is trained with
    assert {cell.config.checkpoints.best for cell in cells} == {""}  # the last step of each
    assert set(made.published) <= set(PUBLISHED)
    assert made.comparisons
    for evaluation in made.evaluations.values():  # recipes whose knobs hold together
        if isinstance(evaluation, definition.Finetune):
            resolve(finetuning(evaluation.task, changes=dict(evaluation.changes)))


@pytest.mark.parametrize("scale", ["cpu", "full"])
@pytest.mark.parametrize("name", CELLS)
def test_cells_of_one_budget_read_the_same_number_of_tokens(name, scale):
    read: dict[str, set[int]] = {}
    for cell in definition.expand(study(name, scale)):
        update = cell.config.batch_size * cell.config.sequence_length
        tokens = cell.config.steps * update
        budget = cell.labels.get("budget", "")
        read.setdefault(budget, set()).add(tokens)
        if budget:
            assert tokens == pytest.approx(float(budget.split()[0].replace(",", "")), abs=update)
    assert all(len(numbers) == 1 for numbers in read.values())
    assert len(set.union(*read.values())) == len(read)


@pytest.mark.parametrize("name", CELLS)
def test_a_page_says_the_question_the_command_and_how_many_cells(name):
    page = (FOLDER / name / "README.md").read_text()
    assert f"bert-jax study run experiments/{name} --workdir=" in page
    assert f"bert-jax study run experiments/{name}:full --workdir=" in page
    assert re.search(rf"\b{CELLS[name][0]}\s+cells", page)
    assert "## Result" in page


@pytest.mark.parametrize("name", [*CELLS, "finetune", "rates_of_others", "reliability"])
def test_a_page_opens_with_its_abstract(name):
    """Below the title a list of four lines, and no fifth."""
    title, blank, *lines = (FOLDER / name / "README.md").read_text().splitlines()
    assert title.startswith("# ")
    assert blank == ""
    found = [re.match(r"- \*\*(\w+):\*\* \S", line) for line in lines[:5]]
    assert [match and match[1] for match in found] == [
        *("Question", "Answer", "Evidence", "Limits"),
        None,
    ]


TABLES = ("study.json", "results.csv", "curves.csv", "examples.npz")


def copy_tables(name: str, folder: Path) -> None:
    """Copy the tables of a committed study."""
    for file in TABLES:
        if (FOLDER / name / file).exists():
            shutil.copy(FOLDER / name / file, folder / file)


@pytest.mark.parametrize("name", [*CELLS, *(f"{name}/learning_rate" for name in SWEPT)])
def test_summary_follows_from_the_tables(name, tmp_path):
    copy_tables(name, tmp_path)
    for picture in (FOLDER / name).glob("*.png"):  # the summary links to those that are there
        (tmp_path / picture.name).touch()
    build.write(StudyFolder(tmp_path))
    for file in ("summary.md", "results.csv", "differences.csv"):
        assert (tmp_path / file).read_bytes() == (FOLDER / name / file).read_bytes()


@pytest.mark.parametrize("name", CELLS)
def test_tables_have_the_cells_of_the_study(name):
    """With the configs that they have now: what is trained and how it is evaluated."""
    now = {cell.id: cell for cell in definition.expand(study(name))}
    for cell in StudyFolder(FOLDER / name).cells():
        if cell.id in now:
            assert identity(cell.config) == cell.id
            assert cell.labels == now[cell.id].labels
            assert (cell.seed, cell.trunk) == (now[cell.id].seed, now[cell.id].trunk)


def test_part_of_the_best_rates_has_cells_of_the_whole():
    made = study("best_rate")
    whole = definition.expand(made)
    for only, seeds in ((["size=4 x 192"], {0, 1, 2}), (["size=2 x 64", "seed=1"], {1})):
        size = only[0].partition("=")[2]
        part, cells = definition.select(made, whole, only)
        same = {c.id for c in whole if c.labels["size"] == size and c.seed in seeds}
        assert {cell.id for cell in cells} == same
        assert [point.label for point in part.axes[0].points] == [size]
        assert {*part.seeds} == seeds
    for wrong in ("size=2 x 65", "seed=7", "sizes=2 x 64", "size"):
        with pytest.raises(ConfigError):
            definition.select(made, whole, [wrong])


def best_peaks(name: str, axis: str, metric: str) -> dict[str, set[float]]:
    """Return the peaks with the lowest loss in a sweep of learning rates, by point of an axis."""
    runs: dict[tuple[str, str], list[tuple[float, float]]] = {}
    with (FOLDER / name / "learning_rate" / "results.csv").open() as file:
        for row in csv.DictReader(file):
            tried = float(row["optim.learning_rate.value"])
            if row[metric]:
                place = row[axis], row.get("masking.rate", "")
                runs.setdefault(place, []).append((float(row[metric]), tried))
    best: dict[str, set[float]] = {}
    for (point, _), losses in runs.items():
        assert len(losses) >= 3
        best.setdefault(point, set()).add(min(losses)[1])
    return best


def test_learning_rates_of_the_best_rates_are_the_best_of_those_tried():
    """At both masking rates, so that the peak favours neither."""
    best = best_peaks("best_rate", "size", "validation/mlm_loss")
    used: dict[str, set[float]] = {}
    for cell in definition.expand(study("best_rate")):
        used.setdefault(cell.labels["size"], set()).add(cell.config.optim.learning_rate)
    assert used == best
    swept = definition.expand(study("best_rate", "learning_rate"))
    assert {cell.config.optim.learning_rate for cell in swept} >= set.union(*best.values())


def test_the_peak_of_the_longer_training_is_the_best_of_those_tried_for_the_masked_model():
    cells = definition.expand(study("pretrain_mini"))
    assert {cell.config.optim.learning_rate for cell in cells} == best_peaks(
        "pretrain_mini", "model", "validation/mlm_loss"
    )["40 % masked"]


def test_figures_beside_a_table_are_drawn_from_it(tmp_path):
    copy_tables("masking_rate", tmp_path)
    for name in ("cross_rate_2x128.png", "masking.rate_pos_accuracy.png"):
        (tmp_path / name).touch()
    build.write(StudyFolder(tmp_path))
    beside = sorted(path.name for path in tmp_path.glob("*.png"))
    assert len(beside) == 3  # these two and the figure of the answer
    for name in beside:
        assert b"masking_rate: 54 of 54 cells done" in (tmp_path / name).read_bytes()


def test_a_few_cells_show_what_training_together_is_worth():
    made = study("masking_rate", "timing")
    cells = definition.expand(made)
    assert {cell.labels["masking.rate"] for cell in cells} == {"15 %", "40 %"}
    assert len(cells) == 6
    whole = {c.config.steps for c in definition.expand(study("masking_rate"))}
    assert {4 * cell.config.steps for cell in cells} == whole


def test_the_splits_can_be_crossed_with_rates_and_the_cells_there_are_stay_the_same():
    crossed = definition.expand(study("corruption_split", "cpu,0.15,0.4"))
    assert len(crossed) == 2 * CELLS["corruption_split"][0]
    assert {cell.labels["masking.rate"] for cell in crossed} == {"15 %", "40 %"}
    alone = {cell.id for cell in definition.expand(study("corruption_split"))}
    assert alone == {cell.id for cell in crossed if cell.labels["masking.rate"] == "15 %"}


def test_split_labels_have_the_order_of_the_axis_title():
    cells = definition.expand(study("corruption_split"))
    labels = tuple(dict.fromkeys(cell.labels["masking.replace"] for cell in cells))
    assert labels == ("80/10/10", "100/0/0", "80/0/20", "80/20/0", "0/20/80", "0/0/100")
    shown = collect.Axis("masking.replace", labels, labels).title
    order = re.search(r"\((.*), %\)", shown)[1].split("/")
    for cell in cells:
        said = dict(zip(order, map(float, cell.labels["masking.replace"].split("/")), strict=True))
        mask, random, same = cell.config.masking.replace
        kept = said.get("same", said.get("kept"))
        assert (said["[MASK]"], said["random"], kept) == (100 * mask, 100 * random, 100 * same)


@pytest.fixture
def outside(tmp_path, monkeypatch) -> Path:
    """A checkout without ../shared, as the working folder."""
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    shutil.copytree(FOLDER, checkout / "experiments", ignore=shutil.ignore_patterns("*.png"))
    (checkout / "configs").symlink_to(FOLDER.parent / "configs")
    monkeypatch.chdir(checkout)
    for name in [name for name in sys.modules if name.partition(".")[0] == "experiments"]:
        monkeypatch.delitem(sys.modules, name)  # those of this checkout
    return checkout


def test_study_whose_text_is_not_here_is_refused(outside, capsys):
    """It names the text, and a scale that runs; nothing is made of another text by its name."""
    command = ["study", "run", "experiments/masking_rate", "--workdir=w", "--dry-run"]
    assert cli.execute(command) == DataError.code
    error, hint = capsys.readouterr().err.splitlines()
    assert "'../shared/data/pretrain_text/*.gz' does not exist" in error
    named = hint.removeprefix("hint: ").split()[0]
    assert Path(hint.split()[-1]).is_file()
    assert cli.execute([*command[:2], named, *command[3:]]) == 0
    out = capsys.readouterr().out
    assert "\ntext: docstrings\n" in out
    assert f"study masking_rate: {CELLS['masking_rate'][0]} cells" in out


def test_records_are_read_and_reported_without_the_text(outside, capsys):
    command = ["study", "run", "experiments/best_rate", "--workdir=w", "--dry-run"]
    assert cli.execute(command) == 0
    out = capsys.readouterr().out
    assert "\ntext: files ../shared/data/pretrain_text/*.gz\n" in out
    assert "180 finished cells are taken from" in out
    assert "0 groups to do" in out
    folder = outside / "experiments" / "masking_laws"
    assert cli.execute(["study", "report", "--workdir=experiments/masking_laws"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "experiments/masking_laws/report.html"
    page = (folder / "report.html").read_text()
    assert "33 of 33 cells done" in page
    assert "../shared/data/pretrain_text/*.gz (3e4a678bb87c)" in page
    ignored = subprocess.run(
        ["git", "check-ignore", "experiments/masking_laws/report.html"], cwd=FOLDER.parent
    )
    assert ignored.returncode in (0, 128)  # 128: these files are no checkout of git


def test_a_study_has_one_size_alone_or_a_scale_that_is_there():
    assert len(definition.expand(study("masking_rate", "cpu,2 x 128"))) == 9 * 3
    assert len(definition.expand(study("masking_laws", "trial"))) == 11
    with pytest.raises(ConfigError, match="no scale 'gpu'"):
        study("schedule", "gpu")


def test_predictions_are_of_corrupted_tokens():
    for scale, rates in (("cpu", (0.2, 0.4, 0.8)), ("full", (0.1, 0.2, 0.4, 0.8))):
        cells = definition.expand(study("corruption_vs_prediction", scale))
        found = {(cell.config.masking.rate, cell.config.masking.prediction_rate) for cell in cells}
        assert found == {(m, p) for m in rates for p in rates if p <= m}


def test_arms_of_next_sentence_are_those_of_the_tables():
    arms = {c.labels["objective"]: c.config for c in definition.expand(study("next_sentence"))}
    assert {
        label: (c.pairs, {n: o.weight for n, o in c.objectives.items()})
        for label, c in arms.items()
    } == {
        "NSP": (
            "nsp",
            {
                "mlm": 1.0,
                "nsp": get_scale().nsp_weight,
            },
        ),
        "segment pairs, no loss": ("nsp", {"mlm": 1.0, "nsp": 0.0}),
        "full sentences": ("none", {"mlm": 1.0}),
        "SOP": (
            "sop",
            {
                "mlm": 1.0,
                "sop": get_scale().nsp_weight,
            },
        ),
        "left to right": ("none", {"causal_lm": 1.0}),
    }
    assert [label for label, c in arms.items() if c.model.causal] == ["left to right"]
    assert (
        not arms["left to right"].objectives["causal_lm"].end
    )  # a loss on what others may be asked for


def test_cells_are_called_as_when_they_were_run():
    """By what they train: a knob that came later, or another default, renames none. The text is
    part of the name.
    """
    for name in CELLS:
        with (FOLDER / name / "results.csv").open() as file:
            recorded = {row["cell"] for row in csv.DictReader(file)}
        assert {cell.id for cell in definition.expand(study(name))} <= recorded, name


def test_text_that_is_read_often_is_another_text(shared):
    once, often = (study(name).base.corpus.path for name in ("schedule", "static_vs_dynamic"))
    assert once != often
    assert (shared / "pretrain_text" / Path(often).name).is_file()


@pytest.mark.parametrize(
    "name",
    [
        *("corruption_split", "corruption_vs_prediction", "masking_rate", "masking_unit"),
        *("next_sentence", "precision", "schedule", "static_vs_dynamic"),
    ],
)
def test_intervals_of_a_readme_are_in_its_report(name):
    """Each "(a to b)", whichever way round, as rounded there, or in its differences.csv."""
    number = r"([-+]?\d+(?:\.\d+)?)"
    readme = (FOLDER / name / "README.md").read_text()
    summary = (FOLDER / name / "summary.md").read_text().replace("\N{MINUS SIGN}", "-")
    summary = summary.replace(" nats", "").replace("\N{NO-BREAK SPACE}%", "")
    known = [tuple(map(float, ends)) for ends in re.findall(f"{number} to {number}", summary)]
    with (FOLDER / name / "differences.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["low"]]
    ends = [(float(row["low"]), float(row["high"])) for row in rows]
    known += [*ends, *((100 * low, 100 * high) for low, high in ends)]  # shares in per cent
    known += [(-high, -low) for low, high in known]
    quoted = re.findall(rf"[(,]\s?{number}\s+to\s+{number}\)", readme)
    assert quoted
    for ends in quoted:
        decimals = len(ends[0].partition(".")[2])
        low, high = map(float, ends)
        near = 0.51 * 10.0**-decimals
        assert any(abs(low - a) <= near and abs(high - b) <= near for a, b in known), ends
