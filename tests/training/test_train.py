"""The loop end to end, in this process: what it writes, learns, starts from and refuses."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from bert_jax import train
from bert_jax.config import resolve
from bert_jax.data import tokenizer as tokenizers
from bert_jax.errors import DivergedError
from bert_jax.interop import initial, runs
from bert_jax.masking import quotas
from bert_jax.system import trees
from tests import outcomes, texts, tiny
from tests.texts import configure

LOGGED = """loss mlm_loss nsp_loss mlm_accuracy nsp_accuracy masked_fraction mask_token_fraction
    random_fraction kept_fraction learning_rate grad_norm tokens_per_second data_wait
    model_flops_per_second evaluation_seconds saving_seconds host_memory_bytes"""


@pytest.fixture(scope="module")
def trained(base, tmp_path_factory) -> Path:
    """Train for 30 steps: evaluated and saved at 10, 20 and 30."""
    workdir = tmp_path_factory.mktemp("run")
    with texts.one_device():
        train.run(configure(base), workdir, command=["bert-jax", "train"])
    return workdir


def test_train_writes_what_the_contract_names(trained):
    lines = outcomes.read_lines(trained)
    updates = [line for line in lines if "train/loss" in line]
    assert [line["step"] for line in updates] == [5, 10, 15, 20, 25, 30]
    assert {f"train/{name}" for name in LOGGED.split()} <= updates[-1].keys()
    evaluations = [line for line in lines if "eval/validation/mlm_loss" in line]
    losses = {line["step"]: line["eval/validation/mlm_loss"] for line in evaluations}
    assert [*losses] == [10, 20, 30]
    for name in ("nsp_accuracy", "unigram_loss", "majority_accuracy"):
        assert f"eval/validation/{name}" in evaluations[-1]
    for file in ("report.html", "tokenizer/vocab.txt", "tokenizer/tokenizer.json"):
        assert (trained / file).stat().st_size > 0, file
    assert resolve(json.loads((trained / "config.json").read_text())).steps == 30
    environment = json.loads((trained / "environment.json").read_text())
    assert environment["versions"]["jax"] == jax.__version__
    assert environment["command"] == ["bert-jax", "train"]
    steps = {int(path.name) for path in (trained / "checkpoints").iterdir()}
    assert steps == {20, 30, min(losses, key=losses.get)}


def test_train_stops_at_masks_that_are_not_asked_for(base, tmp_path, monkeypatch, one_device):
    real = quotas.mean_quotas
    monkeypatch.setattr(quotas, "mean_quotas", lambda *args: np.minimum(real(*args), 2))
    # Numbers of slots that other tests counted, or are to count, do not come from these quotas.
    monkeypatch.setattr(quotas, "count_slots", quotas.count_slots.__wrapped__)
    with pytest.raises(DivergedError, match="realised masks"):
        train.run(configure(base, masking__rate=0.4), tmp_path, command=[])


# --- starting from another run --------------------------------------------------------------------


def start(trained: Path, base: Path, **changes: Any) -> tuple[dict, dict, dict]:
    """Return a fresh run's parameters, those it starts with, and those of the trained run."""
    config = configure(base, init_from=str(trained), **changes)
    place = config.tokenizer.path or trained / "tokenizer"
    tokenizer = tokenizers.load_tokenizer(Path(place))
    fresh = jax.device_put(tiny.init(config, 5, tokenizer.size))
    found = initial.start_from(config, fresh, tiny.draw_from(fresh), tokenizer)
    old = runs.open_run(str(trained)).params
    return trees.flatten_tree(fresh), trees.flatten_tree(found), trees.flatten_tree(old)


def test_start_draws_only_what_is_named_fresh(base, trained):
    fresh, found, old = start(trained, base, pairs="sop", init_fresh="^sop/")
    for name, value in found.items():
        expected = fresh if name.startswith("sop/") else old
        np.testing.assert_array_equal(value, expected[name], err_msg=name)
    fresh, found, old = start(trained, base, init_fresh_layers=1)
    for name, value in found.items():
        again = name.startswith(("encoder/pooler/", "encoder/layer_0/"))
        np.testing.assert_array_equal(value, (fresh if again else old)[name], err_msg=name)


def test_start_keeps_the_rows_of_shared_pieces(base, trained, tmp_path, capfd):
    vocab = (trained / "tokenizer/vocab.txt").read_text().splitlines()
    other = [*vocab[:5], "zebra", *vocab[:4:-1]]  # one more, the rest backwards
    (tmp_path / "vocab.txt").write_text("".join(f"{piece}\n" for piece in other))
    changes = {"tokenizer__path": tmp_path / "vocab.txt", "init_vocab": "remap"}
    fresh, found, old = start(trained, base, **changes)
    name = "encoder/embeddings/token"
    for row, piece in enumerate(other):
        expected = fresh[name][row] if piece == "zebra" else old[name][vocab.index(piece)]
        np.testing.assert_array_equal(found[name][row], expected, err_msg=piece)
