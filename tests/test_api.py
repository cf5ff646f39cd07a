"""The Python API: what the commands print, as numbers that fit one another."""

from __future__ import annotations

import dataclasses
import functools
import json
import operator
import re
import shutil
import subprocess
import sys
import traceback
from pathlib import Path

import numpy as np
import pytest

import bert_jax
from bert_jax import api, cli
from bert_jax.config import knobs, load_file
from bert_jax.data import tokenizer as tokenizers
from bert_jax.errors import CheckpointError, ConfigError, DataError
from bert_jax.interop import runs
from bert_jax.models.encoder import read_layers
from bert_jax.reporting import records
from tests import families, texts, toy
from tests.pages import a_run

GOLDEN = Path(__file__).parent / "golden" / "huggingface"
LINES = ["the cat sat on the mat.", "a big [MASK] ran.", "a", "the [MASK] sat on the [MASK]"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Golden models, with a vocabulary."""
    root = tmp_path_factory.mktemp("models")
    heads = ("sequence_classification", "token_classification", "causal_lm", "multiple_choice")
    for name in ("pretraining", *heads):
        shutil.copytree(GOLDEN / name, root / name)
        shutil.copy(GOLDEN / "pretraining" / "vocab.txt", root / name)
    return root


@pytest.fixture(scope="module")
def model(folder):
    return bert_jax.load(folder / "pretraining")


def commanded(capsys, tmp_path, task: str, folder: Path, lines: list, *flags: str) -> list[dict]:
    path = tmp_path / "in.jsonl"
    written = (json.dumps(line) if isinstance(line, dict) else line for line in lines)
    path.write_text("".join(f"{line}\n" for line in written))
    capsys.readouterr()
    assert cli.execute(["predict", task, f"--model={folder}", f"--input={path}", *flags]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


PAIRS = [("the cat sat.", "a dog ran."), ("a", "the mat")]


ROUNDS = {"steps": 2, "show_steps": True}


@pytest.mark.parametrize(
    ("task", "name", "given", "flags", "options"),
    [
        ("fill-mask", "pretraining", LINES, ["--top-k=3"], {"top_k": 3}),
        ("nsp", "pretraining", PAIRS, [], {}),
        ("embed", "pretraining", LINES, ["--pooling=cls"], {"pooling": "cls"}),
        ("classify", "sequence_classification", LINES, [], {}),
        ("tag", "token_classification", ["the cat sat", ["big", "dog"]], [], {}),
        ("generate", "causal_lm", LINES[:1], ["--max-tokens=3"], {"max_tokens": 3}),
        ("generate", "pretraining", LINES, ["--steps=2", "--show-steps"], ROUNDS),
    ],
)
def test_answers_are_those_of_the_command(
    task, name, given, flags, options, folder, capsys, tmp_path
):
    lines: list = []
    for one in given:
        if isinstance(one, tuple):
            lines.append({"text": one[0], "text_pair": one[1]})
        else:
            lines.append({"words": one} if isinstance(one, list) else one)
    if task == "tag":
        given = [one if isinstance(one, str) else {"words": one} for one in given]
    printed = commanded(capsys, tmp_path, task, folder / name, lines, *flags)
    asked = bert_jax.load(folder / name)
    found = getattr(asked, task.replace("-", "_"))(given, **options)
    if task == "embed":
        expected = np.array([row["embedding"] for row in printed], np.float32)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, expected)
    else:
        assert found == printed


def test_arrays_of_a_text_fit_one_another_in_any_company(model):
    """The embedding is the mean of the last hidden states, a mask's probabilities are the softmax
    of its logits, and attention sums to 1.
    """
    hidden, attention = model.hidden_states(LINES), model.attention(LINES)
    logits, vectors = model.logits(LINES, head="mlm"), model.embed(LINES)
    cfg = model.opened.config.model
    for i, line in enumerate(LINES):
        n = hidden[i].shape[1]
        assert hidden[i].shape == (cfg.layers + 1, n, cfg.hidden)
        assert attention[i].shape == (cfg.layers, cfg.heads, n, n)
        assert logits[i].shape == (n, model.opened.tokenizer.size)
        np.testing.assert_allclose(attention[i].sum(-1), 1, atol=1e-5)
        if "[MASK]" not in line:  # which is letters to `embed`, as it is to the command
            np.testing.assert_allclose(hidden[i][-1].mean(0), vectors[i], atol=1e-5)
        (alone,) = model.hidden_states([line])
        np.testing.assert_allclose(hidden[i], alone, atol=1e-5)
    (answer,) = model.fill_mask([LINES[1]], top_k=1)
    ids = [
        model.opened.tokenizer.special.cls,
        *model.opened.tokenizer.encode_batch([LINES[1]], escape=False)[0],
    ]
    at = logits[1][ids.index(model.opened.tokenizer.special.mask)].astype(np.float64)
    shares = np.exp(at - at.max()) / np.exp(at - at.max()).sum()
    best = int(shares.argmax())
    (token,) = answer["masks"][0]
    assert token["token"] == model.opened.tokenizer.vocab[best]
    assert token["probability"] == pytest.approx(shares[best], rel=1e-5)


def test_logits_of_a_classifier_are_one_row_a_text(folder):
    asked = bert_jax.load(folder / "sequence_classification")
    lines = [line for line in LINES if "[MASK]" not in line]
    found, answers = asked.logits(lines), asked.classify(lines)
    for row, answer in zip(found, answers, strict=True):
        assert row.shape == (len(answer["probabilities"]),)
        chances = np.exp(row.astype(np.float64)) / np.exp(row.astype(np.float64)).sum()
        np.testing.assert_allclose(chances, list(answer["probabilities"].values()), rtol=1e-5)


def test_logits_of_a_choice_are_one_score_an_option(folder):
    """Their softmax is what transformers gives; a text without options is refused."""
    asked = bert_jax.load(folder / "multiple_choice")
    golden = json.loads((GOLDEN.parent / "pipelines.json").read_text())["choice"]
    questions = [{"text": row["text"], "options": row["options"]} for row in golden]
    for row, expected in zip(asked.logits(questions), golden, strict=True):
        assert row.shape == (len(expected["options"]),)
        chances = np.exp(row.astype(np.float64)) / np.exp(row.astype(np.float64)).sum()
        np.testing.assert_allclose(chances, expected["probabilities"], atol=1e-5)
    assert asked.logits([]) == []
    with pytest.raises(DataError, match="line 1: no options"):
        asked.logits(["the cat"])
    with pytest.raises(DataError, match="two or more that differ"):
        asked.logits([{"text": "the cat", "options": ["a", "a"]}])


def test_what_cannot_be_asked_is_refused(model, tmp_path):
    with pytest.raises(TypeError, match="one text where several"):
        model.embed("the cat")
    with pytest.raises(TypeError, match="no option 'topk'"):
        model.fill_mask(["a [MASK]"], topk=3)
    with pytest.raises(ConfigError, match="has no classify"):
        model.classify(["the cat"])
    with pytest.raises(ConfigError, match="no page 'atention'"):
        model.inspect("atention", ["the cat"])
    with pytest.raises(DataError, match="the model takes"):
        model.embed(["the cat " * 400])
    with pytest.raises(DataError, match="no text_pair"):
        model.nsp(["the cat"])
    with pytest.raises(DataError, match="line 2: 3 parts, not text, text_pair"):
        model.nsp([("the cat", "a dog"), ("the cat", "a dog", "the mat")])
    with pytest.raises(DataError, match="line 1: 2 parts, not text"):
        model.embed(np.array([["the cat", "a dog"]]))  # one vector of two texts
    with pytest.raises(TypeError, match="line 1 is nan"):
        model.embed([float("nan")])
    with pytest.raises(ConfigError, match="pooling = 'max'"):
        model.embed(["the cat"], pooling="max")
    with pytest.raises(ConfigError, match="top_k = 0"):
        model.fill_mask(["a [MASK]"], top_k=0)
    with pytest.raises(DataError, match="no such folder"):
        bert_jax.Run(tmp_path / "none")
    with pytest.raises(DataError, match="no report"):
        bert_jax.show(tmp_path)
    with pytest.raises(CheckpointError, match="no checkpoint"):
        bert_jax.load(tmp_path / "none")
    with pytest.raises(AttributeError, match="no attribute 'open'"):
        operator.attrgetter("open")(bert_jax)
    assert model.embed([]).shape == (0, model.opened.config.model.hidden)


@pytest.mark.parametrize(
    ("call", "options", "said"),
    [
        (
            "fill_mask",
            {"normalize": True},
            "normalize = True: predict fill-mask has no option 'normalize'",
        ),
        ("fill_mask", {"on_bad_row": "sikp"}, "on_bad_row = 'sikp': invalid choice"),
        ("fill_mask", {"on_bad_row": "skip"}, "on_bad_row = 'skip' does nothing"),
        ("fill_mask", {"batch_size": -3}, "batch_size = -3: '-3' is not a whole number of 1"),
        ("embed", {"top_k": 3}, "top_k = 3: predict embed has no option 'top_k'"),
        ("generate", {"temperature": "hot"}, "temperature = 'hot': invalid float"),
        ("inspect", {"long": "ct"}, "long = 'ct': invalid choice"),
        ("inspect", {"neighbours": 3}, "neighbours = 3: inspect attention has no option"),
        ("nelbo", {"draws": -2}, "draws = -2: '-2' is not a whole number of 1 or more"),
        ("nelbo", {"batch_size": -3}, "batch_size = -3: '-3' is not a whole number of 1"),
        ("pll", {"limit": -3}, "limit = -3: '-3' is not a whole number of 1 or more"),
        ("pll", {"limit": True}, "limit = True: 'True' is not a whole number of 1 or more"),
        ("pll", {"limit": 2.5}, "limit = 2.5: '2.5' is not a whole number of 1 or more"),
        ("pll", {"draws": 2}, "--draws means nothing to pll"),
    ],
)
def test_option_has_the_range_of_its_flag(model, call, options, said):
    """No number of a model that was asked for something else comes back."""
    asked = getattr(model, call, functools.partial(bert_jax.score, model, call))
    given = {"nelbo": (), "pll": (), "inspect": ("attention", ["the cat"])}
    with pytest.raises(ConfigError) as caught:
        asked(*given.get(call, (["the [MASK]"],)), **options)
    assert str(caught.value).startswith(said)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("call", "name", "nearest"),
    [
        ("pll", "limits", "limit"),
        ("pll", "output", ""),
        ("pll", "foo", ""),
        ("embed", "poling", "pooling"),
        ("embed", "foo", ""),
    ],
)
def test_option_of_no_name_is_refused_in_python(model, call, name, nearest):
    """By the names of Python, and not by the flags of a command."""
    asked = getattr(model, call, functools.partial(bert_jax.score, model, call))
    with pytest.raises(TypeError) as caught:
        asked(*((["the cat"],) if call == "embed" else ()), **{name: 2})
    said = str(caught.value)
    assert said.startswith(f"{call} has no option {name!r}: ")
    assert "--" not in said
    assert (f"did you mean {nearest!r}?" in said) == bool(nearest)


def test_option_that_is_left_at_its_default_is_taken(model, tmp_path):
    (tmp_path / "lines.txt").write_text("the cat sat\n")
    plain = model.fill_mask(["the [MASK]"])
    usual = {"normalize": False, "pooling": "", "top_k": None, "on_bad_row": "fail"}
    assert model.fill_mask(["the [MASK]"], **usual) == plain
    asked = {"source": str(tmp_path / "lines.txt"), "limit": 1}
    found = bert_jax.score(model, "pll", **asked, draws=0, batch_size=0, within_word=False)
    assert found == bert_jax.score(model, "pll", **asked)


def test_a_traceback_has_the_hint(tmp_path):
    with pytest.raises(CheckpointError) as caught:
        bert_jax.load(tmp_path / "none")
    *_, error, hint = traceback.format_exception(caught.value)
    assert error.endswith(f"no checkpoint at {tmp_path / 'none'}\n")
    assert hint == f"hint: {caught.value.hint}\n"


def test_a_model_and_a_page_say_what_they_are(model, tmp_path):
    assert repr(model).count("\n") == 0
    assert "heads mlm, nsp>" in repr(model)
    page = model.inspect("attention", ["the cat sat.", ("a dog", "ran")])
    assert repr(page).startswith("<attention of 2 texts: ")
    assert "3 masks · 2 rounds" in model.inspect("generation", ["a"], max_tokens=3, steps=2).html
    assert page._repr_html_().startswith("<iframe srcdoc=")
    assert '"<' not in page._repr_html_()  # the document is escaped within the attribute
    page.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == page.html
    lone = model.inspect("attention", ["the cat \udc80"])  # half a character
    assert "the cat ?" in lone._repr_html_().encode().decode()


def test_the_line_of_a_run_has_its_losses_or_else_its_scores(tmp_path):
    run = bert_jax.Run(a_run(tmp_path / "run"))
    losses = "eval/validation/mlm_loss 4.750, eval/validation/unigram_loss 6.500"
    assert repr(run) == f"<Run {run.workdir}: step 600, {losses}>"
    scores = {"accuracy": 0.75, "accuracy_low": 0.5, "majority_accuracy": 0.4, "f1": 0.7}
    line = {"step": 90, "time": 1.0} | {f"eval/validation/{n}": v for n, v in scores.items()}
    (run.workdir / records.METRICS).write_text(f"{json.dumps(line)}\n")
    tuned = "eval/validation/accuracy 0.750, eval/validation/f1 0.700"
    assert repr(run) == f"<Run {run.workdir}: step 90, {tuned}>"
    (run.workdir / records.METRICS).unlink()  # as of an imported run
    assert repr(run) == f"<Run {run.workdir}: step 0>"


@pytest.mark.slow
def test_a_run_is_trained_read_scored_and_shown(tmp_path):
    tree = load_file(str(texts.config_file(tmp_path)))
    tree.steps, tree.evals.validation.every, tree.checkpoints.every = 4, 4, 4
    with texts.one_device():
        run = bert_jax.run(tree, tmp_path / "run")
        printed = tmp_path / "scores.json"
        words = [f"--checkpoint={tmp_path / 'run'}", f"--output={printed}"]
        assert cli.execute(["evaluate", "--suite=pretrain", *words]) == 0
        assert bert_jax.score(run.load(), "pretrain") == json.loads(printed.read_text())["pretrain"]
    steps, values = run.metrics()["eval/validation/mlm_loss"]
    last = list(records.rows(tmp_path / "run" / records.METRICS))[-1]
    assert (steps[-1], values[-1]) == (4, last["eval/validation/mlm_loss"])
    assert "step 4, " in repr(run)
    assert run._repr_html_() == bert_jax.show(tmp_path / "run")._repr_html_()


def test_dry_run_returns_and_makes_nothing(tmp_path, capsys):
    tree = load_file(str(texts.config_file(tmp_path)))
    assert bert_jax.run(tree, tmp_path / "run", dry_run=True) is None
    assert "parameters" in capsys.readouterr().out
    assert not (tmp_path / "run").exists()


def test_dry_run_shows_its_config_on_a_terminal(tmp_path, capsys, monkeypatch):
    """In full from Python; the command line says how to see it."""
    file = texts.config_file(tmp_path)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    bert_jax.run(load_file(str(file)), tmp_path / "run", dry_run=True)
    assert '"masking": {' in capsys.readouterr().out
    words = ["train", f"--config={file}", f"--workdir={tmp_path / 'run'}", "--dry-run"]
    assert cli.execute(words) == 0
    printed = capsys.readouterr().out
    assert '"masking": {' not in printed
    assert printed.endswith("left out on a terminal; `... --dry-run | less` shows it\n")


def test_empty_path_is_refused(tmp_path, monkeypatch):
    """A variable that is not set would mean the current folder."""
    monkeypatch.chdir(a_run(tmp_path / "run"))
    for call in (
        bert_jax.load,
        bert_jax.show,
        bert_jax.Run,
        lambda path: bert_jax.run(bert_jax.default_config(), path),
        lambda path: bert_jax.score(path, "pretrain"),
    ):
        with pytest.raises(ConfigError, match="is empty"):
            call("")


def test_presets_are_configs(tmp_path):
    assert bert_jax.default_config().masking.rate == 0.15
    assert bert_jax.default_config("wettig").masking.rate == 0.4


def test_importing_the_package_loads_no_jax():
    program = "import sys, bert_jax; print(dir(bert_jax), 'jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.endswith(" False\n"), done.stderr
    assert "'load'" in done.stdout


# --- models of others -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def roberta() -> api.Model:
    """A random RoBERTa, whose pairs have two separators, with heads mlm and tag."""
    file = GOLDEN.parent / "bpe" / "roberta"
    tokenizer = tokenizers.load(file)
    shape = {"model__type_vocab": 1, "model__first_position": 2, "model__init_stddev": 0.3}
    config = toy.config(pairs="none", **shape)
    heads = {"mlm": knobs.Objective(1.0), "tag": knobs.Objective(1.0, ("O", "B", "I"))}
    config = dataclasses.replace(config, objectives=heads)
    params = toy.init(config, vocab=tokenizer.size)
    meta = {"foreign": "roberta"}
    return api.Model(runs.TrainedModel(file, config, tokenizer, file, params, 0, meta))


def test_hidden_states_of_a_pair_are_those_of_its_ids(roberta):
    """Rows of every length up to the longest, each against the encoder of the row alone."""
    tokenizer, cfg = roberta.opened.tokenizer, roberta.opened.config.model
    cls, sep = tokenizer.special.cls, tokenizer.special.sep
    pairs = [("the model", "the" + " the" * more) for more in range(16)]
    found = roberta.hidden_states(pairs), roberta.attention(pairs), roberta.logits(pairs, "mlm")
    for (first, second), hidden, attention, logits in zip(pairs, *found, strict=True):
        a, b = tokenizer.encode_batch([first, second])
        ids = np.array([[cls, *a, sep, sep, *b, sep]], np.int32)
        zeros = np.zeros_like(ids)
        row = {"tokens": ids, "type_ids": zeros, "segment_ids": zeros + 1}
        row["positions"] = np.arange(ids.shape[1], dtype=np.int32)[None]
        expected = read_layers(cfg, tokenizer.size, roberta.opened.params["encoder"], row)
        np.testing.assert_allclose(hidden, np.asarray(expected.hidden)[:, 0], atol=1e-5)
        np.testing.assert_allclose(attention, np.asarray(expected.attention)[:, 0], atol=1e-5)
        assert logits.shape == (ids.shape[1], tokenizer.size)


def test_tag_of_a_text_is_read_off_its_logits(roberta):
    """A text is the same tokens to both, and to transformers; words have a blank before each."""
    labels = roberta.opened.config.objectives["tag"].labels
    texts = ["the model", " the model", "dog masking rate"]
    for text, logits in zip(texts, roberta.logits(texts, head="tag"), strict=True):
        encode = roberta.opened.tokenizer.encode_batch
        pieces = [len(ids) for ids in encode(re.findall(r" ?\w+", text))]
        firsts = 1 + np.cumsum([0, *pieces[:-1]])
        assert len(logits) == sum(pieces) + 2
        expected = [labels[i] for i in logits[firsts].argmax(-1)]
        (found,) = roberta.tag([text])
        assert found == {"words": text.split(), "labels": expected}
    (of_words,) = roberta.tag([{"words": ["the", "model"]}])
    assert of_words == roberta.tag([" the model"])[0]


@pytest.mark.parametrize("family", ["roberta-prelayernorm", "modernbert", "roberta"])
def test_hidden_states_are_those_of_transformers(family, tmp_path):
    """The last layer of a model with a final norm stands after it."""
    families.vocabulary(families.folder(tmp_path, family, "model"), family)
    model, given = bert_jax.load(tmp_path), families.batch(family, "model")
    counts, vocab = given["attention_mask"].sum(1), model.opened.tokenizer.vocab
    texts = [
        " ".join(vocab[i] for i in row[1 : count - 1])
        for row, count in zip(given["input_ids"], counts, strict=True)
    ]
    golden = families.outputs(family, "model")["hidden_states"]
    for row, states in enumerate(model.hidden_states(texts)):
        expected = golden[:, row, : counts[row]]
        np.testing.assert_allclose(states, expected, atol=1e-5 * np.abs(expected).max())
