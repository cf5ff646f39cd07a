"""What studies plan is frozen: cells with their trunks and evaluations, and groups that train
together.
"""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from bert_jax.studies import actions, measures, plan, sweep, trunks
from bert_jax.studies.definition import Budget, Study, Suite, axis, expand, variants
from bert_jax.studies.folder import StudyFolder
from bert_jax.studies.groups import plan_groups
from tests.studies.small import make_base, make_branching, make_study

CONFIGS = Path(__file__).parents[2] / "configs"
MODEL = "tests/golden/huggingface/pretraining"  # names of cells depend on it


def vary(*axes: str, config: str = "tiny.py", **overrides: str) -> Study:
    """Make the study of a sweep; `a__b` is the knob a.b."""
    changes = [(path.replace("__", "."), text) for path, text in overrides.items()]
    return sweep.make_study(sweep.Sweep(f"{CONFIGS / config}", changes, axes, 2, None))


def branch(knob: str, *values: object, **changes: object) -> Study:
    """Make a study that varies a knob, and whose longer cells go on from shorter ones."""
    return make_branching(axes=(axis(knob, values),), **changes)


# A left-to-right model has no head for cross_rate; one evaluation is of one budget.
NONE = {"objectives.nsp.weight": None, "pairs": "none"}
LEFT = {"objectives.mlm.weight": None, "objectives.causal_lm.weight": 1.0, "model.causal": True}
WAYS = variants("way", {"both": NONE | {"objectives.mlm.weight": 1.0}, "left": NONE | LEFT})
SUITES = {
    "bound": Suite("nelbo"),
    "rates": Suite("cross_rate"),
    "late": Suite("blimp", (("source", "files:pairs"),), budgets=(20,)),
}
FALLING = {"masking.rate": 0.4, "masking.phases": ((1.0, 0.2, "linear"),)}
RATES = "optim.learning_rate=2e-5,5e-5"
PHASES = '((0.5,0.3,"step"),(1.0,0.15,"linear")), ()'
SPLITS = "config.masking.replace=(0.8,0.1,0.1),(1,0,0)"
CAUSAL = {"pairs": "none", "model__causal": "true", "checkpoints__best": ""}
CAUSAL |= {"objectives__mlm__weight": "none", "objectives__causal_lm__weight": "1"}
STUDIES = {
    "longer cells go on": make_branching(budget=Budget("steps", (20, 40, 100))),
    "without trunks": make_branching(trunk=False),
    "rates and seeds go on alone": branch("masking.rate", 0.15, 0.4, seeds=(0, 1)),
    "another decay goes on": branch("optim.decay_fraction", 0.5, 0.2, budget=Budget("steps", 40)),
    "another end goes on": branch("optim.final_fraction", 0.0, 0.1),
    "other learning rates do not": branch("optim.learning_rate", 1e-3, 2e-3),
    "phases are shares of all steps": make_branching(axes=(variants("rate", {"falls": FALLING}),)),
    "only wsd has a stable phase": branch("optim.schedule", "linear", "wsd"),
    "evaluations follow from heads and budgets": make_study(
        base=make_base(checkpoints__best=""),
        axes=(WAYS,),
        seeds=(0,),
        budget=Budget("steps", (10, 20)),
        evaluations=SUITES,
    ),
    "rates are cut by slots": make_study(axes=(axis("masking.rate", (0.05, 0.1, 0.15, 0.4, 0.6)),)),
    "pmap trains alone": make_study(base=make_base(parallel__step="pmap")),
    "processes train alone": make_study(base=make_base(parallel__distributed=True)),
    "a value in brackets holds commas": vary("masking.rate=0.15,0.3", SPLITS, steps="2000"),
    "phases are swept": vary(f"masking.phases={PHASES}"),
    "a causal model is swept": vary(RATES, config="pretrain.py:base", **CAUSAL),
}


def describe(study: Study) -> Iterator[str]:
    """Yield lines on a study: what it compares, its cells, and their groups."""
    for one in study.comparisons:
        yield f"{one.axis}: minus {one.baseline} by {', '.join(one.metrics)}"
    cells = expand(study)
    numbers = {cell.id: number for number, cell in enumerate(cells)}
    for number, cell in enumerate(cells):
        config = cell.config
        trunk, _, step = cell.trunk.partition("@")
        goes_on = f"from {numbers[trunk]} at {step}" if trunk else ""
        made = [f"{name}: {one['name']}" for name, one in cell.evaluations.items()]
        parts = [number, *cell.labels.values(), f"seed {cell.seed}", f"{config.steps} steps"]
        parts += [goes_on, f"saved at {config.checkpoints.at}", f"split {config.masking.replace}"]
        parts += [f"{trunks.count_flops(cell, config.steps):.4g} FLOPs", " ".join(made)]
        yield " | ".join(map(str, parts))
    for fuse, parallel in (("auto", 1), ("auto", 2), ("auto", 4), ("3", 1)):
        groups = plan_groups(cells, fuse, parallel)
        found = sorted(sorted(numbers[cell.id] for cell in group.cells) for group in groups)
        yield f"--fuse={fuse}, {parallel} at a time: {found}"
    yield trunks.describe_saving(cells)
    yield from measures.describe_left_out(cells, measures.record_evaluations(study))


def test_plans_are_frozen(monkeypatch, check_frozen):
    monkeypatch.chdir(CONFIGS.parent)
    task = f"finetune.py:mrpc,init_from={MODEL}"
    swept = {"a task is swept": vary(RATES, config=task)}
    studies = STUDIES | swept
    lines = [line for name, study in studies.items() for line in (f"# {name}", *describe(study))]
    check_frozen(lines, "plans")


@pytest.mark.parametrize(
    ("begun", "config", "trunk_trained", "saves"),
    [
        ("", "", False, False),
        ("", "{", False, False),  # cut off before its first checkpoint
        ("", "", True, True),
        ("checkpoints/20", '{"branch_from": "0@16"}', False, True),  # the checkpoint was removed
        ("checkpoints/20", "{}", True, False),
        ("trained.json", '{"branch_from": "0@16"}', False, True),
        ("trained.json", "{}", True, False),
    ],
)
def test_only_a_branch_saves_updates(tmp_path, capsys, begun, config, trunk_trained, saves):
    """A cell that has begun goes on as it began; another cell needs its trunk."""
    study = make_branching(evaluations={"validation": Suite("pretrain")})
    short, long = expand(study)
    place = StudyFolder(tmp_path / "w")
    folder = place.cell(long.id)
    folder.mkdir(parents=True)
    if trunk_trained:
        (place.cell(short.id) / "checkpoints" / "16").mkdir(parents=True)
    if config:
        (folder / "config.json").write_text(config)
    if begun == "trained.json":
        place.write_trained(long.id, 40, 1.0, "done")
    elif begun:
        (folder / begun).mkdir(parents=True)
    left = dataclasses.replace(long, trunk=long.trunk if saves else "")
    flops = trunks.count_flops(left, 40)
    place.write_trained(short.id, 20, 1.0, "done")  # its evaluation is left
    for only in (("budget=4e1",), ()):
        flags = actions.Flags(dry_run=True, only=only)
        actions.launch_study(actions.Named(study, "toy", "toy", tmp_path), place.workdir, flags)
        told = capsys.readouterr().out
        assert (f"takes {flops:.1e} FLOPs" in told) == (begun != "trained.json")
        assert ("continue another cell" in told) == saves


def test_hours_are_of_the_workers_that_train():
    groups = plan_groups(expand(make_study())[:2], "never", 2)
    trained, left = (group.cells[0] for group in groups)
    speed = trunks.count_work([left]) / 7200
    assert "about 2 h" in plan.describe_cost(groups, {trained.id}, 2, speed, 0.0)
    assert "about 2 h" in plan.describe_cost(groups, set(), 2, speed, 0.0)
