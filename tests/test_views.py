"""More predictions than corruptions: an example in several views, each with other tokens masked."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax import cli, objectives, train
from bert_jax.batch import HOST_KEYS
from bert_jax.config import costs, laws, load_file, quotas, resolve, to_dict
from bert_jax.config.knobs import Masking
from bert_jax.data import pipeline
from bert_jax.errors import ConfigError, DivergedError
from bert_jax.objectives import network
from bert_jax.planning import search, update
from bert_jax.reporting import run_charts
from bert_jax.studies.groups import signature
from bert_jax.studies.spec import Cell
from bert_jax.training import data, dry_run, program
from bert_jax.training.ledger import Ledger
from tests import corpora, outcomes, texts, toy

RATES = [(0.15, 0.4), (0.15, 0.3), (0.2, 0.25), (0.3, 1.0), (0.25, 0.5)]


def seen(batch, count: int):
    """Each row in `count` views, one after the other."""
    repeated = {key: np.repeat(value, count, axis=0) for key, value in batch.items()}
    numbers = np.tile(np.arange(count, dtype=np.int32), len(batch["tokens"]))
    slots = batch["example_ids"].shape[1]
    return repeated | {"views": np.repeat(numbers[:, None], slots, axis=1)}


def at_quotas(batch, table: np.ndarray, seed: int = 0):
    """The mask of a batch without views, for the quotas of a table."""
    length = batch["tokens"].shape[1]
    numbers = toy.traced(Masking(), length, seed)
    split = quotas.split(table)
    numbers = numbers._replace(quotas=split, predict_quotas=split)
    out, _ = toy._apply(batch, numbers, Masking(), length)
    return jax.tree.map(np.asarray, out)


# --- how many, and what each of them selects ------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "wanted", "views"),
    [
        *((0.15, None, 1), (0.15, 0.15, 1), (0.4, 0.2, 1), (0.15, 0.3, 2), (0.15, 0.4, 3)),
        *((0.2, 0.6, 3), (0.1, 0.3, 3), (0.1, 0.7, 7), (0.15, 0.16, 2), (0.05, 1.0, 20)),
    ],
)
def test_there_are_as_many_views_as_the_rates_say(rate, wanted, views):
    assert laws.views(Masking(rate=rate, prediction_rate=wanted)) == views


@given(
    st.builds(
        toy.batch,
        rows=st.just(3),
        length=st.just(40),
        seed=st.integers(0, 10_000),
        examples=st.just(2),
        longest_unit=st.integers(1, 6),
    ),
    st.sampled_from(RATES[:3]),
    st.sampled_from(["unbiased", "nearest"]),
    st.integers(0, 2**31),
)
def test_slices_are_disjoint_and_together_the_selection_at_the_prediction_rate(
    b, rates, rounding, seed
):
    """View j has what the first (j + 1) q of Q select and the first j q do not."""
    settings = Masking(
        rate=rates[0], prediction_rate=rates[1], replace=(1.0, 0.0, 0.0), rounding=rounding
    )
    count = laws.views(settings)
    out, ledger = toy.mask(seen(b, count), settings, seed)
    hits = toy.chosen(out).reshape(3, count, -1)
    np.testing.assert_array_equal(out["inputs"].reshape(hits.shape) == toy.SPECIAL.mask, hits)
    assert hits.sum(1).max() <= 1  # disjoint
    q, most = (quotas.table(rate, 40, rounding) for rate in rates)
    for view in range(count):
        low, high = (
            toy.chosen(at_quotas(b, np.minimum(number * q, most), seed))
            for number in (view, view + 1)
        )
        np.testing.assert_array_equal(hits[:, view], high & ~low)
    together = toy.chosen(at_quotas(b, np.minimum(count * q, most), seed))
    np.testing.assert_array_equal(hits.any(1), together)
    if (count * q >= most).all():  # else the rounding of q leaves a token of an example out
        np.testing.assert_array_equal(together, toy.chosen(at_quotas(b, most, seed)))
    assert ledger["distinct_fraction"] == (hits.sum(), hits.sum())
    assert ledger["masked_fraction"][0] == ledger["predicted_fraction"][0] == hits.sum()


def test_rounding_leaves_out_less_than_half_a_token_of_each_view():
    """What the quota of the prediction rate has beyond that of all views."""
    for rate, wanted in [*RATES, (0.05, 0.5), (0.13, 0.77)]:
        count = laws.views(Masking(rate=rate, prediction_rate=wanted))
        least, most = (quotas.table(one, 512, "nearest") for one in (rate, wanted))
        assert (most - count * least).max() <= count / 2


@pytest.mark.parametrize("rates", [(0.15, 0.4), (0.15, 0.45), (0.2, 0.25)])
def test_every_view_has_its_mean_rate(rates):
    """Of 29 tokens: the rate, and in the last view what is left of the prediction rate."""
    settings = Masking(rate=rates[0], prediction_rate=rates[1])
    count, rows = laws.views(settings), 5_000
    b = toy.batch(1, 31)
    b["segment_ids"][:], b["positions"][:] = 1, np.arange(31)
    b["unit_ids"][:] = np.where((np.arange(31) % 30) > 0, np.arange(31), -1)
    b = {key: np.repeat(value, rows, axis=0) for key, value in b.items()}
    b["example_ids"] = np.arange(rows, dtype=np.int32)[:, None]
    hits = toy.chosen(toy.mask(seen(b, count), settings)[0]).reshape(rows, count, -1).sum(2)
    wanted = np.diff(np.minimum(np.arange(count + 1) * rates[0], rates[1]))
    error = 0.5 / 29 / math.sqrt(rows)
    np.testing.assert_allclose(hits.mean(0) / 29, wanted, atol=4.5 * error)
    assert abs(hits.sum(1).mean() / 29 - rates[1]) < 4.5 * error
    draws = toy.rounding_draws(b, 0)[:, 0]
    quotas_ = [toy.quota(29, rates[1], "unbiased", draw) for draw in draws]
    np.testing.assert_array_equal(hits.sum(1), quotas_)


@pytest.mark.parametrize("longest", [1, 5])
def test_slots_hold_every_view(longest):
    """A view may have tokens that the one before left, and more than its own quota."""
    settings = Masking(
        rate=0.2, prediction_rate=0.6, unit="token" if longest == 1 else "word", max_unit=longest
    )
    slots, most = quotas.slots(settings, 48, 2), 0
    for seed in range(12):
        b = seen(toy.batch(64, 48, seed=seed, examples=2, longest_unit=longest), 3)
        out, ledger = toy.mask(b, settings, seed, slots)
        assert ledger["predicted_fraction"][0] == ledger["masked_fraction"][0]
        most = max(most, int(toy.chosen(out).sum(1).max()))
    assert most <= slots <= most + (2 if longest == 1 else 12)


# --- the ledger -----------------------------------------------------------------------------------


@pytest.mark.parametrize("rates", RATES)
@pytest.mark.parametrize("count", ["eligible", "all"])
@pytest.mark.parametrize("rounding", ["unbiased", "nearest"])
def test_the_ledger_knows_the_views(rates, count, rounding):
    settings = Masking(rate=rates[0], prediction_rate=rates[1], count=count, rounding=rounding)
    views, ledger = laws.views(settings), Ledger(settings)
    for step in range(8):
        b = seen(toy.batch(16, 24, seed=step), views)
        metrics = toy.mask(b, settings, slots=24)[1]
        ledger.add(metrics, settings.rate, 16 * views, step)
    totals = ledger.totals
    assert totals["selected"] == totals["distinct"] == totals["quota"] == totals["predicted"]
    assert abs(totals["nominal"] - totals["asked"]) < 0.5 * totals["examples"]


def test_the_ledger_stops_a_run_whose_views_repeat_what_others_have():
    settings = Masking(rate=0.2, prediction_rate=0.4)
    b = seen(toy.batch(16, 24), 2)
    b["views"][:4] = 0
    with pytest.raises(DivergedError, match=r"the 2 views of all examples have \d+ together"):
        Ledger(settings).add(toy.mask(b, settings)[1], 0.2, 32, 1)


# --- loss and gradient ----------------------------------------------------------------------------


def by_hand(b, settings: Masking, seed: int):
    """The views of a batch as explicit copies, made of masks without views by plain numpy."""
    views, length = laws.views(settings), b["tokens"].shape[1]
    rates = (settings.rate, settings.prediction_rate)
    q, most = (quotas.table(rate, length, settings.rounding) for rate in rates)
    bounds = [at_quotas(b, np.minimum(j * q, most), seed) for j in range(views + 1)]
    parts = []
    for low, high in itertools.pairwise(bounds):
        hit = toy.chosen(high) & ~toy.chosen(low)
        columns = np.argsort(~hit, axis=1, kind="stable")
        parts.append(
            b
            | {
                "inputs": np.where(hit, high["inputs"], b["tokens"]),
                "predict_positions": columns.astype(np.int32),
                "predict_targets": np.take_along_axis(b["tokens"], columns, 1),
                "predict_weights": np.take_along_axis(hit, columns, 1).astype(np.float32),
            }
        )
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def test_what_the_model_reads_is_that_of_explicit_copies():
    """Inputs and targets of each view, to the bit; so its loss is theirs."""
    settings = Masking(rate=0.2, prediction_rate=0.5)
    b = toy.batch(8, 24, seed=4, examples=2, longest_unit=2)
    copies = by_hand(b, settings, 0)
    out, _ = toy.mask(seen(b, 3), settings)
    rows = np.arange(24).reshape(3, 8).T.ravel()  # view after view, where a batch has row after row
    np.testing.assert_array_equal(out["inputs"], copies["inputs"][rows])
    weights = out["predict_weights"]
    np.testing.assert_array_equal(weights, copies["predict_weights"][rows])
    for key in ("predict_positions", "predict_targets"):
        np.testing.assert_array_equal(out[key] * weights, copies[key][rows] * weights)


@pytest.mark.slow
@pytest.mark.parametrize("parts", [1, 2])
def test_the_update_is_that_of_explicit_copies(parts):
    """Loss and gradient, by the program and by a loss over copies that were made by hand."""
    config = toy.config(
        batch_size=24,
        model__layers=1,
        masking__rate=0.2,
        masking__prediction_rate=0.5,
        optim__name="adam2018",
        optim__b1=0.0,
        optim__b2=0.0,
        optim__epsilon=1e4,  # so large that a step is the gradient, scaled
        optim__learning_rate=1e4,
        optim__weight_decay=0.0,
        optim__schedule="constant",
        optim__clip_norm=0.0,
        optim__accumulation=parts,
    )
    b = toy.batch(8, 24, seed=4, examples=2, longest_unit=2)
    copies = by_hand(b, config.masking, 0)
    model = network.build(config, toy.VOCAB, train=True)
    table = objectives.of(config.objectives)
    state = jax.jit(lambda seed: program.init_state(config, toy.VOCAB, seed))(np.uint32(0))
    params = state["params"]

    def loss(params):
        outputs, total = network.outputs(model, params, copies), 0.0
        for name, objective in table.items():
            value, count = objective.loss(outputs[name], copies)[f"{name}_loss"]
            total += value / count
        return total

    expected, gradient = jax.jit(jax.value_and_grad(loss))(params)
    step = jax.jit(program.make_step(config, toy.SPECIAL, toy.VOCAB))
    after, metrics = step(state, seen(b, 3), program.inputs_at(config, 0))
    assert float(metrics["loss"][0]) == pytest.approx(float(expected), rel=1e-6)
    moved = jax.tree.map(lambda old, new: jnp.asarray(old) - new, params, after["params"])
    scale = max(float(jnp.abs(g).max()) for g in jax.tree.leaves(gradient))
    for ours, theirs in zip(jax.tree.leaves(moved), jax.tree.leaves(gradient), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-5 * max(scale, 1))


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
    rates = {"masking__rate": 0.15, "masking__prediction_rate": 0.4}
    several = pipeline.Source(prepared, "train", toy.config(batch_size=12, **shape, **rates))
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
    held = pipeline.Source(prepared, "train", toy.config(batch_size=12, **shape, **rates), seed=0)
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
    text = run_charts.ledger(recorded, {"train/masked_fraction": [(1, 0.1), (2, 0.2)]})
    assert wish in re.sub("[\u202f\u00a0]|&nbsp;", " ", text)


def test_runs_with_as_many_views_share_a_program_and_others_do_not():
    def cell(**knobs):
        return Cell("x", toy.config(batch_size=24, **knobs), {}, {}, 0)

    three = signature(cell(**MORE))
    assert signature(cell(masking__rate=0.2, masking__prediction_rate=0.6)) == three
    assert signature(cell(masking__rate=0.2, masking__prediction_rate=0.4)) != three
    assert signature(cell(masking__rate=0.2)) != three


def test_a_plan_compiles_views_and_looks_for_whole_ones():
    config = toy.config(batch_size=48, **MORE)
    shapes = update.batch_shapes(config)
    assert shapes["views"].shape == (48, 1)
    tried = []

    class Plan:
        def __init__(self, rows):
            self.mesh = {"data": 4, "fsdp": 1}
            self.config = dataclasses.replace(config, batch_size=rows)
            self.fits = rows <= 30
            tried.append(rows)

    assert search.largest_batch(Plan(96), Plan) == 24  # type: ignore[arg-type]  # it needs the size and `fits` alone
    assert all(rows % 12 == 0 for rows in tried)


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
        (
            {"masking__schedule": "linear", "masking__final_rate": 0.5},
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


# --- whole runs -----------------------------------------------------------------------------------


SMALL = {"steps": 8, "batch_size": 24, "logging__every": 1, "checkpoints__every": 4}
SMALL |= {"pairs": "none", "evals__validation__every": 0, **MORE}
SMALL |= {"model__dropout": 0, "model__attention_dropout": 0}
LEDGER = ("masked_fraction", "predicted_fraction", "distinct_fraction", "mask_token_fraction")


def trained(config, workdir: Path) -> Path:
    train.run(config, workdir, command=[])
    return workdir


@pytest.fixture(scope="module")
def whole(base, tmp_path_factory) -> Path:
    with texts.one_device():
        return trained(texts.configure(base, **SMALL), tmp_path_factory.mktemp("whole") / "run")


@pytest.mark.slow
def test_a_run_with_views_goes_on_where_it_was_stopped(base, whole, tmp_path):
    shutil.copytree(whole, tmp_path / "parts")
    shutil.rmtree(tmp_path / "parts" / "checkpoints" / "8")
    with texts.one_device():
        trained(texts.configure(base, **SMALL), tmp_path / "parts")
    outcomes.assert_same(tmp_path / "parts", whole, 8)
    saved = outcomes.state(whole, 8)[1]["ledger"]
    assert saved["examples"] == 8 * 24
    assert saved["distinct"] == saved["selected"] == saved["predicted"]
    assert sum(outcomes.logged(whole, "masked_fraction")) / 8 == pytest.approx(0.4 / 3, abs=0.01)
    assert set(outcomes.logged(whole, "distinct_fraction")) == {1.0}


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"optim__accumulation": 3}, {"parallel__step": "pmap"}])
def test_views_do_not_depend_on_the_devices(base, whole, tmp_path, changes):
    """Over eight devices the views of an example lie on different ones."""
    trained(texts.configure(base, **SMALL | changes), tmp_path / "eight")
    for name in LEDGER:
        assert outcomes.logged(tmp_path / "eight", name) == outcomes.logged(whole, name), name
    np.testing.assert_allclose(
        outcomes.logged(tmp_path / "eight", "loss"), outcomes.logged(whole, "loss"), rtol=1e-4
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes", [{}, {"packing": 3}, {"masking__dupe_factor": 2}, {"masking__unit": "span"}], ids=str
)
def test_fused_runs_with_views_are_those_alone(base, tmp_path, changes):
    arms = [{}, {"masking__rate": 0.2, "masking__prediction_rate": 0.6, "seed": 3}]
    configs = [texts.configure(base, **SMALL | changes | arm) for arm in arms]
    together = [tmp_path / f"fused{i}" for i in range(2)]
    with texts.one_device():
        train.train(list(zip(configs, together, strict=True)), command=[])
        for config, fused in zip(configs, together, strict=True):
            alone = trained(config, fused.with_name(f"{fused.name}_alone"))
            for name in LEDGER:
                assert outcomes.logged(fused, name) == outcomes.logged(alone, name), name
            np.testing.assert_allclose(
                outcomes.logged(fused, "loss"), outcomes.logged(alone, "loss"), atol=1e-4
            )


def test_the_command_refuses_a_batch_without_room_for_all_views(base, tmp_path, capsys):
    words = ["train", f"--config={base}", f"--workdir={tmp_path}", "--dry-run"]
    words += ["--config.masking.prediction_rate=0.4"]
    assert cli.execute([*words, "--config.batch_size=16"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in said] == ["error", "hint"]
    assert cli.execute([*words, "--config.batch_size=24"]) == 0
    said = capsys.readouterr().out
    assert json.loads(said[said.index("\n{") :])["batch_size"] == 24


@pytest.mark.parametrize(
    ("rates", "views"),
    [
        *(("0.15,0.4", 3), ("0.15,0.45", 3), ("0.3,0.9", 3), ("0.15,0.75", 5)),
        *(("0.15,0.9", 6), ("0.05,0.55", 11), ("0.4,0.2", 1)),
    ],
)
def test_the_ablation_has_views(rates, views):
    """As many as the rates say, whatever their quotient is in floating point."""
    config = resolve(load_file(f"configs/ablations.py:views,{rates},tiny"))
    assert laws.views(config.masking) == views
    assert config.batch_size % views == 0
