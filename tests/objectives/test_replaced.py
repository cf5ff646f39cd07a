"""Replaced token detection held against plain numpy: what a generator draws, the loss and whose
gradient it is; and whole runs with and without a generator.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from bert_jax import api, cli, objectives, suites, train
from bert_jax import config as configs
from bert_jax.batch import Encoded
from bert_jax.config import costs, knobs, load_file, resolve
from bert_jax.data import tokenizer as tokenizers
from bert_jax.errors import ConfigError
from bert_jax.interop import export, huggingface, runs
from bert_jax.models.encoder import pad_vocabulary
from bert_jax.objectives import network, replaced
from bert_jax.system.trees import flat
from bert_jax.training.step import compute_inputs, init_state, make_update
from tests import outcomes, reference, texts, toy, updates
from tests.flops import count_flops

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


def test_draws_follow_from_the_example_and_the_position_alone():
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


def test_a_token_drawn_that_is_the_original_is_an_original():
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


def test_the_loss_is_that_of_all_tokens_that_are_judged():
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


def test_the_losses_are_those_of_a_generator_and_an_encoder_in_numpy(computed):
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


def test_gradients_are_finite_differences_with_the_tokens_held_fast(computed):
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


def test_the_generator_learns_from_mlm_alone_and_the_embeddings_from_both(computed):
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


@pytest.mark.parametrize(
    ("size", "share", "shape"),
    [
        ("base", "0.3333", (256, 4, 1024)),
        pytest.param("large", "0.25", (256, 4, 1024), marks=pytest.mark.slow),
    ],
)
def test_a_generator_has_its_share_of_the_width(size, share, shape):
    """As in the authors' table; its layers are as many, and its embeddings are the encoder's."""
    found = resolve(load_file(f"configs/ablations.py:replaced,{share},{size}"))
    small, model = found.generator, found.model
    assert (small.hidden, small.heads, small.mlp) == shape
    assert found.objectives["replaced"].weight == 50.0
    tree = jax.eval_shape(lambda seed: network.init(found, 1_000, seed), np.uint32(0))
    shapes = {name: leaf.shape for name, leaf in flat(tree).items()}
    width, heads, mlp = shape
    assert shapes["generator/projection/kernel"] == (model.hidden, width)
    query = f"layer_{model.layers - 1}/attention/query/kernel"
    assert shapes[f"generator/{query}"] == (width, heads, 64)
    assert shapes[f"encoder/{query}"] == (model.hidden, model.heads, 64)
    assert shapes["generator/layer_0/mlp/up/kernel"] == (width, mlp)
    assert shapes["mlm/dense/kernel"] == (width, model.hidden)
    assert not any(name.startswith("generator/embeddings") for name in shapes)


def test_without_a_generator_only_the_random_tokens_are_to_be_found():
    found = resolve(load_file("configs/ablations.py:replaced,0,tiny"))
    assert tuple(found.objectives) == ("replaced",)
    assert found.generator is None
    tree = jax.eval_shape(lambda seed: network.init(found, 1_000, seed), np.uint32(0))
    assert set(tree) == {"encoder", "replaced"}


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
def test_what_it_cannot_be_trained_with_is_refused(changes, said):
    tree = configs.default()
    tree.objectives.replaced = {"weight": None}
    for path, value in changes.items():
        configs.put(tree, path.split("."), value)
    with pytest.raises(ConfigError, match=said) as caught:
        resolve(tree)
    assert caught.value.code == 2
    assert caught.value.hint


@pytest.mark.parametrize(
    ("share", "width"),
    [(0.5, 32), *(pytest.param(*x, marks=pytest.mark.slow) for x in ((0, 32), (1, 32), (0.5, 24)))],
)
def test_costs_are_the_matmuls_of_an_update(share, width):
    settings = config(float(share), batch_size=4, model__embedding=width)
    kinds = settings.model.type_vocab * width  # read by either encoder
    wanted = costs.flops_per_step(settings, pad_vocabulary(settings.model, toy.VOCAB))
    wanted += (2 if share else 1) * 2 * 2.0 * 4 * LENGTH * kinds
    assert count_flops(settings) == wanted
    alone = dataclasses.replace(settings, objectives={"mlm": settings.objectives["mlm"]})
    for ask in (costs.state_bytes, costs.flops_per_step):
        assert ask(settings, toy.VOCAB) > ask(alone, toy.VOCAB)
    more = costs.activation_bytes(settings, toy.VOCAB, 4) - costs.activation_bytes(
        alone, toy.VOCAB, 4
    )
    assert (more > 0) == (share > 0)
    tree = jax.eval_shape(lambda seed: network.init(settings, toy.VOCAB, seed), np.uint32(0))
    held = sum(leaf.size * 4 for leaf in jax.tree.leaves(tree)) * costs.STATES
    assert costs.state_bytes(settings, toy.VOCAB) == pytest.approx(held, rel=0.06)


# --- given to transformers ------------------------------------------------------------------------


def trained(folder: Path, **settings: object) -> runs.TrainedModel:
    """A model of random parameters with its generator, as if it was opened from a folder."""
    pieces = [*tokenizers.SPECIALS, *(f"w{i}" for i in range(toy.VOCAB - 5))]
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces))
    vocabulary, found = tokenizers.load(folder / "vocab.txt"), config(**settings)
    b = toy.batch(2, LENGTH) | {"predict_positions": np.zeros((2, 1), np.int32)}
    params = toy.draw_parameters(network.build(found, toy.VOCAB), b)
    params["encoder"]["embeddings"]["token"][toy.VOCAB :] = params["mlm"]["bias"][toy.VOCAB :] = 0
    return runs.TrainedModel(
        folder, found, vocabulary, folder, params, 7, {"foreign": "a/discriminator"}
    )


def exported(opened: runs.TrainedModel, folder: Path, generator: bool = False) -> str:
    """Write a part of it, and name the class that loads the folder."""
    folder.mkdir()
    export.write_folder(export.split_generator(opened, generator), folder)
    return json.loads((folder / "config.json").read_text())["architectures"][0]


def test_it_is_exported_as_a_discriminator_and_its_generator_as_a_masked_model(tmp_path):
    """Two models there, each with the embeddings; read again, they are what was trained."""
    opened = trained(tmp_path, model__embedding=24)
    params = opened.params
    assert exported(opened, tmp_path / "d") == "ElectraForPreTraining"
    assert exported(opened, tmp_path / "g", generator=True) == "ElectraForMaskedLM"
    large, small = (huggingface.read_model(tmp_path / name) for name in ("d", "g"))
    for found, wanted in (
        (large.params, {name: params[name] for name in ("encoder", "replaced")}),
        (
            small.params,
            {
                "encoder": {"embeddings": params["encoder"]["embeddings"], **params["generator"]},
                "mlm": params["mlm"],
            },
        ),
    ):
        jax.tree.map(np.testing.assert_array_equal, flat(found), flat(wanted))
    widths = [(m.config.model.hidden, m.config.model.embedding) for m in (large, small)]
    assert widths == [(32, 24), (16, 24)]
    assert (large.config.model.mlp, small.config.model.mlp) == (128, 64)
    assert large.config.objectives["replaced"].weight == 50.0
    alone = export.split_generator(opened)
    assert export.split_generator(alone) is alone
    with pytest.raises(ConfigError, match="has no generator"):
        export.split_generator(alone, generator=True)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of other libraries
@pytest.mark.parametrize("width", [24, 32])
def test_transformers_makes_the_same_of_both(width, tmp_path):
    torch, transformers = (pytest.importorskip(name) for name in ("torch", "transformers"))
    opened = trained(tmp_path, model__embedding=width)
    b = toy.batch(3, LENGTH)
    b["predict_positions"] = np.broadcast_to(np.arange(LENGTH), (3, LENGTH))
    outputs = network.outputs(network.build(opened.config, toy.VOCAB), opened.params, b)
    real = b["segment_ids"] > 0
    names = {"input_ids": "tokens", "token_type_ids": "type_ids", "attention_mask": "segment_ids"}
    given = {name: torch.tensor(b[key]) for name, key in names.items()}
    for generator in (False, True):
        folder = tmp_path / str(generator)
        model = getattr(transformers, exported(opened, folder, generator))
        with torch.no_grad():
            found = model.from_pretrained(folder).eval()(**given).logits.numpy()[real]
        mine = outputs["mlm"][..., : toy.VOCAB] if generator else outputs["replaced"].logits
        np.testing.assert_allclose(np.asarray(mine)[real], found, atol=1e-5 * np.abs(found).max())


# --- one program, several devices -----------------------------------------------------------------

SAME = ("masked_fraction", "replaced_fraction", "replaced_accuracy", "mlm_accuracy")


@pytest.mark.slow
@pytest.mark.parametrize(
    "layout", [{}, {"parallel__step": "pmap"}, {"optim__accumulation": 2}, {"parallel__fsdp": 4}]
)
def test_an_update_is_the_same_on_any_devices(layout):
    settings = config(optim__clip_norm=0)
    data = toy.batch(16, LENGTH, seed=6, examples=2)
    (alone,), first = updates.advance(settings, [data], devices=1)
    (found,), other = updates.advance(config(optim__clip_norm=0, **layout), [data])
    for key in ("loss", "mlm_loss", "replaced_loss", "grad_norm"):
        assert found[key] == pytest.approx(alone[key], rel=1e-5), key
    for key in SAME:
        assert found[key] == alone[key], key
    ours_, theirs = (flat(toy.find_moments(state).mu) for state in (first, other))
    for name, moment in ours_.items():
        a, b = np.asarray(moment), np.asarray(theirs[name])
        np.testing.assert_allclose(b, a, atol=2e-5 * max(np.abs(a).max(), 1e-3), err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("mapping", ["map", "vmap"])
def test_runs_of_several_rates_and_weights_in_one_program_are_those_alone(mapping):
    b = toy.batch(16, LENGTH, seed=1)
    arms = [
        config(masking__rate=0.15),
        config(masking__rate=0.3, objectives__replaced__weight=10.0, seed=3),
    ]
    state = jax.jit(lambda seed: init_state(arms[0], toy.VOCAB, seed))(np.uint32(0))
    slots = max(map(costs.own_slots, arms))
    update = jax.jit(make_update(arms[0], toy.SPECIAL, toy.VOCAB, slots=slots))
    stacked = jax.tree.map(lambda *x: np.stack(x), *(compute_inputs(c, 0) for c in arms))
    if mapping == "map":
        both = jax.jit(lambda i: jax.lax.map(lambda own: update(state, b, own), i))(stacked)
    else:
        both = jax.jit(jax.vmap(lambda own: update(state, b, own)))(stacked)
    for number, arm in enumerate(arms):
        _, alone = update(state, b, compute_inputs(arm, 0))
        for key, (total, count) in alone.items():
            mine = [float(part[number]) for part in both[1][key]]
            assert mine == pytest.approx([float(total), float(count)], rel=1e-5), key
    assert update._cache_size() == 1


# --- whole runs -----------------------------------------------------------------------------------

SMALL = {"steps": 12, "batch_size": 16, "logging__every": 1, "checkpoints__every": 6}
SMALL |= {"pairs": "none", "evals__validation__every": 0, "checkpoints__best": ""}
SMALL |= {"objectives__replaced__generator": 0.5} | HIDDEN


@pytest.fixture(scope="module")
def run(base, tmp_path_factory):
    """A model and its generator after 60 updates, with pictures of what it predicts."""
    folder = tmp_path_factory.mktemp("runs") / "replaced"
    changes = SMALL | {"steps": 60, "logging__samples": 3, "pairs": "nsp"}
    with texts.one_device():
        train.run(texts.configure(base, **changes), folder, command=[])
    return runs.open_run(str(folder))


@pytest.mark.slow
def test_it_is_evaluated_beside_the_base_rate(run):
    """In training and afterwards; the report says so too."""
    last = outcomes.metrics(run.folder)[-1]
    found = suites.evaluate(run, "pretrain", batch_size=7)
    share = found["replaced_fraction"]
    assert 0.02 < share < 0.2
    assert found["replaced_majority_accuracy"] == 1 - share
    entropy = scipy.stats.entropy([share, 1 - share])
    assert found["replaced_base_rate_loss"] == pytest.approx(entropy)
    assert found["mlm_loss"] < found["unigram_loss"]
    for name, value in found.items():  # of none taken for replaced, no share is right
        written = last[f"eval/validation/{name}"]
        assert written == (None if np.isnan(value) else pytest.approx(value, rel=1e-5)), name
    page = (run.folder / "report.html").read_text()
    for words in ("a generator of 50.0", "the base rate", "the majority", "Replaced accuracy"):
        assert words in page
    logged = outcomes.logged(run.folder, "replaced_fraction")
    assert 0.02 < np.mean(logged) < 0.2
    _, arrays = suites.score(run, *suites.build(["pretrain"]))
    assert len(arrays["replaced_loss.sum"]) == found["examples"]


@pytest.mark.slow
def test_the_generator_answers_what_asks_for_words(run, tmp_path, capsys):
    """Masks, bounds and pseudo-likelihoods are its own; the encoder tells what is replaced."""
    text = tmp_path / "text.txt"
    text.write_text("the cat [MASK] the old tree .\n")
    assert cli.execute(["predict", "fill-mask", f"--model={run.folder}", f"--input={text}"]) == 0
    assert '"masks"' in capsys.readouterr().out
    rates = suites.evaluate(run, "cross_rate")
    loss = suites.evaluate(run, "pretrain")["mlm_loss"]
    assert rates["0.15"]["mlm_loss"] == pytest.approx(loss, rel=1e-5)
    assert suites.evaluate(run, "nelbo", draws=2)["nats_per_token"] > 0
    text.write_text("the cat sees a small dog near the sea.\n")
    assert suites.evaluate(run, "pll", source=f"files:{text}")["pll"] < 0
    model = api.load(str(run.folder))
    (logits,) = model.logits(["the cat sees a small dog"], head="replaced")
    (words,) = model.logits(["the cat sees a small dog"])
    assert logits.shape == words.shape[:1]
    assert words.shape[1] == run.tokenizer.size


@pytest.mark.slow
def test_its_encoder_is_fine_tuned_and_with_nsp_it_is_not_exported(run, tmp_path, capsys, caplog):
    out = tmp_path / "out"
    assert cli.execute(["export", f"--checkpoint={run.folder}", f"--output={out}"]) == 2
    said = capsys.readouterr().err
    assert "objectives.replaced = no head of BERT" in said
    assert "--config.init_from" in said
    rows = [("good", "the cat sees"), ("bad", "a small dog")] * 12
    data = tmp_path / "data.tsv"
    data.write_text("label\ttext\n" + "".join(f"{a}\t{b} {i}\n" for i, (a, b) in enumerate(rows)))
    from bert_jax import recipes

    changes = {"task.source": f"files:{data}", "epochs": 1.0, "batch_size": 8}
    tuned = resolve(recipes.finetuning("classify", str(run.folder), changes))
    with texts.one_device(), caplog.at_level("INFO"):
        train.run(tuned, tmp_path / "tuned", command=[])
    assert "generator/layer_0/" in caplog.text
    assert "is not used" in caplog.text
    found = runs.open_run(str(tmp_path / "tuned"))
    assert set(found.params) == {"encoder", "classify"}
    assert cli.execute(["export", f"--checkpoint={tmp_path / 'tuned'}", f"--output={out}"]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("overrides", [{}, {"packing": 3}])
def test_runs_that_train_together_are_those_alone(base, tmp_path, overrides):
    arms = [{"masking__rate": 0.15}, {"masking__rate": 0.4, "seed": 3}]
    several = [texts.configure(base, **SMALL | overrides | arm) for arm in arms]
    together = [tmp_path / f"fused{i}" for i in range(2)]
    with texts.one_device():
        train.train(list(zip(several, together, strict=True)), command=[])
        for settings, fused in zip(several, together, strict=True):
            alone = fused.with_name(f"{fused.name}_alone")
            train.run(settings, alone, command=[])
            for name in ("loss", "mlm_loss", "replaced_loss"):
                mine, theirs = (outcomes.logged(at, name) for at in (fused, alone))
                np.testing.assert_allclose(mine, theirs, rtol=1e-3)
            masked = [outcomes.logged(at, "masked_fraction") for at in (fused, alone)]
            assert masked[0] == masked[1]


@pytest.mark.slow
@pytest.mark.parametrize("overrides", [{}, {"packing": 3, "masking__draw": "uniform"}])
def test_a_run_goes_on_where_it_was_stopped(base, tmp_path, overrides):
    settings = texts.configure(base, **SMALL | {"model__dropout": 0.1} | overrides)
    outcomes.assert_goes_on(settings, tmp_path, 12)


@pytest.mark.slow
@pytest.mark.parametrize(("generator", "share"), [(0.0, 0.8), (0.5, 0.98)])
def test_it_learns_to_tell(base, tmp_path, generator, share):
    """In nats below what the share of replaced tokens gives away, and random ones in accuracy too.

    Much of what a generator draws fits this text as well as the original, and cannot be told.
    """
    replace = HIDDEN if generator else dict.fromkeys(HIDDEN, "(0,1,0)")
    changes = {"steps": 400, "objectives__replaced__generator": generator} | replace
    settings = texts.configure(base, **SMALL | {"logging__every": 100} | changes)
    with texts.one_device():
        train.run(settings, tmp_path / "run", command=[])
    found = suites.evaluate(runs.open_run(str(tmp_path / "run")), "pretrain")
    assert found["replaced_loss"] < share * found["replaced_base_rate_loss"]
    if not generator:
        assert found["replaced_accuracy"] > found["replaced_majority_accuracy"]
        assert found["replaced_recall"] > 0.2
