"""What `bert-jax benchmark` reports of the updates that it times."""

import json
import types

from bert_jax import benchmark, cli
from bert_jax.training.data import load_training_data
from tests import tasks, tiny

PLANNED = {  # what people read of its JSON
    *("target", "devices", "fits", "peak_bytes", "memory_bytes", "argument_bytes", "temp_bytes"),
    *("flops", "collectives", "largest_collective_rows", "attention", "dtype", "remat"),
    *("roofline_ms", "hours", "cost", "largest_batch"),
}


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


def test_classes_are_read_from_the_data(tmp_path, one_device, monkeypatch, capsys):
    """As `train` and `bert-jax plan` read them; without classes, a head has no outputs."""
    source = f"files:{tasks.write_classify(tmp_path)}"
    config = tasks.config("classify", source, tmp_path, model__layers=1)
    timed = benchmark.run(config, updates=1)
    monkeypatch.setattr(cli, "read_config", lambda *_: config)
    file = tmp_path / "plan.json"
    assert cli.execute(["plan", "--target=cpu:8", f"--output={file}"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert table[0] == "target       cpu:8: 8 x cpu, one device"
    assert f"8 rows of 32 tokens, {timed['parameters']:,} parameters, float32" in table[1]
    names = [line.split(" ")[0] for line in table]
    assert names == ["target", "update", "memory", "", "compute", "collectives"]
    planned = json.loads(file.read_text())
    assert planned.keys() >= PLANNED
    assert (planned["devices"], planned["parameters"]) == (8, timed["parameters"])
    longest = load_training_data(config).source.batch(0)["tokens"].shape[1]
    assert timed["sequence_length"] == longest < config.sequence_length
