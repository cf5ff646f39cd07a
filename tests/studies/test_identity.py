"""The names of cells: what changes them, and what does not."""

import dataclasses

import pytest

from bert_jax import config as configs
from bert_jax.studies.definition import expand, identity
from tests import tiny
from tests.studies.small import make_base, make_study


@pytest.mark.fault(25)
def test_identity_counts_only_what_is_trained(check_frozen):
    """The file lists the knobs that change no run; all backends of attention compute the same."""
    config = expand(make_study())[0].config
    leaves = configs.flatten(configs.to_dict(config))
    changed = {path: tiny.with_leaf(config, path.split("."), "other") for path in leaves}
    free = [path for path in leaves if identity(changed[path]) == identity(config)]
    check_frozen(free, "identity")
    trunks = ("runs/a@50", "/elsewhere/b@50", "runs/a@60")
    branches = [identity(dataclasses.replace(config, branch_from=trunk)) for trunk in trunks]
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
