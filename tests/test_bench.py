"""experiments/performance: turns with contestants whose times are known, variants and rows."""

import json
from pathlib import Path
from types import ModuleType

import pytest

from bert_jax import config
from bert_jax.config import costs
from bert_jax.errors import ConfigError
from bert_jax.models.encoder import pad_vocabulary
from tests import texts, tiny
from tests.families import NEO

FOLDER = texts.ROOT / "experiments" / "performance"
RIVALS = {"transformers-eager", "transformers-compiled", "torch-tuned-bf16", "torch-tuned-fp32"}
BOUNDS = {"matmul-bound-fp32", "matmul-bound-bf16"}


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    import turns

    monkeypatch.setattr(turns, "TURN", 0.0)  # one call
    monkeypatch.setattr(turns, "REST", 0.0)
    return turns


@pytest.fixture
def bench(turns: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    import bench

    monkeypatch.setattr(bench, "_name_backend", lambda: "cpu")  # which a process of its own says
    return bench


def ask(turns: ModuleType, function: str, called: str = "", **arguments: object):
    folder = Path(__file__).parent
    return turns.Contestant(called or function, "contestants", function, arguments, folder=folder)


# --- turns ----------------------------------------------------------------------------------------


def test_each_contestant_begins_a_round_in_turn(turns, tmp_path):
    file = str(tmp_path / "calls")
    turns.compare([ask(turns, "sleep", seconds=0.01, file=file, name=name) for name in "abc"], 4)
    text = (tmp_path / "calls").read_text()
    assert sorted(text[:6]) == list("aabbcc")  # the first call, and one that says how long one is
    assert text[6:] == "aabbccbbccaaccaabbaabbcc"  # of each two calls the first is not counted


def test_contestant_that_fails_says_why(turns):
    with pytest.raises(SystemExit, match="had enough\n\ndying ended with code 1"):
        turns.compare([ask(turns, "sleep", seconds=0.0), ask(turns, "dying")], 2)


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
    setup = bench.Setup(tiny.config(model__dtype=dtype), "transformers")
    also = set() if dtype == "float32" else {"ours-fp32"}
    for name, more in (("train-step", BOUNDS | RIVALS), ("forward", RIVALS)):
        made = {one.name: one for one in bench.BENCHMARKS[name](setup)}
        assert made.keys() == {"ours"} | also | more
        for variant, one in made.items():
            kind = one.arguments["config"]["model"]["dtype"]
            exact = variant.endswith("fp32") and variant not in RIVALS
            half = "bfloat16_products" if variant == "matmul-bound-bf16" else dtype
            assert kind == ("float32" if exact else half)


def test_every_contestant_names_a_function_of_ours(bench):
    import ours

    setup = bench.Setup(config.resolve(bench.make_tree(None, None)))
    for make in bench.BENCHMARKS.values():
        assert [one.function for one in make(setup) if not hasattr(ours, one.function)] == []


def test_size_is_a_name_or_layers_and_width(bench):
    model = bench.make_tree("configs/tiny.py", "4x512").model
    assert (model.layers, model.hidden, model.heads, model.mlp) == (4, 512, 8, None)
    assert bench.make_tree(None, "small").model.size == "small"
    assert bench.name_size(bench.Setup(config.resolve(bench.make_tree(None, None)))) == "4x256"
    for size in ("huge", "4x100"):
        with pytest.raises(ConfigError, match="is no size"):
            bench.make_tree(None, size)


def test_command_prints_a_table_and_writes_rows(bench, turns, tmp_path, monkeypatch, capsys):
    """Work after a call is not timed."""

    def make(setup):
        """Take a nap."""
        quick = ask(turns, "sleep", "ours", seconds=0.005, rest=0.1, units=2.0)
        return [quick, ask(turns, "sleep", "theirs", seconds=0.02)]

    monkeypatch.setattr(bench, "BENCHMARKS", {"nap": make})
    output = tmp_path / "rows.json"
    flags = ["--size=2x128", "--config.batch_size=7", "--rounds=2", f"--output={output}"]
    bench.main(["nap", *flags])
    assert "nap: Take a nap.\n2x128, 7 x 128, " in capsys.readouterr().out
    ours, theirs = json.loads(output.read_text())
    for row, name, least, units in ((ours, "ours", 5, 2), (theirs, "theirs", 20, 1)):
        assert (row["benchmark"], row["size"], row["variant"]) == ("nap", "2x128", name)
        assert least <= row["min_ms"] <= row["median_ms"]
        assert row["things_per_second"] == pytest.approx(1000 * units / row["median_ms"])
        assert row["ratio"] == row["median_ms"] / ours["median_ms"]
        assert row["about"] == {"seconds": least / 1000}
        assert row["measured"]["batch_size"] == 7
    assert theirs["ratio"] > 1


@pytest.mark.parametrize(
    "changes",
    [
        {"model__gated": True},
        {"model__layers": 1, "model__embedding": 24, "model__pooler": "gelu", "model__window": 6},
        pytest.param(NEO | {"model__layers": 1}, marks=pytest.mark.slow),
    ],
)
def test_bound_has_the_matmuls_of_an_update(bench, one_device, changes):
    import ours

    unpaired = tiny.config(batch_size=4, pairs="none", **changes)
    # Segment vectors are a matmul too, and so is their gradient.
    types = 2 * 2.0 * 4 * 24 * unpaired.model.type_vocab * unpaired.model.table_width
    vocabulary = pad_vocabulary(unpaired.model, tiny.VOCAB)
    ready = ours.matmuls(config.to_dict(unpaired))
    ready.call()
    assert ready.about["flops"] == costs.flops_per_step(unpaired, vocabulary) + types


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "arguments", "tokens"),
    [
        ("train_step", {}, 4 * 32),
        ("train_step", {"runs": 2}, 2 * 4 * 32),
        ("finetuning", {"sizes": [5, 5, 30, 30]}, 70),
        ("forward", {}, 4 * 32),
        ("batches", {}, 4 * 32),
        ("assembly", {}, 4 * 32),
        ("fed", {"loader": True}, 4 * 32),
        ("saving", {}, None),
    ],
)
def test_contestants_do_their_work(bench, tmp_path, one_device, function, arguments, tokens):
    import ours

    base = texts.configure(texts.config_file(tmp_path), batch_size=4, steps=10)
    ready = getattr(ours, function)(config.to_dict(base), **arguments)
    for _ in range(2):
        ready.call()
        ready.after()
    assert tokens in (None, ready.units)
    if function == "train_step":
        assert ready.about["real"] == 1.0
