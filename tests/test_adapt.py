"""Continued pre-training of models of others, of runs and of their exports, and back out."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import bert_jax
from bert_jax import cli, config, train
from bert_jax.errors import ConfigError
from bert_jax.interop import export, runs
from tests import families, tasks, texts

ADAPT = texts.ROOT / "configs" / "adapt.py"
QUICK = {"epochs": "1", "batch_size": "8", "logging.trackers": "()", "corpus.workers": "1"}


@pytest.fixture(scope="module")
def words(tmp_path_factory) -> Path:
    """Text of the words of `families.vocabulary`, in documents."""
    random = np.random.default_rng(0)
    lines = (" ".join(f"w{i}" for i in random.integers(5, 19, 9)) for _ in range(160))
    file = tmp_path_factory.mktemp("words") / "words.txt"
    file.write_text("".join(f"{line}\n\n" for line in lines))
    return file


def adapted(text: Path, model: Path, workdir: Path, **changes: str) -> runs.TrainedModel:
    """Train on a text by the config that ships, and open the run; __ stands for dots."""
    tree = config.load_file(f"{ADAPT}:{text},init_from={model}")
    wanted = QUICK | {name.replace("__", "."): value for name, value in changes.items()}
    config.overrides(tree, wanted.items())
    with texts.one_device():
        train.run(config.resolve(tree), workdir, command=[])
    return runs.open_run(str(workdir))


def exported(run: runs.TrainedModel, folder: Path) -> dict[str, np.ndarray]:
    folder.mkdir()
    export.write_folder(run, folder)
    return load_file(folder / "model.safetensors")


@pytest.mark.parametrize("head", ["masked_lm", "model", "sequence_classification"])
@pytest.mark.parametrize("family", ["roberta", "modernbert"])
def test_adapt_starts_at_the_model_of_others(family, head, words, tmp_path, capfd):
    """Without a learning rate, each tensor of the encoder goes in and out unchanged."""
    model = families.vocabulary(families.folder(tmp_path / "m", family, head), family)
    run = adapted(words, model, tmp_path / "run", optim__learning_rate="0", optim__weight_decay="0")
    err = capfd.readouterr().err
    assert ("mlm/dense/kernel" in err and "starts fresh" in err) == (head != "masked_lm")
    assert (run.config.objectives.keys(), run.config.masking.rate) == ({"mlm"}, 0.15)
    assert run.tokenizer.vocab == runs.open_run(str(model)).tokenizer.vocab
    stated, given = json.loads((model / "config.json").read_text()), families.tensors(family, head)
    found = exported(run, tmp_path / "out")
    out = json.loads((tmp_path / "out" / "config.json").read_text())
    assert out["architectures"][0].endswith("ForMaskedLM")
    assert {key: out[key] for key in families.SHARED} == {k: stated[k] for k in families.SHARED}
    prefix = "roberta." if family == "roberta" else "model."
    theirs = given if head != "model" else {f"{prefix}{name}": x for name, x in given.items()}
    encoder = [name for name in theirs if name.startswith(prefix) and "pooler" not in name]
    assert {name for name in found if name.startswith(prefix)} == {*encoder}
    for name in encoder:
        np.testing.assert_array_equal(found[name], theirs[name], err_msg=name)


def test_adapt_learns_the_text_and_answers(base, tmp_path, capfd):
    """A run of ours, which has seen no text, and the commands on what it becomes."""
    with texts.one_device():
        train.run(texts.configure(base, steps=1), tmp_path / "start", command=[])
    corpus = base.parent / "corpus"
    before = runs.open_run(str(tmp_path / "start"))
    rate = {"optim__learning_rate": "5e-3", "epochs": "4"}
    run = adapted(corpus, tmp_path / "start", tmp_path / "run", **rate)
    assert run.config.sequence_length == before.config.sequence_length
    with pytest.raises(SystemExit) as ended:
        cli.main(["evaluate", f"--model={tmp_path / 'run'}"])
    assert not ended.value.code
    scores = json.loads(capfd.readouterr().out)["pretrain"]
    assert scores["mlm_loss"] < scores["unigram_loss"]
    (answer,) = bert_jax.load(str(tmp_path / "run")).fill_mask(["the cat sees [MASK] cat ."])
    assert answer["masks"][0][0]["probability"] > 0.1


@pytest.fixture(scope="module")
def classifier(tmp_path_factory) -> Path:
    """An export of a fine-tuned model, which has a head over labels alone."""
    folder = tmp_path_factory.mktemp("classifier")
    source = tasks.write_classify(folder)
    with texts.one_device():
        train.run(tasks.config("classify", f"files:{source}", folder), folder / "run", command=[])
    exported(runs.open_run(str(folder / "run")), folder / "out")
    return folder / "out"


def test_adapt_takes_an_export_with_a_classifier_only(classifier, base, tmp_path, capfd):
    run = adapted(base.parent / "corpus", classifier, tmp_path / "run")
    err = capfd.readouterr().err
    fresh, unused = (
        next(line for line in err.splitlines() if line.endswith(state))
        for state in ("starts fresh", "is not used")
    )
    assert "mlm/bias" in fresh
    assert "classify/logits/kernel" in unused
    assert (run.config.model.hidden, run.config.model.layers) == (32, 2)
    exported(run, tmp_path / "out")
    again = runs.open_run(str(tmp_path / "out"))
    given = ["the cat sees a [MASK] dog ."]
    ours, theirs = (
        bert_jax.load(str(path)).logits(given, head="mlm")[0] for path in (run.folder, again.folder)
    )
    np.testing.assert_array_equal(ours, theirs)


def test_adapt_trains_a_causal_model_left_to_right(words, tmp_path):
    model = families.folder(tmp_path / "m", "roberta", "causal_lm")
    families.vocabulary(model, "roberta")
    run = adapted(words, model, tmp_path / "run")
    assert run.config.objectives.keys() == {"causal_lm"}


@pytest.mark.parametrize("arg", ["", "TEXT", "TEXT,epochs=2", "TEXT,init_from=", ",init_from=M"])
def test_adapt_refuses_a_missing_text_or_model(arg):
    with pytest.raises(ConfigError, match=r"adapt\.py has no (text|model)") as caught:
        config.load_file(f"{ADAPT}:{arg}")
    assert "adapt.py:my_texts,init_from=" in caught.value.hint
