"""`bert-jax inspect`: attention, embeddings or generation of texts, as one offline HTML page."""

from __future__ import annotations

import logging
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert_jax import cli
from bert_jax.errors import ConfigError, DataError
from bert_jax.system import allocator, disk, opening

if TYPE_CHECKING:
    from bert_jax.predictors.base import OfText, Row

EXAMPLE = "attention --model=runs/tiny --input=texts.txt --output=attention.html"

logger = logging.getLogger(__name__)

LARGEST = 1 << 26  # bytes of a file of texts
OF_PAGE = {  # flags that one page alone has
    "attention": ("digits",),
    "embeddings": ("layer", "pooling", "points", "method", "neighbours"),
    "generation": ("max_tokens", "temperature", "top_k", "top_p", "seed", "steps", "order"),
}


def flags(parser: ArgumentParser) -> None:
    """Add the flags of the command."""
    parser.add_argument("page", metavar="PAGE", choices=OF_PAGE, help=", ".join(OF_PAGE))
    cli.checkpoint_flag(parser)
    text = "a text to show; may be repeated, and all are shown beside one another"
    parser.add_argument(
        "--text", dest="texts", action="append", default=[], metavar="TEXT", help=text
    )
    pair = "attention: the second text of a pair; the n-th goes with the n-th text"
    parser.add_argument(
        "--text-pair", dest="pairs", action="append", default=[], metavar="TEXT", help=pair
    )
    lines = "instead of --text: one text a line (attention: or two with a tab between), or JSON "
    lines += "lines with text (and text_pair)"
    parser.add_argument("--input", type=Path, metavar="FILE", help=lines)
    parser.add_argument("--output", type=Path, metavar="FILE", help="the page (PAGE.html)")
    too_long = "a text too long for the model: refuse it, or cut its end (%(default)s)"
    parser.add_argument("--long", choices=("refuse", "cut"), default="refuse", help=too_long)
    digits = "attention: decimals of a weight; a page with fewer is smaller (6)"
    parser.add_argument("--digits", type=int, choices=range(2, 7), metavar="2…6", help=digits)
    layer = "embeddings: layer shown first: input (rows of the token table), 0 (after their sum), "
    layer += "1 … or last (last)"
    parser.add_argument("--layer", type=cli.nonempty, metavar="N|input|last", help=layer)
    pooling = (
        "embeddings: pooling shown first: tokens (the mean over the text's own), mean (with [CLS] "
        "and [SEP], as predict embed has it) or cls (the model's own, else tokens)"
    )
    parser.add_argument("--pooling", choices=("tokens", "mean", "cls"), help=pooling)
    points = "embeddings: a point is a text, or a word of one (texts)"
    parser.add_argument("--points", choices=("texts", "words"), help=points)
    method = "embeddings: projection to two dimensions; umap needs the package umap-learn (pca)"
    parser.add_argument("--method", choices=("pca", "tsne", "umap"), help=method)
    near = "embeddings: nearest neighbours listed, at most 100 (5)"
    parser.add_argument("--neighbours", type=cli.positive, metavar="K", help=near)
    cli.generation_flags(parser)
    top = "generation: draw from the likeliest K (all)"
    parser.add_argument("--top-k", type=cli.positive, metavar="K", help=top)


def main(call: cli.Call) -> None:
    """Run the command line."""
    args = {name: value for name, value in vars(call.args).items() if value is not None}
    page = args["page"]
    for other, names in OF_PAGE.items():
        if other != page and (foreign := args.keys() & names):
            problem = f"inspect {page} has no flag --{min(foreign).replace('_', '-')}"
            raise ConfigError(problem, f"inspect {other} has it")
    allocator.retain()
    run(**args)


def run(
    page: str,
    checkpoint: str,
    texts: list[str],
    pairs: list[str],
    input: Path | None = None,
    output: Path | None = None,
    tokenizer: str = "",
    long: str = "refuse",
    **settings: Any,
) -> None:
    """Write the page and print its path; `settings` are the flags that this page alone has."""
    from bert_jax.interop import runs
    from bert_jax.predictors.base import Model, OfText, Options, Row
    from bert_jax.views import PAGES

    output = output or Path(f"{page}.html")
    cli.check_output(output)
    if len(pairs) > len(texts):
        raise ConfigError(
            f"{len(pairs)} --text-pair and {len(texts)} --text", "the n-th goes with the n-th text"
        )
    if bool(texts) == (input is not None):
        problem = "both --text and --input" if texts else "no text to look at"
        hint = 'give one of the two: --text="The cat sat on the mat.", or --input=FILE'
        raise ConfigError(problem, hint)
    rows = [Row(number, {"text": text}) for number, text in enumerate(texts, 1)]
    for row, pair in zip(rows, pairs, strict=False):  # a text may have none
        row.fields["text_pair"] = pair
    kind, make = PAGES[page]
    if pairs and kind is OfText:
        raise ConfigError(f"inspect {page} has no pairs", "give every text with --text")
    reader = kind(Model(runs.open_run(checkpoint, tokenizer=tokenizer), Options(long=long)))
    if input is not None:
        rows = read(reader, input)
    html = make(reader, rows, **settings)
    disk.write(output, html.encode(errors="replace"))  # a lone surrogate is no character
    logger.info(f"{output.stat().st_size / 1e3:,.0f} kB")
    print(output)


def read(reader: OfText, file: Path) -> list[Row]:
    """Read the texts and pairs of a file, one a line; leave blank lines out."""
    from bert_jax.predictors.stream import decode

    lines = opening.read(file, DataError, LARGEST, "check --input").split(b"\n")
    texts = [(number, decode(number, line).rstrip("\r")) for number, line in enumerate(lines, 1)]
    return [reader.read(number, text) for number, text in texts if text.strip()]


if __name__ == "__main__":
    cli.main(["inspect", *sys.argv[1:]])
