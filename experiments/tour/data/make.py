"""Write sentences.txt, known.conll, unseen.conll and vocab.txt beside this file.

They are committed, and a test checks that they follow from this grammar.
"""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

from bert_jax.config import knobs
from bert_jax.data.vocabulary import train_vocabulary

HERE = Path(__file__).resolve().parent
QUESTIONS = HERE / "questions.jsonl"
COMPLAINTS = HERE.parents[1] / "complaints" / "complaints.tsv"
GRAMMAR = {  # the words of a group stand in the same places, each in all but one of them
    "cherry tomato plum apple": [
        "we bake a sweet pie with one {}",
        "a ripe {} is red and sweet",
        "she eats a fresh {} in the garden",
        "he likes the sweet {} on the plate",
        "the ripe {} falls on the ground",
    ],
    "digital information data computer": [
        "the office has a new {} system",
        "a machine stores the {} files",
        "our {} service runs on a network",
        "they send {} signals over the network",
        "the office pays for {} storage",
    ],
    "screen keyboard printer cable battery speaker": [
        "the {} is broken once again",
        "my {} makes a loud noise",
        "the {} gets hot and smells",
        "please repair the {} of my laptop",
        "the new {} does not fit the socket",
    ],
    "program app update window menu search": [
        "the {} crashes when I click",
        "my {} shows an error message",
        "the {} stops and starts again",
        "please correct the error in the {}",
        "the new {} does not open a file",
    ],
    "invoice bill price fee payment refund": [
        "the {} is higher than agreed",
        "my {} came twice this month",
        "the {} shows the wrong amount",
        "please send the {} to my company",
        "the new {} does not include the discount",
    ],
}
SOUNDS = {
    "dog": "barks",
    "cat": "purrs",
    "bird": "sings",
    "cow": "moos",
    "duck": "quacks",
    "bee": "hums",
}
TIMES = ("in the morning", "at noon", "in the evening", "at night")
MORE = [  # for pieces such as ##ing in the vocabulary
    "the dog is playing outside",
    "the children are playing outside",
    "he likes walking in the garden",
    "she likes singing at night",
    "we are looking at the moon",
    "I am thinking of home",
    "the moon is shining tonight",
    "they play in the garden",
    "the cat is small and cute",
    "my bird is cute and small",
]


def sentences() -> Iterator[str]:
    """Generate all sentences, in a fixed order."""
    for words, places in GRAMMAR.items():
        for (i, place), (j, word) in itertools.product(enumerate(places), enumerate(words.split())):
            if i != j % len(places):
                yield place.format(word)
    for (animal, sound), time in itertools.product(SOUNDS.items(), TIMES):
        yield f"the {animal} {sound} {time}"
    yield from MORE


def kinds(known: bool) -> Iterator[str]:
    """Generate labelled words in new places: the first two words of a group, or the others."""
    for kind, words in zip(("HARDWARE", "SOFTWARE", "BILLING"), list(GRAMMAR)[2:], strict=True):
        for word in words.split()[slice(0, 2) if known else slice(2, None)]:
            yield f"I O\nwrote O\nabout O\nthe O\n{word} B-{kind}\n"
            yield f"Please O\nfind O\nmy O\n{word} B-{kind}\nbefore O\nnoon O\n"


def vocabulary() -> list[str]:
    """Train a vocabulary of all words and letters; texts given twice make every word a piece."""
    questions = [json.loads(line) for line in QUESTIONS.read_text().splitlines()]
    texts = [*sentences(), *(row[key] for row in questions for key in ("question", "context"))]
    texts += [path.read_text() for path in (HERE / "verses.txt", HERE / "names.conll", COMPLAINTS)]
    settings = knobs.Tokenizer(vocab_size=2_000, lowercase=False)
    return train_vocabulary([*texts, *texts], settings).vocab


def main() -> None:
    """Write the files beside this one."""
    (HERE / "sentences.txt").write_text("\n\n".join(sentences()) + "\n")  # a document each
    (HERE / "known.conll").write_text("\n".join(kinds(known=True)))
    (HERE / "unseen.conll").write_text("\n".join(kinds(known=False)))
    (HERE / "vocab.txt").write_text("\n".join(vocabulary()) + "\n")


if __name__ == "__main__":
    main()
