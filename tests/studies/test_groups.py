"""Which cells train together."""

import dataclasses
import math
import re

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax import config as configs
from bert_jax.config import costs, knobs
from bert_jax.studies import folder, progress
from bert_jax.studies.definition import Cell
from bert_jax.studies.groups import WIDEST, find_groups, find_signature, plan_groups
from bert_jax.training.step import compute_inputs, draw_state, make_update
from tests import tiny


def cell(name: object, **overrides: object) -> Cell:
    """Make a cell with a name of our own."""
    shape = {"pairs": "none", "batch_size": 32, "sequence_length": 64, "steps": 400}
    config = tiny.config(**shape | overrides)
    return Cell(str(name), config, {}, {}, config.seed)


ONE = cell("one")


def at(rate: float, seed: int = 0, **changes: object) -> Cell:
    """Make a cell with other traced numbers, without asking whether they hold together."""
    masking = dataclasses.replace(ONE.config.masking, rate=rate)
    config = dataclasses.replace(ONE.config, masking=masking, seed=seed, **changes)
    return dataclasses.replace(ONE, id=f"{rate} {seed} {changes}", config=config, seed=seed)


CELLS = st.lists(
    st.builds(
        at,
        st.sampled_from((0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.8)),
        st.integers(0, 3),
        steps=st.sampled_from((400, 4_000)),
        checkpoints=st.sampled_from((knobs.Checkpoints(), knobs.Checkpoints(patience=2))),
    ),
    unique_by=lambda one: one.id,
    max_size=24,
)


@given(CELLS, st.sampled_from(("auto", "never", "2", "5")), st.integers(1, 6), st.randoms())
def test_plan_puts_every_cell_in_one_group_of_its_like(cells, fuse, parallel, random):
    found = plan_groups(cells, fuse, parallel)
    grouped = sorted(one.id for group in found for one in group.cells)
    assert grouped == sorted(one.id for one in cells)
    most = {"auto": math.inf, "never": 1}.get(fuse) or int(fuse)
    for group in found:
        slots = [costs.own_slots(one.config) for one in group.cells]
        assert len({find_signature(one) for one in group.cells}) == 1
        assert group.slots == max(slots) <= WIDEST * min(slots)
        assert len(group.cells) <= most
        patient = any(one.config.checkpoints.patience for one in group.cells)
        assert len(group.cells) == 1 or not patient
        assert group.empty == pytest.approx(1 - sum(slots) / (group.slots * len(slots)))
    assert len({group.id for group in found}) == len(found)
    random.shuffle(cells)
    assert plan_groups(cells, fuse, parallel) == found


def test_cells_of_several_processes_leave_their_group(tmp_path, monkeypatch):
    """A study begun with one process a group goes on with several processes a cell."""
    place = folder.StudyFolder(tmp_path)
    cells = [at(0.15), at(0.2), at(0.3)]
    place.write_group("g", [one.id for one in cells], 20)
    (group,) = find_groups(place, cells[1:], "auto", 1)
    assert (group.id, group.cells) == ("g", (*cells[1:],))
    parallel = dataclasses.replace(ONE.config.parallel, distributed=True)
    joined = [
        dataclasses.replace(one, config=dataclasses.replace(one.config, parallel=parallel))
        for one in cells
    ]
    for left in joined, joined[2:]:
        found = find_groups(place, left, "auto", 1)
        assert sorted(one.id for group in found for one in group.cells) == [one.id for one in left]
        assert all(len(group.cells) == 1 and group.id != "g" for group in found)
    place.write_group("a", [cells[0].id], 20)
    monkeypatch.setattr(progress, "gather_cells", lambda _: [])
    newest = {one.id: "a" if one is cells[0] else "g" for one in cells}
    assert progress.read_progress(place).groups == newest


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


def test_signature_ignores_traced_knobs_only():
    leaves = configs.flatten(configs.to_dict(ONE.config))

    def sign(path: str, value: object) -> str:
        config = tiny.with_leaf(ONE.config, path.split("."), value)
        return find_signature(dataclasses.replace(ONE, id="x", config=config))

    mine = find_signature(ONE)
    joined = {path for path in leaves if sign(path, MAY_DIFFER.get(path, "other")) == mine}
    assert joined == set(MAY_DIFFER)
    drawn = {sign("masking.draw", law) for law in ("uniform", "cosine_low", "beta")}
    assert len(drawn | {mine}) == 2
    pairs = cell("pairs", pairs="nsp"), cell("light", pairs="nsp", objectives__nsp__weight=0)
    assert len({*map(find_signature, pairs), mine}) == 2


def program(config: knobs.Config) -> str:
    """What is compiled for a config, with more slots than any of these has."""
    state = jax.eval_shape(lambda seed: draw_state(config, tiny.VOCAB, seed), np.uint32(0))
    step = make_update(config, tiny.SPECIAL, tiny.VOCAB, slots=config.sequence_length)
    batch = tiny.batch(config.batch_size, config.sequence_length)
    traced = jax.make_jaxpr(step)(state, batch, compute_inputs(config, 0))
    return re.sub(r"0x[0-9a-f]+", "", str(traced))


def test_traced_knobs_are_not_in_the_program():
    shape = {"batch_size": 4, "sequence_length": 16, "model__layers": 1, "pairs": "none"}
    config = tiny.config(**shape)
    mine = program(config)
    changed = config
    for path, value in MAY_DIFFER.items():
        changed = tiny.with_leaf(changed, path.split("."), value)
    assert program(changed) == mine
    assert program(tiny.config(**shape, optim__clip_norm=0.5)) != mine  # as anything else may
