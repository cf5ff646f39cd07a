"""What `bert-jax benchmark` reports of the updates that it times."""

import types

from bert_jax import benchmark, cli, plan
from bert_jax.training.data import load_training_data
from tests import tasks, tiny


def test_report_has_median_and_least_of_timed_updates(monkeypatch, capsys, one_device):
    """The first update has a time of its own, and two more only warm up."""
    seconds = [9.0, 5.0, 5.0, 2.0, 0.5, 1.0]
    clock = iter([reading for taken in seconds for reading in (100.0, 100.0 + taken)])
    monkeypatch.setattr(benchmark, "time", types.SimpleNamespace(perf_counter=clock.__next__))
    config = tiny.config(batch_size=4, sequence_length=32, model__layers=1)
    report = benchmark.run(config, updates=3)
    assert (report["first_seconds"], report["median_ms"], report["min_ms"]) == (9.0, 1000.0, 500.0)
    assert report["tokens_per_second"] == 4 * 32
    assert report["mfu"] is None
    monkeypatch.setattr(benchmark, "run", lambda *_: report)
    assert cli.execute(["benchmark", "--config=pretrain:mini"]) == 0  # without --output
    assert "median 1,000.0 ms, least 500.0 ms of 3 updates" in capsys.readouterr().out


def test_classes_are_read_from_the_data(tmp_path, one_device):
    """As `train` and `bert-jax plan` read them; without classes, a head has no outputs."""
    source = f"files:{tasks.write_classify(tmp_path)}"
    config = tasks.config("classify", source, tmp_path, model__layers=1)
    timed = benchmark.run(config, updates=1)
    assert plan.run(config, "cpu:8")["parameters"] == timed["parameters"]
    longest = load_training_data(config).source.batch(0)["tokens"].shape[1]
    assert timed["sequence_length"] == longest < config.sequence_length
