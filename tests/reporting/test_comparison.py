"""`bert-jax report` of several runs and evaluations: scores, what differs, curves, the command."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bert_jax import cli
from bert_jax.reporting import comparison, run_record
from bert_jax.reporting.formats import HOLE, SPACE
from tests.pages import BEST, HOSTILE, a_run, figure, read_figure, read_page, titles


def compare(*folders: Path, kept=None) -> tuple[str, str]:
    """The source and the text of the page of several runs."""
    find = kept.__getitem__ if kept else None
    source = comparison.build_comparison([run_record.read_run(folder, find) for folder in folders])
    return source, read_page(source)


def read_best(source: str) -> list[str]:
    """The cells in bold."""
    return re.findall(r'class="n best"[^>]*>([^<]*)', source)


def read_knobs(text: str) -> str:
    return text.partition("What differs in their configs")[2].partition("Curves")[0]


def edit(file: Path, old: str, new: str) -> None:
    file.write_text(file.read_text().replace(old, new))


# --- the command ----------------------------------------------------------------------------------


def test_one_run_has_its_page_in_its_folder(tmp_path, capsys):
    run, other = a_run(tmp_path / "run"), tmp_path / "new" / "page.html"
    assert cli.execute(["report", str(run)]) == 0
    assert capsys.readouterr().out == f"{run / 'report.html'}\n"
    assert cli.execute(["report", str(run), f"--output={other}"]) == 0
    assert other.read_text() == (run / "report.html").read_text()


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ('{"steps": 3}', 3, "not the scores of suites"),
        ("{", 3, "not JSON"),
        ('{"nelbo": {}}', 2, "nelbo of {} is there twice"),
    ],
)
def test_evaluations_that_cannot_be_read_are_refused(text, code, said, tmp_path, capsys):
    folder = a_run(tmp_path / "a")
    (folder / "evaluation.json").write_text('{"nelbo": {}}')
    (folder / "evaluation_b.json").write_text(text)
    words = [str(folder), str(a_run(tmp_path / "b")), f"--output={tmp_path / 'x.html'}"]
    assert cli.execute(["report", *words]) == code
    error, hint = capsys.readouterr().err.splitlines()
    assert said.format(folder) in error
    assert hint.startswith("hint: ")


# --- runs -----------------------------------------------------------------------------------------


def test_only_knobs_that_differ_are_listed(tmp_path):
    a = a_run(tmp_path / "a", masking={"rate": 0.15})
    b = a_run(tmp_path / "b", masking={"rate": 0.3}, seed=1)
    table = read_knobs(compare(a, b)[1])
    assert table.split() == ["a", "b", "masking.rate", "0.15", "0.3", "seed", "0", "1"]
    c = a_run(tmp_path / "c", masking={"rate": 0.15})
    assert "all knobs have the same values" in compare(a, c)[1]


def test_knob_missing_in_an_older_run_is_at_default(tmp_path):
    a, b = a_run(tmp_path / "a"), a_run(tmp_path / "b", seed=1)
    tree = json.loads((a / "config.json").read_text())
    del tree["optim"]["freeze"], tree["masking"]["unit"]
    (a / "config.json").write_text(json.dumps(tree))
    edit(b / "config.json", '"unit": "token"', '"unit": "word"')
    table = read_knobs(compare(a, b)[1])
    assert "masking.unit token word" in table
    assert "optim.freeze" not in table


def test_scores_are_served_and_the_best_is_bold(tmp_path):
    a = a_run(tmp_path / "a")
    b = a_run(tmp_path / "b", {200: 5.5, 400: 4.0}, steps=1000)
    source, text = compare(a, b, kept={a: [(400, 4.5), (600, 4.75)], b: [(400, 4.0)]})
    assert "state finished stopped steps 600 of 600 400 of 1,000 step served 400 400" in text
    assert "validation: MLM loss 4.500 4 validation: Unigram loss 6.500 6.500" in text
    assert "validation: MLM accuracy 45.0 % 40.0 %" in text
    assert read_best(source) == ["4", f"45.0{SPACE}%"]


def test_scores_of_different_examples_are_warned_of(tmp_path):
    a, b = a_run(tmp_path / "a"), a_run(tmp_path / "b", {600: 4.0})
    source, text = compare(a, b)
    assert "did not score the same text" not in text
    assert read_best(source) == ["4", f"47.5{SPACE}%"]
    edit(b / "metrics.jsonl", 'unigram_loss": 6.5', 'unigram_loss": 6.25')
    source, text = compare(a, b)
    assert read_best(source) == []
    said = "validation did not score the same text: unigram loss 6.500 (a), 6.250 (b)."
    assert said in text
    (cure,) = re.findall("bert-jax (evaluate .*?);", text)
    words = cure.replace("RUN", str(a)).split()
    assert cli.execute(words) == 4, "this made-up run has no checkpoint, and nothing else is wrong"
    assert comparison.find_evaluations(a) == []


def test_curves_have_the_colours_of_their_runs(tmp_path):
    losses = {step: 3 + 100 / step for step in range(20, 1020, 20)}
    a = a_run(tmp_path / "a", losses)
    b = a_run(tmp_path / "b", {step: loss + 1 for step, loss in losses.items()})
    source, _ = compare(a, b)
    drawn = figure(source, "MLM loss, training")
    assert {"c1", "c2"} <= {*re.findall(r"var\(--(\w+)", drawn)}
    said = read_figure(source, "MLM loss, training")
    assert (said[0], said[50]) == ("a, step 20: 8", "b, step 20: 9")
    assert "unigram 6.5" in figure(source, "MLM loss, validation")
    assert '<li><i style="color:var(--c2)"></i>b</li>' in source
    many, _ = compare(*(a_run(tmp_path / f"r{i}") for i in range(12)))
    assert re.findall(r'<li><i style="color:var\(--(\w\d)', many)[-3:] == ["q9", "c1", "c2"]


def test_runs_are_named_by_what_tells_them_apart(tmp_path):
    folders = [tmp_path / "x" / "run", tmp_path / "y" / "run"]
    assert comparison.name_runs(folders) == ["x/run", "y/run"]
    assert comparison.name_runs([tmp_path / "a", tmp_path / "b"]) == ["a", "b"]


@pytest.mark.parametrize("state", ["begun", "imported", "diverged", "another version", "torn"])
def test_runs_in_any_state_stand_beside_others(state, tmp_path):
    a, b = a_run(tmp_path / "a"), a_run(tmp_path / "b", {} if state == "begun" else BEST)
    if state == "imported":
        (b / "metrics.jsonl").unlink()
    elif state == "diverged":
        (b / "metrics.jsonl").write_text('{"step": 9, "time": 1, "train/loss": null}\n')
    elif state == "another version":
        (b / "config.json").write_text('{"objectives": {}, "model": 3, "steps": 600}')
    elif state == "torn":
        (b / "config.json").write_text('{"objectives": {')
    run_record.check_run(b)
    source, text = compare(a, b)
    assert "MLM loss, validation" in titles(source)
    assert ("b: At step 9, the last one, the loss is not finite." in text) == (state == "diverged")


# --- what evaluate wrote --------------------------------------------------------------------------


def write_scores(file: Path, nats: float, words: int = 100, unknown: int = 0, **more) -> Path:
    """A file of evaluate --output, of a model that has so many nats a character at 15 %."""
    file.parent.mkdir(exist_ok=True)
    counts = {"words": words, "characters": 5 * words, "unknown_words": unknown}
    swept = {
        rate: {
            "nats_per_character": nats + at,
            "nats_per_character_error": 0.1,
            "word_accuracy": 0.5 / (nats + at),
            **counts,
        }
        for at, rate in enumerate(("0.15", "0.4"))
    }
    bound = {"nats_per_token": 4 * nats, "standard_error": 0.1, "nats_per_character": nats}
    bound |= {"tokens": 7 * words, "examples": 9, "words": words}
    pairs = {"pairs": 40, "accuracy": 1 / (1 + nats), "field": {"syntax": nats / 10}}
    found = {"cross_rate": swept, "nelbo": bound, "blimp": pairs, **more}
    file.write_text(json.dumps(found))
    return file


def report(tmp_path: Path, *paths: Path) -> tuple[str, str]:
    """The source and the text of the page of what was evaluated."""
    page = tmp_path / "page.html"
    assert cli.execute(["report", *map(str, paths), f"--output={page}"]) == 0
    return page.read_text(), read_page(page.read_text())


def test_evaluations_of_models_are_compared(tmp_path):
    a = write_scores(tmp_path / "rate15.json", 1.5)
    b = write_scores(tmp_path / "of" / "evaluation.json", 2.25)
    source, text = report(tmp_path, a, b)
    assert "<h1>2 models</h1>" in source
    names = ["Nats per character by masking rate", "Word accuracy by masking rate"]
    assert titles(source) == names
    assert read_figure(source, names[0]) == [
        f"rate15, masking rate 15{SPACE}%: 1.5 (1.304 to 1.696)",
        f"rate15, masking rate 40{SPACE}%: 2.5 (2.304 to 2.696)",
        f"of, masking rate 15{SPACE}%: 2.25 (2.054 to 2.446)",
        f"of, masking rate 40{SPACE}%: 3.25 (3.054 to 3.446)",
    ]
    assert [("Bands are 95" in figure(source, name)) for name in names] == [True, False]
    table = text.partition("numbers of their parts")[0]
    assert "nelbo: Nats per token 6 9 nelbo: Standard error 0.100 0.100" in table
    assert "blimp: Accuracy 40.0 % 30.8 %" in table
    assert read_best(source)[:3] == ["6", "1.500", f"40.0{SPACE}%"]
    assert "blimp: Field syntax 15.0 % 22.5 %" in text
    assert "did not score" not in text


def test_evaluations_are_found_in_folders_of_runs(tmp_path):
    a, b = a_run(tmp_path / "a"), a_run(tmp_path / "b", seed=1)
    write_scores(a / "evaluation.json", 2.0)
    file = write_scores(tmp_path / "other.json", 1.0)
    source, text = report(tmp_path, b, file, a)
    assert "<h1>3 models</h1>" in source
    assert re.findall(r"<li><i[^>]*></i>(\w+)</li>", source) == ["b", "a", "other"]
    assert f"cross_rate: 0.15 words {HOLE} 100 100" in text
    assert f"nelbo: Nats per token {HOLE} 8 4" in text
    drawn = figure(source, "Nats per character by masking rate")
    lines = re.findall(r"stroke: var\(--(c\d)\); stroke-width: 1.8", drawn)
    assert lines == ["c2", "c3", "c2", "c3"]  # each once more in the legend


def test_evaluations_of_other_text_are_warned_of(tmp_path):
    a = write_scores(tmp_path / "a.json", 1.0)
    b = write_scores(tmp_path / "b.json", 2.0, words=90, unknown=9)
    source, text = report(tmp_path, a, b)
    assert read_best(source)[0] == f"50.0{SPACE}%", "of BLiMP, which scored the same"
    for suite, what in (("cross_rate", "0.15 words"), ("nelbo", "examples")):
        assert (f"{suite} did not score the same text: {what} 100 (a), 90 (b)." in text) == (
            suite == "cross_rate"
        )
    assert "blimp did not score" not in text
    assert "10.0 % of the words are [UNK] to b" in text
    assert "[UNK] to a" not in text


@pytest.mark.fault(18)
def test_names_in_evaluations_are_escaped(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps({HOSTILE: {HOSTILE: 0.5, "x": {HOSTILE: 1.5}}}))
    source, text = report(tmp_path, tmp_path / "a.json")
    assert source.count("<script") == 1
    assert text.count("alert(1)") == 4
