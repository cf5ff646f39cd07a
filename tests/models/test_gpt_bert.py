"""GPT-BERT: the outputs and gradients of its authors' code from the same weights."""

import functools

import jax
import numpy as np

import bert_jax
from bert_jax import cli, objectives
from bert_jax.config import knobs
from bert_jax.models import gpt_bert as parts
from bert_jax.models.encoder import Encoder, compute_layers
from bert_jax.system.trees import flatten_tree
from tests import gpt_bert, reference, texts

SHIFTED = objectives.TABLE["hybrid"].configure(knobs.Objective(shift=True))


@functools.cache
def golden() -> dict[str, np.ndarray]:
    return dict(np.load(gpt_bert.GOLDEN))


def weights():
    """Those of the recipe, under our names; rows of padding are 0."""
    named = {k.removeprefix("gradient/"): v.shape for k, v in golden().items() if "/" in k}
    params = gpt_bert.to_ours({name: gpt_bert.tensor(name, shape) for name, shape in named.items()})
    more = {"constant_values": 0, "mode": "constant"}
    table, bias = params["encoder"]["embeddings"], params["mlm"]
    table["token"] = np.pad(table["token"], ((0, 64 - gpt_bert.VOCAB), (0, 0)), **more)
    bias["bias"] = np.pad(bias["bias"], (0, 64 - gpt_bert.VOCAB), **more)
    return params


def computed(config: knobs.Config):
    """Gradients of the hybrid loss, and hidden states, logits and loss, by the authors' names."""
    b, vocab = gpt_bert.batch(), gpt_bert.VOCAB
    encoder = Encoder(config.model, vocab, pool=False)
    head = SHIFTED.make_head(config.model, vocab, 0, False, "mlm")

    def compute(params):
        encoded = encoder.apply({"params": params["encoder"]}, b)
        logits = head.apply({"params": params["mlm"]}, encoded, b)
        sums, counts = SHIFTED.loss(logits, b), SHIFTED.count(b)
        masked, causal = (sums[f"{n}_loss"][0] / counts[n] for n in ("mlm", "causal_lm"))
        loss = (1 - gpt_bert.SHARE) * masked + gpt_bert.SHARE * causal
        hidden = compute_layers(config.model, vocab, params["encoder"], b).hidden
        return loss, {"hidden_states": hidden, "logits": logits[..., :vocab], "loss": loss}

    return jax.device_get(jax.jit(jax.grad(compute, has_aux=True))(weights()))


def test_outputs_and_gradients_are_the_authors():
    gradients, ours = computed(gpt_bert.config())
    real, theirs, far = gpt_bert.batch()["segment_ids"] > 0, golden(), {}
    states = theirs["hidden_states"].astype(np.float64)
    # Theirs end before the norm that their head begins with; ours end after it.
    states[-1] = reference.norm(states[-1], None, 1e-5)
    for i, (x, y) in enumerate(zip(ours["hidden_states"], states, strict=True)):
        far[f"hidden states {i}"] = np.abs(x - y)[real].max() / np.abs(y[real]).max()
    far["logits"] = np.abs(ours["logits"] - theirs["logits"])[real].max()
    far["logits"] /= np.abs(theirs["logits"][real]).max()
    far["loss"] = abs(ours["loss"] - theirs["loss"]) / theirs["loss"]
    named = {k.removeprefix("gradient/"): v for k, v in theirs.items() if "/" in k}
    expected, found = flatten_tree(gpt_bert.to_ours(named)), flatten_tree(gradients)
    assert expected.keys() == found.keys()
    for name, gradient in expected.items():
        mine = np.asarray(found[name])
        if name in ("encoder/embeddings/token", "mlm/bias"):
            assert not mine[gpt_bert.VOCAB :].any()
            mine = mine[: gpt_bert.VOCAB]
        far[name] = np.abs(mine - gradient).max() / np.abs(gradient).max()
    assert {name: value for name, value in far.items() if not value <= 1e-5} == {}


def test_assign_buckets_does_as_the_authors_code():
    found = parts.assign_buckets(
        gpt_bert.config(model__position_buckets=32, model__max_positions=512).model
    )
    np.testing.assert_array_equal(found, golden()["buckets"])


def test_trained_model_is_the_float64_statement(tmp_path, one_device):
    """From the command to the API: what a saved run computes of texts."""
    stated = reference.VARIANTS["gpt_bert"]
    changes = {f"model.{knob}": value for knob, value in stated.items()}
    changes |= {"pairs": "none", "steps": 1, "batch_size": 8, "sequence_length": 24}
    changes |= {"optim.warmup_steps": 0, "model.init_stddev": 0.2}
    words = ["train", f"--config={texts.config_file(tmp_path)}", f"--workdir={tmp_path / 'run'}"]
    words += [f"--config.{knob}={value}" for knob, value in changes.items()]
    assert cli.execute(words) == 0
    model = bert_jax.load(tmp_path / "run")
    tokenizer, params = model.opened.tokenizer, reference.widen(model.opened.params)
    lines = ["the cat likes a dog.", "every child finds the quiet river behind the house."]
    ids = tokenizer.encode_batch(lines)
    found = zip(ids, model.hidden_states(lines), model.logits(lines), strict=True)
    for tokens, states, logits in found:
        row = np.array([tokenizer.special.cls, *tokens, tokenizer.special.sep])
        embedded = reference.embed(params["encoder"]["embeddings"], row, 0 * row, stated)
        expected = reference.encode(params["encoder"], embedded, stated)
        np.testing.assert_allclose(states, expected, rtol=2e-5, atol=2e-5)
        scores = reference.predict_words(params, expected[-1])[:, : tokenizer.size]
        np.testing.assert_allclose(logits, scores, rtol=2e-5, atol=2e-5)
