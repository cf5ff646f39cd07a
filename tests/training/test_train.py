"""The loop end to end, in this process: what it writes, learns, starts from and refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from bert_jax import cli, train
from bert_jax.config import resolve
from bert_jax.data import tokenizer as tokenizers
from bert_jax.errors import ConfigError, DivergedError
from bert_jax.interop import initial, runs
from bert_jax.masking import quotas
from bert_jax.system import trees
from bert_jax.training import run as running
from bert_jax.training.step import compute_inputs
from tests import outcomes, texts, toy
from tests.texts import configure

WRITTEN = (
    *("loss", "mlm_loss", "nsp_loss", "mlm_accuracy", "nsp_accuracy", "masked_fraction"),
    *("mask_token_fraction", "random_fraction", "kept_fraction", "learning_rate", "grad_norm"),
    *("tokens_per_second", "data_wait", "model_flops_per_second", "evaluation_seconds"),
    *("saving_seconds", "host_memory_bytes"),
)


@pytest.fixture(scope="module")
def trained(base, tmp_path_factory) -> Path:
    """Train for 30 steps: evaluated and saved at 10, 20 and 30."""
    workdir = tmp_path_factory.mktemp("run")
    with texts.one_device():
        train.run(configure(base), workdir, command=["bert-jax", "train"])
    return workdir


def read_lines(workdir: Path, prefix: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if any(key.startswith(prefix) for key in line)]


def test_train_writes_what_the_contract_names(trained):
    lines = read_lines(trained, "train/")
    first, last = lines[0], lines[-1]
    assert [line["step"] for line in lines] == [5, 10, 15, 20, 25, 30]
    assert {f"train/{name}" for name in WRITTEN} <= last.keys()
    total = first["train/mlm_loss"] + first["train/nsp_loss"]
    assert first["train/loss"] == pytest.approx(total, rel=1e-3)  # mean of ratios
    assert last["train/mlm_loss"] < first["train/mlm_loss"] - 0.3
    evaluations = read_lines(trained, "eval/")
    assert [line["step"] for line in evaluations] == [10, 20, 30]
    assert {"mlm_loss", "nsp_accuracy", "unigram_loss", "majority_accuracy"} <= {
        name.rpartition("/")[2] for name in evaluations[-1]
    }
    for file in ("report.html", "tokenizer/vocab.txt", "tokenizer/tokenizer.json"):
        assert (trained / file).stat().st_size > 0, file
    assert resolve(json.loads((trained / "config.json").read_text())).steps == 30
    environment = json.loads((trained / "environment.json").read_text())
    assert environment["versions"]["jax"] == jax.__version__
    assert environment["command"] == ["bert-jax", "train"]
    steps = {int(path.name) for path in (trained / "checkpoints").iterdir()}
    best = min(evaluations, key=lambda line: line["eval/validation/mlm_loss"])["step"]
    assert steps == {20, 30, best}


def test_train_leaves_a_finished_run_as_it_is(base, trained, one_device):
    before = (trained / "metrics.jsonl").read_bytes()
    train.run(configure(base), trained, command=[])
    assert (trained / "metrics.jsonl").read_bytes() == before


@pytest.mark.fault(7)
def test_another_vocabulary_in_a_run_is_refused(trained, tmp_path):
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    (run / "tokenizer" / "tokenizer.json").unlink()
    lines = (run / "tokenizer" / "vocab.txt").read_text().splitlines()
    lines[40], lines[41] = lines[41], lines[40]
    (run / "tokenizer" / "vocab.txt").write_text("\n".join(lines) + "\n")
    with pytest.raises(ConfigError, match="is not the tokenizer step 30 was trained with"):
        runs.open_run(str(run))


@pytest.mark.fault(7)
def test_train_adds_steps_only_when_asked_to(tmp_path, one_device):
    file, workdir = texts.config_file(tmp_path), tmp_path / "w"
    short = {"checkpoints__every": 4, "evals__validation__every": 4, "logging__every": 2}
    train.run(configure(file, steps=8, **short), workdir, command=[])
    with pytest.raises(ConfigError, match="steps: 8 -> 12"):
        train.run(configure(file, steps=12, **short), workdir, command=[])
    with pytest.raises(ConfigError, match="is at step 8, past the last step of this config, 4"):
        train.run(configure(file, steps=4, **short), workdir, command=[])
    changed = configure(file, steps=12, masking__replace="(1,0,0)", **short)
    train.run(changed, workdir, allow_change=("steps", "masking.replace"), command=[])
    assert outcomes.logged(workdir, "mask_token_fraction")[-1] == 1
    texts.write(tmp_path / "corpus", documents=100, seed=1)
    with pytest.raises(ConfigError, match="another corpus"):
        train.run(changed, workdir, command=[])


@pytest.mark.fault(6)
def test_train_that_diverges_names_the_step(base, tmp_path, monkeypatch, one_device):
    def poison(config, step):
        numbers = compute_inputs(config, step)
        weights = dict(numbers.weights, mlm=np.float32("nan")) if step >= 12 else numbers.weights
        return numbers._replace(weights=weights)

    monkeypatch.setattr(running, "compute_inputs", poison)
    with pytest.raises(DivergedError, match=r"5 updates in a row .* step 17, held examples \[\d"):
        train.run(configure(base), tmp_path, command=[])
    assert DivergedError.code == 5
    assert runs.open_run(str(tmp_path)).step == 10


def test_train_stops_at_masks_that_are_not_asked_for(base, tmp_path, monkeypatch, one_device):
    real = quotas.mean_quotas
    monkeypatch.setattr(quotas, "mean_quotas", lambda *args: np.minimum(real(*args), 2))
    # Numbers of slots that other tests counted, or are to count, do not come from these quotas.
    count = quotas.count_slots.__wrapped__
    monkeypatch.setattr(quotas, "count_slots", count)
    with pytest.raises(DivergedError, match="realised masks"):
        train.run(configure(base, masking__rate=0.4), tmp_path, command=[])


# --- starting from another run --------------------------------------------------------------------


def start(trained: Path, base: Path, **changes: Any) -> tuple[dict, dict, dict]:
    """Return a fresh run's parameters, those it starts with, and those of the trained run."""
    config = configure(base, init_from=str(trained), **changes)
    place = config.tokenizer.path or trained / "tokenizer"
    tokenizer = tokenizers.load(Path(place))
    fresh = jax.device_put(toy.init(config, 5, tokenizer.size))
    found = initial.start_from(config, fresh, tokenizer)
    old = runs.open_run(str(trained)).params
    return trees.flat(fresh), trees.flat(found), trees.flat(old)


def test_start_takes_the_parameters_of_a_run(base, trained):
    _, found, old = start(trained, base)
    for name, value in found.items():
        np.testing.assert_array_equal(value, old[name], err_msg=name)
    with pytest.raises(ConfigError, match="another shape for encoder/") as error:
        start(trained, base, model__hidden=128)
    assert "hidden=64" in error.value.hint


def test_start_draws_only_what_is_named_fresh(base, trained):
    with pytest.raises(ConfigError, match=r"lacks sop/logits/bias, sop/logits/kernel"):
        start(trained, base, pairs="sop")
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
    changes = {"tokenizer__path": tmp_path / "vocab.txt"}
    with pytest.raises(ConfigError, match="another tokenizer"):
        start(trained, base, **changes)
    fresh, found, old = start(trained, base, init_vocab="remap", **changes)
    name = "encoder/embeddings/token"
    for row, piece in enumerate(other):
        expected = fresh[name][row] if piece == "zebra" else old[name][vocab.index(piece)]
        np.testing.assert_array_equal(found[name][row], expected, err_msg=piece)


# --- what is said before anything trains ----------------------------------------------------------


@pytest.mark.fault(22)
@pytest.mark.parametrize("place", ["file", "file/below", "s3://bucket/run"])
def test_train_refuses_a_workdir_before_it_prepares(place, base, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    workdir = place if ":" in place else tmp_path / place
    words = ["train", f"--config={base}", f"--workdir={workdir}", "--config.corpus.path=nowhere"]
    assert cli.execute(words) == 2
    assert "workdir" in capsys.readouterr().err


@pytest.mark.fault(20)
@pytest.mark.parametrize(
    "knob", ["steps=100000000000000000000", "epochs=1e300", "model.hidden=100000000"]
)
def test_train_refuses_an_absurd_number(base, tmp_path, capsys, knob):
    words = ["train", f"--config={base}", f"--workdir={tmp_path / 'w'}", f"--config.{knob}"]
    assert cli.execute(words) == 2
    error, hint = capsys.readouterr().err.strip().splitlines()
    assert error.startswith(f"error: config.{knob.partition('=')[0]} = ")
    assert hint.startswith("hint: ")
    assert not (tmp_path / "w").exists()


def test_dry_run_counts_and_writes_nothing(base, tmp_path, capsys):
    train.run(configure(base), tmp_path / "none", dry_run=True, command=[])
    text = capsys.readouterr().out
    assert not (tmp_path / "none").exists()
    first, _, tree = text.partition("\n{\n")
    names = [line.split()[0] for line in first.splitlines()]
    assert names == ["parameters", "memory/device", "devices", "steps"]
    assert resolve(json.loads(f"{{{tree}")).steps == 30
    d, v = 64, 128  # the table is padded to 128 rows
    embeddings = (v + 512 + 2 + 2) * d  # tokens, positions, types, norm
    layer = 4 * (d * d + d) + 2 * (d * 4 * d) + 4 * d + d + 4 * d
    pooler, mlm, nsp = d * d + d, d * d + d + 2 * d + v, 2 * d + 2
    assert f"parameters      {embeddings + layer + pooler + mlm + nsp:,}" in text
