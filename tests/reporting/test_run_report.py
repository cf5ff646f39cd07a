"""The report: whole, offline, escaped, drawn to scale, and the same page whatever is missing."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from bert_jax import config
from bert_jax.evaluation import metrics
from bert_jax.reporting import page, run_report, terms
from bert_jax.reporting.formats import SPACE
from tests.pages import HOSTILE, Checker, figure, titles


def pretraining(folder: Path, lines: int = 50, steps: int = 500) -> None:
    rng = random.Random(0)
    tree = config.to_dict(
        config.resolve({"steps": steps, "optim": {"warmup_steps": 9}, "masking": {"rate": 0.25}})
    )
    (folder / "config.json").write_text(json.dumps(tree))
    (folder / "environment.json").write_text(
        json.dumps(
            {
                "jax": "1.2.3",
                "command": ["bert-jax", "a b"],
                "parameters": 1234567,
                "packages": {f"p{i}": "4" for i in range(20)},
            }
        )
    )
    with (folder / "metrics.jsonl").open("w") as file:
        for i in range(1, lines + 1):
            step = i * steps // lines
            row = {
                "step": step,
                "time": 1.5 * i,
                "train/loss": 9 / i + rng.random(),
                "train/mlm_loss": 8 / i + 1,
            }
            row |= {
                "train/mlm_accuracy": i / (2 * lines),
                "train/masked_fraction": 0.25,
                "train/kept_fraction": 0.1,
            }
            row |= {
                "train/mask_token_fraction": 0.8,
                "train/random_fraction": 0.1,
                "train/learning_rate": 1e-4 * i,
            }
            row |= {
                "train/grad_norm": 2.0 + rng.random(),
                "train/tokens_per_second": 12_345.0,
                "train/data_wait": 0.004,
            }
            row |= {
                "train/step_seconds": 0.05,
                "train/compile_seconds": 12.5,
                "train/skipped_in_row": 0.0,
            }
            row |= {
                "train/data_seconds": 0.01 * i,
                "train/evaluation_seconds": 0.15 * i,
                "train/saving_seconds": 0.3,
            }
            row |= {"train/model_flops_per_second": 2.5e12, "train/mfu": 0.457}
            row |= {"train/host_memory_bytes": 3.21e9, "train/device_memory_bytes": 7e10}
            file.write(json.dumps(row) + "\n")
            if i % 10 == 0:
                scores = {
                    "mlm_loss": 5.25,
                    "unigram_loss": 6.3,
                    "mlm_accuracy": 0.3,
                    "unigram_accuracy": 0.1,
                }
                scores |= {"nsp_accuracy": 0.6, "nsp_accuracy_low": 0.55, "nsp_accuracy_high": 0.65}
                scores |= {
                    "majority_accuracy": 0.5,
                    "examples": 400,
                    "mlm_predictions": 31_337,
                    "nsp_loss": 0.65,
                }
                file.write(
                    json.dumps(
                        {"step": step, "time": 1.5 * i}
                        | {f"eval/validation/{k}": v for k, v in scores.items()}
                    )
                    + "\n"
                )
        file.write('{"step": 99999, "tra')  # the run goes on


def text_of(folder: Path) -> tuple[str, str]:
    path = run_report.write(folder)
    assert path == folder / "report.html"
    source = path.read_text(encoding="utf-8")
    checked = Checker(source)
    assert checked.outside == []
    return source, re.sub(r"\s+", " ", " ".join(checked.text))


def test_a_pretraining_run(tmp_path):
    pretraining(tmp_path)
    source, text = text_of(tmp_path)
    for said in (
        "BERT base on docstrings",
        "MLM + NSP",
        "of 500, finished",
        "12.5 s compiling",
        "5.250",
        "1.05 nats below the unigram 6.300",
        "3.0 times the most frequent token 10.0 %",
        "95 % interval 55.0 to 65.0",
        "1.2 times the majority 50.0 %",
        "0.04 nats below chance 0.693",
        "12,345",
        "0.4 % waiting for data",
        "45.7 % of the devices' nominal FLOP/s",
        "evaluations 7.5 s 10.0 %",
        "steps 54.2 s 72.3 %",
        "peak memory of the process 3.21 GB",
        "peak memory of a device 70.00 GB",
        "masking.rate 0.25 0.15",
        "jax 1.2.3",
        "bert-jax 'a b'",
        "1,234,567 parameters",
    ):
        assert said in text, said
    for title in (
        "Loss, the weighted sum",
        "MLM loss",
        "NSP accuracy",
        "Tokens selected",
        "Learning rate",
        "Gradient norm",
    ):
        assert title in titles(source)
    assert "31,337" not in text
    assert "prefers-color-scheme: dark" in source
    for url in re.findall(r"https?://[^'\"\s]+", source):
        assert url == "http://www.w3.org/2000/svg"
    assert run_report.write(tmp_path).read_text() == source, "the same files give the same page"


def test_interval_holds_as_often_as_pages_explain():
    """The explanation is of an interval that is drawn again and again, not of an accuracy."""
    told = terms.explain(f"95{SPACE}% interval 55.0 to 65.0")
    assert "from many samples, 95 in 100 hold it" in told
    counts = np.arange(401)
    ends = np.array([metrics.wilson(hits, 400) for hits in counts])
    for accuracy in (0.3, 0.5, 0.62, 0.8):
        holds = (ends[:, 0] <= accuracy) & (accuracy <= ends[:, 1])
        assert stats.binom.pmf(counts, 400, accuracy)[holds].sum() == pytest.approx(0.95, abs=0.01)


def test_only_changed_knobs_are_listed_first(tmp_path):
    pretraining(tmp_path)
    source, _ = text_of(tmp_path)
    shown = source[source.index("this run") : source.index("All knobs")]
    changed = re.findall(r"<td><span[^>]*>([\w.]+)</span></td>", shown)
    assert sorted(changed) == ["masking.rate", "optim.warmup_steps", "steps"]


@pytest.mark.parametrize(
    "missing", ["config.json", "environment.json", "metrics.jsonl", "all", "torn"]
)
def test_missing_files_leave_the_rest(missing, tmp_path):
    if missing != "all":
        pretraining(tmp_path)
    if missing == "torn":
        (tmp_path / "config.json").write_text('{"steps": 5')
    else:
        (tmp_path / missing).unlink(missing_ok=True)
    source, text = text_of(tmp_path)
    assert ("BERT base" in text) == (missing not in ("config.json", "all", "torn"))
    assert ("<svg" in source) == (missing not in ("metrics.jsonl", "all"))
    assert ("no measurements yet" in text) == (missing in ("metrics.jsonl", "all"))


def test_one_line_of_metrics_is_enough(tmp_path):
    pretraining(tmp_path, lines=1, steps=20)
    source, text = text_of(tmp_path)
    assert "nan" not in source.lower().replace("nanos", "")
    assert "of 20, finished" in text


def test_fine_tuning_metrics_need_no_knowledge(tmp_path):
    rows = [
        {"step": s, "time": s, "train/loss": 1 / s, "train/answer_loss": 1 / s, "train/oddity": 3.5}
        | {
            "eval/squad/f1": 0.5,
            "eval/squad/exact": 0.25,
            "eval/rte/accuracy": 0.6,
            "eval/rte/majority_accuracy": 0.7,
        }
        for s in (1, 2, 3)
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)))
    source, text = text_of(tmp_path)
    for said in ("50.0 %", "25.0 %", "squad, step 3", "not better than the majority 70.0 %"):
        assert said in text.replace("\N{NO-BREAK SPACE}", " "), said
    assert {"F1", "Exact match", "Accuracy", "Answer loss"} <= set(titles(source))
    assert "The same at every step: Oddity 3.500 ." in text


def test_squads_measures_are_per_cent_already(tmp_path):
    (tmp_path / "config.json").write_text(
        json.dumps({"objectives": {"span": {}}, "task": {"source": "files:x.json"}})
    )
    row = {"step": 1, "time": 1, "eval/validation/f1": 55.6, "eval/validation/exact": 48.3}
    row |= {"train/loss": 2.5, "train/span_loss": 2.5, "train/span_accuracy": 0.5}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(row))
    source, text = text_of(tmp_path)
    assert "Loss" in titles(source)
    assert "Span loss" not in text  # it is the loss
    assert "55.6" in text
    assert "5,560" not in text
    assert "fine-tuned on x.json" in text


def test_all_text_is_escaped(tmp_path):
    pretraining(tmp_path)
    (tmp_path / "environment.json").write_text(
        json.dumps({HOSTILE: {HOSTILE: HOSTILE}, "x": HOSTILE})
    )
    (tmp_path / "config.json").write_text(
        json.dumps({"model": {"size": HOSTILE}, "corpus": {"source": HOSTILE}})
    )
    with (tmp_path / "metrics.jsonl").open("w") as file:
        file.write(
            json.dumps({"step": 1, f"train/{HOSTILE}": 1.0, f"eval/{HOSTILE}/accuracy": 0.5})
        )
    sample = {
        "step": 1,
        "text": f"a [MASK] {HOSTILE}",
        "predictions": [[{"token": HOSTILE, "probability": 0.5}]],
    }
    (tmp_path / "samples.jsonl").write_text(json.dumps(sample))
    source, text = text_of(tmp_path)
    assert source.count("<script") == 1
    assert "<img" not in source
    assert "alert(1)" in text


def test_samples_show_the_latest_and_what_came_before(tmp_path):
    rows = [
        {"step": step, "text": text, "predictions": [[{"token": token, "probability": 0.25}]]}
        for step, text, token in [
            (30, "The [MASK] sat.", "cat"),
            (10, "The [MASK] sat.", "the"),
            (20, "The [MASK] sat.", "dog"),
            (20, "Asked [MASK] longer.", "no"),
        ]
    ]
    (tmp_path / "samples.jsonl").write_text("\n".join(map(json.dumps, rows)))
    source, text = text_of(tmp_path)
    assert "<mark>[MASK]</mark>" in source
    assert "cat 25.0 %" in text
    assert "step 10: the · step 20: dog" in text
    assert "original token" not in text  # what did is not known
    assert "longer" not in text


def test_samples_show_what_stood_there(tmp_path):
    """Among the predictions, or below them; of a beginning, what comes next."""
    likely = [{"token": token, "probability": 0.2} for token in ("cat", "dog")]
    rows = [
        {
            "step": 1,
            "text": "The [MASK] and a [MASK].",
            "answers": ["dog", "cow"],
            "predictions": [likely, likely],
        },
        {"step": 1, "text": "The cat …", "answers": ["cat"], "predictions": [likely]},
    ]
    (tmp_path / "samples.jsonl").write_text("\n".join(map(json.dumps, rows)))
    source, _ = text_of(tmp_path)
    assert re.findall(r'class="right">(\w+)</span><span>(original token)?', source) == [
        ("dog", ""),
        ("cow", "original token"),
        ("cat", ""),
    ]
    assert source.count("<mark>[MASK]</mark>") == 2
    assert "<mark>…</mark>" in source


def test_ten_thousand_lines_stay_small(tmp_path):
    pretraining(tmp_path, lines=10_000, steps=100_000)
    assert run_report.write(tmp_path).stat().st_size < 300_000


# --- how a page is arranged -----------------------------------------------------------------------


def sample(number: int) -> dict:
    guesses = [[{"token": "cat", "probability": 0.25}]]
    return {"step": 500, "text": f"Number {number} is a [MASK].", "predictions": guesses}


def headings(source: str) -> list[str]:
    return [re.sub("<[^>]*>", "", title) for title in re.findall("<h2>(.*?)</h2>", source)]


def test_a_page_begins_with_results_and_guesses(tmp_path):
    pretraining(tmp_path)
    (tmp_path / "samples.jsonl").write_text("\n".join(json.dumps(sample(n)) for n in range(8)))
    source, text = text_of(tmp_path)
    assert headings(source)[:3] == ["Predictions", "Learning", "Masking ledger"]
    assert text.index("MLM loss") < text.index("Steps")
    whole, fold = source.index("Number 2"), source.index("<summary>5 more sentences</summary>")
    assert whole < fold < source.index("Number 3")


def test_links_on_top_lead_to_the_sections(tmp_path):
    pretraining(tmp_path)
    source, _ = text_of(tmp_path)
    links = re.findall('<a href="#([^"]*)">([^<]*)</a>', source)
    assert [name for _, name in links] == headings(source)
    assert re.findall('<section id="([^"]*)">', source) == [anchor for anchor, _ in links]


def test_tiles_fill_their_rows():
    """Eight stand in rows of four, not of six and two."""
    for count, columns in ((1, 1), (6, 6), (7, 4), (8, 4), (9, 5), (13, 5)):
        assert f"--columns:{columns}" in page.tiles(["tile"] * count)


def test_what_never_changes_is_a_sentence_and_no_chart(tmp_path):
    rows = [
        {"step": s, "train/loss": 1 / s, "train/skipped_in_row": 0.0, "train/asked_fraction": s / 9}
        | {"train/expected_fraction": 0.15 + 1e-9 * s, "train/predicted_fraction": 1.0}
        for s in (1, 2, 3)
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)))
    source, text = text_of(tmp_path)
    said = text.partition("The same at every step: ")[2].partition(" .")[0].replace(SPACE, " ")
    assert said == (
        "Masking rate before rounding 15.0 % , Predicted, of selected tokens 100.0 % , "
        "Skipped updates in a row 0"
    )
    assert titles(source) == ["Loss", "Masking rate asked for"]
    assert source.index("<details>") < source.index("Masking rate asked for</")


@pytest.mark.parametrize("phases", [[], [[1.0, 0.3, "linear"]]])
def test_charts_of_a_constant_ledger_are_folded(phases, tmp_path):
    pretraining(tmp_path)
    recorded = json.loads((tmp_path / "config.json").read_text())
    recorded["masking"]["phases"] = phases
    (tmp_path / "config.json").write_text(json.dumps(recorded))
    source, _ = text_of(tmp_path)
    folded = "<summary>Charts over the steps</summary>" in source
    assert folded == (phases == [])
    assert "Tokens selected" in titles(source)


def test_training_is_faint_behind_validation(tmp_path):
    pretraining(tmp_path)
    source, _ = text_of(tmp_path)
    faint = {title: "opacity: 0.6" in figure(source, title) for title in titles(source)[:2]}
    assert faint == {"Loss, the weighted sum": False, "MLM loss": True}
