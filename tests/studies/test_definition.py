"""A study: what its axes, budget and seeds make of a base, what its cells are called, and what is
refused.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import hashlib
import itertools
import json
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax import config as configs
from bert_jax.config import knobs
from bert_jax.config.costs import flops_per_step
from bert_jax.data import prepare
from bert_jax.errors import ConfigError, DataError, MissingError
from bert_jax.interop import vocabulary
from bert_jax.masking import rates
from bert_jax.studies import actions, measures, sources
from bert_jax.studies.definition import (
    Axis,
    Budget,
    Comparison,
    Finetune,
    Point,
    Study,
    Suite,
    axis,
    between,
    expand,
    identity,
    load,
    variants,
    zipped,
)
from tests import texts, toy

RATES = (0.15, 0.3, 0.8)


def base(**changes):
    tree = configs.default()
    tree.pairs = "none"
    tree.model.size = "tiny"
    tree.steps = 1_000
    tree.optim.warmup_steps = 10
    for key, value in changes.items():
        configs.put(tree, key.split("__"), value)
    return tree


def study(**changes) -> Study:
    plain = Study(
        question="How much?",
        base=base(),
        axes=(axis("masking.rate", RATES),),
        seeds=(0, 1),
        evaluations={"validation": Suite("pretrain")},
    )
    return dataclasses.replace(plain, **changes)


def ids(made: Study) -> list[str]:
    return [cell.id for cell in expand(made)]


# --- axes -----------------------------------------------------------------------------------------


def test_a_point_is_called_by_its_value():
    assert [p.label for p in axis("masking.rate", (0.05, 0.15, 0.07, 0.225)).points] == [
        "5 %",
        "15 %",
        "7 %",
        "22.5 %",
    ]
    assert [p.label for p in axis("optim.learning_rate", (1e-4, 0.001)).points] == [
        "0.0001",
        "0.001",
    ]
    assert [p.label for p in axis("masking.dupe_factor", (0, 4)).points] == ["0", "4"]
    assert [p.label for p in axis("masking.unit", ("token", "word")).points] == ["token", "word"]
    assert [p.label for p in axis("masking.rate", (0.15, 0.3), ("usual", "twice")).points] == [
        "usual",
        "twice",
    ]


def test_a_point_is_drawn_at_its_number_where_it_has_one():
    assert [p.value for p in axis("masking.rate", RATES).points] == [*RATES]
    assert [p.value for p in axis("masking.unit", ("token", "word")).points] == ["token", "word"]
    assert [p.value for p in axis("model.gated", (True, False)).points] == ["True", "False"]
    assert [
        p.value for p in zipped("rates", ["masking.rate", "seed"], [(0.15, 3), (0.4, 4)]).points
    ] == [0.15, 0.4]


def test_knobs_vary_together_or_crossed():
    together = zipped(
        "rates", ["masking.rate", "masking.prediction_rate"], [(0.15, 0.15), (0.4, 0.15)]
    )
    assert [point.label for point in together.points] == ["15 %, 15 %", "40 %, 15 %"]
    assert [
        (c.config.masking.rate, c.config.masking.prediction_rate)
        for c in expand(study(axes=(together,)))
    ] == [
        *[(0.15, 0.15)] * 2,
        *[(0.4, 0.15)] * 2,
    ]
    crossed = study(axes=(axis("masking.rate", RATES), axis("optim.learning_rate", (1e-3, 1e-4))))
    found = [(c.config.masking.rate, c.config.optim.learning_rate, c.seed) for c in expand(crossed)]
    assert found == [
        (rate, learning, seed) for rate in RATES for learning in (1e-3, 1e-4) for seed in (0, 1)
    ]


def test_variants_set_what_they_name():
    arms = {"NSP": {"pairs": "nsp", "objectives.nsp.weight": 0.5}, "none": {}}
    first, second = expand(study(axes=(variants("objective", arms),), seeds=(7,)))
    assert (first.config.pairs, first.config.objectives["nsp"].weight) == ("nsp", 0.5)
    assert (second.config.pairs, [*second.config.objectives]) == ("none", ["mlm"])
    assert first.labels == first.values == {"objective": "NSP"}


@given(st.floats(-10, 10), st.floats(0.01, 10), st.integers(2, 40))
def test_a_range_is_even_and_has_both_ends(low, width, count):
    values = between(low, low + width, count)
    assert len(values) == count
    assert values[0] == pytest.approx(low, abs=1e-11)
    assert values[-1] == pytest.approx(low + width, abs=1e-11)
    steps = [b - a for a, b in itertools.pairwise(values)]
    assert max(steps) - min(steps) < 1e-10


def test_a_range_has_the_numbers_that_one_would_write():
    assert between(0.1, 0.9, 9) == (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


# --- cells ----------------------------------------------------------------------------------------


def test_a_cell_knows_where_it_stands():
    cell = expand(study())[3]
    assert (cell.labels, cell.values, cell.seed) == (
        {"masking.rate": "30 %"},
        {"masking.rate": 0.3},
        1,
    )
    assert (cell.config.seed, cell.config.data_seed, cell.config.model.hidden) == (1, 0, 128)
    paired = expand(study(pair_seeds=True))[3]
    assert (paired.config.seed, paired.config.data_seed) == (1, 1)


def test_points_that_are_not_kept_are_left_out_before_they_are_checked():
    rates = (axis("masking.rate", (0.1, 0.3)), axis("masking.prediction_rate", (0.1, 0.3)))
    kept = study(
        axes=rates, keep=lambda at: at["masking.prediction_rate"].value <= at["masking.rate"].value
    )
    found = [(c.config.masking.rate, c.config.masking.prediction_rate) for c in expand(kept)]
    assert found == [pair for pair in ((0.1, 0.1), (0.3, 0.1), (0.3, 0.3)) for _ in kept.seeds]
    with pytest.raises(
        ConfigError, match=r"masking.rate 10 %, masking.prediction_rate 30 %: .* = 3 views"
    ):
        expand(study(axes=rates))


def test_expanding_changes_nothing_of_the_base():
    made = study(
        axes=(
            variants(
                "evals", {"a": {"evals.other.rate": 0.4}, "b": {"masking.replace": (1.0, 0.0, 0.0)}}
            ),
        )
    )
    before = copy.deepcopy(made.base.to_dict())
    cells = expand(made)
    assert made.base.to_dict() == before
    assert [sorted(cell.config.evals) for cell in cells[1:3]] == [
        ["other", "validation"],
        ["validation"],
    ]


def test_every_cell_is_what_the_same_config_file_would_resolve_to():
    for cell in expand(
        study(axes=(axis("masking.rate", RATES), axis("model.size", ("tiny", "mini"))))
    ):
        tree = base(
            masking__rate=cell.values["masking.rate"],
            model__size=cell.values["model.size"],
            seed=cell.seed,
        )
        assert cell.config == configs.resolve(tree)


# --- names of cells -------------------------------------------------------------------------------


def test_a_cell_is_named_by_what_is_trained_and_by_nothing_else():
    config = expand(study())[0].config
    leaves = configs.flat(configs.to_dict(config))
    free = {
        path
        for path in leaves
        if identity(toy.with_leaf(config, path.split("."), "other")) == identity(config)
    }
    sections = ("parallel", "loader", "evals", "logging", "corpus", "checkpoints", "model")
    assert {path.split(".")[0] for path in free} == set(sections)
    assert {path for path in leaves if path.startswith(("loader.", "evals.", "logging."))} <= free
    assert {p for p in free if p.startswith("corpus.")} == {"corpus.cache", "corpus.workers"}
    # All backends compute the same, and so does a backward pass that keeps less.
    assert {p for p in free if p.startswith("model.")} == {"model.attention", "model.remat"}
    assert not free & {
        "seed",
        "data_seed",
        "steps",
        "masking.rate",
        "parallel.prng",
        "checkpoints.best",
        "init_from",
    }

    usual = configs.flat(
        configs.to_dict(knobs.Config())
    )  # that a knob added later would have: it renames no cell
    usual["masking.rounding"] = "nearest"  # the default is what no cell had before
    told = {
        path: value
        for path, value in leaves.items()
        if path not in free and value != usual.get(path, "")
    }
    assert (
        {"steps", "pairs", "model.hidden", "objectives.mlm.weight"}
        <= set(told)
        < set(leaves) - free
    )
    assert (
        identity(config)
        == hashlib.sha256(json.dumps(dict(sorted(told.items()))).encode()).hexdigest()[:12]
    )
    for path in told.keys() & usual.keys():
        assert identity(toy.with_leaf(config, path.split("."), usual[path])) != identity(config)


def test_a_branch_is_named_by_its_step_and_never_by_a_path():
    base = configs.default()
    one, moved, later, none = (
        identity(dataclasses.replace(configs.resolve(base), branch_from=trunk))
        for trunk in ("runs/a@50", "/elsewhere/b@50", "runs/a@60", "")
    )
    assert one == moved
    assert len({one, later, none}) == 3


def test_whole_numbers_and_lists_name_the_same_cell_as_what_they_stand_for():
    for path, one, other in (
        ("optim.clip_norm", 1, 1.0),
        ("masking.replace", [0.8, 0.1, 0.1], (0.8, 0.1, 0.1)),
    ):
        assert ids(study(axes=(axis(path, (one,)),))) == ids(study(axes=(axis(path, (other,)),)))


def test_predicting_all_that_is_corrupted_is_the_same_run_however_it_is_said():
    rates = axis("masking.rate", (0.6, 0.4))
    silent, said = (
        ids(study(axes=(rates, axis("masking.prediction_rate", (rate,))))) for rate in (None, 0.4)
    )
    assert len(silent) == len(said) > 0
    half = len(silent) // 2
    assert (silent[:half] == said[:half], silent[half:] == said[half:]) == (False, True)
    rising = {"masking.rate": 0.15, "masking.phases": ((1.0, 0.4, "linear"),)}
    cells = study(
        axes=(variants("x", {"a": rising, "b": rising | {"masking.prediction_rate": 0.15}}),)
    )
    assert len(set(ids(cells))) == len(ids(cells))


POINTS = {
    "masking.rate": (0.1, 0.15, 0.4),
    "model.size": ("tiny", "mini"),
    "masking.replace": ((0.8, 0.1, 0.1), (1.0, 0.0, 0.0)),
}
AXES = st.permutations([*POINTS]).flatmap(
    lambda names: st.tuples(
        *(st.permutations(POINTS[name]).map(lambda v, n=name: axis(n, v)) for name in names)
    )
)


@settings(max_examples=10)
@given(AXES, st.permutations((0, 5)))
def test_the_order_of_axes_points_and_seeds_changes_no_name(axes, seeds):
    straight = study(
        axes=tuple(axis(name, values) for name, values in POINTS.items()), seeds=(0, 5)
    )
    assert sorted(ids(study(axes=axes, seeds=tuple(seeds)))) == sorted(ids(straight))


@settings(max_examples=10)
@given(
    st.sets(st.sampled_from((0.1, 0.2, 0.3, 0.4)), min_size=1),
    st.sets(st.integers(0, 4), min_size=1),
)
def test_an_edited_study_has_the_cells_it_had_and_others(rates, seeds):
    every = study(axes=(axis("masking.rate", (0.1, 0.2, 0.3, 0.4)),), seeds=tuple(range(5)))
    part = study(axes=(axis("masking.rate", sorted(rates)),), seeds=tuple(sorted(seeds)))
    wanted = [c.id for c in expand(every) if c.values["masking.rate"] in rates and c.seed in seeds]
    assert ids(part) == wanted
    further = study(
        axes=(*part.axes, axis("masking.dupe_factor", (0, 10))), seeds=part.seeds
    )  # 0 is the base's
    assert set(ids(part)) < set(ids(further))


# --- budgets --------------------------------------------------------------------------------------


def predictions(config) -> float:
    """Of a whole run, step by step."""
    m, total = config.masking, 0.0
    for step in range(config.steps):
        rate = (
            rates.rate_at(m, step, config.steps) if m.prediction_rate is None else m.prediction_rate
        )
        total += config.batch_size * config.sequence_length * rate / rates.count_views(m)
    return total


ARMS = {
    "constant": {"masking.rate": 0.15},
    "high": {"masking.rate": 0.8},
    "falling": {"masking.rate": 0.4, "masking.phases": ((1.0, 0.15, "linear"),)},
    "few predicted": {"masking.rate": 0.4, "masking.prediction_rate": 0.05},
    "more predicted": {"masking.rate": 0.15, "masking.prediction_rate": 0.3},
    "other batch": {"masking.rate": 0.15, "batch_size": 48},
    "short": {"masking.rate": 0.15, "sequence_length": 64},
}


@settings(max_examples=10)
@given(amount=st.floats(3e5, 3e6))
def test_equal_predictions_are_equal_within_a_step(amount):
    for cell in expand(
        study(axes=(variants("arm", ARMS),), seeds=(0,), budget=Budget("predictions", amount))
    ):
        made, one = predictions(cell.config), predictions(dataclasses.replace(cell.config, steps=1))
        assert abs(made - amount) <= max(one, made / cell.config.steps), cell.labels


@settings(max_examples=10)
@given(amount=st.integers(10**6, 10**8))
def test_equal_tokens_are_equal_within_half_a_step(amount):
    for cell in expand(
        study(axes=(variants("arm", ARMS),), seeds=(0,), budget=Budget("tokens", amount))
    ):
        one = cell.config.batch_size * cell.config.sequence_length
        assert abs(cell.config.steps * one - amount) <= one / 2


def test_equal_flops_are_equal_within_half_a_step_and_cost_the_larger_model_steps():
    sizes = axis("model.size", ("tiny", "mini", "base"))
    made = study(
        axes=(sizes, axis("masking.rate", (0.15, 0.8))), seeds=(0,), budget=Budget("flops", 1e16)
    )
    cells = expand(made, lambda config: 20_000)
    for cell in cells:
        assert cell.vocab_size == 20_000
        one = flops_per_step(cell.config, 20_000)
        assert abs(cell.config.steps * one - 1e16) <= one / 2
    steps = [cell.config.steps for cell in cells]
    assert steps == sorted(steps, reverse=True)  # a larger model, and more predictions, cost more
    assert len(set(steps)) == 6


def test_a_budget_of_flops_counts_the_vocabulary_that_is_given(tmp_path):
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{i}" for i in range(1_995))]
    (tmp_path / "vocab.txt").write_text("".join(f"{piece}\n" for piece in vocab))
    tree = base(model__size="mini", tokenizer__path=str(tmp_path / "vocab.txt"))
    made = study(
        base=tree,
        axes=(axis("masking.rate", (0.15, 0.4, 0.8)),),
        seeds=(0,),
        budget=Budget("flops", 1e15),
    )
    cells = expand(made)
    assert [cell.config.steps for cell in cells] == [1454, 1396, 1313]
    assert {cell.vocab_size for cell in cells} == {2_000}


def test_a_budget_of_flops_waits_for_a_vocabulary_that_is_trained(tmp_path):
    """What is asked for may be more than the text has: no number of steps is taken from it."""
    text = {
        "source": "files",
        "path": str(texts.write(tmp_path / "text")),
        "cache": str(tmp_path / "cache"),
    }
    tree = base(
        corpus={**configs.plain(base().corpus), **text, "workers": 1, "validation_fraction": 0.2}
    )
    made = study(base=tree, axes=(), seeds=(0,), budget=Budget("flops", 1e12))
    with pytest.raises(
        ConfigError, match=r"may have fewer than tokenizer\.vocab_size = 30522"
    ) as caught:
        expand(made)
    assert "prepare" in caught.value.hint
    assert not list((tmp_path / "cache").rglob("manifest.json"))
    (cell,) = expand(made, functools.partial(vocabulary.vocabulary_size, make=True))
    real = prepare.prepare_corpus(cell.config).tokenizer.size
    assert cell.vocab_size == real < 300
    assert cell.config.steps == round(1e12 / flops_per_step(cell.config, real))
    vocabulary._trained_size.cache_clear()
    assert expand(made) == [cell]  # prepared, it is known
    assert expand(study())[0].vocabulary is None  # other budgets have no need of it


def test_what_follows_from_the_steps_follows_from_the_budget():
    tree = base(
        steps=5, optim__warmup_steps=10_000, optim__warmup_fraction=0.1
    )  # its own steps count for nothing
    (cell,) = expand(study(base=tree, axes=(), seeds=(0,), budget=Budget("steps", 400)))
    assert (cell.config.steps, cell.config.optim.warmup_steps) == (400, 40)
    tree = base(steps=5, optim__warmup_steps=10)
    (cell,) = expand(study(base=tree, axes=(), seeds=(0,), budget=Budget("steps", 400)))
    assert cell.config.steps == 400
    (cell,) = expand(study(base=tree, axes=(), seeds=(0,), budget=Budget("steps", 4)))
    assert (cell.config.steps, cell.config.optim.warmup_steps) == (4, 10)
    assert expand(study())[0].config.steps == 1_000


@pytest.mark.fault(25)
def test_identity_counts_evaluations_that_may_end_training():
    """With patience another evaluation is another run, and --reuse must not take the one for the
    other.
    """

    def names(patience: int, **validation) -> list[str]:
        tree = base(checkpoints__patience=patience)
        for knob, value in validation.items():
            tree.evals.validation[knob] = value
        return ids(study(base=tree))

    for change in (
        {"every": 100},
        {"rate": 0.4},
        {"seed": 1},
        {"unit": "word"},
        {"replace": (1.0, 0.0, 0.0)},
    ):
        assert names(0, **change) == names(0)
        assert not set(names(2, **change)) & set(names(2)), change
    assert names(2, batch_size=16) == names(2)
    assert not set(names(2)) & set(names(0))


IDS = [
    "f239d52cf263",
    "e647cb0cff3b",
    "edcf0673328a",
    "d1232ab7a3de",
    "c58f93f29ac0",
    "cb7a9dc5fdf8",
]


@pytest.mark.fault(25)
def test_identity_of_cells_is_what_it_was():
    """Workdirs of before are found: these names are of an earlier version, which knew no rounding
    but to the nearest.
    """
    tree = base(masking__rounding="nearest")
    assert ids(study(base=tree)) == IDS
    assert not {*ids(study())} & {*IDS}
    tree.evals.validation.every = 100
    assert ids(study(base=tree)) == IDS


# --- from a file ----------------------------------------------------------------------------------

FILE = """
from bert_jax.config import default
from bert_jax.studies.definition import Budget, Study, Suite, axis, variants

def get_study(scale="cpu"):
    base = default()
    base.model.size = scale if scale != "cpu" else "tiny"
    arms = {"pairs": {"pairs": "nsp", "masking.unit": "word"}, "none": {"pairs": "none"}}
    axes = (axis("masking.rate", (0.15, 0.4)), variants("arm", arms))
    return Study("?", base, axes, (0,), {"v": Suite("pretrain")},
                 budget=Budget("tokens", 1e9))
"""


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "much").mkdir()
    (tmp_path / "much" / "study.py").write_text(FILE)
    return tmp_path / "much"


def test_a_study_is_loaded_by_its_folder_or_its_file(folder):
    name, made = load(str(folder))
    assert (name, made.base.model.size, len(expand(made))) == ("much", "tiny", 4)
    for spec in (f"{folder}:mini", f"{folder}/:mini", f"{folder / 'study.py'}:mini"):
        name, made = load(spec)
        assert (name, made.base.model.size) == ("much", "mini")


def test_knobs_of_the_base_are_set_from_the_command_line(folder):
    _, made = load(str(folder), [("optim.learning_rate", "3e-4"), ("masking.unit", "span")])
    assert {c.config.optim.learning_rate for c in expand(made)} == {3e-4}
    assert [c.config.masking.unit for c in expand(made)] == [
        "word",
        "span",
    ] * 2  # where no point says otherwise


@pytest.mark.parametrize(
    ("knob", "text", "why"),
    [
        ("masking.rate", "0.3", r"axis 'masking.rate' varies it"),
        ("pairs", "sop", r"axis 'arm' varies it"),
        ("steps", "10", r"budget of 1e\+09 tokens"),
        ("seed", "3", "are the study's"),
        ("masking.rat", "0.3", "no knob 'rat'"),
    ],
)
def test_a_knob_that_the_base_does_not_decide_cannot_be_set(folder, knob, text, why):
    with pytest.raises(ConfigError, match=why):
        load(str(folder), [(knob, text)])


def test_what_is_no_study_says_so(folder, monkeypatch):
    with pytest.raises(ConfigError, match="no study at 'nowhere'"):
        load("nowhere")
    (folder / "study.py").write_text("def get_study(scale='cpu'):\n    return {}\n")
    with pytest.raises(ConfigError, match="get_study returned dict"):
        load(str(folder))
    (folder / "study.py").write_text("def get_study(scale='cpu'):\n    return undefined\n")
    with pytest.raises(ConfigError, match=r"study.py:2: NameError"):
        load(str(folder))
    monkeypatch.chdir(Path(__file__).parents[2])
    with pytest.raises(ConfigError) as error:
        load("experiments/masking_rates")
    assert "did you mean 'experiments/masking_rate'?" in error.value.hint


# --- what is refused ------------------------------------------------------------------------------


def compared(axis_name="masking.rate", baseline="15 %", metrics=("validation/mlm_loss",)) -> dict:
    return {"comparisons": (Comparison(axis_name, baseline, metrics),)}


def asks(name: str, **ask) -> dict:
    return {"evaluations": {"one": Suite(name, tuple(ask.items()))}}


def tunes(task: str, **changes) -> dict:
    named = tuple((key.replace("__", "."), value) for key, value in changes.items())
    return {"evaluations": {"one": Finetune(task, named)}}


REFUSED = {
    "a misspelt path": (
        {"axes": (axis("masking.rte", (0.1,)),)},
        "has no knob 'rte'",
        "did you mean 'rate'",
    ),
    "a misspelt section": (
        {"axes": (axis("maskin.rate", (0.1,)),)},
        "has no knob 'maskin'",
        "did you mean 'masking'",
    ),
    "a path below a value": ({"axes": (axis("masking.rate.x", (1,)),)}, "has no knob 'x'", ""),
    "a section": (
        {"axes": (axis("masking", ({"rate": 0.1},), ["a"]),)},
        "is a section",
        "set one of: rate",
    ),
    "a value of another type": (
        {"axes": (axis("masking.rate", ("much",)),)},
        "masking.rate much: .* got 'much'",
        "",
    ),
    "a value out of range": (
        {"axes": (axis("masking.rate", (1.5,)),)},
        "out of range",
        "from 0.0 to 1.0",
    ),
    "a value that is no choice": (
        {"axes": (axis("masking.unit", ("wrd",)),)},
        "not a choice",
        "did you mean 'word'",
    ),
    "what does not hold together": (
        {"axes": (axis("model.heads", (7,)),)},
        "model.heads 7: .*divisible",
        "",
    ),
    "a wrong base": ({"base": base(masking__rate=2.0), "axes": ()}, "the base: .*out of range", ""),
    "an empty axis": ({"axes": (axis("masking.rate", ()),)}, "has no points", ""),
    "a point twice": (
        {"axes": (axis("masking.rate", (0.1, 0.1)),)},
        "a point twice: 10 %, 10 %",
        "",
    ),
    "two axes of a name": ({"axes": (axis("steps", (1,)),) * 2}, "two axes have one name", ""),
    "two axes for a knob": (
        {"axes": (axis("masking.rate", RATES), variants("arm", {"a": {"masking.rate": 0.1}}))},
        "axes 'masking.rate' and 'arm' both set config.masking.rate",
        "",
    ),
    "two axes, one for a section": (
        {
            "axes": (
                axis("evals.validation.rate", RATES),
                Axis("e", (Point("none", 0, (("evals", {}),)),)),
            )
        },
        "both set config.evals",
        "",
    ),
    "an axis of seeds": ({"axes": (axis("seed", (1, 2)),)}, "sets config.seed", "seeds="),
    "an axis of data seeds beside pairs": (
        {"axes": (axis("data_seed", (1,)),), "pair_seeds": True},
        "data_seed",
        "pair",
    ),
    "an axis that the budget decides": (
        {"axes": (axis("steps", (10, 20)),), "budget": Budget("tokens", 1e6)},
        "sets config.steps",
        "budget of 1e\\+06 tokens",
    ),
    "points that are one run": (
        {"axes": (axis("logging.every", (1, 2)),)},
        "logging.every 2 is the same run as",
        "",
    ),
    "no seeds": ({"seeds": ()}, "no seeds", ""),
    "a seed twice": ({"seeds": (1, 1)}, "a seed twice", ""),
    "a seed that is none": ({"seeds": (-1,)}, "config.seed = -1 is out of range", ""),
    "nothing kept": ({"keep": lambda points: False}, "no cell", "keep"),
    "a keep that fails": (
        {"keep": lambda points: points["rate"].value > 0},
        "keep: KeyError",
        "masking.rate",
    ),
    "a budget of what": (
        {"budget": Budget("token", 1e6)},
        "no budget 'token'",
        "did you mean 'tokens'",
    ),
    "a budget of nothing": ({"budget": Budget("tokens", 0)}, "a budget of 0", ""),
    "an endless budget": ({"budget": Budget("tokens", float("inf"))}, "a budget of inf", ""),
    "an unknown axis compared": (
        compared(axis_name="masking.rates"),
        "no axis",
        "did you mean 'masking.rate'",
    ),
    "an unknown baseline": (compared(baseline="15%"), "no point '15%'", "did you mean '15 %'"),
    "a metric that is not found": (
        compared(metrics=("validation/loss",)),
        "'validation' has no metric 'loss'",
        "mlm_loss",
    ),
    "a metric of no evaluation": (
        compared(metrics=("blimp/accuracy",)),
        "no evaluation",
        "evaluations are validation",
    ),
    "a metric without its evaluation": (
        compared(metrics=("validation",)),
        "no evaluation",
        "EVALUATION/METRIC",
    ),
    "no metric": (compared(metrics=()), "has no metrics", ""),
    "an unknown published row": (
        {"published": ("wettig_rate",)},
        "no published row",
        "did you mean 'wettig_rates'",
    ),
    "an unknown suite": (asks("blmp"), "no suite 'blmp'", "did you mean 'blimp'"),
    "a suite over labels": (asks("sst2"), "no suite 'sst2' for a study", ""),
    "a question no suite is asked": (
        asks("blimp", limt=3),
        "has no option 'limt'",
        "did you mean 'limit'",
    ),
    "a question of another suite": (
        asks("pretrain", limit=3),
        "pretrain has no option 'limit'",
        "",
    ),
    "passages of no source": (
        asks("cross_rate", limit=3),
        "cross_rate has no option 'limit' without a source",
        "",
    ),
    "masks of a corpus beside a source": (
        asks("cross_rate", source="texts", changes=()),
        "cross_rate has no option 'changes' beside a source",
        "",
    ),
    "an answer of another type": (asks("blimp", limit="3"), "limit = '3'", "of type int"),
    "yes for a number": (asks("blimp", limit=True), "limit = True", "of type int"),
    "a probe of no task": (
        asks("probe", task="conl2003"),
        "no task 'conl2003'",
        "did you mean 'conll2003'",
    ),
    "a misspelt change": (
        asks("pretrain", changes=(("evals.validation.rte", "0.4"),)),
        "no knob 'rte'",
        "'rate'",
    ),
    "a change in vain": (
        asks("pretrain", changes=(("masking.rate", "0.4"),)),
        "does nothing",
        "evals.",
    ),
    "a change that is no text": (
        asks("pretrain", changes=(("evals.validation.rate", 0.4),)),
        "rate = 0.4",
        "text",
    ),
    "a change of another type": (
        asks("pretrain", changes=(("evals.validation.rate", "x"),)),
        "must be float",
        "",
    ),
    "an unknown task": (tunes("sst3"), "no task 'sst3'", "did you mean 'sst2'"),
    "a misspelt knob of a task": (
        tunes("sst2", optim__lerning_rate=1e-3),
        "no knob 'lerning_rate'",
        "'learning_rate'",
    ),
    "a wrong knob of a task": (tunes("sst2", epochs="two"), "config.epochs must be float", ""),
    "a knob of a task out of range": (
        tunes("sst2", epochs=-1.0),
        "config.epochs = -1.0 is out of range",
        "",
    ),
    "an evaluation that names no file": (
        {"evaluations": {"a/b": Suite("pretrain")}},
        "'a/b' names an evaluation",
        "",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_meant_is_refused_before_anything_runs(what):
    changes, message, hint = REFUSED[what]
    with pytest.raises(ConfigError, match=message) as error:
        expand(study(**changes))
    assert re.search(hint, error.value.hint)


def test_split_label_in_another_order_is_refused():
    (point,) = axis("masking.replace", [(0.8, 0.2, 0.0)]).points
    assert point.label == "80/0/20"
    axis("masking.replace", [(0.8, 0.2, 0.0)], ["no token kept"])
    with pytest.raises(ConfigError, match="labelled '80/20/0'") as caught:
        axis("masking.replace", [(0.8, 0.2, 0.0)], ["80/20/0"])
    assert caught.value.hint == "its label is '80/0/20', in the order [MASK]/same/random"


def test_labels_and_rows_are_as_many_as_they_must_be():
    with pytest.raises(ConfigError, match="3 points and 1 labels"):
        axis("masking.rate", RATES, ["15 %"])
    with pytest.raises(ConfigError, match="is not a value for each of"):
        zipped("rates", ["masking.rate", "masking.prediction_rate"], [(0.15,)])
    with pytest.raises(ConfigError, match="has 1 values"):
        between(0.1, 0.2, 1)


def test_a_cell_is_not_asked_what_its_model_has_no_head_for(tmp_path, capsys):
    """A left-to-right model among masked ones: the study is whole without its cross_rate."""
    (tmp_path / "study.py").write_text(
        "from bert_jax.config import default\n"
        "from bert_jax.studies.definition import Study, Suite, variants\n"
        "def get_study(scale='cpu'):\n"
        "    base = default()\n"
        "    base.pairs, base.model.size, base.checkpoints.best = 'none', 'tiny', ''\n"
        "    masked = {'objectives.mlm.weight': 1.0, 'objectives.nsp.weight': None}\n"
        "    causal = {'objectives.mlm.weight': None, 'objectives.nsp.weight': None}\n"
        "    causal |= {'objectives.causal_lm.weight': 1.0, 'model.causal': True}\n"
        "    return Study('Which?', base, (variants('way', {'both': masked, 'left': causal}),),\n"
        "                 (0, 1), {'bound': Suite('nelbo'), 'rates': Suite('cross_rate')})\n"
    )
    _, made = load(str(tmp_path))
    asked = {
        cell.labels["way"]: set(measures.possible(cell, actions.record_evaluations(made)))
        for cell in expand(made)
    }
    assert asked == {"both": {"bound", "rates"}, "left": {"bound"}}
    actions.run(str(tmp_path), tmp_path / "w", actions.Flags(dry_run=True))
    said = capsys.readouterr().out
    assert "rates is left out for models without an mlm head (2 of 4 cells)\n" in said


def test_an_evaluation_may_be_made_after_some_budgets_only():
    """Its definition, and so its results, do not depend on which budgets those are."""
    pairs = Suite("blimp", (("source", "files:pairs"),), budgets=(20, 40))
    evaluations = {"validation": Suite("pretrain"), "p": pairs}
    made = study(budget=Budget("steps", (10, 20, 40)), evaluations=evaluations)
    records = actions.record_evaluations(made)
    always = {name: record for name, record in records.items() if name != "p"}
    for cell in expand(made):
        asked = measures.possible(cell, records)
        plain = {key: value for key, value in records["p"].items() if key != "budgets"}
        assert asked == (always | {"p": plain} if cell.config.steps > 10 else always)
    lines = measures.left_out(expand(made), records)
    count = len(expand(made))
    assert lines == [
        f"p is made after a budget of 20 and 40 alone ({2 * count // 3} of {count} cells)"
    ]


@pytest.mark.parametrize(
    ("budget", "hint"),
    [
        (None, "the study's are none"),
        (Budget("steps", 20), "the study's are 20"),
        (Budget("steps", (10, 40)), "the study's are 10, 40"),
    ],
)
def test_an_evaluation_after_a_budget_that_no_cell_has_is_refused(budget, hint):
    evaluations = {"p": Suite("blimp", budgets=(20,))}
    with pytest.raises(ConfigError, match="evaluation 'p' is made after a budget of 20") as error:
        expand(study(budget=budget, evaluations=evaluations))
    assert error.value.hint == hint


# --- how long it takes ----------------------------------------------------------------------------

MANY = """
import dataclasses, sys
from bert_jax.studies import definition, folder, groups
from bert_jax.studies.engines.base import Capacity
name, study = definition.load(sys.argv[1])
rates = definition.axis("masking.rate", definition.between(0.02, 0.8, 40))
study = dataclasses.replace(study, axes=(rates,), seeds=tuple(range(5)))
cells = definition.expand(study)
planned = groups.plan_groups(cells, "auto", Capacity())
assert sum(len(group.cells) for group in planned) == len(cells) == 200
assert not {"jax", "flax", "matplotlib"} & set(sys.modules)
print(*(cell.id for cell in cells))
"""


def test_200_cells_expand_and_are_planned_in_two_seconds_by_a_fresh_process(folder):
    """Counted as the processor's time, all of it from the start of Python: others may use the
    machine meanwhile.
    """
    took, said = [], set()
    while len(took) < 3 and min(took, default=9.0) >= 2.0:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-c", MANY, str(folder)], capture_output=True, text=True, check=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
        said.add(done.stdout)
    assert min(took) < 2.0
    (names,) = said
    _, made = load(str(folder))
    here = dataclasses.replace(
        made, axes=(axis("masking.rate", between(0.02, 0.8, 40)),), seeds=tuple(range(5))
    )
    assert names.split() == ids(here)  # in every process the same


# --- what a study's file may hold -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said", "hint"),
    [
        ({"axes": axis("masking.rate", (0.15, 0.4))}, "study's axes: Axis", "with the comma"),
        ({"seeds": 3}, "study's seeds: int '3'", "seeds=(0, 1, 2)"),
        ({"seeds": ("0",)}, "study's seeds: str '0'", "seeds=(0, 1, 2)"),
        ({"axes": ("masking.rate",)}, "study's axes: str", "axes=(axis(…),)"),
        (
            {"comparisons": Comparison("masking.rate", "15 %", ("a/b",))},
            "study's comparisons: Comparison",
            "comma",
        ),
        ({"evaluations": (Suite("pretrain"),)}, "study's evaluations: tuple", "Suite"),
        (
            {"evaluations": {"validation": "pretrain"}},
            r"evaluations\['validation'\]: str",
            "a Suite or a Finetune",
        ),
        ({"budget": 1e9}, "study's budget: float", "Budget("),
        ({"keep": True}, "study's keep: bool", "lambda"),
        ({"base": None}, "study's base: NoneType", "default()"),
        ({"published": "bert_table_8"}, "study's published: str", "comma"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
@pytest.mark.fault(20)
def test_a_field_of_another_type_is_named(changes, said, hint):
    with pytest.raises(ConfigError, match=said) as caught:
        study(**changes)
    assert hint in caught.value.hint


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_study_whose_text_is_not_there_ends_before_its_first_cell(dry_run, folder, tmp_path):
    nowhere = [("corpus.source", "files"), ("corpus.path", "/nowhere")]
    with pytest.raises(DataError, match=r"corpus.path = '/nowhere' does not exist"):
        actions.run(str(folder), tmp_path / "w", actions.Flags(dry_run=dry_run), nowhere)
    assert not (tmp_path / "w").exists()


def test_the_metrics_of_a_comparison_are_several():
    with pytest.raises(ConfigError, match="comparison's metrics: str 'validation/mlm_loss'"):
        Comparison("masking.rate", "15 %", "validation/mlm_loss")


@pytest.mark.parametrize(
    ("base_changes", "evaluations", "error", "said"),
    [
        (
            {"corpus__source": "files", "corpus__path": "/nowhere"},
            {},
            DataError,
            "corpus.path = '/nowhere' does not",
        ),
        (
            {"tokenizer__path": "/nowhere.txt"},
            {},
            ConfigError,
            "tokenizer.path = '/nowhere.txt' does not exist",
        ),
        (
            {},
            {"blimp": Suite("blimp", (("source", "files:/nowhere"),))},
            DataError,
            "'blimp': source 'files:/nowhere'",
        ),
        (
            {},
            {"mine": Finetune("sst2", (("task.source", "files:/nowhere"),))},
            MissingError,
            "'mine': files:/nowhere",
        ),
        (
            {},
            {"mine": Finetune("wnut17")},
            ConfigError,
            "'mine': objectives.tag needs labelled data",
        ),
        (
            {},
            {"mine": Finetune("sst2", (("masking.rate", 0.4),))},
            ConfigError,
            "'mine': masking.rate = 0.4 does not",
        ),
    ],
)
def test_a_dry_run_finds_that_data_is_missing_or_a_recipe_wrong(
    base_changes, evaluations, error, said
):
    made = study(
        base=base(**base_changes), evaluations={"validation": Suite("pretrain"), **evaluations}
    )
    with pytest.raises(error, match=said):
        sources.check(made, [cell.config for cell in expand(made)])


def test_a_workdir_that_is_a_file_is_refused_by_every_action(tmp_path):
    file = tmp_path / "file"
    file.touch()
    for ask in (
        lambda place: actions.run("experiments/masking_rate", place, actions.Flags(dry_run=True)),
        actions.status,
        actions.report,
    ):
        for place in (file, file / "below"):
            with pytest.raises(ConfigError, match="file is no folder"):
                ask(place)
