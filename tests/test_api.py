"""The Python API: what the commands print, arrays that others give, and what is refused.

`tests/net/test_answers.py` holds the frozen answers and arrays of each task and model.
"""

import functools
import json
import operator
import shutil
import traceback
from pathlib import Path

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax import cli
from bert_jax.config import load_file
from bert_jax.errors import CheckpointError, ConfigError, DataError
from bert_jax.models.encoder import compute_layers
from bert_jax.reporting import records
from tests import texts
from tests.pages import a_run
from tests.reference import softmax
from tests.texts import ROOT

GOLDEN, FROZEN = ROOT / "tests/golden/huggingface", ROOT / "tests/net/models"


@pytest.fixture(scope="module")
def model():
    return bert_jax.load(GOLDEN / "pretraining")


def test_logits_of_a_choice_are_one_score_an_option():
    """Their softmax is what transformers gives; a text without options is refused."""
    vocabulary = str(GOLDEN / "pretraining" / "vocab.txt")
    asked = bert_jax.load(GOLDEN / "multiple_choice", tokenizer=vocabulary)
    golden = json.loads((GOLDEN.parent / "pipelines.json").read_text())["choice"]
    questions = [{"text": row["text"], "options": row["options"]} for row in golden]
    for row, expected in zip(asked.logits(questions), golden, strict=True):
        np.testing.assert_allclose(softmax(row), expected["probabilities"], atol=1e-5)
    with pytest.raises(DataError, match="line 1: no options"):
        asked.logits(["the cat"])


def test_hidden_states_of_a_pair_are_those_of_its_ids(tmp_path):
    """Rows of two lengths with RoBERTa's two separators, each as the encoder has it alone."""
    folder = Path(shutil.copytree(FROZEN / "roberta", tmp_path / "roberta"))
    file = folder / "tokenizer.json"  # without a template of pairs they have two separators
    file.write_text(json.dumps(json.loads(file.read_text()) | {"post_processor": None}))
    roberta = bert_jax.load(folder)
    tokenizer, cfg = roberta.opened.tokenizer, roberta.opened.config.model
    cls, sep = tokenizer.special.cls, tokenizer.special.sep
    read = jax.jit(functools.partial(compute_layers, cfg, tokenizer.size))
    pairs = [("the cat", "the"), ("the cat", "the the the")]
    found = roberta.hidden_states(pairs), roberta.attention(pairs), roberta.logits(pairs, "mlm")
    for (first, second), hidden, attention, logits in zip(pairs, *found, strict=True):
        a, b = tokenizer.encode_batch([first, second])
        ids = np.array([[cls, *a, sep, sep, *b, sep]], np.int32)
        zeros = np.zeros_like(ids)
        row = {"tokens": ids, "type_ids": zeros, "segment_ids": zeros + 1}
        row["positions"] = np.arange(ids.shape[1], dtype=np.int32)[None]
        expected = read(roberta.opened.params["encoder"], row)
        np.testing.assert_allclose(hidden, np.asarray(expected.hidden)[:, 0], atol=1e-5)
        np.testing.assert_allclose(attention, np.asarray(expected.attention)[:, 0], atol=1e-5)
        assert logits.shape == (ids.shape[1], tokenizer.size)


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "words", "options", "error", "said"),
    [
        ("embed", ["the cat"], {}, TypeError, "one text where several"),
        ("classify", [["the cat"]], {}, ConfigError, ".* has no classify"),
        ("inspect", ["atention", [""]], {}, ConfigError, "no page 'atention'"),
        ("inspect", ["attention", [""]], {"neighbours": 3}, ConfigError, "neighbours = 3: inspect"),
        ("nsp", [[("a", "b"), ("a", "b", "c")]], {}, DataError, "line 2: 3 parts, not text, "),
        ("fill_mask", [[""]], {"normalize": True}, ConfigError, "normalize = True: predict fill-"),
        ("fill_mask", [[""]], {"batch_size": -3}, ConfigError, "batch_size = -3: '-3' is not a w"),
        ("fill_mask", [[""]], {"tp_k": 2}, TypeError, ".* 'tp_k': did you mean 'top_k'"),
        ("pll", [], {"limit": 2.5}, ConfigError, r"limit = 2\.5: '2.5' is not a whole number of 1"),
        ("pll", [], {"limits": 2}, TypeError, ".* 'limits': did you mean 'limit'"),
    ],
)
def test_wrong_call_is_refused(model, call, words, options, error, said):
    """An option has the range of its flag, and belongs to its task, page or suite."""
    asked = getattr(model, call, functools.partial(bert_jax.score, model, call))
    with pytest.raises(error, match=f"^{said}"):
        asked(*words, **options)


def test_option_that_is_left_at_its_default_is_taken(model):
    usual = {"normalize": False, "pooling": "", "top_k": None}
    (found,) = model.fill_mask(["the [MASK]"], **usual)
    assert [found] == model.fill_mask(["the [MASK]"])
    assert len(found["masks"][0]) == 5


def test_model_keeps_the_last_predictor_of_a_task(model):
    """Each has its own compiled program and copy of the kernels."""
    asked = bert_jax.Model(model.opened)
    answers, kept = [], []
    for top_k in (1, 2, 2):
        answers.append(asked.fill_mask(["the [MASK]"], top_k=top_k))
        kept.append(asked._predictors.copy())
    assert [len(answer[0]["masks"][0]) for answer in answers] == [1, 2, 2]
    assert kept[1] == kept[2] != kept[0]
    assert len(kept[2]) == 1


def test_traceback_has_the_hint(tmp_path):
    with pytest.raises(CheckpointError) as caught:
        bert_jax.load(tmp_path / "none")
    *_, error, hint = traceback.format_exception(caught.value)
    assert error.endswith(f"no checkpoint at {tmp_path / 'none'}\n")
    assert hint == f"hint: {caught.value.hint}\n"


def test_hint_for_a_long_text_names_no_flag(model):
    with pytest.raises(DataError, match="and the model takes") as caught:
        model.logits(["the cat sat. " * 99])
    assert caught.value.hint == "split the text"


def test_empty_and_absent_paths_are_refused(tmp_path, monkeypatch):
    """A variable that is not set would mean the current folder."""
    monkeypatch.chdir(a_run(tmp_path / "run"))
    for call in (
        *(bert_jax.load, bert_jax.show, bert_jax.Run),
        lambda path: bert_jax.run(bert_jax.default_config(), path),
        lambda path: bert_jax.score(path, "pretrain"),
    ):
        with pytest.raises(ConfigError, match="is empty"):
            call("")
    with pytest.raises(DataError, match="no such folder"):
        bert_jax.Run(tmp_path / "none")
    with pytest.raises(DataError, match="no report"):
        bert_jax.show(tmp_path)
    with pytest.raises(AttributeError, match="no attribute 'open'"):
        operator.attrgetter("open")(bert_jax)


# --- pages, runs and configs ----------------------------------------------------------------------


def test_model_and_page_say_what_they_are(model, tmp_path):
    assert "heads mlm, nsp>" in repr(model)
    assert model.embed([]).shape == (0, model.opened.config.model.hidden)
    rows = ["the cat sat." * 99, ("a dog", "\udc80")]  # half a character
    page = model.inspect("attention", rows, long="cut")
    assert repr(page).startswith("<attention of 2 texts: ")
    assert page._repr_html_().startswith("<iframe srcdoc=")
    assert '"<' not in page._repr_html_()  # the document is escaped within the attribute
    page.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == page.html


def test_run_says_its_step_and_scores(tmp_path):
    run = bert_jax.Run(a_run(tmp_path / "run"))
    assert repr(run).startswith(f"<Run {run.workdir}: step 600, eval/validation/")
    assert "eval/validation/unigram_loss" in run.metrics()
    assert "unigram" not in repr(run)
    (run.workdir / records.METRICS).unlink()  # as of an imported run
    assert repr(run) == f"<Run {run.workdir}: step 0>"


@pytest.mark.slow
def test_run_is_trained_read_scored_and_shown(tmp_path):
    tree = load_file(str(texts.config_file(tmp_path)))
    tree.steps, tree.evals.validation.every, tree.checkpoints.every = 4, 4, 4
    with texts.one_device():
        run = bert_jax.run(tree, tmp_path / "run")
        printed = tmp_path / "scores.json"
        words = [f"--checkpoint={tmp_path / 'run'}", f"--output={printed}"]
        assert cli.execute(["evaluate", "--suite=pretrain", *words]) == 0
        assert bert_jax.score(run.load(), "pretrain") == json.loads(printed.read_text())["pretrain"]
    steps, values = run.metrics()["eval/validation/mlm_loss"]
    last = list(records.read_rows(tmp_path / "run" / records.METRICS))[-1]
    assert (steps[-1], values[-1]) == (4, last["eval/validation/mlm_loss"])
    assert "BERT tiny on" in run.report().html
    assert bert_jax.show(run.workdir).html == (run.workdir / "report.html").read_text()
