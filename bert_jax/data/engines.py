"""The `tokenizers` objects of a style, and google's rules of characters where it follows them."""

from __future__ import annotations

from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from bert_jax.config.data_knobs import VOCABULARIES
from bert_jax.data.characters import Rules, google
from bert_jax.data.vocabulary import GOOGLE, PREFIX, SPECIALS, Style


def build(ids: dict[str, int], style: Style, markup: bool = False) -> tokenizers.Tokenizer:
    """Build the tokenizers object; `markup` finds special tokens in text and adds [CLS], [SEP]."""
    expression = VOCABULARIES[style.kind]
    if expression is None:
        model: Any = models.WordPiece(
            ids,
            unk_token="[UNK]",
            max_input_chars_per_word=style.max_word_length,
            continuing_subword_prefix=PREFIX,
        )
        engine = tokenizers.Tokenizer(model)
        engine.normalizer = normalizer(style)
        engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        engine.decoder = decoders.WordPiece(prefix=PREFIX)
    else:  # an expression may match "[MASK]", so in plain text that must not be in the vocabulary
        hidden = set() if markup else {*SPECIALS} - {"[UNK]"}
        known = {piece: i for piece, i in ids.items() if piece not in hidden}
        engine = tokenizers.Tokenizer(models.WordLevel(known, unk_token="[UNK]"))
        engine.normalizer = normalizers.Strip()
        engine.pre_tokenizer = pre_tokenizers.Split(tokenizers.Regex(expression), "isolated")
        engine.decoder = decoders.Fuse()
    if markup:
        engine.add_special_tokens(list(SPECIALS))
        engine.post_processor = processors.BertProcessing(
            ("[SEP]", ids["[SEP]"]), ("[CLS]", ids["[CLS]"])
        )
    return engine


def rules(style: Style) -> Rules | None:
    """Return google's character rules for a style that follows them, else None."""
    if style.characters != GOOGLE:
        return None
    accents = style.lowercase if style.strip_accents is None else style.strip_accents
    return google(style.lowercase, accents, style.chinese)


def normalizer(style: Style) -> normalizers.BertNormalizer:
    """Return the library's normalizer of WordPiece's text."""
    return normalizers.BertNormalizer(
        clean_text=style.clean_text,
        handle_chinese_chars=style.chinese,
        strip_accents=style.strip_accents,
        lowercase=style.lowercase,
    )
