"""Words that a page explains on hover, on keyboard focus and on touch."""

from __future__ import annotations

import re
from html import escape

from bert_jax.reporting.formats import SPACE

WORDS = {  # as they stand on a page -> what they mean
    "nats": "The unit of a loss: at x nats the right answer has the probability exp(-x), in the "
    "geometric mean. 0.69 nats are one bit.",
    "the unigram": "What can be had without reading any context: each token is predicted by how "
    "often it occurs in the training text. A model that is not below it has learnt nothing of "
    "context yet.",
    "the most frequent token": "The accuracy of always predicting the one token that is most "
    "frequent in the training text.",
    "the majority": "The accuracy of always answering with the larger, or largest, class.",
    "the base rate": "What can be had without reading: each token is given, as the probability of "
    "being replaced, the share of tokens that are.",
    "chance": "What guessing reaches, with the same probability for each class.",
    f"95{SPACE}% interval": "The examples are a sample; the accuracy of this model over all such "
    "examples is not known. Of intervals made in this way from many samples, 95 in 100 hold it "
    "(Wilson's interval of a proportion). What another seed would give is not in it.",
}
LEDGER = (
    "Counts of what masking really did to the text, beside what the config asks for. Training "
    "stops where the two differ by more than sampling allows."
)
SERVED = (
    "The checkpoint that evaluate, predict, inspect and export open when they are given this run: "
    "the best of those kept, else the latest."
)
_WORDS = re.compile("|".join(map(re.escape, sorted(WORDS, key=len, reverse=True))))


def term(words: str, meaning: str) -> str:
    """Write words with what they mean as HTML; plain where there is no meaning."""
    if not meaning:
        return escape(words)
    return f'<span class="term" tabindex="0" data-means="{escape(meaning)}">{escape(words)}</span>'


def explain(text: str) -> str:
    """Write a text as HTML in which the WORDS say what they mean, each where it comes first."""
    parts, seen, end = [], set(), 0
    for found in _WORDS.finditer(text):
        if found[0] not in seen:
            seen.add(found[0])
            parts += [escape(text[end : found.start()]), term(found[0], WORDS[found[0]])]
            end = found.end()
    return "".join([*parts, escape(text[end:])])
