"""Masked and causal examples in one batch: each is what it is in a batch of its own kind."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import cli, objectives, suites, train
from bert_jax import config as configs
from bert_jax.config import costs, devices, knobs, resolve
from bert_jax.data import pipeline
from bert_jax.errors import ConfigError, DivergedError
from bert_jax.interop import runs
from bert_jax.masking import corrupt, draws
from bert_jax.models import backends
from bert_jax.objectives import hybrid, network
from bert_jax.objectives.words import find_next_words
from bert_jax.predictors import stream
from bert_jax.predictors.base import Model, OfText, Row
from bert_jax.predictors.options import Options
from bert_jax.studies import groups
from bert_jax.studies.spec import Cell
from bert_jax.training.ledger import Ledger
from bert_jax.training.step import compute_inputs, init_state, make_update
from bert_jax.views import generation
from tests import corpora, outcomes, texts, toy, updates

LENGTH = 24


def config(share: float = 0.5, **overrides: object) -> knobs.Config:
    shape = {"pairs": "none", "model__layers": 1, "objectives__hybrid__weight": 1.0}
    return toy.config(**shape | {"objectives__hybrid__share": share} | overrides)


@functools.partial(jax.jit, static_argnames="apply")
def corrupted(b, inputs, apply=objectives.TABLE["hybrid"].corrupt):
    settings = knobs.Masking()
    return apply(
        b,
        inputs,
        settings=settings,
        special=toy.SPECIAL,
        vocab_size=toy.VOCAB,
        slots=LENGTH,
    )


def inputs(share: float, seed: int = 0):
    return toy.traced(knobs.Masking(), LENGTH, seed)._replace(share=np.float32(share))


def hybrid_of(**options: bool) -> hybrid.Hybrid:
    return objectives.TABLE["hybrid"].configure(knobs.Objective(**options))


def gradient(settings: knobs.Config, objective, params, b):
    """Loss and gradient of a network alone."""
    built, (name,) = network.build(settings, toy.VOCAB), settings.objectives

    @jax.jit
    @jax.value_and_grad
    def loss(params):
        sums = objective.loss(network.outputs(built, params, b)[name], b)
        parts = objective.count(b).items()
        return sum(sums[f"{part}_loss"][0] / jnp.maximum(n, 1) for part, n in parts)

    return jax.device_get(loss(params))


def logits_of(settings: knobs.Config):
    """The function of parameters and a batch that returns a network's only output, compiled."""
    built = network.build(settings, toy.VOCAB)
    return jax.jit(lambda params, b: next(iter(network.outputs(built, params, b).values())))


def close(ours, theirs) -> None:
    """Within 1e-6 of the largest number of each array."""
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6 * max(0.01, np.abs(b).max()))


# --- one kind alone is the objective of that kind -------------------------------------------------


@pytest.mark.parametrize("examples", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_with_nothing_causal_it_is_mlm(examples):
    b = toy.batch(16, LENGTH, seed=3, examples=examples)
    ours, ledger = corrupted(b, inputs(0.0))
    theirs, their_ledger = corrupted(b, inputs(0.0), apply=corrupt.corrupt_batch)
    for key in theirs:
        np.testing.assert_array_equal(ours[key], theirs[key], err_msg=key)
    for key in their_ledger:
        assert float(ledger[key][0]) == float(their_ledger[key][0]), key
        assert float(ledger[key][1]) == float(their_ledger[key][1]), key
    assert not np.asarray(ours["causal"]).any()
    masked = toy.config(pairs="none", model__layers=1)
    params = toy.init(masked)
    close(
        gradient(config(0.0), objectives.TABLE["hybrid"], params, ours),
        gradient(masked, objectives.TABLE["mlm"], params, theirs),
    )


@pytest.mark.parametrize(
    ("examples", "end"), [pytest.param(1, False, marks=pytest.mark.slow), (3, True)]
)
def test_with_all_causal_it_is_causal_lm(examples, end):
    b = toy.batch(16, LENGTH, seed=3, examples=examples)
    ours, ledger = corrupted(b, inputs(1.0))
    np.testing.assert_array_equal(ours["inputs"], b["tokens"])
    assert float(ledger["masked_fraction"][0]) == 0
    assert float(ledger["causal_fraction"][0]) == float(ledger["causal_fraction"][1])
    assert float(ledger["causal_fraction"][1]) == 16 * examples
    objective = hybrid_of(end=end)
    for mine, other in zip(
        objective.find_parts(ours)["causal_lm"], find_next_words(b, end), strict=True
    ):
        np.testing.assert_array_equal(mine, other)
    causal = toy.config(
        pairs="none",
        model__layers=1,
        objectives__causal_lm__weight=1.0,
        model__causal=True,
        checkpoints__best="causal_lm_loss",
    )
    params = toy.init(causal)
    renamed = {"encoder": params["encoder"], "mlm": params["causal_lm"]}
    loss, found = gradient(config(1.0), objective, renamed, ours)
    found = hybrid.rename_head(found)
    close(
        (loss, found),
        gradient(
            causal, objectives.TABLE["causal_lm"].configure(knobs.Objective(end=end)), params, b
        ),
    )


# --- both kinds in one batch ----------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["einsum", pytest.param("cudnn", marks=pytest.mark.slow)])
def test_each_example_of_a_row_is_read_as_if_alone(backend, monkeypatch):
    """Three examples a row, with a window: causal ones as by a causal model, within the example."""
    cudnn = functools.partial(backends.attend_fused, implementation="xla")
    monkeypatch.setattr(backends, "TABLE", {"einsum": backends.attend_by_einsum, "cudnn": cudnn})
    monkeypatch.setattr(backends, "choose_backend", lambda *_, **__: backend)
    b = toy.batch(6, LENGTH, seed=5, examples=3)
    ours, _ = corrupted(b, inputs(0.5))
    kinds = np.asarray(ours["causal"])
    assert 0 < kinds[b["segment_ids"] > 0].mean() < 1
    settings = config(model__layers=2, model__window=3, model__global_every=2)
    params = toy.init(settings)
    found = logits_of(settings)(params, ours)
    for causal in (False, True):
        model = dataclasses.replace(settings.model, causal=causal, attention="einsum")
        read = logits_of(dataclasses.replace(settings, model=model))
        for example in (1, 2, 3):
            own = b["segment_ids"] == example
            alone = {k: np.asarray(ours[k]) for k in ("tokens", "inputs", "type_ids", "positions")}
            alone |= {"segment_ids": own.astype(np.int32), "cls_positions": b["cls_positions"]}
            wanted = read(params, alone)
            here = own & (kinds == causal)
            np.testing.assert_allclose(
                np.asarray(found)[here], np.asarray(wanted)[here], atol=1e-5, rtol=1e-5
            )


@pytest.mark.slow
def test_the_parts_of_the_loss_weigh_as_their_examples():
    """The update's loss is the share times one mean and the rest times the other."""
    settings = config(0.25)
    update = jax.jit(make_update(settings, toy.SPECIAL, toy.VOCAB))
    b = toy.batch(16, LENGTH, seed=2)
    params = toy.init(settings)
    state = jax.jit(lambda seed: init_state(settings, toy.VOCAB, seed))(np.uint32(0))
    _, metrics = update(state, b, compute_inputs(settings, 0))
    found = {name: float(a) / max(float(n), 1) for name, (a, n) in metrics.items()}
    masked, _ = corrupted(b, compute_inputs(settings, 0)._replace(weights={}))
    kinds = np.asarray(masked["causal"])
    logits = np.asarray(logits_of(settings)(params, masked), np.float64)
    entropy = np.log(np.exp(logits).sum(-1))
    following = np.roll(b["tokens"], -1, 1)
    next_ = entropy - np.take_along_axis(logits, following[..., None], -1)[..., 0]
    own = entropy - np.take_along_axis(logits, b["tokens"][..., None], -1)[..., 0]
    last = b["positions"] == b["positions"].max(1, keepdims=True)
    causal = next_[kinds & ~last & (b["segment_ids"] > 0)].mean()
    hidden = own[toy.chosen(jax.device_get(masked))].mean()
    assert found["causal_lm_loss"] == pytest.approx(causal, rel=1e-5)
    assert found["mlm_loss"] == pytest.approx(hidden, rel=1e-5)
    assert found["loss"] == pytest.approx(0.25 * causal + 0.75 * hidden, rel=1e-5)


def test_a_shifted_mask_is_predicted_from_the_place_before_it():
    """In training by its targets; by every reader of the model through the network."""
    b = toy.batch(8, LENGTH, seed=4, examples=2)
    masked, _ = corrupted(b, inputs(0.5))
    plain, shifted = (hybrid_of(shift=shift).find_parts(masked)["mlm"] for shift in (False, True))
    hit = np.asarray(plain[1]) > 0
    assert hit.sum() == (np.asarray(masked["predict_weights"]) > 0).sum() > 0
    np.testing.assert_array_equal(np.asarray(shifted[1]) > 0, np.roll(hit, -1, 1))
    np.testing.assert_array_equal(
        np.asarray(shifted[0])[np.roll(hit, -1, 1)],
        b["tokens"][np.roll(np.roll(hit, -1, 1), 1, 1)],
    )
    settings = config(objectives__hybrid__shift=True)
    params = toy.init(settings)
    everywhere, logits = (logits_of(c)(params, masked) for c in (settings, settings.as_read))
    before = np.asarray(masked["predict_positions"]) - 1
    np.testing.assert_allclose(
        np.asarray(logits),
        np.take_along_axis(np.asarray(everywhere), before[..., None], 1),
        atol=1e-5,
    )


# --- which examples are causal --------------------------------------------------------------------


def kinds_of(prepared, batches: int, size: int, **overrides):
    """Return what is causal at a share of 0.3, by (copy, example), of the first batches."""
    settings = config(batch_size=size, sequence_length=32, **overrides)
    source = pipeline.Source(prepared, "train", settings)
    found: dict[tuple[int, int], bool] = {}
    for step in range(batches):
        b = source.batch(step)
        causal = np.asarray(hybrid.draw_causal(b, np.uint32(0), np.float32(0.3)))
        slots = np.arange(causal.shape[1])
        for row, slot in np.argwhere(b["segment_ids"].max(1, keepdims=True) > slots):
            key = int(b["copies"][row, slot]), int(b["example_ids"][row, slot])
            found.setdefault(key, bool(causal[row, slot]))
            if settings.masking.dupe_factor:
                assert found[key] == causal[row, slot]  # of an example, whenever it comes
    return found


@pytest.mark.parametrize("overrides", [{}, {"packing": 3}, {"masking__dupe_factor": 2}])
def test_an_example_is_causal_or_not_in_any_batch(overrides, tmp_path):
    documents = corpora.random_documents(60, seed=0)
    prepared = corpora.prepared(tmp_path, [corpora.shard(documents, toy.VOCAB)])
    few, many = kinds_of(prepared, 24, 4, **overrides), kinds_of(prepared, 6, 16, **overrides)
    assert few == many
    assert 0.2 < np.mean([*few.values()]) < 0.4


def test_every_window_of_the_stream_has_its_share():
    """Whatever the rates that its examples draw, and nested over shares."""
    places = np.arange(20_000, dtype=np.int32)[:, None]
    b = {"places": places, "copies": np.zeros_like(places)}
    shares = (0.0, 0.1, 0.125, 0.5, 1.0)
    several = [np.asarray(hybrid.draw_causal(b, np.uint32(7), np.float32(s)))[:, 0] for s in shares]
    rates = np.asarray(draws.spread_evenly(b, np.uint32(7)))[:, 0] / 2**32
    for share, causal in zip(shares, several, strict=True):
        for start in (0, 377, 9_999, 19_000):
            assert abs(causal[start : start + 1000].sum() - 1000 * share) <= 3
        by_rate, _ = np.histogram(rates[causal], np.linspace(0, 1, 11))
        assert np.abs(by_rate - 2000 * share).max() <= 20
    assert not several[0].any()
    assert several[-1].all()
    assert all((low <= high).all() for low, high in itertools.pairwise(several))
    other = np.asarray(hybrid.draw_causal(b, np.uint32(8), np.float32(0.5)))[:, 0]
    assert (other != several[3]).any()


def test_the_ledger_knows_the_share():
    def add(share: float) -> None:
        ledger = Ledger(knobs.Masking(), share=share)
        for step in range(4):
            b = toy.batch(256, LENGTH, seed=step)
            b["places"] += 256 * step
            _, found = corrupted(b, inputs(0.5))
            metrics = {key: (float(a), float(n)) for key, (a, n) in found.items()}
            ledger.add(metrics, 0.15, 256, step)
        assert ledger.totals["read"] == 1024
        assert abs(ledger.totals["causal"] - 512) <= 3

    add(0.5)
    with pytest.raises(DivergedError, match="causal examples sum to"):
        add(0.3)


# --- one program, several devices -----------------------------------------------------------------


@pytest.mark.slow
def test_shares_are_traced():
    """One program serves all of them, and each is what it is in a program of its own."""
    b, found = toy.batch(16, LENGTH, seed=1), []
    arms = [config(share) for share in (0.125, 0.75)]
    state = jax.jit(lambda seed: init_state(arms[0], toy.VOCAB, seed))(np.uint32(0))
    update = jax.jit(make_update(arms[0], toy.SPECIAL, toy.VOCAB))
    stacked = jax.tree.map(lambda *x: np.stack(x), *(compute_inputs(c, 0) for c in arms))
    both = jax.jit(lambda i: jax.lax.map(lambda own: update(state, b, own), i))(stacked)
    for number, arm in enumerate(arms):
        alone = update(state, b, compute_inputs(arm, 0))
        mine = jax.tree.map(lambda leaf, at=number: leaf[at], both)
        close(mine, alone)
        found.append(float(alone[1]["causal_fraction"][0]))
    assert update._cache_size() == 1
    assert found == [1, 11]  # of 16, the share of a window but for one
    cells = [Cell(str(i), arm, {}, {}, 0, toy.VOCAB) for i, arm in enumerate(arms)]
    assert groups.find_signature(cells[0]) == groups.find_signature(cells[1])


@pytest.mark.slow
@pytest.mark.parametrize("layout", [{}, {"parallel__step": "pmap"}, {"optim__accumulation": 2}])
def test_an_update_is_the_same_on_any_devices(layout):
    settings = config(0.4, optim__clip_norm=0)
    data = toy.batch(16, LENGTH, seed=6, examples=2)
    (alone,), _ = updates.advance(settings, [data], devices=1)
    (found,), _ = updates.advance(config(0.4, optim__clip_norm=0, **layout), [data])
    for key in ("loss", "mlm_loss", "causal_lm_loss", "grad_norm"):
        assert found[key] == pytest.approx(alone[key], rel=1e-5), key
    for key in ("masked_fraction", "causal_fraction", "mlm_accuracy", "causal_lm_accuracy"):
        assert found[key] == alone[key], key


# --- configs --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pairs": "nsp"}, "reads single texts"),
        ({"model.causal": True}, "decides by example what is causal"),
        ({"model.attention": "splash", "model.attention_dropout": 0.0}, "'splash'"),
        ({"objectives.causal_lm.weight": 1.0}, "both causal_lm and hybrid"),
        ({"masking.prediction_rate": 0.3}, "several views"),
        ({"objectives.hybrid.share": 1.5}, "share"),
    ],
)
def test_what_it_cannot_be_trained_with_is_refused(changes, said):
    tree = configs.default()
    for path, value in ({"objectives.hybrid.weight": 1.0, "pairs": "none"} | changes).items():
        configs.put(tree, path.split("."), value)
    with pytest.raises(ConfigError, match=said) as caught:
        resolve(tree)
    assert caught.value.code == 2
    assert caught.value.hint


@pytest.mark.parametrize("kind", ["cpu", "cuda", "tpu"])
def test_attention_is_einsum_where_it_is_not_named(kind):
    model = dataclasses.replace(config().model, dtype="bfloat16", hidden=128)
    with devices.traced_for(kind):
        assert backends.choose_backend(model, 128, train=True) == "einsum"
    assert config(model__attention="cudnn", model__dtype="bfloat16").model.attention == "cudnn"


def test_costs_know_both_kinds():
    settings = config(0.25, masking__rate=0.2)
    assert costs.own_slots(settings) == LENGTH
    assert costs.predicted(settings) == pytest.approx(0.25 + 0.75 * 0.2)
    b = {"segment_ids": np.ones((4, LENGTH), np.int32), "cls_positions": np.zeros((4, 1))}
    found = costs.pairs(settings.model, np.full(4, LENGTH), costs.causal(settings))
    whole, half = LENGTH**2, LENGTH * (LENGTH + 1) / 2
    assert found == 4 * (0.75 * whole + 0.25 * half)
    from bert_jax.training import clock

    least, most = (clock.work(config(share), toy.VOCAB, b)[1] for share in (0.0, 1.0))
    assert least < clock.work(settings, toy.VOCAB, b)[1] < most


# --- whole runs -----------------------------------------------------------------------------------


SMALL = {"steps": 12, "batch_size": 16, "logging__every": 1, "checkpoints__every": 6}
SMALL |= {"pairs": "none", "evals__validation__every": 0, "objectives__hybrid__weight": 1.0}
COUNTED = ("causal_fraction", "masked_fraction", "predicted_fraction")


@pytest.fixture(scope="module")
def run(base, tmp_path_factory):
    """A shifted model after 30 updates, with pictures of what it predicts."""
    folder = tmp_path_factory.mktemp("runs") / "hybrid"
    changes = SMALL | {"steps": 30, "objectives__hybrid__shift": True, "logging__samples": 3}
    with texts.one_device():
        train.run(texts.configure(base, **changes), folder, command=[])
    return runs.open_run(str(folder))


@pytest.mark.slow
def test_both_parts_are_evaluated_each_by_itself(run):
    """In training and afterwards, with a unigram each; the report and the samples say so too."""
    last = outcomes.metrics(run.folder)[-1]
    found = suites.evaluate(run, "pretrain")
    for name in ("mlm_loss", "mlm_accuracy", "causal_lm_loss", "causal_lm_accuracy"):
        assert last[f"eval/validation/{name}"] == pytest.approx(found[name], rel=1e-5), name
    assert found["causal_lm_predictions"] > 2 * found["mlm_predictions"]
    assert found["causal_lm_unigram_loss"] != found["unigram_loss"]
    left = suites.evaluate(run.from_left, "pretrain")
    assert left["causal_lm_loss"] == found["causal_lm_loss"]
    page = (run.folder / "report.html").read_text()
    assert "of examples causal" in page
    assert "masking rate" in page
    assert (run.folder / "samples.jsonl").exists()


@pytest.mark.slow
def test_nelbo_bounds_and_is_exact(run):
    """From left to right it is the likelihood of the same tokens as the bound."""
    found = suites.evaluate(run, "nelbo")
    exact = found["left_to_right"]
    assert found["tokens"] == exact["tokens"]
    assert (found["draws"], exact["draws"]) == (8, 1)
    assert exact["perplexity"] == pytest.approx(math.exp(exact["nats_per_token"]))
    objectives = {"causal_lm": knobs.Objective(weight=1.0, end=False)}
    wanted = suites.evaluate(run.from_left.changed(objectives=objectives), "pretrain")
    assert exact["nats_per_token"] == pytest.approx(wanted["causal_lm_loss"], rel=1e-6)
    alone = suites.evaluate(dataclasses.replace(run, from_left=None), "nelbo")
    assert alone == {name: value for name, value in found.items() if name != "left_to_right"}
    _, arrays = suites.score(run, *suites.build(["nelbo"]))
    nats = ("nats_per_token.sum", "left_to_right/nats_per_token.sum")
    assert [len(arrays[name]) for name in nats] == [found["examples"]] * 2


@pytest.mark.slow
def test_texts_and_pairs_are_scored_both_ways(run, tmp_path):
    """By masks filled from the place before them, one at a time, and from left to right."""
    lines = ["the cat sees the old tree .", "a small dog", "the cat the sees", "small a dog"]
    settings = dataclasses.replace(run.config, objectives={"hybrid": knobs.Objective(shift=True)})
    built = network.build(settings, run.tokenizer.size)
    special, sums = run.tokenizer.special, {"masked": [], "left": []}
    for ids in run.tokenizer.encode_batch(lines):
        tokens = np.array([[special.cls, *ids, special.sep]], np.int32)
        b = {"type_ids": 0 * tokens, "segment_ids": 0 * tokens + 1, "tokens": tokens}
        b["positions"] = np.arange(tokens.shape[1], dtype=np.int32)[None]
        b["predict_positions"] = tokens[:, :1] * 0  # the head of training reads every place
        masked = 0.0
        for place in range(1, len(ids) + 1):
            changed = tokens.copy()
            changed[0, place] = special.mask
            half = {"tokens": changed, "causal": np.zeros(tokens.shape, bool)}
            logits = network.outputs(built, run.params, b | half)["hybrid"]
            masked += float(jax.nn.log_softmax(logits[0, place - 1])[tokens[0, place]])
        half = {"causal": np.ones(tokens.shape, bool)}
        logits = jax.nn.log_softmax(network.outputs(built, run.params, b | half)["hybrid"][0])
        sums["left"].append(sum(float(logits[k, token]) for k, token in enumerate(ids)))
        sums["masked"].append(masked)
    (tmp_path / "texts.txt").write_text("".join(f"{line}\n" for line in lines))
    found = suites.evaluate(run, "pll", source=f"files:{tmp_path / 'texts.txt'}")
    assert found["pll"] == pytest.approx(np.mean(sums["masked"]), rel=1e-5)
    exact = found["left_to_right"]
    assert exact["log_likelihood"] == pytest.approx(np.mean(sums["left"]), rel=1e-5)
    rows = [{"sentence_good": lines[k], "sentence_bad": lines[k + 2]} for k in range(2)]
    (tmp_path / "pairs.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (options,) = suites.build(["blimp"], source=f"files:{tmp_path / 'pairs.jsonl'}")
    found, arrays = suites.score(run, options)
    for name, accuracy, right in (
        ("masked", found["accuracy"], arrays["accuracy.sum"]),
        ("left", found["left_to_right"]["accuracy"], arrays["left_to_right/accuracy.sum"]),
    ):
        assert right.tolist() == [sums[name][k] > sums[name][k + 2] for k in range(2)]
        assert accuracy == right.mean()


@pytest.mark.slow
def test_its_page_of_generation_shows_what_predict_writes(run):
    settings = {"max_tokens": 3, "steps": 2}
    texts_to_fill = ["the [MASK] sees", "a [MASK] [MASK]"]
    model = Model(run, Options(**settings, show_steps=True))
    rows = [Row(number, {"text": text}) for number, text in enumerate(texts_to_fill, 1)]
    page = generation.page(OfText(Model(run, Options())), rows, **settings)
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page)
    shown = json.loads(data[1])["texts"]
    for text, row in zip(shown, stream.predict(model, "generate", texts_to_fill), strict=True):
        assert text["final"] == row["text"]


@pytest.mark.slow
def test_it_goes_on_with_a_text_and_fills_masks(run, tmp_path, capsys):
    """What it writes has the highest probability, token by token, under a causal mask."""
    text = tmp_path / "text.txt"
    text.write_text("the cat sees\n")
    words = [f"--model={run.folder}", f"--input={text}"]
    assert cli.execute(["predict", "generate", *words, "--max-tokens=3"]) == 0
    row = json.loads(capsys.readouterr().out)
    ids = run.tokenizer.encode_batch(["the cat sees"])[0]
    tokens = np.array([[run.tokenizer.special.cls, *ids]], np.int32)
    b = {"tokens": tokens, "type_ids": 0 * tokens, "segment_ids": 0 * tokens + 1}
    b["positions"] = np.arange(tokens.shape[1], dtype=np.int32)[None]
    built = network.build(run.from_left.config, run.tokenizer.size)
    logits = np.array(network.outputs(built, run.from_left.params, b)["causal_lm"])[0, -1]
    special = run.tokenizer.special
    logits[[special.pad, special.unk, special.cls, special.mask]] = -np.inf
    best = run.tokenizer.readable([int(logits[: run.tokenizer.size].argmax())])
    assert row["continuation"].strip().startswith(best.replace("##", ""))
    lines = ["the [MASK] sees", "the cat sees", "a [MASK] [MASK]", "the cat"]
    for flags in ["--max-tokens=3"], ["--order=random", "--seed=3", "--max-tokens=3"]:
        several, alone = [], []
        for given, found in ([lines], several), ([[line] for line in lines], alone):
            for part in given:
                text.write_text("".join(f"{line}\n" for line in part))
                assert cli.execute(["predict", "generate", *words, *flags]) == 0
                found += map(json.loads, capsys.readouterr().out.splitlines())
        assert [row["text"].startswith("the cat") for row in several] == [False, True, False, True]
        assert all("[MASK]" not in row["text"] for row in several)
        assert several[0] == alone[0]  # the first line: draws follow from a line's number
        assert several[1::2] == alone[1::2]  # from left to right nothing is drawn here
    assert several[1] == row
    text.write_text("the [MASK] sees\n")
    assert cli.execute(["predict", "generate", *words]) == 0
    filled = json.loads(capsys.readouterr().out)["text"].split()
    assert cli.execute(["predict", "fill-mask", *words, "--top-k=9"]) == 0
    (best,) = json.loads(capsys.readouterr().out)["masks"]
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # which generation never writes
    assert filled[1] == next(one["token"] for one in best if one["token"] not in special)
    assert cli.execute(["predict", "fill-mask", *words]) == 0
    assert '"masks"' in capsys.readouterr().out


@pytest.mark.slow
def test_an_export_is_the_masked_model_or_refused(run, base, tmp_path, capsys):
    out = tmp_path / "out"
    assert cli.execute(["export", f"--checkpoint={run.folder}", f"--output={out}"]) == 2
    assert "objectives.hybrid.shift" in capsys.readouterr().err
    with texts.one_device():
        train.run(texts.configure(base, **SMALL), tmp_path / "plain", command=[])
    assert cli.execute(["export", f"--checkpoint={tmp_path / 'plain'}", f"--output={out}"]) == 0
    assert "BertForMaskedLM" in (out / "config.json").read_text()
    assert "with a share of 0.5 of causal examples" in (out / "README.md").read_text()
    back = tmp_path / "back"
    assert cli.execute(["import", f"--model={out}", f"--output={back}"]) == 0
    capsys.readouterr()
    lines = ["the [MASK] sees", "a cat [MASK] the [MASK]"]
    ours, theirs = (
        list(stream.predict(Model(runs.open_run(str(at)), Options()), "fill-mask", lines))
        for at in (tmp_path / "plain", back)
    )
    assert ours == theirs


@pytest.mark.slow
@pytest.mark.parametrize("overrides", [{}, {"packing": 3}, {"masking__dupe_factor": 2}])
def test_runs_of_several_shares_in_one_program_are_those_alone(base, tmp_path, overrides):
    arms = [{"objectives__hybrid__share": 0.125}, {"objectives__hybrid__share": 0.75, "seed": 3}]
    several = [texts.configure(base, **SMALL | overrides | arm) for arm in arms]
    together = [tmp_path / f"fused{i}" for i in range(2)]
    with texts.one_device():
        train.train(list(zip(several, together, strict=True)), command=[])
        for settings, fused in zip(several, together, strict=True):
            alone = fused.with_name(f"{fused.name}_alone")
            train.run(settings, alone, command=[])
            for name in COUNTED:
                assert outcomes.logged(fused, name) == outcomes.logged(alone, name), name
            for name in ("loss", "mlm_loss", "causal_lm_loss"):
                # An update without a causal example has no loss of causal ones.
                ours, theirs = (np.array(outcomes.logged(at, name), float) for at in (fused, alone))
                np.testing.assert_allclose(ours, theirs, atol=1e-4)
            share, found = (
                settings.objectives["hybrid"].share,
                outcomes.logged(alone, "causal_fraction"),
            )
            assert np.mean(found) == pytest.approx(share, abs=0.02 if not overrides else 0.1)


@pytest.mark.slow
@pytest.mark.parametrize("overrides", [{}, {"packing": 3}, {"masking__draw": "uniform"}])
def test_a_run_goes_on_where_it_was_stopped(base, tmp_path, overrides):
    settings = texts.configure(base, **SMALL | overrides)
    outcomes.assert_goes_on(settings, tmp_path, 12)


@pytest.mark.slow
def test_what_is_causal_does_not_depend_on_the_devices(base, tmp_path):
    settings = texts.configure(base, **SMALL)
    train.run(settings, tmp_path / "eight", command=[])
    with texts.one_device():
        train.run(settings, tmp_path / "one", command=[])
    for name in COUNTED:
        assert outcomes.logged(tmp_path / "eight", name) == outcomes.logged(
            tmp_path / "one", name
        ), name
