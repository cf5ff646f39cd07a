"""The page of several runs and evaluations: scores, what differs in their configs, and curves.

What the pages say is frozen.
"""

import json
import re
from pathlib import Path

import pytest

from bert_jax import cli, errors
from bert_jax.reporting import comparison, run_record
from tests.pages import BEST, a_run, keep_steps, read_page


def write_scores(file: Path, nats: float, words: int = 100, unknown: int = 0) -> Path:
    """A file of evaluate --output, of a model that has so many nats a character at 15 %."""
    file.parent.mkdir(exist_ok=True)
    counts = {"words": words, "characters": 5 * words, "unknown_words": unknown}
    swept = {}
    for rate, loss in ("0.15", nats), ("0.4", nats + 1):
        swept[rate] = {"nats_per_character": loss, "nats_per_character_error": 0.1}
        swept[rate] |= {"word_accuracy": 0.5 / loss} | counts
    bound = {"nats_per_token": 4 * nats, "nats_per_character": nats, "tokens": 7 * words}
    bound |= {"examples": 9, "words": words}
    pairs = {"pairs": 40, "accuracy": 1 / (1 + nats), "field": {"syntax": nats / 10}}
    answers = {"f1": 55.6}  # in per cent already
    scores = {"cross_rate": swept, "nelbo": bound, "blimp": pairs, "task": answers}
    file.write_text(json.dumps(scores))
    return file


# --- the pages ------------------------------------------------------------------------------------


def make_differing(folder: Path) -> list[Path]:
    """Runs with other knobs, and their best step served."""
    a = a_run(folder / "a", masking={"rate": 0.15})
    keep_steps(a, [(400, 4.5), (600, 4.75)])
    changes = {"masking": {"rate": 0.3, "unit": "word"}, "seed": 1}
    b = a_run(folder / "b", {200: 5.5, 400: 4.0}, steps=1000, **changes)
    keep_steps(b, [(400, 4.0)])
    return [a, b]


def make_all_states(folder: Path) -> list[Path]:
    """A whole run, and others that have begun or are broken; one scored another text."""
    whole, other = a_run(folder / "whole"), a_run(folder / "other")
    metrics = other / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace('unigram_loss": 6.5', 'unigram_loss": 6.25'))
    states = ("begun", "imported", "diverged", "older", "torn")
    runs = {name: a_run(folder / name, {} if name == "begun" else BEST) for name in states}
    (runs["imported"] / "metrics.jsonl").unlink()
    (runs["diverged"] / "metrics.jsonl").write_text('{"step": 9, "time": 1, "train/loss": null}\n')
    (runs["older"] / "config.json").write_text('{"objectives": {}, "model": 3, "steps": 600}')
    (runs["torn"] / "config.json").write_text('{"objectives": {')
    return [whole, other, *runs.values()]


def make_evaluated(folder: Path) -> list[Path]:
    """A run without an evaluation, another that has one in its folder, and one of a model."""
    a, b = a_run(folder / "a", {200: 5.0}), a_run(folder / "b", {200: 5.0}, seed=1)
    write_scores(a / "evaluation.json", 2.25)
    return [b, write_scores(folder / "other.json", 1.5), a]


def make_other_words(folder: Path) -> list[Path]:
    """Evaluations on different words, of which one model does not know all."""
    a = write_scores(folder / "a.json", 1.0)
    return [a, write_scores(folder / "b.json", 2.0, words=90, unknown=9)]


COMPARED = {
    "differing": make_differing,
    "all_states": make_all_states,
    "evaluated": make_evaluated,
    "other_words": make_other_words,
}


@pytest.mark.parametrize("name", COMPARED)
def test_page_says_what_is_frozen(name, tmp_path, check_frozen):
    page = tmp_path / "page.html"
    paths = map(str, COMPARED[name](tmp_path))
    assert cli.execute(["report", *paths, f"--output={page}"]) == 0
    check_frozen(page.read_text(), name)


def test_warning_of_other_text_names_a_command(tmp_path):
    whole, other, *_ = make_all_states(tmp_path)
    page = comparison.build_comparison([run_record.read_run(folder) for folder in (whole, other)])
    text = read_page(page)
    assert "all knobs have the same values" in text
    (cure,) = re.findall("bert-jax (evaluate .*?);", text)
    words = cure.replace("RUN", str(whole)).split()
    assert cli.execute(words) == 4, "this made-up run has no checkpoint, and nothing else is wrong"


def test_runs_are_named_by_what_tells_them_apart(tmp_path):
    folders = [tmp_path / "x" / "run", tmp_path / "y" / "run"]
    assert comparison.name_runs(folders) == ["x/run", "y/run"]
    assert comparison.name_runs([tmp_path / "a", tmp_path / "b"]) == ["a", "b"]


def test_find_best_needs_a_direction_and_a_difference():
    assert comparison.find_best([1.0, None, 2.0], "mlm_loss") == 0
    assert comparison.find_best([1.0, 2.0], "oddity") is None
    assert comparison.find_best([2.0, 2.0], "mlm_loss") is None


def test_suite_of_a_model_is_given_once(tmp_path):
    files = [write_scores(tmp_path / "a" / f"evaluation{n}.json", 1.0) for n in ("", "_b")]
    with pytest.raises(errors.ConfigError, match=r"cross_rate of .* is there twice"):
        comparison.read_scores(files)
