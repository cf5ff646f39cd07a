"""Masked and causal examples in one batch: each is what it is in a batch of its own kind."""

from __future__ import annotations

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import config as configs
from bert_jax import objectives
from bert_jax.config import knobs, resolve
from bert_jax.data import pipeline
from bert_jax.errors import ConfigError, DivergedError
from bert_jax.masking import corrupt, draws
from bert_jax.models import backends
from bert_jax.objectives import hybrid, network
from bert_jax.objectives.words import find_next_words
from bert_jax.training.ledger import Ledger
from bert_jax.training.step import compute_inputs, init_state, make_update
from tests import corpora, toy

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
def test_hybrid_with_nothing_causal_is_mlm(examples):
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
def test_hybrid_with_all_causal_is_causal_lm(examples, end):
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
def test_hybrid_reads_each_example_as_if_alone(backend, monkeypatch):
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
def test_hybrid_weighs_parts_by_their_examples():
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


def test_shifted_mask_is_predicted_from_before_it():
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
def test_draw_causal_is_the_same_in_any_batch(overrides, tmp_path):
    documents = corpora.random_documents(60, seed=0)
    prepared = corpora.prepared(tmp_path, [corpora.shard(documents, toy.VOCAB)])
    few, many = kinds_of(prepared, 24, 4, **overrides), kinds_of(prepared, 6, 16, **overrides)
    assert few == many
    assert 0.2 < np.mean([*few.values()]) < 0.4


def test_draw_causal_spreads_its_share_evenly():
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


def test_ledger_knows_the_causal_share():
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
def test_hybrid_refuses_what_it_cannot_train_with(changes, said):
    tree = configs.default()
    for path, value in ({"objectives.hybrid.weight": 1.0, "pairs": "none"} | changes).items():
        configs.put(tree, path.split("."), value)
    with pytest.raises(ConfigError, match=said) as caught:
        resolve(tree)
    assert caught.value.code == 2
    assert caught.value.hint
