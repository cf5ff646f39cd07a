"""The published construction of training examples, stated again in plain Python.

What create_pretraining_data.py of google-research/bert (at eedf571) does to documents of tokenised
sentences, in words of our own and with nothing vectorised, so that it can be read beside the
original. Left out are its two shuffles, of documents and of instances: nothing that is compared
depends on an order.

`mode="sop"` is ALBERT's task with chunks of at least two sentences, as
`bert_jax.data.pairs` defines it.
"""

import random
from collections.abc import Container, Sequence
from typing import NamedTuple

from bert_jax.batch import Special

Sentences = Sequence[Sequence[int]]  # of a document


class Instance(NamedTuple):
    """One training example."""

    tokens: list[int]  # [CLS] A [SEP] B [SEP]
    segment_ids: list[int]
    inputs: list[int]  # the tokens after masking
    positions: list[int]  # of the predictions
    targets: list[int]
    label: int  # 1: B is random (sop: A and B are swapped); -1: no pair


class Masks(NamedTuple):
    """How predictions are made."""

    rate: float  # masked_lm_prob
    most: int  # max_predictions_per_seq
    vocabulary: int  # random tokens are any of its ids
    special: Special
    continues: Container[int] | None = None  # whole words: the ids that stand for ## pieces


def instances(
    documents: Sequence[Sentences],
    length: int,
    short: float,
    masks: Masks,
    rng: random.Random,
    mode: str = "nsp",
) -> list[Instance]:
    """One pass over the documents: one of the duplicates that dupe_factor counts."""
    found = []
    cls, sep = masks.special.cls, masks.special.sep
    for a, b, label in pairs(documents, length - 3, short, rng, mode):
        tokens = [cls, *a, sep]
        segment_ids = [0] * len(tokens)
        if b:
            tokens += [*b, sep]
            segment_ids += [1] * (len(b) + 1)
        found.append(Instance(tokens, segment_ids, *predictions(tokens, masks, rng), label))
    return found


def pairs(
    documents: Sequence[Sentences], limit: int, short: float, rng: random.Random, mode: str = "nsp"
) -> list[tuple[list[int], list[int], int]]:
    """A, B and the label of each example of one pass."""
    found = []
    for number, sentences in enumerate(documents):
        target = limit
        if rng.random() < short:
            target = rng.randint(2, limit)
        chunk: list[Sequence[int]] = []
        i = 0
        while i < len(sentences):
            chunk.append(sentences[i])
            long_enough = sum(map(len, chunk)) >= target and (mode == "nsp" or len(chunk) > 1)
            if i == len(sentences) - 1 or long_enough:
                cut = rng.randint(1, len(chunk) - 1) if len(chunk) > 1 else 1
                a = [token for sentence in chunk[:cut] for token in sentence]
                b = [token for sentence in chunk[cut:] for token in sentence]
                label = 0
                if mode == "nsp" and (len(chunk) == 1 or rng.random() < 0.5):
                    label = 1
                    for _ in range(10):  # ten tries to find another document
                        other = rng.randint(0, len(documents) - 1)
                        if other != number:
                            break
                    b = []
                    for sentence in documents[other][rng.randint(0, len(documents[other]) - 1) :]:
                        b += sentence
                        if len(b) >= target - len(a):
                            break
                    i -= len(chunk) - cut  # the sentences that B did not use are put back
                elif mode == "sop" and len(chunk) == 1:
                    label = -1
                elif mode == "sop" and rng.random() < 0.5:
                    a, b, label = b, a, 1
                truncate(a, b, limit, rng)
                found.append((a, b, label))
                chunk = []
            i += 1
    return found


def truncate(a: list[int], b: list[int], limit: int, rng: random.Random) -> None:
    """Takes tokens from the longer side, from its front or its back, until both fit."""
    while len(a) + len(b) > limit:
        longer = a if len(a) > len(b) else b
        longer.pop(0 if rng.random() < 0.5 else -1)


def quota(length: int, masks: Masks) -> int:
    """How many predictions an example may have; its length counts [CLS] and [SEP]."""
    return min(masks.most, max(1, round(length * masks.rate)))


def predictions(
    tokens: list[int], masks: Masks, rng: random.Random
) -> tuple[list[int], list[int], list[int]]:
    """The tokens after masking, the positions that are predicted, and the tokens there."""
    candidates: list[list[int]] = []
    for position, token in enumerate(tokens):
        if token in (masks.special.cls, masks.special.sep):
            continue
        if masks.continues is not None and candidates and token in masks.continues:
            candidates[-1].append(position)  # even where a [SEP] stands between the two
        else:
            candidates.append([position])
    rng.shuffle(candidates)
    inputs = list(tokens)
    room = quota(len(tokens), masks)
    positions: list[int] = []
    for word in candidates:
        if len(positions) >= room:
            break
        if len(positions) + len(word) > room:
            continue  # a word that does not fit is skipped
        for position in word:
            if rng.random() < 0.8:
                inputs[position] = masks.special.mask
            elif rng.random() < 0.5:
                inputs[position] = tokens[position]
            else:
                inputs[position] = rng.randint(0, masks.vocabulary - 1)
            positions.append(position)
    positions.sort()
    return inputs, positions, [tokens[position] for position in positions]
