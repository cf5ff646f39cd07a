"""A vocabulary of whole tokens, as of rxnfp: the matches of an expression in a chemical formula."""

from collections.abc import Sequence

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from bert_jax.data.tokenizer import Tokenizer

EXPRESSION = (
    r"(\[[^\]]+]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\(|\)|\.|=|#|-|\+|\\|\/|:|~|@|\?|>>?|\*|\$|"
    r"\%[0-9]{2}|[0-9])"
)


def build_tokenizer(vocab: Sequence[str]) -> Tokenizer:
    ids = {piece: i for i, piece in enumerate(vocab)}
    engine = tokenizers.Tokenizer(models.WordLevel(ids, unk_token="[UNK]"))
    engine.normalizer = normalizers.Strip()
    engine.pre_tokenizer = pre_tokenizers.Split(tokenizers.Regex(EXPRESSION), "isolated")
    engine.decoder = decoders.Fuse()
    return Tokenizer(engine)
