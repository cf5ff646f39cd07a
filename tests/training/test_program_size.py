"""The update is not a larger program than it was: operations, FLOPs and bytes.

They are those of the lowered program: what our code asks for, before the compiler fuses anything.
A change that makes it larger on purpose writes the new numbers here, and says why in its commit.
"""

from __future__ import annotations

import re

import jax
import pytest

from tests import toy, updates

ROOM = 0.10
# Operations, FLOPs, and the bytes accessed as jax counts them before 0.12 and since.
SIZES = {
    "bert": (4_892, 70.3e6, 87.1e6, 110.8e6),
    "packed": (4_525, 71.2e6, 88.3e6, 112.4e6),
    "modern": (5_047, 90.4e6, 109.0e6, 132.7e6),
    "accumulated": (5_098, 35.7e6, 50.6e6, 62.5e6),  # of one microbatch
}
KNOBS = {
    "bert": {},
    "packed": {"pairs": "none", "packing": 4},
    "modern": {
        "pairs": "none",
        "model__position": "rotary",
        "model__norm": "pre",
        "model__gated": True,
        "model__window": 8,
    },
    "accumulated": {"optim__accumulation": 2},
}


@pytest.mark.parametrize("name", KNOBS)
def test_update_has_no_more_work_than_before(name):
    config = toy.config(**KNOBS[name])
    examples = config.packing
    batch = toy.batch(config.batch_size, config.sequence_length, examples=examples)
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), batch)
    lowered = updates.build_program(config, devices=1).trace(shapes).lower()
    cost = lowered.cost_analysis()
    operations = len(re.findall(r"^\s*%\S+ = ", lowered.as_text(), re.MULTILINE))
    operations_before, flops_before, *bytes_before = SIZES[name]
    assert operations == pytest.approx(operations_before, rel=ROOM)
    assert cost["flops"] == pytest.approx(flops_before, rel=ROOM)
    since = jax.__version_info__ >= (0, 12)
    assert cost["bytes accessed"] == pytest.approx(bytes_before[since], rel=ROOM)
