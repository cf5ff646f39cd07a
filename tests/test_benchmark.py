"""The harness with contestants whose times are known; what ours do, against counts of their own."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from bert_jax import benchmark, cli, config, costs
from bert_jax.benchmarks import harness, ours
from bert_jax.benchmarks.harness import Contestant, Result
from bert_jax.errors import ConfigError
from tests import contestants, texts, toy


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(harness, "TURN", 0.05)
    monkeypatch.setattr(harness, "REST", 0.0)


def contestant(function: str, called: str = "", **arguments) -> Contestant:
    return Contestant(called or function, f"tests.contestants:{function}", arguments)


# --- the harness ----------------------------------------------------------------------------------------------------


def test_times_and_ratios_are_those_of_what_was_done(capfd):
    found = harness.compare([contestant("sleep", seconds=0.01), contestant("sleep", seconds=0.04, units=2.0)], 3)
    quick, slow = found
    assert 0.01 <= quick.seconds < 0.02
    assert 0.04 <= slow.seconds < 0.06
    assert len(quick.turns) == len(slow.turns) == 3
    assert quick.about == {"seconds": 0.01}
    middle, low, high = harness.ratio(slow, quick)  # a thing takes it twice as long
    assert low <= middle <= high
    assert 1.2 < middle < 2.4
    assert slow.rate == 2 / slow.seconds
    assert "round 3 of 3, about 0 s left" in capfd.readouterr().err


def test_everybody_has_a_turn_in_every_round_and_begins_one_in_turn(tmp_path, monkeypatch):
    monkeypatch.setattr(harness, "TURN", 0.0)  # one call
    file = tmp_path / "calls"
    harness.compare([contestant("note", name, file=str(file), name=name) for name in "abc"], 4)
    warm, calls = file.read_text()[:6], file.read_text()[6:]
    assert sorted(warm) == list("aabbcc")  # the first call, and one that says how long a call takes
    assert calls == "abc" + "bca" + "cab" + "abc"


def test_page_faults_are_counted():
    (found,) = harness.compare([contestant("touch_pages")], 2)
    assert contestants.PAGES <= found.faults < contestants.PAGES + 20


@pytest.mark.parametrize(
    ("function", "message", "hint"),
    [
        ("broken", "broken ended with code 1: ValueError: out of order", ""),
        ("lacking", "No module named 'no_such_package'", "--python"),
        ("dying", "dying ended with code 1: had enough", ""),
    ],
)
def test_one_that_fails_says_why_and_takes_the_others_along(function, message, hint):
    with pytest.raises(ConfigError) as error:
        harness.compare([contestant("sleep", seconds=0.0), contestant(function)], 2)
    assert message in str(error.value)
    assert hint in error.value.hint


def result(name: str, turns: list[float], units: float = 1.0) -> Result:
    return Result(name, units, "tokens", {}, 1.5, turns, 7.0)


def test_ratios_are_taken_within_a_round():
    """A machine that slows down by the round changes no ratio."""
    one, other = result("a", [1.0, 2.0, 4.0, 8.0]), result("b", [2.0, 4.0, 8.0, 16.0], units=4.0)
    assert harness.ratio(one, other) == (2.0, 2.0, 2.0)
    assert harness.ratio(result("a", [1.0, 2.0, 3.0]), result("b", [1.0, 1.0, 1.0])) == (2.0, 1.5, 2.5)
    assert harness.ratio(result("a", [3.0]), result("b", [2.0])) == (1.5, 1.5, 1.5)


# --- the command ----------------------------------------------------------------------------------------------------


def test_the_command_prints_a_table_and_writes_all_of_it(monkeypatch, tmp_path, capsys):
    seen = []

    def three(asked):
        seen.append(asked)
        return [contestant("sleep", "first", seconds=0.005), *asked.theirs("theirs", "train_step", way="eager")]

    monkeypatch.setattr(benchmark, "TABLE", {"train-step": (three, "a nap")})
    output = tmp_path / "new" / "found.json"
    flags = ["--config.batch_size=7", "--rounds=2", f"--output={output}"]
    assert cli.execute(["benchmark", "train-step", *flags]) == 0
    assert seen[0].config.batch_size == 7
    assert (seen[0].config.model.layers, seen[0].config.model.hidden) == (4, 256)
    printed = capsys.readouterr().out
    assert "train-step: a nap; 4 x 256, 7 x 128, float32" in printed
    assert "first" in printed
    told = json.loads(output.read_text())
    assert [one["name"] for one in told["contestants"]] == ["first"]
    assert len(told["contestants"][0]["turns"]) == told["rounds"] == 2
    assert told["machine"]["cores"] > 0
    assert told["versions"]["jax"]
    assert told["config"]["batch_size"] == 7


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["train-stp"], "invalid choice: 'train-stp'"),
        (["forward", "--against=rivals"], "invalid choice: 'rivals'"),
        (["forward", "--rounds=0"], "--rounds"),
        (["forward", "--config.model.hiden=3"], "did you mean 'hidden'"),
    ],
)
def test_wrong_input_is_one_line(flags, message, capsys):
    assert cli.execute(["benchmark", *flags]) == 2
    assert message in capsys.readouterr().err


def test_rivals_are_there_when_they_are_asked_for():
    plain = benchmark.Asked(toy.config(), "", "python")
    against = dataclasses.replace(plain, against="transformers")
    for name, (make, _) in benchmark.TABLE.items():
        mine, both = make(plain), make(against)
        assert [one.name for one in both[: len(mine)]] == [one.name for one in mine]
        assert all(one.make.startswith(benchmark.THEIRS) and one.python == "python" for one in both[len(mine) :])
        assert len(both) > len(mine) or name not in ("train-step", "forward", "pipeline")


# --- ours -----------------------------------------------------------------------------------------------------------

SMALL = toy.config(batch_size=4, sequence_length=32, steps=10)


def test_rows_are_full_of_text_or_as_long_as_asked():
    batch = ours.rows(SMALL)
    assert batch["segment_ids"].all()
    assert (batch["unit_ids"] >= 0).sum() == 4 * (32 - 3)
    sizes = [32, 5, 20, 9]
    assert (ours.rows(SMALL, sizes)["segment_ids"] > 0).sum(axis=1).tolist() == sizes
    packed = ours.packed(dataclasses.replace(SMALL, packing=3), sizes)
    assert packed["tokens"].shape == (3, 32)
    assert (packed["segment_ids"] > 0).sum() == sum(sizes)
    assert sorted(packed["labels"][packed["labels"] >= 0]) == [0, 0, 1, 1]


@pytest.mark.parametrize("arms", [1, 2])
def test_a_train_step_is_an_update(arms, one_device):
    ready = ours.train_step(config.to_dict(SMALL), arms=arms)
    for _ in range(2):
        ready.call()
    assert (ready.units, ready.unit) == (arms * 4 * 32, "tokens")
    assert ready.about["real"] == 1.0
    assert ready.about["flops"] == pytest.approx(arms * costs.flops(SMALL, SMALL.tokenizer.vocab_size, 128, 4096, 4))


def test_half_empty_rows_and_packed_ones_have_the_same_tokens(one_device):
    sizes = [16, 16, 16, 16]
    alone, together = (
        ours.train_step(config.to_dict(dataclasses.replace(SMALL, packing=most)), sizes=sizes) for most in (1, 2)
    )
    for ready in (alone, together):
        ready.call()
    assert alone.units == together.units == 64
    assert (alone.about["real"], together.about["real"]) == (0.5, 1.0)


def test_an_epoch_of_a_task_has_the_same_tokens_however_its_rows_are_batched(one_device):
    sizes = [5, 5, 30, 30, 5, 5, 30, 30]
    found = {}
    for knob, value in (("group", "length"), ("group", "none"), ("pad", "full")):
        asked = dataclasses.replace(SMALL, batch_size=2, task=dataclasses.replace(SMALL.task, **{knob: value}))
        found[value] = ours.finetuning(config.to_dict(asked), sizes=sizes)
        found[value].call()
        assert found[value].units == sum(sizes)
    assert found["length"].about == {"real": 140 / (4 * 16 + 4 * 32), "programs": 2}
    assert found["full"].about == {"real": 140 / (8 * 32), "programs": 1}
    assert found["length"].about["real"] > found["none"].about["real"]


def test_the_bound_has_the_products_of_an_update():
    unpaired = toy.config(batch_size=4, sequence_length=32, pairs="none", objectives__nsp__weight=None)
    products = sum(2.0 * b * m * k * n * times for (b, m, k, n), times in ours.shapes_of(unpaired))
    assert products == costs.flops_per_step(unpaired, unpaired.tokenizer.vocab_size)
    ready = ours.products(config.to_dict(unpaired))
    ready.call()
    assert ready.about["flops"] == products


def test_vectors_and_programs_are_made(one_device):
    for make in (ours.forward, ours.compiling):
        make(config.to_dict(SMALL)).call()


@pytest.mark.parametrize("backend", ["einsum", "xla"])
def test_attention_is_computed_forwards_and_backwards(backend, one_device):
    ready = ours.attention(config.to_dict(SMALL), backend, drop=backend == "einsum")
    for _ in range(2):
        ready.call()
    assert (ready.units, ready.about) == (4 * 32, {"backend": backend})


def test_the_backends_compared_are_those_that_work_here():
    named = [one.name for one in benchmark.TABLE["attention"][0](benchmark.Asked(SMALL, "", "python"))]
    assert named == ["einsum", "xla"]
    dropping = toy.config(model__attention_dropout=0.1)
    named = [one.name for one in benchmark.TABLE["attention"][0](benchmark.Asked(dropping, "", "python"))]
    assert named == ["einsum", "einsum, with dropout", "xla"]


def test_batches_come_one_after_the_other(tmp_path, one_device):
    base = texts.configure(texts.config_file(tmp_path), steps=5)
    for make in (ours.batches, ours.assembly):
        ready = make(config.to_dict(base))
        ready.call()
        ready.call()
        assert ready.units == base.batch_size * base.sequence_length


def test_rivals_run_where_they_are_installed():
    reason = "no torch here, which only this comparison needs"
    pytest.importorskip("torch", reason=reason)
    pytest.importorskip("transformers", reason=reason)
    from bert_jax.benchmarks import theirs

    tree = config.to_dict(SMALL)
    for way, half in (("eager", True), ("tuned", False), ("tuned", True)):
        theirs.train_step(tree, way, predictions=4, half=half).call()
    theirs.forward(tree, "eager").call()
    theirs.collator(tree).call()
    assert np.isfinite(theirs.train_step(tree, "eager", predictions=4).units)
