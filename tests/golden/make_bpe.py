"""Byte-level vocabularies of RoBERTa's kind and of ModernBERT's, and what transformers makes of 300
texts with each: tests/golden/bpe/.

Made on 2026-11-23 with Python 3.12, transformers 5.23.0, tokenizers 0.23.3. The vocabularies are
trained on PROSE. To make again (the tests need no transformers):

    python tests/golden/make_bpe.py
"""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

HERE = Path(__file__).parent
FOLDER = HERE / "bpe"
KINDS = ("roberta", "modernbert")
TEXTS = 300
LENGTH = 24  # tokens of a truncated text or pair
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
MODERN = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
RARE = (  # words that are sown into the texts
    *("café", "cafe\u0301", "naïve", "Ångström", "A\u030angstro\u0308m"),
    *("ﬁne", "Straße", "İstanbul"),
    *("今天天气很好。", "私は学生です", "한국어"),
    *("\u1112\u1161\u11ab", "Привет,", "мир!", "שלום", "سلام"),
    *("नमस्ते", "ไทย", "👩‍👩‍👧", "🙂🙂", "🇩🇪", "∑∂", "½", "٣", "Ⅷ"),
    *("\U0001d518\U0001d52b\U0001d526", "x²", "\u200b", "\ufeff"),
    *("I'm", "they'll", "we'd've", "'tis", "rock'n'roll", "O'Brien's", "it\u2019s", "don''t", "'S"),
    *("https://a.b/c?d=e&f#g", "x=[1,2]"),
    *("def f(a, *b):", "a\\b", "``x''", "--", "...", "3.14", "1,000"),
    *("user@host.org", "|||EMAIL|||", "<|endoftext|>", "[unused1]", "\x00\x01", "\x7f", "\u2028"),
    *("<mask>", "[MASK]", "</s>", "<s>", "[SEP]", "<pad>", "<mask>s", "un<mask>", "[CLS]ed"),
)
BLANKS = (*[" "] * 6, "", "  ", "   ", "\n", "\n\n", "\t", " \n ", "\u00a0", "      ")
PROSE = """
A masked language model hides a part of each sentence and learns to say what stood there before.
The share of the tokens that are hidden is the masking rate, and for many years it was fifteen
percent. When the rate is higher, the model sees less of the sentence but has more words to guess
in each step. "Which rate is best?" is a question that depends on the size of the model, the text
and the time. Small models like a low rate; large models, which have room to spare, learn well at
forty percent. Some of the hidden words are replaced by other words (10 %), and some are left as
they were (10 %). It isn't clear that this helps: the model can't know which of its words were
changed, so it must look. We'll see in the tables below that the differences are small, and that
seeds differ more than rates do. On the third day, 2,048 sentences were read in 16 batches of 128;
the loss went from 9.2 to 5.1. The old man walked along the river with his dog, and the dog ran
after the birds until it was dark. She said that they'd been there before, in the winter of 1999,
but nobody could find the house again. Words that begin with a blank are pieces of their own: "
the" is not "the", and " The" is neither. An encoder reads the whole sentence at once; a decoder
reads from left to right and writes what is next. Don't hide whole sentences, hide words; and
don't hide the same words twice if there are others left. He asked her: "What's the longest word
that you've ever seen in a book, not counting names of places?" For every token there is a number,
for every number there is a vector, and for every vector a meaning. The rain in the mountains had
stopped by the morning, so they packed their things and went on walking. If the text is short, the
model sees all of it; if it's long, the rest is cut off or read in windows. Training on more text
helps more than training longer on the same text, up to about four times over. There are languages
that write no blanks between words, and others that write marks above their letters.
"""


def main() -> None:
    sentences = [line for line in PROSE.split("\n") if line]
    write_roberta(FOLDER / "roberta", sentences)
    write_modern(FOLDER / "modernbert", sentences)
    load = transformers.AutoTokenizer.from_pretrained
    tokenizers = {
        kind: (load(FOLDER / kind), load(FOLDER / kind, add_prefix_space=True)) for kind in KINDS
    }
    for _, spaced in tokenizers.values():  # the class of tokenizer.json does not do it by itself
        spaced.backend_tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    assert isinstance(tokenizers["roberta"][0], transformers.RobertaTokenizer)
    draw = random.Random(0)
    texts = [text(draw, sentences) for _ in range(TEXTS)]
    rows = []
    for one, other in zip(texts, [*texts[1:], texts[0]], strict=True):
        answers = {kind: found(*both, one, other) for kind, both in tokenizers.items()}
        rows.append({"text": one, "pair": other, **answers})
    lines = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    (FOLDER / "texts.jsonl.gz").write_bytes(gzip.compress(lines.encode(), 9, mtime=0))


def found(tokenizer: Any, spaced: Any, one: str, other: str) -> dict[str, Any]:
    """What a tokenizer makes of a text, of a pair, of both where they are too long, and of words,
    each with a blank before it.
    """
    short: dict[str, Any] = {"truncation": "longest_first", "max_length": LENGTH}
    split: dict[str, Any] = {"is_split_into_words": True, "add_special_tokens": False}
    pair = tokenizer(one, other, return_token_type_ids=True)
    return {
        "text": tokenizer(one)["input_ids"],
        "pair": pair["input_ids"],
        "types": pair["token_type_ids"],
        "short": tokenizer(one, **short)["input_ids"],
        "short_pair": tokenizer(one, other, **short)["input_ids"],
        "offsets": tokenizer(one, return_offsets_mapping=True)["offset_mapping"][1:-1],
        "words": spaced(one.split(), **split)["input_ids"],
        "decoded": tokenizer.decode(tokenizer(one)["input_ids"]),
    }


def text(draw: random.Random, sentences: list[str]) -> str:
    """A part of a sentence, in which rare words and odd blanks are sown."""
    words = draw.choice(sentences).split()
    start = draw.randrange(len(words))
    words = words[start : start + draw.randint(1, 10)]
    for _ in range(draw.randint(0, 4)):
        words.insert(draw.randint(0, len(words)), draw.choice(RARE))
    parts = [part for word in words for part in (word, draw.choice(BLANKS))]
    return draw.choice(["", "", " ", "\n"]) + "".join(parts if draw.random() < 0.2 else parts[:-1])


def trained(sentences: list[str], size: int, specials: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=specials,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator([f" {sentence}" for sentence in sentences], trainer)
    return tokenizer


def write_roberta(folder: Path, sentences: list[str]) -> None:
    """vocab.json, merges.txt and tokenizer_config.json, with <mask> last as in RoBERTa's."""
    folder.mkdir(parents=True, exist_ok=True)
    model = json.loads(trained(sentences, 640, ROBERTA[:-1]).to_str())["model"]
    vocab = model["vocab"] | {"<mask>": len(model["vocab"])}
    (folder / "vocab.json").write_text(json.dumps(vocab, ensure_ascii=False) + "\n")
    merges = "".join(f"{first} {second}\n" for first, second in model["merges"])
    (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}")
    flags = {"lstrip": True, "rstrip": False, "normalized": False, "single_word": False}
    mask = {"__type": "AddedToken", "content": "<mask>", "special": True, **flags}
    stated = {"tokenizer_class": "RobertaTokenizer", "add_prefix_space": False, "mask_token": mask}
    (folder / "tokenizer_config.json").write_text(json.dumps(stated, indent=1) + "\n")


def write_modern(folder: Path, sentences: list[str]) -> None:
    """tokenizer.json and tokenizer_config.json: NFC, added runs of blanks, specials at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = trained(sentences, 600, ["|||EMAIL|||", "<|padding|>"])
    tokenizer.normalizer = normalizers.NFC()
    state = json.loads(tokenizer.to_str())
    size = len(state["model"]["vocab"])
    del state["added_tokens"][0]["special"]
    state["added_tokens"][0] |= {"special": False, "normalized": True}
    plain = ["<|endoftext|>", *(" " * n for n in range(24, 1, -1)), *MODERN]
    plain += [f"[unused{n}]" for n in range(3)]
    for number, name in enumerate(plain, size):
        special = name in MODERN or name.startswith("<|")
        flags = {"single_word": False, "rstrip": False, "lstrip": name == "[MASK]"}
        flags |= {"normalized": not special, "special": special}
        state["added_tokens"].append({"id": number, "content": name, **flags})
    ids = {name: size + plain.index(name) for name in MODERN}
    first = [piece("[CLS]"), sequence("A"), piece("[SEP]")]
    state["post_processor"] = {
        "type": "TemplateProcessing",
        "single": first,
        "pair": [*first, sequence("B", 1), piece("[SEP]", 1)],
        "special_tokens": {
            name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in ("[CLS]", "[SEP]")
        },
    }
    state["decoder"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}
    state["decoder"]["use_regex"] = True
    (folder / "tokenizer.json").write_text(json.dumps(state, ensure_ascii=False) + "\n")
    stated = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
        **{f"{name.strip('[]').lower()}_token": name for name in MODERN},
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(stated, indent=1) + "\n")


def piece(name: str, kind: int = 0) -> dict[str, Any]:
    return {"SpecialToken": {"id": name, "type_id": kind}}


def sequence(name: str, kind: int = 0) -> dict[str, Any]:
    return {"Sequence": {"id": name, "type_id": kind}}


if __name__ == "__main__":
    main()
