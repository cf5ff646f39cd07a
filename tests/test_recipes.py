"""Continued pre-training of models of others and of runs by `configs/adapt.py`, and back out."""

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
from tests import families, texts

ADAPT = texts.ROOT / "configs" / "adapt.py"
QUICK = {"epochs": "1", "batch_size": "8", "logging.trackers": "()", "corpus.workers": "1"}


def adapted(text: Path, model: Path, workdir: Path, **changes: str) -> runs.TrainedModel:
    """Train on a text by the config that ships, and open the run; __ stands for dots."""
    tree = config.load_file(f"{ADAPT}:{text},init_from={model}")
    wanted = QUICK | {name.replace("__", "."): value for name, value in changes.items()}
    config.overrides(tree, wanted.items())
    with texts.one_device():
        train.run(config.resolve(tree), workdir, command=[])
    return runs.open_run(str(workdir))


@pytest.mark.parametrize(
    ("family", "head", "objective"),
    [
        pytest.param("roberta", "masked_lm", "mlm", marks=pytest.mark.slow),
        pytest.param("roberta", "causal_lm", "causal_lm", marks=pytest.mark.slow),
        pytest.param("modernbert", "model", "mlm", marks=pytest.mark.slow),
        ("modernbert", "sequence_classification", "mlm"),
    ],
)
def test_adapt_starts_at_the_model_of_others(family, head, objective, tmp_path, capfd):
    """Without a learning rate, each tensor of the encoder goes in and out unchanged."""
    words = np.random.default_rng(0).integers(5, 19, (40, 9))  # pieces of `families.vocabulary`
    (tmp_path / "a.txt").write_text("".join(f"w{' w'.join(map(str, line))}\n\n" for line in words))
    model = families.vocabulary(families.folder(tmp_path / "m", family, head), family)
    still = {"optim__learning_rate": "0", "optim__weight_decay": "0"}
    run = adapted(tmp_path / "a.txt", model, tmp_path / "run", **still)
    said = capfd.readouterr().err
    fresh = head in ("model", "sequence_classification")
    assert ("mlm/dense/kernel" in said and "starts fresh" in said) == fresh
    assert ("classify/logits/kernel" in said) == (head == "sequence_classification")  # not used
    assert run.config.objectives.keys() == {objective}
    assert run.tokenizer.vocab == runs.open_run(str(model)).tokenizer.vocab
    (tmp_path / "out").mkdir()
    export.write_folder(run, tmp_path / "out")
    found, given = load_file(tmp_path / "out/model.safetensors"), families.tensors(family, head)
    stated, out = (
        json.loads((folder / "config.json").read_text()) for folder in (model, tmp_path / "out")
    )
    assert out["architectures"][0].endswith("ForMaskedLM" if objective == "mlm" else "ForCausalLM")
    assert {key: out[key] for key in families.SHARED} == {k: stated[k] for k in families.SHARED}
    prefix = "roberta." if family == "roberta" else "model."
    theirs = given if head != "model" else {f"{prefix}{name}": x for name, x in given.items()}
    encoder = {name for name in theirs if name.startswith(prefix) and "pooler" not in name}
    assert {name for name in found if name.startswith(prefix)} == encoder
    for name in encoder:
        np.testing.assert_array_equal(found[name], theirs[name], err_msg=name)


@pytest.mark.slow  # rows of tests/net train such models to frozen losses
def test_adapt_learns_the_text_and_answers(tmp_path, capfd):
    """A run of eight updates, and the commands on what it becomes."""
    old = texts.ROOT / "tests" / "golden" / "run_v1"
    rate = {"optim__learning_rate": "1e-2", "epochs": "12"}
    run = adapted(old / "text", old / "run", tmp_path / "run", **rate)
    assert run.config.sequence_length == 32  # of the model
    capfd.readouterr()
    with texts.one_device():
        assert cli.execute(["evaluate", f"--model={tmp_path / 'run'}"]) == 0
    scores = json.loads(capfd.readouterr().out)["pretrain"]
    assert scores["mlm_loss"] < scores["unigram_loss"]
    (answer,) = bert_jax.load(str(tmp_path / "run")).fill_mask(["the cat sees [MASK] cat ."])
    assert answer["masks"][0][0]["probability"] > 0.1


@pytest.mark.parametrize("arg", ["TEXT,epochs=2", ",init_from=M"])
def test_adapt_refuses_a_missing_text_or_model(arg):
    with pytest.raises(ConfigError, match=r"adapt\.py has no (text|model)") as caught:
        config.load_file(f"{ADAPT}:{arg}")
    assert "adapt.py:my_texts,init_from=" in caught.value.hint
