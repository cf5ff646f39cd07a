"""Looks into a trained model: what it makes of texts, as one page to read offline."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bert_jax import predict, runs
from bert_jax.errors import ConfigError, DataError
from bert_jax.predictors.base import Model, OfText, Options, Row
from bert_jax.views import embeddings

PAGES: dict[str, Callable[..., str]] = {"embeddings": embeddings.page}  # (asking, rows, **options) -> HTML


def run(
    page: str,
    model: str,
    texts: list[str],
    input: Path | None,
    output: Path,
    tokenizer: str = "",
    long: str = "refuse",
    **options: Any,
) -> None:
    """`bert-jax inspect`: the page's path on standard output; `options` are those of the page."""
    if not texts and input is None:
        raise ConfigError("no texts given", "--text=TEXT, as often as there are texts, or --input=FILE")
    if texts and input is not None:
        raise ConfigError("both --text and --input given", "leave one of them out")
    asking = OfText(Model(runs.open_run(model, tokenizer=tokenizer), Options(long=long)))
    rows = [Row(i, {"text": text}) for i, text in enumerate(texts, 1)] if input is None else list(read(asking, input))
    made = PAGES[page](asking, rows, **options)
    try:
        output.write_bytes(made.encode())
    except OSError as error:
        raise ConfigError(f"cannot write {str(output)!r}: {error.strerror}", "choose another --output") from error
    print(output)


def read(asking: OfText, file: Path) -> Iterator[Row]:
    """The texts of a file, one a line or as JSON lines; blank lines are none."""
    if file.is_dir() or not file.exists():
        raise DataError(f"no file {file}", "name one with a text a line, or JSON lines with a text")
    for number, line in enumerate(file.read_bytes().split(b"\n"), 1):
        text = predict.decode(number, line).rstrip("\r")
        if text.strip():
            yield asking.read(number, text)


if __name__ == "__main__":
    from bert_jax import cli

    cli.main(["inspect", *sys.argv[1:]])
