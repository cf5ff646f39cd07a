"""The page of several runs and evaluations: scores, what differs in their configs, and curves."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bert_jax import cli
from bert_jax.errors import ConfigError
from bert_jax.reporting import comparison, run_record
from bert_jax.reporting.formats import HOLE, SPACE
from tests.pages import BEST, a_run, figure, keep_steps, read_figure, read_page, titles


def compare(*folders: Path) -> tuple[str, str]:
    """The source and the text of the page of several runs."""
    source = comparison.build_comparison([run_record.read_run(folder) for folder in folders])
    return source, read_page(source)


def read_best(source: str) -> list[str]:
    """The cells in bold."""
    return re.findall(r'class="n best"[^>]*>([^<]*)', source)


def read_knobs(text: str) -> str:
    return text.partition("What differs in their configs")[2].partition("Curves")[0]


def edit(file: Path, old: str, new: str) -> None:
    file.write_text(file.read_text().replace(old, new))


# --- runs -----------------------------------------------------------------------------------------


def test_only_knobs_that_differ_are_listed(tmp_path):
    """A knob that an older run lacks is at its default."""
    a = a_run(tmp_path / "a", masking={"rate": 0.15})
    b = a_run(tmp_path / "b", masking={"rate": 0.3, "unit": "word"}, seed=1)
    tree = json.loads((a / "config.json").read_text())
    del tree["optim"]["freeze"], tree["masking"]["unit"]
    (a / "config.json").write_text(json.dumps(tree))
    table = read_knobs(compare(a, b)[1])
    rows = ["masking.rate 0.15 0.3", "masking.unit token word", "seed 0 1"]
    assert table.split() == ["a", "b", *" ".join(rows).split()]
    c = a_run(tmp_path / "c", masking={"rate": 0.15})
    assert "all knobs have the same values" in compare(a, c)[1]


def test_scores_are_served_and_the_best_is_bold(tmp_path):
    a = a_run(tmp_path / "a")
    b = a_run(tmp_path / "b", {200: 5.5, 400: 4.0}, steps=1000)
    keep_steps(a, [(400, 4.5), (600, 4.75)])
    keep_steps(b, [(400, 4.0)])
    source, text = compare(a, b)
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


def write_scores(file: Path, nats: float, words: int = 100, unknown: int = 0) -> Path:
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
    bound = {"nats_per_token": 4 * nats, "nats_per_character": nats, "tokens": 7 * words}
    bound |= {"examples": 9, "words": words}
    pairs = {"pairs": 40, "accuracy": 1 / (1 + nats), "field": {"syntax": nats / 10}}
    file.write_text(json.dumps({"cross_rate": swept, "nelbo": bound, "blimp": pairs}))
    return file


def report(tmp_path: Path, *paths: Path) -> tuple[str, str]:
    """The source and the text of the page of what was evaluated."""
    page = tmp_path / "page.html"
    assert cli.execute(["report", *map(str, paths), f"--output={page}"]) == 0
    return page.read_text(), read_page(page.read_text())


def test_evaluations_of_runs_and_models_are_compared(tmp_path):
    """Those of a run lie in its folder; the run without one has holes."""
    a, b = a_run(tmp_path / "a"), a_run(tmp_path / "b", seed=1)
    write_scores(a / "evaluation.json", 2.25)
    source, text = report(tmp_path, b, write_scores(tmp_path / "other.json", 1.5), a)
    assert "<h1>3 models</h1>" in source
    assert re.findall(r"<li><i[^>]*></i>(\w+)</li>", source) == ["b", "a", "other"]
    name = "Nats per character by masking rate"
    assert read_figure(source, name) == [
        f"a, masking rate 15{SPACE}%: 2.25 (2.054 to 2.446)",
        f"a, masking rate 40{SPACE}%: 3.25 (3.054 to 3.446)",
        f"other, masking rate 15{SPACE}%: 1.5 (1.304 to 1.696)",
        f"other, masking rate 40{SPACE}%: 2.5 (2.304 to 2.696)",
    ]
    lines = re.findall(r"stroke: var\(--(c\d)\); stroke-width: 1.8", figure(source, name))
    assert lines == ["c2", "c3", "c2", "c3"]  # each once more in the legend
    assert f"cross_rate: 0.15 words {HOLE} 100 100" in text
    assert f"nelbo: Nats per token {HOLE} 9 6" in text
    assert f"blimp: Accuracy {HOLE} 30.8 % 40.0 %" in text
    assert read_best(source)[:3] == ["6", "1.500", f"40.0{SPACE}%"]
    assert f"blimp: Field syntax {HOLE} 22.5 % 15.0 %" in text
    assert "did not score" not in text


def test_evaluations_of_other_text_are_warned_of(tmp_path):
    a = write_scores(tmp_path / "a.json", 1.0)
    b = write_scores(tmp_path / "b.json", 2.0, words=90, unknown=9)
    source, text = report(tmp_path, a, b)
    assert read_best(source)[0] == f"50.0{SPACE}%", "of BLiMP, which scored the same"
    assert "cross_rate did not score the same text: 0.15 words 100 (a), 90 (b)." in text
    assert "nelbo did not score the same text: words 100 (a), 90 (b)." in text
    assert "blimp did not score" not in text
    assert "10.0 % of the words are [UNK] to b" in text
    assert "[UNK] to a" not in text


def test_suite_of_a_model_is_given_once(tmp_path):
    files = [write_scores(tmp_path / "a" / f"evaluation{n}.json", 1.0) for n in ("", "_b")]
    with pytest.raises(ConfigError, match=r"cross_rate of .* is there twice"):
        comparison.read_scores(files)
