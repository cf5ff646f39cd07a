"""What a model makes of the same few held-out sentences each time it is asked, so that one sees it learn.

Sentences and masks follow from the validation text and the seed of its evaluation alone. A causal model reads the
beginnings of sentences and says what comes next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from bert_jax import sharding
from bert_jax.batch import Batch
from bert_jax.config import knobs
from bert_jax.data import encoding
from bert_jax.data.batches import order
from bert_jax.data.text.shards import Prepared, Shard
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.objectives import network

TOP = 5  # tokens shown of a prediction
SHORT, LONG = 8, 24  # tokens of a sentence that is easily read
TWO = 14  # tokens from which on a sentence has two masks
TRIES = 64  # sentences looked at for each that is wanted
_CHOICE = 0x53414D50  # keeps the hashes of what is chosen apart from all others
BLANK = "…"  # where a beginning ends


class Sample(NamedTuple):
    """One row: what the model reads, where it is asked, and what stood there."""

    ids: list[int]  # of the text, without [CLS] and [SEP]
    places: list[int]  # columns of the row whose vectors say it
    text: str
    answers: list[str]


class Samples:
    """Compiles once; call it with parameters as often as needed."""

    def __init__(
        self,
        model: knobs.Model,
        tokenizer: Tokenizer,
        chosen: Sequence[Sample],
        head: str,
        mesh: Mesh,
    ):
        self.vocab, self.chosen = tokenizer.vocab, chosen
        ways = mesh.shape["data"] * mesh.shape["fsdp"]
        rows = -(-len(self.chosen) // ways) * ways
        longest = max(len(one.ids) for one in self.chosen) + 2
        batch = encoding.rows(
            tokenizer.special, [[one.ids] for one in self.chosen], longest, size=rows
        )
        batch["predict_positions"] = np.zeros((rows, 2), np.int32)
        for row, one in enumerate(self.chosen):
            batch["predict_positions"][row, : len(one.places)] = one.places
        mine = sharding.local_rows(rows, mesh)
        self.batch = sharding.place({key: value[mine] for key, value in batch.items()}, rows, mesh)
        of_one = network.Network(model, tokenizer.size, ((head, 0),))

        def likeliest(params: Any, batch: Batch) -> tuple[jax.Array, jax.Array]:
            logits = network.outputs(of_one, params, batch)[
                head
            ]  # [B, slots, V], or of every column
            if head == "causal_lm":
                logits = jnp.take_along_axis(logits, batch["predict_positions"][..., None], axis=1)
            return jax.lax.top_k(
                jax.nn.softmax(logits, axis=-1), min(TOP, tokenizer.size)
            )  # [B, slots, TOP]

        self.likeliest = jax.jit(likeliest, out_shardings=sharding.replicated(mesh))

    def __call__(self, params: Any) -> list[dict[str, Any]]:
        """A row of samples.jsonl for each sentence, the likeliest tokens of each of its masks first."""
        values, ids = sharding.to_host(self.likeliest(params, self.batch))
        return [
            {
                "text": one.text,
                "answers": one.answers,
                "predictions": [
                    [
                        {"token": self.vocab[i], "probability": round(float(p), 6)}
                        for p, i in zip(*slot, strict=True)
                    ]
                    for slot, _ in zip(
                        zip(of_values, of_ids, strict=True), one.places, strict=False
                    )
                ],
            }
            for one, of_values, of_ids in zip(self.chosen, values, ids, strict=False)
        ]


def of(config: knobs.Config, prepared: Prepared, mesh: Mesh) -> Samples | None:
    """Those of a run, if it asks for any and has a head that says words."""
    head = next((name for name in ("causal_lm", "mlm") if name in config.objectives), "")
    if not (head and config.logging.samples and "validation" in config.evals):
        return None
    chosen = choose(
        prepared.splits["validation"],
        prepared.tokenizer,
        config.logging.samples,
        config.sequence_length - 2,
        seed=config.evals["validation"].seed,
        causal=head == "causal_lm",
    )
    if not chosen:
        return None  # no held-out sentence has two tokens
    return Samples(config.model, prepared.tokenizer, chosen, head, mesh)


# --- which ----------------------------------------------------------------------------------------------------------


def choose(
    shards: Sequence[Shard], tokenizer: Tokenizer, count: int, room: int, *, seed: int, causal: bool
) -> list[Sample]:
    """Up to `count` sentences that differ, of a length that is easily read as far as there are such."""
    make = _beginning if causal else _masked
    found: dict[str, Sample] = {}
    seen: set[tuple[int, ...]] = set()
    several = list(_drawn(shards, TRIES * count, seed))
    for number, ids in sorted(
        several, key=lambda one: max(SHORT - len(one[1]), len(one[1]) - LONG, 0)
    ):
        if len(found) < count and len(ids) > 1 and tuple(ids) not in seen:
            seen.add(tuple(ids))
            one = make(ids[:room], tokenizer, order.key(seed, _CHOICE, number))
            found.setdefault(one.text, one)
    return list(found.values())


def _drawn(shards: Sequence[Shard], most: int, seed: int) -> Iterator[tuple[int, list[int]]]:
    """Sentences in a random order, with their numbers."""
    ends = np.cumsum([0, *(len(shard.sentence_ends) for shard in shards)])
    total = int(ends[-1])
    for number in order.permute(
        np.arange(min(most, total)), total, order.key(seed, _CHOICE)
    ).tolist():
        at = int(np.searchsorted(ends, number, side="right")) - 1
        shard, index = shards[at], number - int(ends[at])
        start = int(shard.sentence_ends[index - 1]) if index else 0
        yield number, np.asarray(shard.tokens[start : int(shard.sentence_ends[index])]).tolist()


def _masked(ids: list[int], tokenizer: Tokenizer, key: int) -> Sample:
    """One or two of the words that are one token masked; of a sentence without such words, any tokens."""
    wanted = 2 if len(ids) >= TWO else 1
    words = [
        at
        for at in range(len(ids))
        if _whole(ids, at, tokenizer) and tokenizer.vocab[ids[at]].isalpha()
    ]
    places = words if len(words) >= wanted else list(range(len(ids)))
    picked = sorted(places[n] for n in order.permute(np.arange(wanted), len(places), key))
    hidden = [tokenizer.special.mask if at in picked else token for at, token in enumerate(ids)]
    answers = [tokenizer.vocab[ids[at]] for at in picked]
    return Sample(
        hidden, [at + 1 for at in picked], tokenizer.written(hidden), answers
    )  # after [CLS]


def _beginning(ids: list[int], tokenizer: Tokenizer, key: int) -> Sample:
    """The sentence up to some word about its middle."""
    middle = range(max(1, len(ids) // 3), max(2, len(ids) * 2 // 3))
    places = [at for at in middle if not tokenizer.continuation[ids[at]]] or list(middle)[:1]
    at = places[int(order.permute(np.arange(1), len(places), key)[0])]
    before = ids[:at]
    return Sample(before, [at], f"{tokenizer.written(before)} {BLANK}", [tokenizer.vocab[ids[at]]])


def _whole(ids: list[int], at: int, tokenizer: Tokenizer) -> bool:
    """Whether a word is this token alone."""
    rest = tokenizer.continuation[ids[at + 1]] if at + 1 < len(ids) else False
    return not (tokenizer.continuation[ids[at]] or rest)
