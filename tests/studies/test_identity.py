"""The names of cells: what changes them, and what does not."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax import config as configs
from bert_jax.studies.definition import (
    axis,
    expand,
    identity,
)
from tests import EXAMPLES, toy
from tests.studies.small import make_base, make_study


def list_ids(**changes) -> list[str]:
    return [cell.id for cell in expand(make_study(**changes))]


@pytest.mark.fault(25)
def test_identity_counts_only_what_is_trained():
    config = expand(make_study())[0].config
    leaves = configs.flatten(configs.to_dict(config))
    free = {
        path
        for path in leaves
        if identity(toy.with_leaf(config, path.split("."), "other")) == identity(config)
    }
    for section, some in {
        "loader.": None,
        "evals.": None,
        "logging.": None,
        "corpus.": ["corpus.cache", "corpus.workers"],
        "model.": ["model.attention", "model.remat"],  # all backends compute the same
    }.items():
        of_section = [path for path in leaves if path.startswith(section)]
        assert {path for path in free if path.startswith(section)} == {*(some or of_section)}
    assert not free & {"seed", "data_seed", "steps", "masking.rate", "parallel.prng", "init_from"}
    branches = [
        identity(dataclasses.replace(config, branch_from=trunk))
        for trunk in ("runs/a@50", "/elsewhere/b@50", "runs/a@60")
    ]
    assert branches[0] == branches[1] != branches[2]


@pytest.mark.fault(25)
@pytest.mark.parametrize(
    "change", [{"every": 100}, {"rate": 0.4}, {"seed": 1}, {"unit": "word"}, {"batch_size": 16}]
)
def test_identity_counts_evaluations_that_end_training(change):
    """With patience another evaluation is another run, and --reuse must not mistake the two."""

    def name_cells(patience: int, **validation) -> set[str]:
        tree = make_base(checkpoints__patience=patience)
        for knob, value in validation.items():
            tree.evals.validation[knob] = value
        return {*list_ids(base=tree)}

    assert name_cells(0, **change) == name_cells(0)
    assert bool(name_cells(2, **change) & name_cells(2)) == ("batch_size" in change)


@pytest.mark.fault(25)
@settings(max_examples=EXAMPLES or 8)
@given(
    st.permutations((0.1, 0.2, 0.3)), st.permutations((0, 1, 2)), st.integers(1, 3), st.booleans()
)
def test_identity_survives_edits_in_any_order(shares, seeds, kept, sizes_first):
    """A study that has fewer points and seeds, or another order, has the same cells."""
    sizes = axis("model.size", ("tiny", "mini"))
    every = expand(make_study(axes=(axis("masking.rate", (0.1, 0.2, 0.3)), sizes), seeds=(0, 1, 2)))
    shares, seeds = shares[:kept], tuple(seeds[:kept])
    wanted = {c.id for c in every if c.values["masking.rate"] in shares and c.seed in seeds}
    axes = (sizes, axis("masking.rate", shares))
    found = list_ids(axes=axes if sizes_first else axes[::-1], seeds=seeds)
    assert sorted(found) == sorted(wanted)
