"""Replaced token detection against plain numpy: the generator's draws, the loss, its gradient."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import objectives
from bert_jax.config import knobs
from bert_jax.objectives import network, replaced
from bert_jax.system.trees import flatten_tree
from tests import reference, tiny

LENGTH = 24
HIDDEN = {"masking__replace": "(0.85,0,0.15)", "evals__validation__replace": "(0.85,0,0.15)"}


def config(generator: float = 0.5, **overrides: object) -> knobs.Config:
    shape = {"pairs": "none", "model__layers": 1, "masking__rate": 0.3}
    shape |= {"objectives__replaced__generator": generator} | (HIDDEN if generator else {})
    return tiny.config(**shape | overrides)


def corrupted(settings: knobs.Config, b):
    """Mask a batch as an update does."""
    rules = {"settings": settings.masking, "special": tiny.SPECIAL, "vocab_size": tiny.VOCAB}
    corrupt = objectives.choose_corruption(objectives.configure(settings.objectives))
    masked = jax.jit(functools.partial(corrupt, slots=LENGTH, **rules))
    return jax.device_get(masked(b, tiny.make_step_inputs(settings.masking, LENGTH, 0))[0])


# --- the generator's draws ------------------------------------------------------------------------


def test_tokens_are_drawn_by_their_probabilities():
    """Each is the one at which the distribution function passes its random word.

    The random words are those of tests/masking/test_draws.py.
    """
    size = 300  # three blocks of the vocabulary, the last in part
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
    assert not np.isin(found, [7, size - 1]).any()


# --- loss and gradient ----------------------------------------------------------------------------


def test_replaced_loss_equals_a_plain_sum():
    """Written out: the cross-entropy of two answers; [MASK] is no question."""
    settings = config(0.0, masking__replace="(0.4,0.4,0.2)")
    masked = corrupted(settings, tiny.batch(8, LENGTH, seed=3))
    inputs = masked["inputs"]
    tokens = masked["tokens"]
    judged = (masked["segment_ids"] > 0) & (inputs != tiny.SPECIAL.mask)
    assert (masked["segment_ids"] > 0).sum() - judged.sum() > 0
    np.testing.assert_array_equal(masked["judged"], judged)
    assert "predict_draws" not in masked
    z = np.random.default_rng(0).normal(size=tokens.shape)
    wrong = inputs != tokens
    share = 1 / (1 + np.exp(-z))
    losses = -np.where(wrong, np.log(share), np.log(1 - share))
    answers = replaced.Detected(jnp.asarray(z, jnp.float32), wrong)
    found = objectives.TABLE["replaced"].loss(answers, masked)
    mean = {name: float(total) / float(n) for name, (total, n) in found.items()}
    assert float(found["replaced_loss"][1]) == judged.sum()
    assert mean["replaced_loss"] == pytest.approx(losses[judged].mean(), rel=1e-5)
    assert mean["replaced_accuracy"] == pytest.approx(((z > 0) == wrong)[judged].mean())
    assert mean["replaced_precision"] == pytest.approx(wrong[judged & (z > 0)].mean())
    assert mean["replaced_recall"] == pytest.approx((z > 0)[judged & wrong].mean())
    assert mean["replaced_fraction"] == pytest.approx(wrong[judged].mean())


@pytest.fixture(scope="module")
def computed():
    """A small model with narrow embeddings, a corrupted batch of two examples a row, and ours."""
    settings = config(model__init_stddev=0.2, model__embedding=24)
    masked = corrupted(settings, tiny.batch(3, LENGTH, seed=1, examples=2))
    model = network.build_network(settings, tiny.VOCAB)
    table = objectives.configure(settings.objectives)
    params = tiny.init(settings)

    @jax.jit
    def compute(params):
        def losses(params):
            outputs = network.compute_outputs(model, params, masked)
            found = {n: one.loss(outputs[n], masked)[f"{n}_loss"] for n, one in table.items()}
            return {n: total / count for n, (total, count) in found.items()}, outputs["replaced"]

        means, back, answers = jax.vjp(losses, params, has_aux=True)
        none = dict.fromkeys(means, jnp.zeros(()))
        return means, {n: back(none | {n: jnp.ones(())})[0] for n in means}, answers

    return settings, masked, params, jax.device_get(compute(params))


def stated(settings, masked, params):
    """Return both losses in float64, and the inputs of the encoder, as the generator draws them."""
    words: list[float] = []
    answers: list[float] = []
    read = masked["inputs"].copy()
    segments = masked["segment_ids"]

    def embed(part, tokens, types):
        x = reference.embed(params["encoder"]["embeddings"], tokens, types, {})
        return reference.dense(x, params[part]["projection"])

    for row, example in itertools.product(range(len(read)), (1, 2)):
        own = np.flatnonzero(segments[row] == example)
        types = masked["type_ids"][row, own]
        x = embed("generator", masked["inputs"][row, own], types)
        hidden = reference.encode(params["generator"], x, {})[-1]
        columns = masked["predict_positions"][row]
        slots = np.flatnonzero((masked["predict_weights"][row] > 0) & np.isin(columns, own))
        logits = reference.predict_words(params, hidden[columns[slots] - own[0]])
        chances = reference.softmax(logits[:, : tiny.VOCAB])
        right = chances[range(len(slots)), masked["predict_targets"][row, slots]]
        words += (-np.log(right)).tolist()
        at = (masked["predict_draws"][row, slots] >> 9) / 2**23
        read[row, columns[slots]] = (chances.cumsum(-1) <= at[:, None]).sum(-1)
        tokens = read[row, own]
        x = embed("encoder", tokens, types)
        hidden = reference.encode(params["encoder"], x, {})[-1]
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
    assert changed[tiny.chosen(masked)].mean() > 0.7  # masks, filled in
    assert not changed[~tiny.chosen(masked)].any()
    np.testing.assert_array_equal(masked["judged"], real)


def test_generator_learns_only_from_mlm(computed):
    """Embeddings learn from both losses; a bias of keys from none, as a softmax ignores it."""
    *_, (_, grads, _) = computed

    def list_learning(name: str) -> set[str]:
        return {leaf for leaf, x in flatten_tree(grads[name]).items() if np.abs(x).max() > 0}

    of_mlm, of_replaced = list_learning("mlm"), list_learning("replaced")
    silent = set(flatten_tree(grads["mlm"])) - of_mlm - of_replaced
    assert all(leaf.endswith("attention/key/bias") for leaf in silent)
    assert {leaf.partition("/")[0] for leaf in of_mlm} == {"encoder", "generator", "mlm"}
    assert {leaf.partition("/")[0] for leaf in of_replaced} == {"encoder", "replaced"}
    embeddings = {
        leaf for leaf in flatten_tree(grads["mlm"]) if leaf.startswith("encoder/embeddings/")
    }
    assert {leaf for leaf in of_mlm if leaf.startswith("encoder/")} == embeddings
