"""`bert-jax inspect`: attention, embeddings or generation of texts, as one offline HTML page."""

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert_jax import cli
from bert_jax.errors import ConfigError, DataError
from bert_jax.predictors.options import REFUSED, WAYS, WRITING, Options
from bert_jax.system import allocator, disk, opening
from bert_jax.system.arguments import Part
from bert_jax.views import PAGES
from bert_jax.views.options import MapOptions

if TYPE_CHECKING:
    from bert_jax.predictors.base import Line, OfText

EXAMPLE = "attention --model=runs/demo --input=texts.txt --output=attention.html"

LARGEST = 1 << 26  # bytes of a file of texts


def part(name: str) -> Part:
    """Describe a page for its --help: its purpose, its input and its output."""
    page = PAGES[name]
    takes = "\n  ".join(("input: --text, or lines of a file:", *page.takes))
    gives = "output: one offline HTML page; its path is printed, on a terminal in a sentence"
    return Part(page.does, "--model=runs/demo --input=texts.txt", f"{takes}\n\n{gives}")


def add_flags(parser: cli.Parser) -> None:
    """Add the flags of the command."""
    parser.add_parts("page", {name: part(name) for name in PAGES})
    cli.add_checkpoint_flag(parser)
    text = "a text to show; may be repeated, and all are shown beside one another"
    parser.add_argument(
        "--text", dest="texts", action="append", default=[], metavar="TEXT", help=text
    )
    pair = {"attention": "the second text of a pair; the n-th goes with the n-th text"}
    parser.add_for(pair, "--text-pair", dest="pairs", action="append", default=[], metavar="TEXT")
    lines = "instead of --text: a text in each line; blank lines are left out"
    parser.add_argument("--input", type=cli.read_path, metavar="FILE", help=lines)
    parser.add_argument("--output", type=cli.read_path, metavar="FILE", help="the page (PAGE.html)")
    too_long = dict.fromkeys(PAGES, f"{WAYS} (%(default)s)")
    too_long["generation"] = REFUSED
    parser.add_for(too_long, "--long", choices=("refuse", "cut"), default="refuse")
    cli.add_option_flags(parser, dataclasses.fields(MapOptions))
    cli.add_option_flags(parser, WRITING, {"generate": "generation"})


def main(call: cli.Call) -> None:
    """Run the command line."""
    allocator.retain_memory()
    run(**{name: value for name, value in vars(call.args).items() if value is not None})


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
    """Write the HTML page and print its path.

    `settings` has the flags that only this page has.
    """
    from bert_jax.interop import runs
    from bert_jax.predictors.base import AskedModel, Line

    output = output or Path(f"{page}.html")
    disk.check_output(output)
    if len(pairs) > len(texts):
        raise ConfigError(
            f"{len(pairs)} --text-pair and {len(texts)} --text", "the n-th goes with the n-th text"
        )
    if bool(texts) == (input is not None):
        problem = "both --text and --input" if texts else "no text to look at"
        hint = 'give one of the two: --text="The cat sat on the mat.", or --input=FILE'
        raise ConfigError(problem, hint)
    rows = [Line(number, {"text": text}) for number, text in enumerate(texts, 1)]
    for row, pair in zip(rows, pairs, strict=False):  # a text may have none
        row.fields["text_pair"] = pair
    kind, make = PAGES[page].find_maker()
    reader = kind(AskedModel(runs.open_run(checkpoint, tokenizer=tokenizer), Options(long=long)))
    if input is not None:
        rows = read_lines(reader, input)
    html = make(reader, rows, **settings).encode(errors="replace")
    disk.write_output(output, html)
    said = f"The page is {output} ({len(html) / 1e3:,.0f} kB): open it in a browser."
    print(said if cli.prints_for_people("") else output)


def read_lines(reader: "OfText", file: Path) -> "list[Line]":
    """Read the texts and pairs of a file, one a line; skip blank lines."""
    from bert_jax.predictors.stream import decode_line, warn_of_replaced

    lines = opening.read_file(file, DataError, LARGEST, "check --input").split(b"\n")
    texts = [
        (number, decode_line(number, line).rstrip("\r")) for number, line in enumerate(lines, 1)
    ]
    warn_of_replaced(sum("\ufffd" in text for _, text in texts))
    return [reader.read(number, text) for number, text in texts if text.strip()]


if __name__ == "__main__":
    cli.main(["inspect", *sys.argv[1:]])
