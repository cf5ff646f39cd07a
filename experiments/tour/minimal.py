"""The whole of masked-language-model training in one file: from text to gradient.

    python experiments/tour/minimal.py [STEPS]

Data, masks, encoder and head are the package's own, called as `bert-jax train` calls them. The
loss, the optimizer, the update and the loop are written out.

B rows, L tokens a row, K prediction slots a row, D features, V tokens of the vocabulary.
"""

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from bert_jax.batch import Batch
from bert_jax.config import default, knobs, resolve
from bert_jax.data import pipeline, prepare
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.masking import quotas
from bert_jax.masking.corrupt import corrupt_batch
from bert_jax.models.encoder import Encoder
from bert_jax.models.heads import MlmHead
from bert_jax.training.step import compute_inputs

TEXT = Path(__file__).parent / "data" / "sentences.txt"
STEPS = 150


def make_config(text: Path = TEXT) -> knobs.Config:
    """Return the config of a BERT of two layers on a text."""
    config = default()
    config.corpus.update(source="files", path=str(text), workers=1, validation_fraction=0.1)
    config.tokenizer.vocab_size = 150
    config.model.update(layers=2, hidden=64, heads=2, mlp=256, dropout=0.0, attention_dropout=0.0)
    config.pairs = "none"  # MLM without next-sentence prediction
    config.update(steps=STEPS, batch_size=32, sequence_length=32)
    config.optim.update(learning_rate=3e-3, warmup_steps=10)
    return resolve(config)


def init_params(config: knobs.Config, vocab_size: int, batch: Batch) -> dict[str, Any]:
    """Return fresh parameters of the encoder and of the head, float32."""
    encoder, head = Encoder(config.model, vocab_size, pool=False), MlmHead(config.model, vocab_size)
    key, head_key = jax.random.split(jax.random.key(config.seed))
    encoded, variables = encoder.init_with_output(key, batch)
    head_params = head.init(head_key, encoded, batch)["params"]
    return {"encoder": variables["params"], "head": head_params}


def compute_loss(
    params: dict[str, Any], config: knobs.Config, vocab_size: int, batch: Batch
) -> jax.Array:
    """Return the mean cross-entropy of the masked tokens, in nats."""
    encoder, head = Encoder(config.model, vocab_size, pool=False), MlmHead(config.model, vocab_size)
    encoded = encoder.apply({"params": params["encoder"]}, batch)  # hidden [B, L, D]
    logits = head.apply({"params": params["head"]}, encoded, batch)  # [B, K, V]
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch["predict_targets"])
    used = batch["predict_weights"]  # [B, K], 0 where a row needs fewer slots
    return jnp.sum(losses * used) / jnp.sum(used)


def make_mask(config: knobs.Config, tokenizer: Tokenizer) -> Callable[..., Any]:
    """Return the function of a batch and step inputs that masks 15 % of the tokens.

    It adds `inputs` [B, L], which the encoder reads, and the targets of the slots [B, K].
    """
    return functools.partial(
        corrupt_batch,
        settings=config.masking,
        special=tokenizer.special,
        vocab_size=tokenizer.size,
        slots=quotas.count_slots(config.masking, config.sequence_length),
    )


def make_update(
    config: knobs.Config, tokenizer: Tokenizer, optimizer: optax.GradientTransformation
) -> Callable[..., Any]:
    """Return the jitted update: mask, loss, gradient, step."""
    mask = make_mask(config, tokenizer)

    @jax.jit
    def update(
        params: Any, state: Any, batch: Batch, step_inputs: Any
    ) -> tuple[Any, Any, jax.Array]:
        masked, _ = mask(batch, step_inputs)
        loss, gradient = jax.value_and_grad(compute_loss)(params, config, tokenizer.size, masked)
        change, state = optimizer.update(gradient, state, params)
        return optax.apply_updates(params, change), state, loss

    return update


def main(steps: int = STEPS) -> list[float]:
    """Train, and print the loss of every tenth update; return all of them."""
    config = make_config()
    corpus = prepare.prepare_corpus(config, log=lambda line: None)  # text to ids, once
    tokenizer = corpus.tokenizer
    source = pipeline.TextStream(corpus, "train", config)  # batch(index) is a function of the index
    unigram = corpus.unigrams / corpus.unigrams.sum()
    entropy = -np.sum(unigram * np.log(np.maximum(unigram, 1e-12)))
    print(f"{tokenizer.size} pieces; a guess by frequency alone costs {entropy:.2f} nats")

    masked, _ = make_mask(config, tokenizer)(source.batch(0), compute_inputs(config, 0))
    params = init_params(config, tokenizer.size, masked)
    schedule = optax.warmup_constant_schedule(
        0.0, config.optim.learning_rate, config.optim.warmup_steps
    )
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule))
    update = make_update(config, tokenizer, optimizer)
    state, losses = optimizer.init(params), []
    for index in range(steps):
        batch = source.batch(index)
        params, state, loss = update(params, state, batch, compute_inputs(config, index))
        losses.append(float(loss))
        if index % 10 == 0:
            print(f"update {index + 1:3d}  loss {loss:.3f}")
    return losses


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else STEPS)
