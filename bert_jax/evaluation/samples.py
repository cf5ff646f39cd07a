"""Predictions for the same few held-out sentences during training, to watch a model learn.

The sentences and their masks depend only on the validation text and the seed of its evaluation. A
causal model reads the beginnings of sentences and predicts the next token.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from bert_jax import sharding
from bert_jax.batch import Batch
from bert_jax.config import knobs
from bert_jax.data import encoding, hashing
from bert_jax.data.corpus import Prepared, Split
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.evaluation import inference
from bert_jax.objectives import network

TOP = 5  # tokens shown of a prediction
SHORT, LONG = 8, 24  # tokens of a sentence that is easily read
TWO = 14  # tokens from which on a sentence has two masks
TRIES = 64  # candidates drawn for each sentence to choose
_CHOICE = 0x53414D50  # keeps the hashes of the choice apart from all others
BLANK = "…"  # after the beginning of a sentence


class Sample(NamedTuple):
    """A sentence as the model reads it, the positions that predict, and the true tokens there."""

    ids: list[int]  # of the text, without [CLS] and [SEP]
    places: list[int]  # columns of the row whose vectors predict the answers
    text: str
    answers: list[str]


class Samples:
    """Predicts the masked tokens of its sentences; compiled once, and called with parameters."""

    def __init__(
        self,
        config: knobs.Config,
        tokenizer: Tokenizer,
        chosen: Sequence[Sample],
        head: str,
        mesh: Mesh,
    ):
        self.shown, self.chosen = tokenizer.shown, chosen
        size = inference.round_batch_size(len(self.chosen), mesh)
        longest = max(len(sample.ids) for sample in self.chosen) + 2
        texts = [[sample.ids] for sample in self.chosen]
        batch = encoding.pad_rows(tokenizer.special, texts, longest, size=size)
        batch["predict_positions"] = np.zeros((size, 2), np.int32)
        for row, sample in enumerate(self.chosen):
            batch["predict_positions"][row, : len(sample.places)] = sample.places
        self.batch = inference.place_batch(batch, mesh)
        one_head = network.build_network(config, tokenizer.size, only=head)

        def likeliest(params: Any, batch: Batch) -> tuple[jax.Array, jax.Array]:
            logits = network.compute_outputs(one_head, params, batch)[head]  # [B, slots, V]
            if head == "causal_lm":  # whose logits are of every column
                logits = jnp.take_along_axis(logits, batch["predict_positions"][..., None], axis=1)
            probabilities = jax.nn.softmax(logits, axis=-1)
            return jax.lax.top_k(probabilities, min(TOP, tokenizer.size))  # [B, slots, TOP]

        self.likeliest = jax.jit(likeliest, out_shardings=sharding.replicated(mesh))

    def __call__(self, params: Any) -> list[dict[str, Any]]:
        """Return a row of samples.jsonl for each sentence, with the TOP tokens for each mask."""
        values, ids = sharding.to_host(self.likeliest(params, self.batch))  # [B, slots, TOP]
        rows = []
        for row, sample in enumerate(self.chosen):
            predictions = []
            for slot in range(len(sample.places)):
                best = zip(values[row, slot], ids[row, slot], strict=True)
                predictions.append(
                    [{"token": self.shown[i], "probability": round(float(p), 6)} for p, i in best]
                )
            answers = sample.answers
            rows.append({"text": sample.text, "answers": answers, "predictions": predictions})
        return rows


def build_samples(config: knobs.Config, prepared: Prepared, mesh: Mesh) -> Samples | None:
    """Build the `Samples` of a run; None if it asks for no samples or has no head over tokens."""
    head = next((name for name in ("causal_lm", "mlm") if name in config.objectives), "")
    if not (head and config.logging.samples and "validation" in config.evals):
        return None
    chosen = choose_sentences(
        prepared.splits["validation"],
        prepared.tokenizer,
        config.logging.samples,
        config.sequence_length - 2,
        seed=config.evals["validation"].seed,
        causal=head == "causal_lm",
    )
    if not chosen:
        return None  # no held-out sentence has two tokens
    return Samples(config, prepared.tokenizer, chosen, head, mesh)


def choose_sentences(
    split: Split, tokenizer: Tokenizer, count: int, room: int, *, seed: int, causal: bool
) -> list[Sample]:
    """Choose up to `count` different sentences to predict, preferring a readable length.

    Tokens after the first `room` are cut.
    """
    make = _cut_beginning if causal else _mask_words
    drawn = list(draw_samples(split, TRIES * count, hashing.make_key(seed, _CHOICE)))
    drawn.sort(key=lambda one: max(SHORT - len(one[1]), len(one[1]) - LONG, 0))
    different = {tuple(ids): number for number, ids in reversed(drawn) if len(ids) > 1}
    chosen: dict[str, Sample] = {}
    for number, ids in drawn:
        if len(chosen) < count and different.get(tuple(ids)) == number:
            sample = make(ids[:room], tokenizer, hashing.make_key(seed, _CHOICE, number))
            chosen.setdefault(sample.text, sample)
    return list(chosen.values())


def draw_samples(split: Split, most: int, key: int) -> Iterator[tuple[int, list[int]]]:
    """Yield (number, tokens) of up to `most` sentences, in an order seeded by `key`."""
    total = len(split.sentence_ends)
    numbers = hashing.permute_index(np.arange(min(most, total)), total, key)
    for number in numbers.tolist():
        start = int(split.sentence_ends[number - 1]) if number else 0
        yield number, split.tokens[start : int(split.sentence_ends[number])].tolist()


def _mask_words(ids: list[int], tokenizer: Tokenizer, key: int) -> Sample:
    """Mask one or two random words that are single tokens; without such words, mask any tokens."""
    count = 2 if len(ids) >= TWO else 1
    # A token is a whole word if neither it nor the next one continues a word.
    parts = [*(tokenizer.continuation[token] for token in ids), False]
    words = [
        at
        for at, token in enumerate(ids)
        if not (parts[at] or parts[at + 1]) and tokenizer.shown[token].strip().isalpha()
    ]
    places = words if len(words) >= count else list(range(len(ids)))
    picked = sorted(places[n] for n in hashing.permute_index(np.arange(count), len(places), key))
    hidden = [tokenizer.special.mask if at in picked else token for at, token in enumerate(ids)]
    answers = [tokenizer.shown[ids[at]] for at in picked]
    columns = [at + 1 for at in picked]  # after [CLS]
    return Sample(hidden, columns, tokenizer.readable(hidden), answers)


def _cut_beginning(ids: list[int], tokenizer: Tokenizer, key: int) -> Sample:
    """Keep the beginning of a sentence, which ends before a random word near the middle."""
    middle = range(max(1, len(ids) // 3), max(2, len(ids) * 2 // 3))
    places = [at for at in middle if not tokenizer.continuation[ids[at]]] or list(middle)[:1]
    at = places[int(hashing.permute_index(np.arange(1), len(places), key)[0])]
    before = ids[:at]
    return Sample(before, [at], f"{tokenizer.readable(before)} {BLANK}", [tokenizer.shown[ids[at]]])
