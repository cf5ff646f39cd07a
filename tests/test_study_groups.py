"""Which cells train together, and what that is expected to take."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax import config as configs
from bert_jax.config import costs, knobs
from bert_jax.errors import ConfigError
from bert_jax.studies import groups
from bert_jax.studies.groups import Group, alone, bands, makespan, plan, signature
from bert_jax.studies.spec import Cell
from bert_jax.training.step import compute_inputs, init_state, make_update
from tests import toy
from tests.test_study_definition import with_leaf

SHAPE = {
    "pairs": "none",
    "batch_size": 32,
    "sequence_length": 64,
    "steps": 400,
    "tokenizer__vocab_size": 4_000,
}


def cell(name: object = "", **overrides: object) -> Cell:
    """A cell of a name of our own."""
    config = toy.config(**{**SHAPE, **overrides})
    return Cell(str(name or sorted(overrides.items())), config, {}, {}, config.seed)


ONE = cell("one")
LEFT_TO_RIGHT = {"objectives__causal_lm__weight": 1, "model__causal": True, "checkpoints__best": ""}


def at(rate: float, seed: int = 0, **changes: object) -> Cell:
    """The same with other traced numbers, made without asking whether they hold together."""
    masking = dataclasses.replace(ONE.config.masking, rate=rate)
    config = dataclasses.replace(ONE.config, masking=masking, seed=seed, **changes)
    return dataclasses.replace(ONE, id=f"{rate} {seed} {changes}", config=config, seed=seed)


def spent(several: list[Cell], pace: float) -> float:
    """Seconds of a program for some cells, told over again from what a step costs."""
    slots = max(costs.own_slots(one.config) for one in several)
    return groups.COMPILE + sum(
        one.config.steps * costs.flops_per_step(one.config, 4_000, slots) / pace for one in several
    )


# --- every cell has its group ---------------------------------------------------------------------

CELLS = st.lists(
    st.builds(
        at,
        st.sampled_from((0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.8)),
        st.integers(0, 3),
        steps=st.sampled_from((400, 4_000)),
        batch_size=st.sampled_from((16, 32)),
        checkpoints=st.sampled_from((knobs.Checkpoints(), knobs.Checkpoints(patience=2))),
    ),
    unique_by=lambda one: one.id,
    max_size=24,
)
HOW = st.fixed_dictionaries(
    {
        "fuse": st.sampled_from(("auto", "never", "1", "2", "5")),
        "parallel": st.integers(1, 6),
        "memory": st.sampled_from((math.inf, 1e9, 3e7, 1.0)),
        "pace": st.sampled_from((1e8, 1e10, 1e12)),
        "accelerator": st.booleans(),
    }
)


@given(CELLS, HOW, st.randoms(use_true_random=False))
def test_every_cell_is_in_one_group_with_cells_like_it_and_room_for_all(cells, how, random):
    found = plan(cells, **how)
    assert sorted(one.id for group in found for one in group.cells) == sorted(
        one.id for one in cells
    )
    most = {"auto": math.inf, "never": 1}.get(how["fuse"]) or int(how["fuse"])
    for group in found:
        assert len({signature(one) for one in group.cells}) == 1
        assert group.slots == max(costs.own_slots(one.config) for one in group.cells)
        assert len(group.cells) <= most
        assert len(group.cells) == 1 or not any(
            one.config.checkpoints.patience for one in group.cells
        )
        assert group.seconds == pytest.approx(spent([*group.cells], how["pace"]))
        used = sum(costs.own_slots(one.config) for one in group.cells)
        assert group.empty == pytest.approx(1 - used / (group.slots * len(group.cells)))
    assert [group.seconds for group in found] == sorted(
        (group.seconds for group in found), reverse=True
    )
    assert len({group.id for group in found}) == len(found)
    random.shuffle(cells)
    assert plan(cells, **how) == found


@given(CELLS.filter(len), st.sampled_from((1e8, 1e10, 1e12)))
def test_no_band_is_wider_than_a_compilation_is_worth(cells, pace):
    """Cut anywhere, a group would save fewer seconds of empty slots than another program takes to
    compile.
    """
    for group in plan(cells, pace=pace):
        for slots in {costs.own_slots(one.config) for one in group.cells} - {group.slots}:
            below = [one for one in group.cells if costs.own_slots(one.config) <= slots]
            empty = sum(
                one.config.steps
                * (
                    costs.flops_per_step(one.config, 4_000, group.slots)
                    - costs.flops_per_step(one.config, 4_000, slots)
                )
                for one in below
            )
            assert empty / pace <= groups.COMPILE * (1 + 1e-9)


def divisions(items: list) -> list[list[list]]:
    """Every way to divide a list into parts, whatever lies beside what."""
    if not items:
        return [[]]
    first, *rest = items
    found = []
    for smaller in divisions(rest):
        found.append([[first], *smaller])
        found += [
            [*smaller[:i], [first, *smaller[i]], *smaller[i + 1 :]] for i in range(len(smaller))
        ]
    return found


@settings(max_examples=25)
@given(
    st.lists(st.sampled_from((0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.8)), min_size=1, max_size=6),
    st.floats(8, 12),
)
def test_bands_take_the_least_time_there_is(rates, digits):
    cells = [at(rate, seed) for seed, rate in enumerate(rates)]
    pace = 10**digits
    taken = sum(spent(band, pace) for band in bands(cells, pace))
    assert taken == pytest.approx(
        min(sum(spent(part, pace) for part in way) for way in divisions(cells))
    )


def test_bands_part_rates_where_training_is_long_and_join_them_where_it_is_short():
    cells = [at(rate, seed) for rate in (0.15, 0.2, 0.8) for seed in range(3)]
    assert [len(group.cells) for group in plan(cells, pace=1e13)] == [9]
    assert sorted(len(group.cells) for group in plan(cells, pace=1e7)) == [3, 3, 3]
    two = plan(cells, pace=1e10)
    assert sorted((len(group.cells), group.slots) for group in two) == [(3, 52), (6, 13)]
    assert all(re.match(r"rates differ \(band [12] of 2\)", group.why) for group in two)


# --- what may differ ------------------------------------------------------------------------------

MAY_DIFFER = {  # with another value than that of ONE
    "seed": 3,
    "masking.rate": 0.1,
    "masking.phases": ((0.5, 0.3, "step"),),
    "masking.draw_low": 0.1,
    "masking.draw_high": 0.5,
    "masking.draw_alpha": 2.0,
    "masking.draw_beta": 2.0,
    "masking.prediction_rate": 0.05,
    "masking.replace": (1.0, 0.0, 0.0),
    "objectives.mlm.weight": 0.5,
    "objectives.mlm.share": 0.3,  # which only `hybrid` reads
    "optim.learning_rate": 1e-4,
    "optim.weight_decay": 0.1,
    "optim.schedule": "cosine",
    "optim.warmup_steps": 7,
    "optim.warmup_fraction": 0.5,
    "optim.decay_fraction": 0.1,
    "optim.final_fraction": 0.1,
}


def test_cells_that_differ_in_anything_else_train_apart():
    leaves = configs.flat(configs.to_dict(ONE.config))
    others = {
        path: with_leaf(ONE.config, path.split("."), MAY_DIFFER.get(path, "other"))
        for path in leaves
    }
    mine = signature(ONE)
    joined = {
        p
        for p, config in others.items()
        if signature(dataclasses.replace(ONE, id="x", config=config)) == mine
    }
    assert joined == set(MAY_DIFFER)


def test_laws_of_drawn_rates_train_together_and_fixed_rates_apart():
    drawn = [
        dataclasses.replace(ONE, id=law, config=with_leaf(ONE.config, ["masking", "draw"], law))
        for law in ("uniform", "cosine_low", "beta")
    ]
    assert len({signature(cell) for cell in drawn}) == 1
    assert signature(drawn[0]) != signature(ONE)


def program(config: knobs.Config) -> str:
    """What is compiled for a config, with more slots than any of these has."""
    state = jax.eval_shape(lambda seed: init_state(config, toy.VOCAB, seed), np.uint32(0))
    step = make_update(config, toy.SPECIAL, toy.VOCAB, slots=config.sequence_length)
    batch = toy.batch(config.batch_size, config.sequence_length)
    return re.sub(
        r"0x[0-9a-f]+", "", str(jax.make_jaxpr(step)(state, batch, compute_inputs(config, 0)))
    )


def test_what_may_differ_changes_nothing_in_the_program():
    shape = {"batch_size": 4, "sequence_length": 16, "model__layers": 1, "pairs": "none"}
    config = toy.config(**shape)
    mine = program(config)
    changed = config
    for path, value in MAY_DIFFER.items():
        changed = with_leaf(changed, path.split("."), value)
    assert program(changed) == mine
    assert program(toy.config(**shape, optim__clip_norm=0.5)) != mine  # as anything else may


def test_cells_of_other_objectives_train_apart():
    with_pairs = cell("pairs", pairs="nsp")
    unweighted = cell("unweighted", pairs="nsp", objectives__nsp__weight=0)
    without = cell("without")
    assert signature(with_pairs) == signature(unweighted) != signature(without)
    rows = cell("rows", pairs="nsp")
    none = dataclasses.replace(rows.config, objectives={"mlm": rows.config.objectives["mlm"]})
    assert signature(dataclasses.replace(rows, config=none)) != signature(rows)


@pytest.mark.parametrize(
    ("knob", "why"),
    [
        ({"checkpoints__patience": 3}, "patience"),
        ({"parallel__step": "pmap"}, "pmap"),
        ({"parallel__distributed": True}, "several processes"),
    ],
)
def test_what_cannot_share_a_program_trains_alone_and_says_why(knob, why):
    found = plan([cell(f"seed {seed}", seed=seed, **knob) for seed in range(3)])
    assert [len(group.cells) for group in found] == [1, 1, 1]
    assert all(why in group.why for group in found)


# --- how many -------------------------------------------------------------------------------------


def test_fuse_says_how_many_train_together():
    cells = [at(0.15, seed) for seed in range(7)]
    assert [len(group.cells) for group in plan(cells, "auto")] == [7]
    assert [len(group.cells) for group in plan(cells, "never", parallel=2)] == [1] * 7
    assert [len(group.cells) for group in plan(cells, "3")] == [3, 2, 2]
    assert {group.why for group in plan(cells, "3")} == {"--fuse=3"}
    for wrong in ("0", "-1", "all", "2.5", ""):
        with pytest.raises(ConfigError, match="--fuse"):
            plan(cells, wrong)


def test_arms_are_as_many_as_the_memory_holds():
    cells = [at(0.15, seed) for seed in range(12)]
    state, (activations, fewer) = (
        costs.state_bytes(ONE.config, 4_000),
        [
            costs.activation_bytes(ONE.config, 4_000, ONE.config.batch_size, device=device)
            for device in ("cpu", "cuda")
        ],
    )
    one_by_one = plan(cells, memory=4 * state + activations)
    assert [len(group.cells) for group in one_by_one] == [4, 4, 4]
    assert {group.why for group in one_by_one} == {"memory for 4 runs"}
    all_at_once = plan(cells, memory=4 * (state + fewer), accelerator=True)
    assert [len(group.cells) for group in all_at_once] == [4, 4, 4]
    assert (
        len(plan(cells, memory=4 * (state + activations))) < 3
    )  # the same memory holds more, one after the other
    assert len(plan(cells, memory=1)) == 12
    as_told = [with_arms(one, "map") for one in cells]
    assert len(plan(as_told, memory=4 * state + fewer, accelerator=True)) == 3
    as_told = [with_arms(one, "vmap") for one in cells]
    assert len(plan(as_told, memory=4 * (state + activations))) == 3


def with_arms(one: Cell, how: str) -> Cell:
    parallel = dataclasses.replace(one.config.parallel, arms=how)
    return dataclasses.replace(one, config=dataclasses.replace(one.config, parallel=parallel))


def test_groups_are_divided_for_those_who_wait_while_that_helps():
    cells = [at(0.15, seed) for seed in range(8)]
    assert [len(group.cells) for group in plan(cells, parallel=2, pace=1e9)] == [4, 4]
    assert [len(group.cells) for group in plan(cells, parallel=4, pace=1e9)] == [2, 2, 2, 2]
    assert [len(group.cells) for group in plan(cells, parallel=3, pace=1e9)] in (
        [3, 3, 2],
        [2, 2, 2, 1, 1],
    )
    assert [len(group.cells) for group in plan(cells, parallel=2, pace=1e15)] == [
        8
    ]  # a compilation more, for nothing
    long, short = (
        [at(0.8, seed, steps=9_000) for seed in range(4)],
        [at(0.15, seed) for seed in range(2)],
    )
    for parallel in range(1, 6):
        found = plan([*long, *short], parallel=parallel, pace=1e9)
        whole = [group.seconds for group in plan([*long, *short], pace=1e9)]
        assert makespan((group.seconds for group in found), parallel) <= makespan(whole, parallel)
    assert len(plan([*long, *short], parallel=3, pace=1e9)) > 2


@given(st.lists(st.floats(0, 100), max_size=5), st.integers(1, 4))
def test_when_all_have_ended(seconds, parallel):
    """Never later than four thirds of the best, which Graham proved for the longest first."""
    ends = makespan(seconds, parallel)
    best = math.inf
    for hands in itertools.product(range(parallel), repeat=len(seconds)):
        of = [
            sum(took for took, hand in zip(seconds, hands, strict=True) if hand == one)
            for one in range(parallel)
        ]
        best = min(best, max(of))
    assert best - 1e-9 <= ends <= (4 / 3) * best + 1e-9


def test_a_cell_tried_alone_has_the_slots_of_its_group():
    (group,) = plan([at(0.15), at(0.8)], pace=1e13)
    one, other = alone(group)
    assert [*one.cells, *other.cells] == [*group.cells]
    assert one.slots == other.slots == group.slots == 52
    assert one.id != other.id != group.id
    assert one.id != plan([at(0.15)])[0].id  # which has fewer slots


def test_a_group_is_named_by_its_cells_and_slots():
    one, other = (
        plan([at(0.15, seed) for seed in seeds], pace=1e13)[0] for seeds in ((0, 1), (1, 0))
    )
    assert one.id == other.id
    assert re.fullmatch("[0-9a-f]{12}", one.id)
    assert plan([at(0.15, 2)])[0].id != plan([at(0.15, 3)])[0].id
    assert isinstance(one, Group)


# --- what it takes --------------------------------------------------------------------------------

WIDE = dict.fromkeys(("sequence_length", "model__hidden", "model__max_positions"), 128)
WIDE |= {"batch_size": 4, "model__heads": 2, "tokenizer__vocab_size": 2_000}
MODELS = {
    "one layer": {"pairs": "none", "model__layers": 1, "masking__rate": 0.3},
    "gated, at a high rate, with pairs": {
        "pairs": "nsp",
        "model__gated": True,
        "masking__rate": 0.8,
    },
    "left to right": {"pairs": "none", **LEFT_TO_RIGHT},
}


@pytest.mark.parametrize("name", MODELS)
def test_costs_are_those_of_the_program(name):
    """FLOPs as XLA counts them, element by element too; parameters as the model has them, with
    biases and norms.
    """
    config = toy.config(**WIDE, **MODELS[name])
    state = jax.eval_shape(lambda seed: init_state(config, 2_000, seed), np.uint32(0))
    step = jax.jit(make_update(config, toy.SPECIAL, 2_000))
    lowered = step.lower(state, toy.batch(4, 128, vocab=2_000), compute_inputs(config, 0))
    assert costs.flops_per_step(config, 2_000) == pytest.approx(
        lowered.cost_analysis()["flops"], rel=0.06
    )
    held = sum(leaf.size * 4 for leaf in jax.tree.leaves(state["params"])) * costs.STATES
    assert costs.state_bytes(config, 2_000) == pytest.approx(held, rel=0.03)


def test_slots_cost_what_the_head_takes_of_them():
    one, more = (costs.flops_per_step(ONE.config, 4_000, slots) for slots in (10, 30))
    width = ONE.config.model.hidden
    assert more - one == 6 * 20 * ONE.config.batch_size * (width**2 + width * 4_000)


def test_activations_are_those_of_a_microbatch():
    state, rows = costs.state_bytes(ONE.config, 4_000), ONE.config.batch_size
    memory = 2 * state + costs.activation_bytes(ONE.config, 4_000, rows // 2)
    cells = [cell(n, optim__accumulation=2, seed=n) for n in range(4)]
    assert [len(group.cells) for group in plan(cells, memory=memory)] == [2, 2]
    whole = [cell(n, seed=n) for n in range(4)]
    assert [len(group.cells) for group in plan(whole, memory=memory)] == [1] * 4


@pytest.mark.parametrize(
    ("changes", "share"),
    [
        ({"masking__rate": 0.4}, 0.4),
        ({"masking__rate": 0.4, "masking__prediction_rate": 0.1}, 0.1),
        ({"masking__rate": 0.15, "masking__prediction_rate": 0.3}, 0.15),
        ({"masking__rate": 0.4, "masking__phases": "((1.0,0.2,'linear'),)"}, 0.3),
        (LEFT_TO_RIGHT, 1.0),
    ],
)
def test_the_share_of_tokens_that_is_predicted(changes, share):
    assert costs.predicted(cell("x", **changes).config) == pytest.approx(share)
