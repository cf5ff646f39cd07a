"""The names of cells: what changes them, and what does not."""

import dataclasses

import pytest

from bert_jax import config as configs
from bert_jax.studies.definition import expand, identity
from tests import toy
from tests.studies.small import make_base, make_study


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
@pytest.mark.parametrize("change", [{"every": 100}, {"rate": 0.4}, {"batch_size": 16}])
def test_identity_counts_evaluations_that_end_training(change):
    """With patience another evaluation is another run, and --reuse must not mistake the two."""

    def name_cells(patience: int, **validation) -> set[str]:
        tree = make_base(checkpoints__patience=patience)
        for knob, value in validation.items():
            tree.evals.validation[knob] = value
        return {cell.id for cell in expand(make_study(base=tree))}

    assert name_cells(0, **change) == name_cells(0)
    assert bool(name_cells(2, **change) & name_cells(2)) == ("batch_size" in change)
