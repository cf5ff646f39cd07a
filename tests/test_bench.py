"""experiments/performance: turns with contestants whose times are known, variants and rows."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest

from bert_jax import config
from bert_jax.config import costs
from bert_jax.errors import ConfigError
from bert_jax.models.encoder import pad_vocabulary
from tests import texts, toy
from tests.flops import count_flops

FOLDER = texts.ROOT / "experiments" / "performance"
RIVALS = {"transformers-eager", "transformers-compiled", "torch-tuned-bf16", "torch-tuned-fp32"}
BOUNDS = {"matmul-bound-fp32", "matmul-bound-bf16"}
SMALL = toy.config(batch_size=4, sequence_length=32, steps=10)


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    import turns

    monkeypatch.setattr(turns, "TURN", 0.0)  # one call
    monkeypatch.setattr(turns, "REST", 0.0)
    return turns


@pytest.fixture
def bench(turns: ModuleType) -> ModuleType:
    import bench

    return bench


def ask(turns: ModuleType, function: str, called: str = "", **arguments: object):
    folder = Path(__file__).parent
    return turns.Contestant(called or function, "contestants", function, arguments, folder=folder)


# --- turns ----------------------------------------------------------------------------------------


def test_ratios_follow_the_times_that_calls_take(turns):
    slow = ask(turns, "sleep", seconds=0.04, units=2.0)
    found = turns.compare([ask(turns, "sleep", seconds=0.01), slow], 3)
    assert 0.01 <= found[0].seconds < 0.02
    assert 0.04 <= found[1].seconds < 0.06
    assert found[1].about == {"seconds": 0.04}
    over, low, high = turns.ratio(found[1], found[0])
    assert low <= high
    assert 2 < over <= 6
    assert all(0 < one.fastest <= one.seconds for one in found)


def test_each_contestant_begins_a_round_in_turn(turns, tmp_path):
    file = tmp_path / "calls"
    turns.compare([ask(turns, "note", name, file=str(file), name=name) for name in "abc"], 4)
    warm, calls = file.read_text()[:6], file.read_text()[6:]
    assert sorted(warm) == list("aabbcc")  # the first call, and one that says how long a call takes
    assert calls == "aabbccbbccaaccaabbaabbcc"  # of each two calls the first is not counted


def test_work_after_a_call_is_not_timed(turns, tmp_path):
    (found,) = turns.compare([ask(turns, "tidy", file=str(tmp_path / "calls"))], 3)
    assert found.seconds < 0.04
    assert (tmp_path / "calls").read_text() == "t" * (2 + 3 * 2)


@pytest.mark.parametrize(
    ("function", "message"), [("dying", "had enough"), ("nobody", "no attribute 'nobody'")]
)
def test_a_contestant_that_fails_says_why(turns, function, message):
    with pytest.raises(SystemExit, match=message) as error:
        turns.compare([ask(turns, "sleep", seconds=0.0), ask(turns, function)], 2)
    assert f"{function} ended with code 1" in str(error.value)


def test_quartiles_are_of_ratios_within_a_round(turns):
    """A machine that slows down by the round changes no quartile."""

    def result(times: list[float]):
        return turns.Result("", 4.0, "tokens", {}, 1.5, times, min(times), 7.0)

    one, other = result([1.0, 2.0, 4.0, 8.0]), result([0.5, 1.0, 2.0, 4.0])
    assert turns.ratio(one, other) == (2.0, 2.0, 2.0)
    assert turns.ratio(result([1.0, 2.0, 6.0]), result([2.0, 1.0, 1.0])) == (2.0, 1.25, 4.0)


# --- the benchmarks -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16_products"])
def test_variants_have_the_names_that_others_read(bench, dtype):
    setup = bench.Setup(toy.config(model__dtype=dtype), "transformers")
    also = set() if dtype == "float32" else {"ours-fp32"}
    for name, more in (("train-step", BOUNDS | RIVALS), ("forward", RIVALS)):
        made = {one.name: one for one in bench.BENCHMARKS[name](setup)}
        assert made.keys() == {"ours"} | also | more
        for variant, one in made.items():
            kind = one.arguments["config"]["model"]["dtype"]
            exact = variant.endswith("fp32") and variant not in RIVALS
            half = "bfloat16_products" if variant == "matmul-bound-bf16" else dtype
            assert kind == ("float32" if exact else half)


@pytest.mark.parametrize(
    ("spec", "size", "shape"),
    [
        (None, None, (4, 256, 4, None)),
        (None, "small", ("small", None, None, None)),
        ("configs/tiny.py", "4x512", (4, 512, 8, None)),
    ],
)
def test_size_is_a_name_or_layers_and_width(bench, spec, size, shape):
    tree = bench.make_tree(spec, size)
    model = tree.model
    first = model.size if size == "small" else model.layers
    assert (first, model.hidden, model.heads, model.mlp) == shape
    assert bench.name_size(bench.Setup(config.resolve(tree), size=size or "")) == size or "4x256"


@pytest.mark.parametrize("size", ["huge", "4x100"])
def test_unknown_size_is_refused(bench, size):
    with pytest.raises(ConfigError, match="is no size"):
        bench.make_tree(None, size)


def test_command_prints_a_table_and_writes_rows(bench, turns, tmp_path, monkeypatch, capsys):
    def make(setup):
        """Take a nap."""
        naps = (("ours", 0.005), ("theirs", 0.02))
        return [ask(turns, "sleep", name, seconds=seconds) for name, seconds in naps]

    monkeypatch.setattr(bench, "BENCHMARKS", {"nap": make})
    output = tmp_path / "rows.json"
    flags = ["--size=2x128", "--config.batch_size=7", "--rounds=2", f"--output={output}"]
    bench.main(["nap", *flags])
    assert "nap: Take a nap.\n2x128, 7 x 128, " in capsys.readouterr().out
    ours, theirs = json.loads(output.read_text())
    for row, name, least in ((ours, "ours", 5), (theirs, "theirs", 20)):
        assert (row["benchmark"], row["size"], row["variant"]) == ("nap", "2x128", name)
        assert least <= row["min_ms"] <= row["median_ms"]
        assert row["ratio"] == row["median_ms"] / ours["median_ms"]
        assert row["measured"]["batch_size"] == 7
        assert row["measured"]["versions"]["jax"]


# --- contestants ----------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{}, {"model__gated": True}])
def test_bound_has_the_matmuls_of_an_update(bench, one_device, changes):
    import ours

    unpaired = toy.config(
        batch_size=4, sequence_length=32, pairs="none", objectives__nsp__weight=None, **changes
    )
    # Segment vectors are a matmul too, and so is their gradient.
    types = 2 * 2.0 * 4 * 32 * unpaired.model.type_vocab * unpaired.model.hidden
    vocabulary = pad_vocabulary(unpaired.model, toy.VOCAB)
    wanted = costs.flops_per_step(unpaired, vocabulary) + types
    assert count_flops(unpaired) == wanted
    ready = ours.matmuls(config.to_dict(unpaired))
    ready.call()
    assert ready.about["flops"] == wanted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "arguments", "tokens"),
    [
        ("train_step", {}, 4 * 32),
        ("train_step", {"runs": 2}, 2 * 4 * 32),
        ("finetuning", {"sizes": [5, 5, 30, 30]}, 70),
        ("forward", {}, 4 * 32),
        ("saving", {}, None),
    ],
)
def test_contestants_of_ours_do_their_work(bench, one_device, function, arguments, tokens):
    import ours

    ready = getattr(ours, function)(config.to_dict(SMALL), **arguments)
    for _ in range(2):
        ready.call()
        ready.after()
    if tokens:
        assert (ready.units, ready.unit) == (tokens, "tokens")
    if arguments == {}:
        assert ready.about.get("real", 1.0) == 1.0


@pytest.mark.slow
def test_contestants_read_the_batches_of_a_corpus(bench, tmp_path, one_device):
    import ours

    base = texts.configure(texts.config_file(tmp_path), steps=5)
    for make in (ours.batches, ours.assembly, lambda tree: ours.fed(tree, loader=True)):
        ready = make(config.to_dict(base))
        ready.call()
        ready.call()
        assert ready.units == base.batch_size * base.sequence_length
