"""Pairs cut as the tokenizers library cuts them, and rows that are Hugging Face's encodings."""

import json

from bert_jax.data import encoding, tokenizer


def test_pad_rows_equals_hugging_face_on_pairs(copies):
    vocabulary = copies / "vocab" / "bert_base_uncased_vocab.txt"
    found = tokenizer.load_tokenizer(vocabulary, max_word_length=100)
    file = copies / "golden_tokenization" / "bert_uncased_pairs.jsonl"
    pairs = [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]
    assert len(pairs) == 90
    for row in pairs:
        a, b = found.encode_batch([row["text_a"], row["text_b"]], escape=False)
        length = row["max_length"]
        texts = [encoding.truncate_pair(a, b, length - 3)]
        batch = encoding.pad_rows(found.special, texts, length)
        assert batch["tokens"][0].tolist() == row["input_ids"]
        assert batch["type_ids"][0].tolist() == row["token_type_ids"]
        assert batch["segment_ids"][0].tolist() == row["attention_mask"]
