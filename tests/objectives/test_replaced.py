"""Replaced token detection held against plain numpy: what a generator draws, the loss and whose
gradient it is; and whole runs with and without a generator.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from bert_jax import config as configs
from bert_jax import objectives
from bert_jax.batch import Encoded
from bert_jax.config import knobs, resolve
from bert_jax.errors import ConfigError
from bert_jax.objectives import network, replaced
from bert_jax.system.trees import flat
from tests import reference, toy

LENGTH = 24
HIDDEN = {"masking__replace": "(0.85,0,0.15)", "evals__validation__replace": "(0.85,0,0.15)"}


def config(generator: float = 0.5, **overrides: object) -> knobs.Config:
    shape = {"pairs": "none", "model__layers": 1, "masking__rate": 0.3}
    shape |= {"objectives__replaced__generator": generator} | (HIDDEN if generator else {})
    return toy.config(**shape | overrides)


@functools.cache
def corrupter(generator: float):
    """The compiled masking of an update."""
    settings = config(generator)
    rules = {"settings": settings.masking, "special": toy.SPECIAL, "slots": LENGTH}
    rules["vocab_size"] = toy.VOCAB
    corrupt = objectives.choose_corruption(objectives.configure(settings.objectives))
    return jax.jit(lambda b, numbers: corrupt(b, numbers, **rules)[0])


def corrupted(settings: knobs.Config, b, seed: int = 0):
    generator = settings.objectives["replaced"].generator
    numbers = toy.traced(settings.masking, LENGTH, seed)
    return jax.device_get(corrupter(generator)(b, numbers))


# --- the generator's draws ------------------------------------------------------------------------


@pytest.mark.parametrize("size", [pytest.param(60, marks=pytest.mark.slow), 300])
def test_tokens_are_drawn_by_their_probabilities(size):
    """As many as chance explains, and each the one at which the distribution function passes."""
    rng = np.random.default_rng(size)
    logits = rng.normal(size=size).astype(np.float32) * 2
    logits[[7, size - 1]] = -1e9
    words = rng.integers(0, 2**32, (1, 8_000), dtype=np.uint32)
    words[0, :2] = 0, 2**32 - 1
    spread = np.broadcast_to(logits, (*words.shape, size))
    found = np.asarray(jax.jit(replaced.draw_tokens)(spread, words))[0]
    chances = reference.softmax(logits.astype(np.float64))
    exact = np.searchsorted(chances.cumsum(), (words[0] >> 9) / 2**23, side="right")
    assert (found == exact).mean() > 0.999
    assert (found[0], found[1]) == (0, size - 2)
    counts = np.bincount(found, minlength=size)
    assert counts[7] == counts[size - 1] == 0
    often = chances * words.size > 8
    expected = np.append(chances[often], chances[~often].sum()) * words.size
    seen = np.append(counts[often], counts[~often].sum())
    assert scipy.stats.chisquare(seen, expected).pvalue > 1e-3


def test_draws_follow_example_and_position():
    """In any order of the rows, and at a lower rate the same ones; all numbers as likely."""
    settings, b = config(), toy.batch(64, LENGTH, seed=2, examples=2)

    def draws(b, rate: float, seed: int = 0) -> dict[tuple[int, int], int]:
        masks = dataclasses.replace(settings.masking, rate=rate)
        masked = corrupted(dataclasses.replace(settings, masking=masks), b, seed)
        found = {}
        for row, slot in np.argwhere(masked["predict_weights"] > 0):
            column = masked["predict_positions"][row, slot]
            example = b["example_ids"][row, b["segment_ids"][row, column] - 1]
            place = int(example), int(b["positions"][row, column])
            found[place] = int(masked["predict_draws"][row, slot])
        return found

    few, many = draws(b, 0.15), draws(b, 0.4)
    assert len(many) > 2 * len(few)
    assert few.items() <= many.items()
    assert draws({key: x[::-1] for key, x in b.items()}, 0.4) == many
    assert not draws(b, 0.4, seed=1).items() & many.items()
    assert scipy.stats.kstest(np.array([*many.values()]) / 2**32, "uniform").pvalue > 1e-3


def test_drawn_original_counts_as_original():
    """And a spare slot writes nothing, wherever it points."""
    slots = {"predict_positions": [[3, 1, 3, 3]], "predict_weights": [[1.0, 1.0, 0.0, 0.0]]}
    b = {key: np.array(value) for key, value in slots.items()}
    b |= {"inputs": np.array([[2, 4, 5, 4]]), "predict_draws": np.full((1, 4), 2**31, np.uint32)}
    read = replaced.fill_slots(b, 50 * jax.nn.one_hot(np.array([[7, 8, 9, 10]]), 20))
    np.testing.assert_array_equal(read["inputs"], [[2, 8, 5, 7]])
    settings, width = config().model, 4
    shapes = {"dense": (width, width), "logits": (width, 1)}
    head = {n: {"kernel": np.zeros(s), "bias": np.zeros(s[1])} for n, s in shapes.items()}
    hidden = jnp.zeros((1, 4, width))
    answers = replaced.Head(settings).apply(
        {"params": head},
        Encoded(hidden, None, hidden),
        {**read, "tokens": np.array([[2, 9, 5, 7]])},
    )
    np.testing.assert_array_equal(answers.replaced, [[False, True, False, False]])


# --- loss and gradient ----------------------------------------------------------------------------


def test_replaced_loss_equals_a_plain_sum():
    """Written out: the cross-entropy of two answers; [MASK] is no question."""
    settings = config(0.0, masking__replace="(0.4,0.4,0.2)")
    masked = corrupted(settings, toy.batch(8, LENGTH, seed=3))
    inputs, tokens = masked["inputs"], masked["tokens"]
    judged = (masked["segment_ids"] > 0) & (inputs != toy.SPECIAL.mask)
    assert (masked["segment_ids"] > 0).sum() - judged.sum() > 0
    np.testing.assert_array_equal(masked["judged"], judged)
    assert "predict_draws" not in masked
    z, wrong = np.random.default_rng(0).normal(size=tokens.shape), inputs != tokens
    share = 1 / (1 + np.exp(-z))
    losses = -np.where(wrong, np.log(share), np.log(1 - share))
    found = objectives.TABLE["replaced"].loss(
        replaced.Detected(jnp.asarray(z, jnp.float32), wrong), masked
    )
    mean = {name: float(total) / float(n) for name, (total, n) in found.items()}
    assert float(found["replaced_loss"][1]) == judged.sum()
    assert mean["replaced_loss"] == pytest.approx(losses[judged].mean(), rel=1e-5)
    assert mean["replaced_accuracy"] == pytest.approx(((z > 0) == wrong)[judged].mean())
    assert mean["replaced_precision"] == pytest.approx(wrong[judged & (z > 0)].mean())
    assert mean["replaced_recall"] == pytest.approx((z > 0)[judged & wrong].mean())
    assert mean["replaced_fraction"] == pytest.approx(wrong[judged].mean())


@pytest.fixture(scope="module", params=[32, pytest.param(24, marks=pytest.mark.slow)])
def computed(request):
    """A small model, a corrupted batch of two examples a row, and what ours computes of them; its
    embeddings are as wide as the encoder, or narrower.
    """
    settings = config(model__init_stddev=0.2, model__embedding=request.param)
    masked = corrupted(settings, toy.batch(3, LENGTH, seed=1, examples=2))
    model, table = network.build(settings, toy.VOCAB), objectives.configure(settings.objectives)
    params = toy.init(settings)

    @jax.jit
    def compute(params):
        def losses(params):
            outputs = network.outputs(model, params, masked)
            found = {n: one.loss(outputs[n], masked)[f"{n}_loss"] for n, one in table.items()}
            return {n: total / count for n, (total, count) in found.items()}, outputs["replaced"]

        means, back, answers = jax.vjp(losses, params, has_aux=True)
        none = dict.fromkeys(means, jnp.zeros(()))
        return means, {n: back(none | {n: jnp.ones(())})[0] for n in means}, answers

    return settings, masked, params, jax.device_get(compute(params))


def stated(settings, masked, params, inputs=None):
    """Both losses in float64, example by example, and what the encoder reads; its inputs may be
    given.
    """
    small, words, answers = settings.generator, [], []
    read, segments = masked["inputs"].copy(), masked["segment_ids"]

    def embedded(part, tokens, types):
        x, own = reference.embed(params["encoder"]["embeddings"], tokens, types), params[part]
        return reference.dense(x, own["projection"]) if "projection" in own else x

    for row, example in itertools.product(range(len(read)), (1, 2)):
        own = np.flatnonzero(segments[row] == example)
        types = masked["type_ids"][row, own]
        x = embedded("generator", masked["inputs"][row, own], types)
        hidden, _ = reference.encoder(params["generator"], None, None, small.heads, embedded=x)
        columns = masked["predict_positions"][row]
        slots = np.flatnonzero((masked["predict_weights"][row] > 0) & np.isin(columns, own))
        logits = reference.mlm_logits(params, hidden, columns[slots] - own[0], toy.VOCAB)
        chances = reference.softmax(logits)
        words += (
            -np.log(chances[range(len(slots)), masked["predict_targets"][row, slots]])
        ).tolist()
        at = (masked["predict_draws"][row, slots] >> 9) / 2**23
        read[row, columns[slots]] = (chances.cumsum(-1) <= at[:, None]).sum(-1)
        if inputs is not None:
            read[row] = inputs[row]
        tokens = read[row, own]
        x, heads = embedded("encoder", tokens, types), settings.model.heads
        hidden, _ = reference.encoder(params["encoder"], None, None, heads, embedded=x)
        y = reference.gelu(reference.dense(hidden, params["replaced"]["dense"]))
        z = reference.dense(y, params["replaced"]["logits"])[:, 0]
        wrong = tokens != masked["tokens"][row, own]
        answers += np.log1p(np.exp(np.where(wrong, -z, z))).tolist()
    return {"mlm": np.mean(words), "replaced": np.mean(answers)}, read


def test_generator_losses_equal_numpy(computed):
    settings, masked, params, (means, _, answers) = computed
    wanted, read = stated(settings, masked, reference.widen(params))
    for name, mean in means.items():
        assert mean == pytest.approx(wanted[name], rel=1e-5), name
    real = masked["segment_ids"] > 0
    np.testing.assert_array_equal(answers.replaced[real], (read != masked["tokens"])[real])
    changed = read != masked["inputs"]
    assert changed[toy.chosen(masked)].mean() > 0.7  # masks, filled in
    assert not changed[~toy.chosen(masked)].any()
    np.testing.assert_array_equal(masked["judged"], real)


def test_generator_gradients_are_finite_differences(computed):
    settings, masked, params, (_, grads, _) = computed
    wide = reference.widen(params)
    _, read = stated(settings, masked, wide)
    rng = np.random.default_rng(0)
    for part in ("encoder", "generator", "mlm", "replaced"):
        along = {part: jax.tree.map(lambda x: rng.normal(size=x.shape), wide[part])}
        up, down = (
            stated(
                settings,
                masked,
                wide | {part: jax.tree.map(lambda x, a, h=h: x + h * a, wide[part], along[part])},
                read,
            )[0]
            for h in (1e-6, -1e-6)
        )
        for name in grads:
            slope = sum(
                float((a * g).sum())
                for a, g in zip(
                    jax.tree.leaves(along[part]), jax.tree.leaves(grads[name][part]), strict=True
                )
            )
            assert slope == pytest.approx((up[name] - down[name]) / 2e-6, rel=1e-3, abs=1e-5), part


def test_generator_learns_only_from_mlm(computed):
    *_, (_, grads, _) = computed

    def learns(name: str) -> set[str]:
        found = flat(grads[name])
        return {leaf for leaf, gradient in found.items() if np.abs(gradient).max() > 0}

    every = set(flat(grads["mlm"]))  # keys have a bias in vain: a softmax does not see it
    assert every - learns("mlm") - learns("replaced") <= {
        f"{encoder}/layer_{i}/attention/key/bias"
        for encoder in ("encoder", "generator")
        for i in range(12)
    }
    assert {leaf.partition("/")[0] for leaf in learns("mlm")} == {"encoder", "generator", "mlm"}
    assert {leaf.partition("/")[0] for leaf in learns("replaced")} == {"encoder", "replaced"}
    assert {leaf for leaf in learns("mlm") if leaf.startswith("encoder/")} == {
        leaf for leaf in flat(grads["mlm"]) if leaf.startswith("encoder/embeddings/")
    }


# --- the generator --------------------------------------------------------------------------------


HIDE = {"masking.replace": (1.0, 0.0, 0.0), "evals.validation.replace": (1.0, 0.0, 0.0)}
GENERATOR = {"objectives.replaced.generator": 0.25} | HIDE


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"objectives.replaced.generator": 0.25}, "masking.replace has shares of 0.8"),
        (GENERATOR | {"evals.validation.replace": (0, 0, 1)}, "evals.validation.replace has"),
        (HIDE, "finds nothing else"),
        (GENERATOR | {"masking.prediction_rate": 0.1}, "fills all masks"),
        (GENERATOR | {"objectives.replaced.generator": 0.3}, "makes 4 heads of a width of 230"),
        (GENERATOR | {"objectives.replaced.generator": 1.5}, "out of range"),
        (HIDE | {"objectives.hybrid.weight": 1.0, "pairs": "none"}, "beside objectives.hybrid"),
        (
            {"objectives": {"replaced": {"generator": 0.25}}, "checkpoints.best": ""} | HIDE,
            "objectives.mlm, which is left out",
        ),
    ],
)
def test_replaced_refuses_what_it_cannot_train_with(changes, said):
    tree = configs.default()
    tree.objectives.replaced = {"weight": None}
    for path, value in changes.items():
        configs.put(tree, path.split("."), value)
    with pytest.raises(ConfigError, match=said) as caught:
        resolve(tree)
    assert caught.value.code == 2
    assert caught.value.hint
