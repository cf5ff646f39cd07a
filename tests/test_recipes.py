"""Continued pre-training of models of others and of runs by `configs/adapt.py`, and back out."""

import json

import numpy as np
from safetensors.numpy import load_file

from bert_jax import config, train
from bert_jax.interop import export, runs
from tests import families, texts

ADAPT = texts.ROOT / "configs" / "adapt.py"
# A quick run that changes no weight.
STILL = {"optim.learning_rate": "0", "optim.weight_decay": "0", "epochs": "1", "batch_size": "8"}
STILL |= {"logging.trackers": "()", "logging.samples": "0", "corpus.workers": "1"}


def test_adapt_starts_at_the_model_of_others(tmp_path, capfd, one_device):
    """Without a learning rate, each tensor of the encoder goes in and out unchanged.

    A causal model goes on as such: the net has its config.
    """
    family, head = "modernbert", "sequence_classification"
    words = np.random.default_rng(0).integers(5, 19, (40, 9))  # pieces of `families.vocabulary`
    (tmp_path / "a.txt").write_text("".join(f"w{' w'.join(map(str, line))}\n\n" for line in words))
    model = families.vocabulary(families.folder(tmp_path / "m", family, head), family)
    tree = config.load_file(f"{ADAPT}:{tmp_path / 'a.txt'},init_from={model}")
    config.overrides(tree, STILL.items())
    train.run(config.resolve(tree), tmp_path / "run", command=[])
    run = runs.open_run(str(tmp_path / "run"))
    said = capfd.readouterr().err
    for told in ("mlm/dense/kernel", "starts fresh", "classify/logits/kernel"):  # not used
        assert told in said
    assert run.tokenizer.vocab == runs.open_run(str(model)).tokenizer.vocab
    (tmp_path / "out").mkdir()
    export.write_folder(run, tmp_path / "out")
    stated, out = (
        json.loads((folder / "config.json").read_text()) for folder in (model, tmp_path / "out")
    )
    assert out["architectures"] == ["ModernBertForMaskedLM"]
    assert {key: out[key] for key in families.SHARED} == {k: stated[k] for k in families.SHARED}
    found, given = (
        {name: x for name, x in tensors.items() if name.startswith("model.")}
        for tensors in (
            load_file(tmp_path / "out" / "model.safetensors"),
            families.tensors(family, head),
        )
    )
    np.testing.assert_equal(found, given)
