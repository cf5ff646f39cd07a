"""A lack of memory names the accumulation that keeps the batch, if any does."""

import dataclasses
from unittest import mock

import jax
import pytest

from bert_jax import cli, sharding, train
from bert_jax.data import prepare
from bert_jax.errors import ConfigError
from bert_jax.training import memory, program
from tests import tiny
from tests.texts import configure

EXHAUSTED = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate"


@pytest.mark.fault(23)
@pytest.mark.parametrize("room", ["enough for 4 rows", "none"])
def test_out_of_memory_names_what_fits(base, tmp_path, monkeypatch, capsys, room, one_device):
    """The estimate equals a dry run's, which with that accumulation is within what there is."""
    config = configure(base)
    size = prepare.prepare_corpus(config, log=lambda line: None).tokenizer.size
    mesh = sharding.make_mesh(config.parallel)

    def estimate(parts: int) -> int:
        optim = dataclasses.replace(config.optim, accumulation=parts)
        return sum(memory.estimate_bytes(dataclasses.replace(config, optim=optim), size, mesh))

    assert estimate(1) > estimate(2) > estimate(4)
    available = estimate(4) if room != "none" else memory.estimate_bytes(config, size, mesh)[0] // 2
    monkeypatch.setattr(memory, "device_bytes", lambda: available)
    exhausted = jax.errors.JaxRuntimeError(f"{EXHAUSTED} 999 bytes.\nmore")
    monkeypatch.setattr(program.Program, "update", mock.Mock(side_effect=exhausted))
    words = ["train", f"--config={base}", f"--workdir={tmp_path / 'w'}"]
    assert cli.execute(words) == 2
    error, hint = capsys.readouterr().err.strip().splitlines()[-2:]
    assert error.startswith("error: out of memory on a device: an update is estimated to take ")
    assert f"({EXHAUSTED} 999 bytes.)" in error
    if room == "none":
        assert hint.startswith("hint: no optim.accumulation is enough")
        return
    assert hint.startswith("hint: --config.optim.accumulation=4 keeps batches of 16 in about ")
    train.run(configure(base, optim__accumulation=4), tmp_path / "w", dry_run=True, command=[])
    assert f"memory/device   {memory.format_bytes(estimate(4))}" in capsys.readouterr().out


@pytest.mark.fault(23)
def test_out_of_memory_of_runs_is_not_that_of_one(one_device):
    config = tiny.config()
    mesh = sharding.make_mesh(config.parallel)
    refused = pytest.raises(ConfigError, match="an update of one of 3 runs is estimated")
    with refused as caught, memory.explain_out_of_memory(config, tiny.VOCAB, mesh, runs=3):
        raise jax.errors.JaxRuntimeError(EXHAUSTED)
    assert caught.value.hint.startswith("train fewer runs together")
