"""Looks inside a trained model: texts in, one HTML page out that needs no network."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bert_jax.errors import ConfigError, DataError
from bert_jax.interop import runs
from bert_jax.predict import decode
from bert_jax.predictors.base import Model, OfText, Options, Row
from bert_jax.system import disk, opening
from bert_jax.views import attention, embeddings
from bert_jax.views.texts import Texts

LARGEST = 1 << 26  # bytes of a file of texts
# What reads and encodes a page's texts; and the page, of that, the rows, and flags of its own.
PAGES: dict[str, tuple[type[OfText], Callable[..., str]]] = {
    "attention": (Texts, attention.page),
    "embeddings": (OfText, embeddings.page),
}


def run(
    page: str,
    model: str,
    texts: list[str],
    pairs: list[str],
    input: Path | None,
    output: Path,
    tokenizer: str = "",
    long: str = "refuse",
    **settings: Any,
) -> None:
    """`bert-jax inspect`: writes the page, and its path on standard output; `settings` are those of the page."""
    if len(pairs) > len(texts):
        raise ConfigError(f"{len(pairs)} --text-pair and {len(texts)} --text", "the n-th goes with the n-th text")
    if bool(texts) == (input is not None):
        said = "both --text and --input" if texts else "no text to look at"
        raise ConfigError(said, 'give one of the two: --text="The cat sat on the mat.", or --input=FILE')
    given = [{"text": text} for text in texts]
    for fields, pair in zip(given, pairs, strict=False):  # a text may have none
        fields["text_pair"] = pair
    rows = [Row(number, fields) for number, fields in enumerate(given, 1)]
    kind, make = PAGES[page]
    if pairs and kind is OfText:
        raise ConfigError(f"inspect {page} has no pairs", "give every text with --text")
    reader = kind(Model(runs.open_run(model, tokenizer=tokenizer), Options(long=long)))
    if input is not None:
        rows = read(reader, input)
    html = make(reader, rows, **settings)
    disk.write(output, html.encode(errors="replace"))  # a lone surrogate is no character
    print(f"{output.stat().st_size / 1e3:,.0f} kB", file=sys.stderr)
    print(output)


def read(reader: OfText, file: Path) -> list[Row]:
    """The texts and pairs of a file, one a line; blank lines are left out."""
    lines = opening.read(file, DataError, LARGEST, "check --input").split(b"\n")
    texts = [(number, decode(number, line).rstrip("\r")) for number, line in enumerate(lines, 1)]
    return [reader.read(number, text) for number, text in texts if text.strip()]


if __name__ == "__main__":
    from bert_jax import cli

    cli.main(["inspect", *sys.argv[1:]])
