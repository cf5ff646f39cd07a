"""The harness with contestants whose times are known; what ours do, against counts of their own."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from bert_jax import cli, config
from bert_jax.benchmarks import around, harness, ours, parts, table
from bert_jax.benchmarks import setup as contestants_of
from bert_jax.benchmarks.harness import Contestant, Result
from bert_jax.config import costs
from bert_jax.data import prepare
from bert_jax.errors import ConfigError
from bert_jax.masking import quotas
from bert_jax.models.encoder import pad_vocabulary
from tests import contestants, texts, toy


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(harness, "TURN", 0.05)
    monkeypatch.setattr(harness, "REST", 0.0)


def contestant(function: str, called: str = "", **arguments) -> Contestant:
    return Contestant(called or function, f"tests.contestants:{function}", arguments)


# --- the harness ----------------------------------------------------------------------------------


def test_times_and_ratios_are_those_of_what_was_done(capfd):
    found = harness.compare(
        [contestant("sleep", seconds=0.01), contestant("sleep", seconds=0.04, units=2.0)], 3
    )
    quick, slow = found
    assert 0.01 <= quick.seconds < 0.02
    assert 0.04 <= slow.seconds < 0.06
    assert len(quick.turns) == len(slow.turns) == 3
    assert quick.about == {"seconds": 0.01}
    over, low, high = harness.ratio(slow, quick)
    assert low <= high
    assert 2.4 < over < 4.8
    assert all(0 < one.fastest <= one.seconds for one in found)
    assert slow.rate == 2 / slow.seconds
    assert "round 3 of 3, about 0 s left" in capfd.readouterr().err


def test_everybody_has_a_turn_in_every_round_and_begins_one_in_turn(tmp_path, monkeypatch):
    monkeypatch.setattr(harness, "TURN", 0.0)  # one call
    file = tmp_path / "calls"
    harness.compare([contestant("note", name, file=str(file), name=name) for name in "abc"], 4)
    warm, calls = file.read_text()[:6], file.read_text()[6:]
    assert sorted(warm) == list("aabbcc")  # the first call, and one that says how long a call takes
    assert (
        calls == "aabbcc" + "bbccaa" + "ccaabb" + "aabbcc"
    )  # of each two calls the first is not counted


def test_what_comes_after_a_call_is_not_timed(tmp_path, monkeypatch):
    monkeypatch.setattr(harness, "TURN", 0.0)
    (found,) = harness.compare([contestant("tidy", file=str(tmp_path / "calls"))], 3)
    assert found.seconds < 0.04
    assert (tmp_path / "calls").read_text() == "t" * (2 + 3 * 2)


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


def result(name: str, turns: list[float]) -> Result:
    return Result(name, 4.0, "tokens", {}, 1.5, turns, min(turns) / 2, 7.0)


def test_ratios_are_of_medians_and_their_quartiles_within_a_round():
    """A machine that slows down by the round changes no quartile."""
    one, other = result("a", [1.0, 2.0, 4.0, 8.0]), result("b", [0.5, 1.0, 2.0, 4.0])
    assert harness.ratio(one, other) == (2.0, 2.0, 2.0)
    assert harness.ratio(result("a", [1.0, 2.0, 6.0]), result("b", [2.0, 1.0, 1.0])) == (
        2.0,
        1.25,
        4.0,
    )
    assert harness.ratio(result("a", [3.0]), result("b", [2.0])) == (1.5, 1.5, 1.5)


# --- the command ----------------------------------------------------------------------------------


def nap(seen: list) -> table.Row:
    def make(asked):
        seen.append(asked)
        naps = [
            contestant("sleep", name, seconds=seconds)
            for name, seconds in (("ours", 0.005), ("theirs", 0.02))
        ]
        return [*naps, *asked.theirs("torch", "train_step", way="eager")]

    return table.Row(make, "a nap", (("ours", "theirs"), ("ours", "nobody")))


def test_the_command_prints_a_table_and_writes_its_rows(monkeypatch, tmp_path, capsys):
    seen: list = []
    monkeypatch.setattr(table, "TABLE", {"train-step": nap(seen)})
    output = tmp_path / "new" / "found.json"
    flags = ["--size=2x128", "--config.batch_size=7", "--rounds=2", f"--output={output}"]
    assert cli.execute(["benchmark", "train-step", *flags]) == 0
    m = seen[0].config.model
    assert (m.layers, m.hidden, m.heads, m.mlp, seen[0].config.batch_size) == (2, 128, 2, 512, 7)
    printed = capsys.readouterr().out
    assert "train-step: a nap; 2x128, 7 x 128, " in printed
    assert printed.splitlines()[2].split()[0] == "variant"
    share = float(
        printed.splitlines()[-1].removeprefix("ours takes ").partition("%")[0]
    )  # of nobody, nothing is said
    ours, theirs = json.loads(output.read_text())
    assert [ours["variant"], theirs["variant"]] == ["ours", "theirs"]
    for row in (ours, theirs):
        assert (row["benchmark"], row["size"]) == ("train-step", "2x128")
        assert 0 < row["min_ms"] <= row["median_ms"]
        assert row["ratio"] == row["median_ms"] / ours["median_ms"]
        assert row["measured"]["machine"]["cores"] > 0
        assert row["measured"]["versions"]["jax"]
        assert (row["measured"]["batch_size"], len(row["turns_ms"]), row["measured"]["rounds"]) == (
            7,
            2,
            2,
        )
    assert ours["min_ms"] >= 5
    assert theirs["min_ms"] >= 20
    assert share == pytest.approx(100 / theirs["ratio"], abs=0.01)


@pytest.mark.parametrize(
    ("flags", "shape", "size"),
    [
        ([], (4, 256, 4, 1024), "4x256"),
        (["--size=4x512"], (4, 512, 8, 2048), "4x512"),
        (["--size=small"], (4, 512, 8, 2048), "small"),
        (["--size=small", "--config.model.layers=3"], (3, 512, 8, 2048), "3x512"),
        (["--config=configs/tiny.py", "--size=4x256"], (4, 256, 4, 1024), "4x256"),
    ],
)
def test_a_size_is_a_name_or_layers_and_width(flags, shape, size, monkeypatch, tmp_path):
    seen: list = []
    monkeypatch.setattr(table, "TABLE", {"nap": nap(seen)})
    output = tmp_path / "found.json"
    assert cli.execute(["benchmark", "nap", "--rounds=1", f"--output={output}", *flags]) == 0
    m = seen[0].config.model
    assert (m.layers, m.hidden, m.heads, m.mlp) == shape
    assert json.loads(output.read_text())[0]["size"] == size


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["train-stp"], "invalid choice: 'train-stp'"),
        (["forward", "--against=rivals"], "invalid choice: 'rivals'"),
        (["forward", "--rounds=0"], "--rounds"),
        (["forward", "--config.model.hiden=3"], "did you mean 'hidden'"),
        (["forward", "--size=huge"], "--size=huge is no size"),
        (["forward", "--size=4x100"], "no multiple of 64"),
        (["forward", "--against=transformers", "--python=/nowhere"], "cannot run /nowhere"),
    ],
)
def test_wrong_input_is_one_line(flags, message, capsys):
    assert cli.execute(["benchmark", *flags]) == 2
    assert message in capsys.readouterr().err


RIVALS = {"transformers-eager", "transformers-compiled", "torch-tuned-bf16", "torch-tuned-fp32"}
BOUNDS = {"matmul-bound-fp32", "matmul-bound-bf16"}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bfloat16_products"])
def test_variants_are_called_what_others_rely_on(dtype):
    asked = table.Setup(toy.config(model__dtype=dtype), "transformers", "python")
    also = set() if dtype == "float32" else {"ours-fp32"}
    half = "bfloat16_products" if dtype == "float32" else dtype
    for name, more in (("train-step", BOUNDS | RIVALS), ("forward", RIVALS)):
        made = {one.name: one for one in table.TABLE[name].make(asked)}
        assert made.keys() == {"ours"} | also | more
        assert made["ours"].arguments["config"]["model"]["dtype"] == dtype
        kinds = {
            n: one.arguments["config"]["model"]["dtype"]
            for n, one in made.items()
            if n not in RIVALS
        }
        assert all(
            kind == (half if n.endswith("bf16") else "float32")
            for n, kind in kinds.items()
            if n != "ours"
        )


def test_rivals_are_there_when_they_are_asked_for():
    plain = table.Setup(toy.config(), "", "python")
    against = dataclasses.replace(plain, against="transformers")
    for name, row in table.TABLE.items():
        mine, both = row.make(plain), row.make(against)
        assert mine[0].name == "ours"
        assert [one.name for one in both[: len(mine)]] == [one.name for one in mine]
        assert {one.make.partition(":")[0] for one in mine} <= {
            contestants_of.OURS,
            contestants_of.AROUND,
            contestants_of.PARTS,
        }
        assert all(
            one.make.startswith(contestants_of.THEIRS) and one.python == "python"
            for one in both[len(mine) :]
        )
        assert len(both) > len(mine) or name not in ("train-step", "forward", "pipeline")


# --- ours -----------------------------------------------------------------------------------------

SMALL = toy.config(batch_size=4, sequence_length=32, steps=10)
TYPES = ("float32", "bfloat16")


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


@pytest.mark.slow
@pytest.mark.parametrize("arms", [1, 2])
def test_a_train_step_is_an_update(arms, one_device):
    ready = ours.train_step(config.to_dict(SMALL), runs=arms)
    for _ in range(2):
        ready.call()
    assert (ready.units, ready.unit) == (arms * 4 * 32, "tokens")
    assert ready.about["real"] == 1.0
    assert ready.about["flops"] == pytest.approx(
        arms * costs.flops(SMALL, SMALL.tokenizer.vocab_size, 128, 4096, 4)
    )


@pytest.mark.slow
def test_half_empty_rows_and_packed_ones_have_the_same_tokens(one_device):
    sizes = [16, 16, 16, 16]
    alone, together = (
        ours.train_step(config.to_dict(dataclasses.replace(SMALL, packing=most)), sizes=sizes)
        for most in (1, 2)
    )
    for ready in (alone, together):
        ready.call()
    assert alone.units == together.units == 64
    assert (alone.about["real"], together.about["real"]) == (0.5, 1.0)


@pytest.mark.slow
def test_an_epoch_of_a_task_has_the_same_tokens_however_its_rows_are_batched(one_device):
    sizes = [5, 5, 30, 30, 5, 5, 30, 30]
    found = {}
    for knob, value in (("group", "length"), ("group", "none"), ("pad", "full")):
        asked = dataclasses.replace(
            SMALL, batch_size=2, task=dataclasses.replace(SMALL.task, **{knob: value})
        )
        found[value] = ours.finetuning(config.to_dict(asked), sizes=sizes)
        found[value].call()
        assert found[value].units == sum(sizes)
    assert found["length"].about == {"real": 140 / (4 * 16 + 4 * 32), "programs": 2}
    assert found["full"].about == {"real": 140 / (8 * 32), "programs": 1}
    assert found["length"].about["real"] > found["none"].about["real"]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        pytest.param({"model__remat": "full", "model__scan": True}, marks=pytest.mark.slow),
        {"model__gated": True},
    ],
)
def test_the_bound_has_the_products_of_an_update(changes):
    unpaired = toy.config(
        batch_size=4, sequence_length=32, pairs="none", objectives__nsp__weight=None, **changes
    )
    found = ours.matmuls_of(unpaired)
    kinds = (
        unpaired.model.type_vocab * unpaired.model.hidden
    )  # segment vectors: a product too, and for its gradient
    wanted = (
        costs.flops_per_step(unpaired, pad_vocabulary(unpaired.model, toy.VOCAB))
        + 2 * 2.0 * 4 * 32 * kinds
    )
    assert sum(one.flops * times for one, times in found.items()) == wanted
    ready = ours.matmuls(config.to_dict(unpaired))
    ready.call()
    assert ready.about["flops"] == wanted


def test_the_bound_counts_each_product_in_the_types_the_update_has():
    exact, half = (
        ours.matmuls_of(toy.config(batch_size=4, sequence_length=32, model__dtype=d)) for d in TYPES
    )
    assert {(one.types, one.result) for one in exact} == {(("float32", "float32"), "float32")}
    slots, width = 4 * quotas.count_slots(toy.config().masking, 32), toy.config().model.hidden
    words = pad_vocabulary(toy.config().model, toy.VOCAB)
    logits = [one for one in half if (one.rows, one.inner, one.columns) == (slots, width, words)]
    assert [(one.types, one.result) for one in logits] == [(("bfloat16", "bfloat16"), "float32")]
    feed_forward = [
        one for one in half if one.rows == 128 and {one.inner, one.columns} == {width, 4 * width}
    ]
    assert feed_forward
    assert {(one.types, one.result) for one in feed_forward} == {
        (("bfloat16", "bfloat16"), "bfloat16")
    }


@pytest.mark.slow
def test_vectors_and_programs_are_made(one_device):
    for make in (ours.forward, ours.compiling):
        make(config.to_dict(SMALL)).call()


@pytest.mark.parametrize("backend", ["einsum", "xla"])
def test_attention_is_computed_forwards_and_backwards(backend, one_device):
    ready = parts.attention(config.to_dict(SMALL), backend, drop=backend == "einsum")
    for _ in range(2):
        ready.call()
    assert (ready.units, ready.about) == (4 * 32, {"backend": backend})


def test_the_backends_compared_are_those_that_work_here():
    named = [one.name for one in table.TABLE["attention"][0](table.Setup(SMALL, "", "python"))]
    assert named == ["ours", "xla"]
    dropping = toy.config(model__attention_dropout=0.1)
    named = [one.name for one in table.TABLE["attention"][0](table.Setup(dropping, "", "python"))]
    assert named == ["ours", "with-dropout", "xla"]


def test_batches_come_one_after_the_other(tmp_path, one_device):
    base = texts.configure(texts.config_file(tmp_path), steps=5)
    for make in (ours.batches, ours.assembly):
        ready = make(config.to_dict(base))
        ready.call()
        ready.call()
        assert ready.units == base.batch_size * base.sequence_length


@pytest.mark.slow
def test_a_step_is_fed_by_the_loader_or_not(tmp_path, one_device):
    base = texts.configure(texts.config_file(tmp_path), steps=5)
    for loader in (True, False):
        ready = ours.fed(config.to_dict(base), loader)
        ready.call()
        ready.call()
        assert ready.units == base.batch_size * base.sequence_length


def test_preparing_is_done_anew_each_time_and_gives_the_ids_of_the_rival(tmp_path, monkeypatch):
    base = texts.configure(texts.config_file(tmp_path))
    made = []
    monkeypatch.setattr(
        around.prepare, "_prepare", lambda *a, real=prepare._prepare: made.append(a[2]) or real(*a)
    )
    ready = around.preparing(config.to_dict(base))
    made.clear()  # the vocabulary's, unless it was there
    for _ in range(2):
        ready.call()
        assert made[-1].is_dir()
        ready.after()
        assert not made[-1].exists()
    assert len(made) == 2
    rival = around.encoding(config.to_dict(base), alone=False)
    rival.call()
    assert rival.units == ready.units > 0
    monkeypatch.setattr(around, "_sentences", lambda *a: iter([(0, "not what was prepared")]))
    with pytest.raises(AssertionError, match="other ids of train"):
        around.encoding(config.to_dict(base), alone=False)


@pytest.mark.slow
@pytest.mark.parametrize("how", [{}, {"save": False}, {"whole": True}])
def test_saves_are_timed_with_the_update_after_them(how, one_device):
    ready = around.saving(config.to_dict(SMALL), **how)
    for _ in range(2):
        ready.call()
        ready.after()
    assert ready.about["state_bytes"] > 3 * 4 * 10_000


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
