"""What a user or a file says is text on every page, whatever markup it looks like.

The page and the summary of a study are in tests/studies/test_document.py.
"""

import json
import re
import shutil
from functools import partial
from pathlib import Path

import pytest

from bert_jax import cli
from bert_jax.interop import runs
from bert_jax.reporting import page, run_record, run_report
from tests.pages import HOSTILE, Reader, keep_steps, write_run
from tests.texts import ROOT
from tests.views.making import FOLDER, make_page, read_data

NAME = "<img src=x onerror=alert(1)>&amp;\"'"  # of a folder
UNSEEN = "a\u202eb\t\n\x00\x1b[31m \udc80 👩\u200d👧é مرحبا"
SHOWN = "a⟨U+202E⟩b⇥↵⟨U+0000⟩⟨U+001B⟩[31m ⟨U+DC80⟩ 👩\u200d👧é مرحبا"


LINE = {"step": 1, f"train/{HOSTILE}": 1.0, f"eval/{HOSTILE}/accuracy": 0.5}
GUESS = [[{"token": HOSTILE, "probability": 0.5}]]
SAMPLE = {"step": 1, "text": f"a [MASK] {HOSTILE}", "predictions": GUESS, "answers": [HOSTILE]}
TAGGED = {"step": 1, "task": "tag", "counts": [[HOSTILE, HOSTILE, 1], [HOSTILE, "b", 1]]}
TAGGED |= {"entities": [[HOSTILE, 1, 1, 1]]}
WRONG = {"text": HOSTILE, "pair": HOSTILE, "truth": HOSTILE, "predicted": HOSTILE}
MISTAKES = {"mistakes": [WRONG, {"words": [[HOSTILE, HOSTILE, "b"]], "wrong": 1}]}
PRETRAINED = {"model": {"size": HOSTILE}, "corpus": {"source": HOSTILE}}


def make_run(recorded: dict, lines: list[dict], samples: list[dict], folder: Path) -> str:
    """Make the page of a run."""
    write_run(folder, recorded, lines, samples)
    facts = {HOSTILE: {HOSTILE: HOSTILE}, "x": HOSTILE}
    (folder / "environment.json").write_text(json.dumps(facts))
    return run_report.build_report(run_record.read_run(folder))


def make_comparison(folder: Path) -> str:
    """Make the page of a run and an evaluation."""
    run = write_run(folder / NAME, {"steps": HOSTILE}, [{"step": 1, f"train/{HOSTILE}": 1.0}])
    keep_steps(run, [(1, None)])
    scores = folder / f"b{NAME}.json"
    scores.write_text(json.dumps({HOSTILE: {HOSTILE: 0.5, "x": {HOSTILE: 1.5}}}))
    assert cli.execute(["report", str(run), str(scores), f"--output={folder / 'p.html'}"]) == 0
    return (folder / "p.html").read_text()


def make_view(page: str, folder: Path) -> str:
    """Make a page of a model, whose folder has a hostile name."""
    shutil.copytree(FOLDER, folder / NAME)
    texts = [{"text": f"{NAME}[MASK]"}, {"text": UNSEEN}, {"text": "a", "label": "</script>"}]
    flags = {"max_tokens": 2} if page == "generation" else {}
    return make_page(page, runs.open_run(str(folder / NAME)), *texts, **flags)


PAGES = {  # page -> what makes it, and how often it shows the script
    "run": (partial(make_run, PRETRAINED, [LINE], [SAMPLE, SAMPLE | {"step": 2}]), 9),
    "task": (partial(make_run, {"task": {"source": HOSTILE}}, [], [TAGGED | MISTAKES]), 9),
    "comparison": (make_comparison, 6),
    **{page: (partial(make_view, page), 2) for page in ("attention", "embeddings", "generation")},
}


@pytest.mark.fault(18)
@pytest.mark.parametrize(("make", "least"), PAGES.values(), ids=PAGES)
def test_markup_in_texts_and_names_stays_text(make, least, tmp_path):
    source = make(tmp_path)
    scripts = re.findall("<script[^>]*>", source)
    assert scripts in (["<script>"], ['<script type="application/json" id="data">', "<script>"])
    assert "<img src=x" not in source
    shown = "".join(Reader(source).lines)  # no element has a handler of events
    assert shown.count("alert(1)") >= least
    if len(scripts) == 2:
        assert NAME in shown
        assert SHOWN in json.dumps(read_data(source), ensure_ascii=False)


@pytest.mark.fault(18)
def test_only_files_and_figures_of_ours_are_markup():
    package = ROOT / "bert_jax"
    templates = [file.read_text() for file in package.rglob("*.html")]
    assert len(templates) > 9
    assert not re.findall(r"\|\s*safe\b|autoescape", "".join(templates))
    users = [file.name for file in package.rglob("*.py") if "Markup(" in file.read_text()]
    assert sorted(users) == ["page.py", "svg.py"]


def test_anchors_keep_letters_of_any_script():
    titles = ("By optim.learning_rate", "By 模型", "By 数据")
    anchors = ["to-by-optim-learning-rate", "to-by-模型", "to-by-数据"]
    assert [*map(page.name_anchor, titles)] == anchors
