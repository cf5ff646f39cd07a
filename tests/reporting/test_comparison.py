"""`bert-jax report`: the page of a run in any state, and several runs on one page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bert_jax import cli
from bert_jax.reporting import comparison, evaluations, run_record
from bert_jax.reporting.formats import HOLE
from tests.pages import BEST, Checker, a_run, figure, read_figure, titles

LONG = {step: 3 + 100 / step for step in range(20, 1020, 20)}


def together(*folders: Path) -> tuple[str, str]:
    """The source and the text of the page of several runs."""
    source = comparison.build([run_record.read(folder) for folder in folders])
    checked = Checker(source)
    assert checked.outside == []
    return source, " ".join(" ".join(checked.text).split())


def fails(capsys, *words: str) -> tuple[int, str, str]:
    """Exit code, error and hint of a command that prints those two lines alone."""
    code = cli.execute(["report", *words])
    out, err = capsys.readouterr()
    error, hint = err.splitlines()
    assert out == ""
    assert (error[:7], hint[:6]) == ("error: ", "hint: ")
    return code, error[7:], hint[6:]


# --- the command ----------------------------------------------------------------------------------


def test_one_run_has_its_page_in_its_folder(tmp_path, capsys):
    run, other = a_run(tmp_path / "run"), tmp_path / "new" / "page.html"
    assert cli.execute(["report", str(run)]) == 0
    assert capsys.readouterr().out == f"{run / 'report.html'}\n"
    assert cli.execute(["report", str(run), f"--output={other}"]) == 0
    assert other.read_text() == (run / "report.html").read_text()
    assert "of 600, finished" in other.read_text()


def test_several_runs_have_one_page_here(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.execute(["report", str(a_run(tmp_path / "a")), str(a_run(tmp_path / "b"))]) == 0
    assert capsys.readouterr().out == "report.html\n"
    assert "<h1>2 runs</h1>" in Path("report.html").read_text()


# --- several runs ---------------------------------------------------------------------------------


def test_only_the_knobs_that_differ_are_listed(tmp_path):
    a = a_run(tmp_path / "a", masking={"rate": 0.15})
    b = a_run(tmp_path / "b", masking={"rate": 0.3}, seed=1)
    _, text = together(a, b)
    table = text.partition("What differs in their configs")[2].partition("Curves")[0]
    assert table.split() == ["knob", "a", "b", "masking.rate", "0.15", "0.3", "seed", "0", "1"]
    _, text = together(a, a_run(tmp_path / "c", masking={"rate": 0.15}))
    assert "Nothing: all knobs have the same values." in text


def test_runs_of_other_objectives_differ_in_knobs(tmp_path):
    a = a_run(tmp_path / "a", pairs="none")
    changed = {"objectives": {"causal_lm": {}}, "model": {"causal": True}, "pairs": "none"}
    b = a_run(tmp_path / "b", **changed, checkpoints={"best": "causal_lm_loss"})
    table = together(a, b)[1].partition("What differs in their configs")[2].partition("Curves")[0]
    assert f"objectives.causal_lm.weight {HOLE} 1.0" in table
    assert f"objectives.mlm.weight 1.0 {HOLE}" in table
    assert ".gamma" not in table


def test_a_knob_missing_in_an_older_run_is_at_default(tmp_path):
    a, b = a_run(tmp_path / "a"), a_run(tmp_path / "b", seed=1)
    tree = json.loads((a / "config.json").read_text())
    del tree["optim"]["freeze"], tree["masking"]["unit"]
    (a / "config.json").write_text(json.dumps(tree))
    tree = json.loads((b / "config.json").read_text())
    tree["masking"]["unit"] = "word"
    (b / "config.json").write_text(json.dumps(tree))
    table = together(a, b)[1].partition("What differs in their configs")[2].partition("Curves")[0]
    assert "masking.unit token word" in table
    assert "optim.freeze" not in table


def test_final_scores_are_served_and_the_best_is_bold(tmp_path):
    a = a_run(tmp_path / "a")
    b = a_run(tmp_path / "b", {200: 5.5, 400: 4.0}, steps=1000)
    kept = {a: [(400, 4.5), (600, 4.75)], b: [(400, 4.0)]}
    source = comparison.build([run_record.read(run, kept.__getitem__) for run in (a, b)])
    text = " ".join(" ".join(Checker(source).text).split())
    scores = text.partition("Final scores")[2].partition("What differs")[0]
    assert "state finished stopped steps 600 of 600 400 of 1,000 step served 400 400" in scores
    assert "validation: MLM loss 4.500 4 unigram 6.500 6.500" in scores
    assert "validation: MLM accuracy 45.0 % 40.0 %" in scores
    assert re.findall('class="n best"><div>([^<]*)', source) == ["4", "45.0\N{NO-BREAK SPACE}%"]


def test_a_score_of_a_single_run_is_not_the_best(tmp_path):
    a, b = a_run(tmp_path / "a"), a_run(tmp_path / "b", {})
    assert 'class="n best"' not in together(a, b)[0]
    assert f"validation: MLM loss 4.750 {HOLE}" in together(a, b)[1]


def test_scores_of_different_examples_are_warned_of(tmp_path):
    a, b = a_run(tmp_path / "a"), a_run(tmp_path / "b", {600: 4.0})
    source, text = together(a, b)
    assert "not scored on the same" not in text
    assert 'class="n best"' in source
    assert "The best of each is bold." in text
    lines = (b / "metrics.jsonl").read_text().replace('unigram_loss": 6.5', 'unigram_loss": 6.25')
    (b / "metrics.jsonl").write_text(lines)
    source, text = together(a, b)
    assert 'class="n best"' not in source
    assert "bold" not in text
    assert "The runs are not scored on the same predictions of validation" in text
    assert "loss is 6.500 (a), 6.250 (b). Their losses cannot be compared. To" in text
    (cure,) = re.findall("bert-jax (evaluate .*?);", text)
    words = cure.replace("RUN", str(a)).split()
    assert cli.execute(words) == 4, "this made-up run has no checkpoint, and nothing is wrong else"
    assert (a / words[-1].partition("=")[2]).match(evaluations.FILES)


def test_runs_of_other_vocabularies_show_their_sizes(tmp_path):
    a, b = a_run(tmp_path / "a"), a_run(tmp_path / "b")
    for run, size in ((a, 8000), (b, 2942)):
        (run / "environment.json").write_text(json.dumps({"vocabulary": size}))
    assert "vocabulary 8,000 2,942" in together(a, b)[1]


def test_curves_have_the_colours_of_their_runs(tmp_path):
    a = a_run(tmp_path / "a", LONG)
    b = a_run(tmp_path / "b", {step: loss + 1 for step, loss in LONG.items()})
    source, _ = together(a, b)
    assert "MLM loss, training" in titles(source)
    assert "MLM loss, validation" in titles(source)
    drawn = figure(source, "MLM loss, training")
    assert "var(--c1)" in drawn
    assert "var(--c2)" in drawn
    said = read_figure(source, "MLM loss, training")
    assert (said[0], said[50]) == ("a, step 20: 8", "b, step 20: 9")
    assert "unigram 6.5" in figure(source, "MLM loss, validation")
    assert '<li><i style="color:var(--c2)"></i>b</li>' in source


def test_a_chart_has_the_baselines_of_the_runs_in_it(tmp_path):
    a, b = a_run(tmp_path / "a"), a_run(tmp_path / "b")
    lines = (b / "metrics.jsonl").read_text().replace('unigram_loss": 6.5', 'unigram_loss": 6.25')
    (b / "metrics.jsonl").write_text(lines.replace("eval/validation/mlm_loss", "eval/other/loss"))
    drawn = figure(together(a, b)[0], "MLM loss, validation")
    assert "unigram 6.500" in drawn
    assert "6.25" not in drawn


def test_runs_are_named_by_what_tells_them_apart(tmp_path):
    folders = [tmp_path / "x" / "run", tmp_path / "y" / "run"]
    assert comparison.names(folders) == ["x/run", "y/run"]
    assert comparison.names([tmp_path / "a", tmp_path / "b"]) == ["a", "b"]


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
    run_record.check(b)
    source, text = together(a, b)
    assert "MLM loss, validation" in titles(source)
    assert ("b: At step 9, the last one, the loss is not finite." in text) == (state == "diverged")


def test_runs_without_curves_have_a_page(tmp_path):
    text = together(a_run(tmp_path / "a", {}), a_run(tmp_path / "b", {}, seed=1))[1]
    assert "seed 0 1" in text
    assert "Curves" not in text


def test_colours_repeat_after_ten_runs(tmp_path):
    source, _ = together(*(a_run(tmp_path / f"r{i}") for i in range(12)))
    assert re.findall(r'<li><i style="color:var\(--(\w\d)', source)[-3:] == ["q9", "c1", "c2"]


# --- what evaluate wrote --------------------------------------------------------------------------


def scores(file: Path, nats: float, words: int = 100, unknown: int = 0, **more: dict) -> Path:
    """A file of evaluate --output, of a model that has so many nats a character at 15 %."""
    file.parent.mkdir(exist_ok=True)
    counts = {"words": words, "characters": 5 * words, "unknown_words": unknown}
    swept = {
        rate: {
            "mlm_loss": 4 * nats + at,
            "nats_per_character": nats + at,
            "nats_per_character_error": 0.1,
            "word_accuracy": 0.5 / (nats + at),
            **counts,
        }
        for at, rate in enumerate(("0.15", "0.4"))
    }
    bound = {"nats_per_token": 4 * nats, "standard_error": 0.1, "nats_per_character": nats}
    bound |= {"tokens": 7 * words, "examples": 9, "draws": 8, "words": words}
    pairs = {"pairs": 40, "accuracy": 1 / (1 + nats), "field": {"syntax": nats / 10}}
    left = {"pll": -9 * nats, "pseudo_perplexity": 3 * nats, "texts": 5, "words": words}
    found = {"cross_rate": swept, "nelbo": bound, "pll": left, "blimp": pairs, **more}
    file.write_text(json.dumps(found))
    return file


def evaluated(tmp_path: Path, *paths: Path) -> tuple[str, str]:
    """The source and the text of the page of what was evaluated."""
    page = tmp_path / "page.html"
    assert cli.execute(["report", *map(str, paths), f"--output={page}"]) == 0
    source = page.read_text()
    checked = Checker(source)
    assert checked.outside == []
    return source, " ".join(" ".join(checked.text).split())


def test_evaluations_of_models_are_compared(tmp_path):
    files = scores(tmp_path / "rate15.json", 1.5), scores(tmp_path / "of" / "evaluation.json", 2.25)
    source, text = evaluated(tmp_path, *files)
    assert "<h1>2 models</h1>" in source
    assert titles(source) == [
        f"{name} by masking rate" for name in ("Nats per character", "Word accuracy", "MLM loss")
    ]
    drawn = figure(source, "Nats per character by masking rate")
    assert read_figure(source, "Nats per character by masking rate") == [
        "rate15, masking rate 15\N{NO-BREAK SPACE}%: 1.5 (1.304 to 1.696)",
        "rate15, masking rate 40\N{NO-BREAK SPACE}%: 2.5 (2.304 to 2.696)",
        "of, masking rate 15\N{NO-BREAK SPACE}%: 2.25 (2.054 to 2.446)",
        "of, masking rate 40\N{NO-BREAK SPACE}%: 3.25 (3.054 to 3.446)",
    ]
    assert "Bands are 95" in drawn
    assert "Bands are 95" not in figure(source, "Word accuracy by masking rate")
    table = text.partition("numbers of their parts")[0].partition("Evaluations")[2]
    assert "rate15 of nelbo: Nats per token 6 9 nelbo: Standard error 0.100 0.100" in table
    assert "blimp: Accuracy 40.0 % 30.8 %" in table
    best = re.findall(r'class="n best"><div>([^<]*)', source)
    assert best[:5] == ["6", "1.500", "-13.50", "4.500", "40.0\N{NO-BREAK SPACE}%"]
    assert "blimp: Field syntax 15.0 % 22.5 %" in text
    assert "Curves" not in text
    assert "not scored" not in text


def test_evaluations_are_found_in_folders_of_runs(tmp_path):
    a, b = a_run(tmp_path / "a"), a_run(tmp_path / "b", seed=1)
    scores(a / "evaluation.json", 2.0)
    file = scores(tmp_path / "other.json", 1.0)
    source, text = evaluated(tmp_path, b, file, a)
    assert "<h1>3 models</h1>" in source
    assert re.findall(r"<li><i[^>]*></i>(\w+)</li>", source) == ["b", "a", "other"]
    assert f"cross_rate: 0.15 words {HOLE} 100 100" in text
    assert f"nelbo: Nats per token {HOLE} 8 4" in text
    assert "seed 1 0" in text
    drawn = figure(source, "Nats per character by masking rate")
    lines = re.findall(r"stroke: var\(--(c\d)\); stroke-width: 1.8", drawn)
    assert lines == ["c2", "c3", "c2", "c3"]  # each once more in the legend
    assert "MLM loss, validation" in titles(source)
    scores(tmp_path / "model" / "evaluation.json", 3.0)
    (tmp_path / "model" / "evaluation_sts.json").write_text('{"sts": {"pairs": 77}}')
    source, text = evaluated(tmp_path, tmp_path / "model")
    assert "<h1>1 model</h1>" in source
    assert "sts: Pairs 77" in text
    assert "<h1>1 model</h1>" not in evaluated(tmp_path, a)[0]


def test_evaluations_of_other_text_are_warned_of(tmp_path):
    a = scores(tmp_path / "a.json", 1.0)
    b = scores(tmp_path / "b.json", 2.0, words=90, unknown=9)
    source, text = evaluated(tmp_path, a, b)
    assert re.findall(r'class="n best"><div>([^<]*)', source)[0] == "50.0\N{NO-BREAK SPACE}%"
    for suite, what in (("cross_rate", "0.15 words"), ("nelbo", "words"), ("pll", "words")):
        said = f"The models are not scored on the same text by {suite}: {what} 100, 90."
        assert said in text
    assert "not scored on the same text by blimp" not in text
    assert "10.0 % of the words are [UNK] to b" in text
    assert "[UNK] to a" not in text
    bound = {"nats_per_token": 8.0, "nats_per_character": 2.0, "words": 100, "examples": 9}
    c = scores(tmp_path / "c.json", 2.0, nelbo=bound | {"tokens": 9})
    best = re.findall(r'class="n best"><div>([^<]*)', evaluated(tmp_path, a, c)[0])
    assert best[:2] == ["1", "-9"]  # but of nats per token, where tokens are others, none is


def test_evaluations_that_cannot_be_read_are_refused(tmp_path, capsys):
    good, bad = scores(tmp_path / "a.json", 1.0), tmp_path / "b.json"
    bad.write_text('{"steps": 3}')
    code, error, hint = fails(capsys, str(good), str(bad))
    assert (code, error) == (3, f"{bad}: steps is 3, not an object")
    assert "--output=FILE.json" in hint
    assert fails(capsys, str(good), str(good))[1] == f"{good} is given twice"
    a = a_run(tmp_path / "a")
    scores(a / "evaluation.json", 1.0)
    code, error, _ = fails(capsys, str(a), str(good))
    assert (code, error) == (2, f"{good}: cross_rate of {a} is there twice")
    lost = scores(tmp_path / "c.json", 1.0, pretrain={"mlm_loss": None}, cross_rate={"x": 1})
    assert "by masking rate" not in evaluated(tmp_path, lost)[0]
