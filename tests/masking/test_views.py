"""More predictions than corruptions: an example in several views, each with other tokens masked."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from bert_jax.batch import HOST_KEYS
from bert_jax.config import costs, load_file, resolve, to_dict
from bert_jax.config.knobs import Masking
from bert_jax.data import pipeline
from bert_jax.errors import ConfigError, DivergedError
from bert_jax.masking import rates
from bert_jax.planning import targets, update
from bert_jax.planning.batches import make_batch
from bert_jax.planning.update import Plan
from bert_jax.reporting import run_charts, run_record
from bert_jax.studies.groups import find_signature
from bert_jax.studies.spec import Cell
from bert_jax.training import data, dry_run
from bert_jax.training.ledger import Ledger
from tests import corpora, toy
from tests.masking.test_corrupt import repeat_views


def test_the_ledger_stops_a_run_whose_views_repeat_what_others_have():
    settings = Masking(rate=0.2, prediction_rate=0.4)
    b = repeat_views(toy.batch(16, 24), 2)
    b["views"][:4] = 0
    with pytest.raises(DivergedError, match=r"tokens selected in all views sum to"):
        Ledger(settings).add(toy.mask(b, settings)[1], 0.2, 32, 1)


# --- batches --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    documents = corpora.random_documents(60, seed=0)
    return corpora.prepared(tmp_path_factory.mktemp("views"), [corpora.shard(documents, toy.VOCAB)])


KINDS = [{}, {"packing": 3}, {"masking__dupe_factor": 2}, {"pairs": "nsp"}]
KINDS += [{"masking__unit": "span"}, {"masking__unit": "word", "packing": 2}]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_batch_holds_all_views_of_its_examples(prepared, kind):
    """Those of the batch of a run without views, over the ends of epochs."""
    shape = {"sequence_length": 32, "pairs": "none"} | kind
    knobs = {"masking__rate": 0.15, "masking__prediction_rate": 0.4}
    several = pipeline.Source(prepared, "train", toy.config(batch_size=12, **shape, **knobs))
    plain = pipeline.Source(prepared, "train", toy.config(batch_size=4, **shape))
    last = -(-2 * several.examples_per_epoch // 4)
    for step in (0, 1, last // 2, last):
        ours, theirs = several.batch(step), plain.batch(step)
        assert set(ours) == {*HOST_KEYS, "views"}
        assert set(theirs) == set(HOST_KEYS)
        for key, value in theirs.items():
            np.testing.assert_array_equal(ours[key], np.repeat(value, 3, axis=0), err_msg=key)
        np.testing.assert_array_equal(ours["views"][:, 0], np.tile([0, 1, 2], 4))
        part = several.batch(step, slice(5, 9))  # of a process, which need not begin with a view 0
        for key, value in part.items():
            np.testing.assert_array_equal(value, ours[key][5:9], err_msg=key)
    assert several.fingerprint != plain.fingerprint
    held = pipeline.Source(prepared, "train", toy.config(batch_size=12, **shape, **knobs), seed=0)
    assert "views" not in held.evaluation_batch(0, 4)


# --- what follows from the number of views --------------------------------------------------------

MORE = {"masking__rate": 0.15, "masking__prediction_rate": 0.4}


def test_costs_are_those_of_the_rows():
    """A step costs what it does at the rate, and predicts a view's share of the whole."""
    several = toy.config(batch_size=24, pairs="none", **MORE)
    plain = toy.config(batch_size=24, pairs="none", masking__rate=0.15)
    for kind in ("steps", "tokens", "flops"):
        assert costs.per_step(kind, several, 60) == costs.per_step(kind, plain, 60)
    predictions = costs.per_step("predictions", several, 60)
    assert predictions == pytest.approx(24 * 24 * 0.4 / 3)
    assert costs.own_slots(several) == costs.own_slots(plain)


def test_static_copies_have_masks_of_their_own_in_each_view(prepared):
    config = toy.config(batch_size=12, pairs="none", masking__dupe_factor=2, **MORE)
    source = pipeline.Source(prepared, "train", config)
    found = data.TrainingData(config, data.Facts(), None, "", source, None)  # type: ignore[arg-type]  # what a loader needs is left out
    assert found.distinct() == 3 * 2 * source.examples_per_epoch


def test_a_dry_run_says_how_much_text_is_read():
    config = toy.config(batch_size=24, steps=10, **MORE)
    (said,) = (line for line in dry_run.summary(config).splitlines() if line.startswith("views "))
    assert said == (
        "views           3 of each example: an update reads 8 rows, the run 1,920 tokens of text"
    )
    assert "\nviews " not in dry_run.summary(toy.config())


@pytest.mark.parametrize(
    ("changes", "wish"),
    [
        (MORE, "13.3 %"),
        ({"masking__rate": 0.2}, "20.0 %"),
        ({"masking__draw": "uniform"}, "drawn"),
        ({"masking__phases": "((0.5,0.3,'step'),)"}, "scheduled"),
    ],
)
def test_a_report_knows_what_an_update_selects(changes, wish):
    recorded = to_dict(toy.config(**{"batch_size": 24} | changes))
    lines = [{"step": step, "train/masked_fraction": step / 10} for step in (1, 2)]
    run = run_record.RunRecord(Path(), recorded, {}, lines, (), False)
    text = run_charts.write_ledger(run)
    assert wish in re.sub("[\u202f\u00a0]|&nbsp;", " ", text)


def test_runs_with_as_many_views_share_a_program_and_others_do_not():
    def cell(**knobs):
        return Cell("x", toy.config(batch_size=24, **knobs), {}, {}, 0)

    three = find_signature(cell(**MORE))
    assert find_signature(cell(masking__rate=0.2, masking__prediction_rate=0.6)) == three
    assert find_signature(cell(masking__rate=0.2, masking__prediction_rate=0.4)) != three
    assert find_signature(cell(masking__rate=0.2)) != three


def test_a_plan_has_a_batch_with_views_and_counts_whole_ones():
    config = toy.config(batch_size=48, **MORE)
    assert make_batch(config, toy.VOCAB)["views"].shape == (48, 1)
    chip = targets.Chip("a chip", "cpu", memory_bytes=40)
    target = targets.Target("a target", chip, ())
    mesh = {"data": 4, "fsdp": 1}
    asked = Plan(config, target, mesh, 0, 0.0, "", "", "", peak_bytes=48)
    assert update._estimate_largest(asked) == 36  # of 40 that fit


@pytest.mark.parametrize(
    ("changes", "said", "hint"),
    [
        (
            {"batch_size": 16},
            "batch_size = 16 is not divisible by ceil(prediction_rate / rate) = 3 views",
            "--config.batch_size=18",
        ),
        (
            {"masking__unit": "word", "masking__overflow": "skip"},
            "masking.overflow = 'skip' has no ceil(prediction_rate / rate) = 3 views",
            "overflow=fair",
        ),
        (
            {"masking__phases": "((0.5,0.3,'step'),)"},
            "exceeds the lowest rate, 0.15, and a rate that changes",
            "keep the rate constant",
        ),
    ],
)
def test_what_has_no_views_is_refused(changes, said, hint):
    with pytest.raises(ConfigError) as error:
        toy.config(**{"batch_size": 24} | MORE | changes)
    assert said in str(error.value)
    assert hint in error.value.hint


@pytest.mark.parametrize(
    ("pair", "views"),
    [
        *(("0.15,0.4", 3), ("0.15,0.45", 3), ("0.3,0.9", 3), ("0.15,0.75", 5)),
        *(("0.15,0.9", 6), ("0.05,0.55", 11), ("0.4,0.2", 1)),
    ],
)
def test_the_ablation_has_views(pair, views):
    """As many as the rates say, whatever their quotient is in floating point."""
    config = resolve(load_file(f"configs/ablations.py:views,{pair},tiny"))
    assert rates.count_views(config.masking) == views
    assert config.batch_size % views == 0
