"""What the axes, budget and seeds of a study make of its base, and what is refused."""

import copy
import dataclasses
import functools
import itertools

import pytest

from bert_jax import config as configs
from bert_jax.config.costs import flops_per_step
from bert_jax.data import prepare
from bert_jax.errors import ConfigError, DataError, MissingError
from bert_jax.interop import vocabulary
from bert_jax.masking import rates
from bert_jax.studies import actions, cell_result
from bert_jax.studies.definition import axis, expand, load_study, override_base, variants, zipped
from bert_jax.studies.spec import Axis, Budget, Claimed, Comparison, Finetune, Point, Suite
from tests import texts
from tests.config.settings import HYBRID
from tests.studies.small import RATES, make_base, make_study

# --- axes and cells -------------------------------------------------------------------------------


def test_expand_joins_zipped_knobs_and_varies_seeds():
    """The base of the study stays as it is."""
    knobs = ["masking.rate", "masking.prediction_rate"]
    together = zipped("rates", knobs, [(0.15, 0.15), (0.4, 0.15)])
    assert [point.label for point in together.points] == ["15 %, 15 %", "40 %, 15 %"]
    sets = {"tiny": {"model.size": "tiny"}, "NSP": {"pairs": "nsp", "objectives.nsp.weight": 0.5}}
    made = make_study(axes=(variants("arm", sets), together))
    before = copy.deepcopy(made.base.to_dict())
    for paired in (False, True):
        cells = expand(dataclasses.replace(made, pair_seeds=paired))
        found = [(*cell.labels.values(), cell.seed) for cell in cells]
        assert found == [*itertools.product(sets, ("15 %, 15 %", "40 %, 15 %"), (0, 1))]
        for cell in cells:
            tree = make_base(seed=cell.seed, data_seed=paired * cell.seed)
            joined = dict(zip(knobs, (cell.values["rates"], 0.15), strict=True))
            configs.assign(tree, sets[cell.labels["arm"]] | joined)
            assert cell.config == configs.resolve(tree)
    assert made.base.to_dict() == before


# --- budgets --------------------------------------------------------------------------------------


def test_budget_gives_equal_predictions():
    """Predictions are those of all steps; a masking that falls makes fewer and fewer."""
    falling = {"masking.rate": 0.4, "masking.phases": ((1.0, 0.15, "linear"),)}
    arms = {
        "constant": {"masking.rate": 0.15},
        "falling": falling,
        "falling hybrid": HYBRID | {"objectives.hybrid.share": 0.5} | falling,
        "few predicted": {"masking.rate": 0.4, "masking.prediction_rate": 0.05},
        "other shape": {"masking.rate": 0.15, "batch_size": 48, "sequence_length": 64},
    }
    budget = Budget("predictions", 1.3e6)
    study = make_study(axes=(variants("arm", arms),), seeds=(0,), budget=budget)
    for config in (cell.config for cell in expand(study)):
        masking, tokens = config.masking, config.batch_size * config.sequence_length
        steps = range(config.steps)
        asked = [masking.prediction_rate or rates.rate_at(masking, n, len(steps)) for n in steps]
        shares = [rate / rates.count_views(masking) for rate in asked]
        if "hybrid" in config.objectives:  # every token of half of the examples is predicted
            shares = [(1 + share) / 2 for share in shares]
        assert abs(tokens * sum(shares) - 1.3e6) <= tokens * max(shares)
        spent = cell_result.make_clock("predictions", config, 8192)
        assert spent(20) == pytest.approx(tokens * sum(shares[:20]))


def test_flops_budget_waits_for_the_vocabulary(tmp_path):
    """The size asked for may be more than the text has: no number of steps is taken from it."""
    tree = configs.load_file(str(texts.config_file(tmp_path)))
    tree.corpus.cache, tree.tokenizer.vocab_size = str(tmp_path / "cache"), 1_000
    study = make_study(base=tree, axes=(), seeds=(0,), budget=Budget("flops", 1e12))
    with pytest.raises(ConfigError, match=r"may have fewer than tokenizer\.vocab_size = 1000"):
        expand(study)
    assert not [*(tmp_path / "cache").rglob("manifest.json")]
    (cell,) = expand(study, functools.partial(vocabulary.vocabulary_size, make=True))
    real = prepare.prepare_corpus(cell.config).tokenizer.size
    assert cell.vocabulary == real < 1_000
    assert cell.config.steps == round(1e12 / flops_per_step(cell.config, real))


# --- from a file ----------------------------------------------------------------------------------

FILE = """
from bert_jax.config import default
from bert_jax.studies.definition import Study, variants

def get_study(size="tiny"):
    base = default()
    base.model.size = size
    arms = {"pairs": {"pairs": "nsp", "masking.unit": "word"}, "none": {"pairs": "none"}}
    return Study("?", base, (variants("arm", arms),), (0,), {})
"""


@pytest.mark.fault(21)
def test_load_takes_an_argument_and_free_knobs(tmp_path):
    """A knob that all points of an axis set is not free, nor is the seed."""
    (tmp_path / "study.py").write_text(FILE)
    changes = [("optim.learning_rate", "3e-4"), ("masking.unit", "span")]
    _, made = load_study(f"{tmp_path}:mini", changes)
    assert made.base.model.size == "mini"
    assert {cell.config.optim.learning_rate for cell in expand(made)} == {3e-4}
    assert [cell.config.masking.unit for cell in expand(made)] == ["word", "span"]
    for knob, why in (("pairs", "'arm' varies it"), ("seed", "the study's")):
        with pytest.raises(ConfigError, match=why):
            load_study(str(tmp_path), [(knob, "1")])


@pytest.mark.fault(21)
def test_base_sets_no_knob_that_every_cell_resets():
    fraction = "optim.warmup_fraction"
    study = make_study(axes=(axis(fraction, (0.1, 0.2)),), budget=Budget("tokens", 1e6))
    for knob, by in (("epochs", "steps"), ("optim.warmup_steps", fraction)):
        with pytest.raises(ConfigError, match=f"every cell sets {by}, which resets it"):
            override_base(study, [(knob, "2")])
    study = make_study(axes=(axis(fraction, (None, 0.2), ["steps", "share"]),))
    override_base(study, [("optim.warmup_steps", "7")])
    assert {cell.config.optim.warmup_steps for cell in expand(study)} == {7, 200}


# --- what is refused ------------------------------------------------------------------------------


def compares(baseline="15 %", metric="validation/mlm_loss") -> dict:
    return {"comparisons": (Comparison("masking.rate", baseline, (metric,)),)}


def asks(evaluation) -> dict:
    return {"evaluations": {"one": evaluation}}


CLAIM = Claimed("C3", "masking.rate", "30 %", "15 %", "validation/mlm_loss", 0.1)
OF_COUNTS = dataclasses.replace(CLAIM, metric="validation/mlm_predictions")
LATE = {"budget": Budget("steps", [10, 20])} | asks(Suite("blimp", budgets=(300,)))
EVALS = Axis("e", (Point("none", 0, (("evals", {}),)),))
REFUSED = [
    ({"axes": (axis("masking", ({"rate": 0.1},), ["a"]),)}, "is a section"),
    ({"axes": (axis("evals.validation.rate", RATES), EVALS)}, "both set config.evals"),
    ({"keep": lambda points: points["rate"].value > 0}, "keep: KeyError"),
    ({"budget": Budget("token", 1e6)}, "no budget 'token'"),
    ({"budget": 2e6}, "a study's budget cannot be 2000000.0"),
    ({"trunk": True}, "no cell has a stable phase"),
    (compares(baseline="15%"), "no point '15%'"),
    (compares(metric="validation/loss"), "'validation' has no metric 'loss'"),
    ({"claims": (dataclasses.replace(CLAIM, effect=-0.1),)}, "C3: effect = -0.1"),
    ({"claims": (dataclasses.replace(CLAIM, more_at=("a", "b")),)}, "C3: more_at = "),
    ({"claims": (OF_COUNTS,)}, "neither a higher nor a lower validation/mlm_predictions is better"),
    ({"published": ("wettig_rate",)}, "no published row"),
    (asks(Suite("blimp", (("limt", 3),))), "suite blimp has no option 'limt'"),
    (asks(Suite("nelbo", (("draws", "2"),))), "suite nelbo: draws = '2'"),
    (asks(Suite("glue")), "no suite 'glue' for a study"),
    (LATE, "'one' is made after a budget of 300"),
    (asks(Suite("pretrain", (("changes", (("masking.rate", "0.4"),)),))), "does nothing"),
    (asks(Finetune("sst2", (("optim.lerning_rate", 1e-3),))), "no knob 'lerning_rate'"),
    (asks(Finetune("sst2", (("model.features", 13),))), "evaluation 'one': .*features = 13"),
    ({"evaluations": {"a/b": Suite("pretrain")}}, "'a/b' names an evaluation"),
]


@pytest.mark.fault(20)
@pytest.mark.parametrize(("changes", "message"), REFUSED, ids=[row[1] for row in REFUSED])
def test_expand_refuses_what_cannot_be_meant(changes, message):
    with pytest.raises(ConfigError, match=message):
        expand(make_study(**changes))


GONE = "files:/nowhere"


@pytest.mark.parametrize(
    ("base", "evaluation", "error"),
    [
        ({"corpus__source": "files", "corpus__path": "/nowhere"}, Suite("pretrain"), DataError),
        ({"tokenizer__path": "/nowhere"}, Suite("pretrain"), ConfigError),
        ({}, Suite("blimp", (("source", GONE),)), DataError),
        ({}, Finetune("sst2", (("task.source", GONE),)), MissingError),
    ],
)
def test_launch_refuses_missing_data(base, evaluation, error, tmp_path):
    study = make_study(base=make_base(**base), evaluations={"one": evaluation})
    named = actions.Named(study, "x", "x", tmp_path)
    for dry_run in (True, False):
        with pytest.raises(error, match="/nowhere"):
            actions.launch_study(named, tmp_path / "w", actions.Flags(dry_run=dry_run))
    assert not (tmp_path / "w").exists()
