"""Numbers of the reports of committed studies, as `bert-jax study report` writes them again.

Wording may change, numbers may not. Of a table, every row is kept under the words of its first cell
as lists of the numbers of its other cells, where "*" marks a cell in bold or said to be
significant. Of the text under a heading of the summary, the numbers are kept in the order of their
size, and how often each verdict is given. Figures are left out.
"""

import csv
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from tests.net.train_rows import ROOT, print_here

PAGES = ("masking_laws", "pretrain_mini", "best_rate")  # whose cells are kept in records
SUMMARIES = ("schedule", "masking_rate", "corruption_vs_prediction", "next_sentence")  # in tables
STUDIES = (*PAGES, *SUMMARIES)
QUICK = ("masking_laws",)  # the others take 3 to 12 seconds each
VERDICTS = ("not replicated", "replicated", "underpowered")
OF_A_RUN = ("Conditions", "State and cost", "Cost", "Origin", "Config", "Notes", "How to read this")
SKIPPED = ("svg", "script", "style", "title")
BEGINS = {
    "table": "\n",
    "tr": "\n|",
    "b": "**",
    "strong": "**",
}  # element -> what it is in Markdown
BEGINS |= dict.fromkeys(("h1", "h2", "h3"), "\n# ")
ENDS = {"td": " |", "th": " |", "table": "\n\n"} | dict.fromkeys(("h1", "h2", "h3"), "\n")
NUMBER = re.compile(r"(?<![\w.,])([+\-\u2212]?)(\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)")
Numbers = dict[str, Any]


def write_report(name: str, folder: Path) -> Path:
    """Copy a committed study without its summary, and write its report again."""
    place = folder / name
    beside = ROOT / "experiments" / name
    shutil.copytree(
        beside,
        place,
        ignore=shutil.ignore_patterns("*.png", "summary.md", "differences.csv", "*.html"),
    )
    print_here(["study", "report", f"--workdir={place}"])
    return place


def measure(name: str, folder: Path) -> Numbers:
    """Return the numbers of the report of a study: of its summary, and of its page."""
    place = write_report(name, folder)
    found = read_summary((place / "summary.md").read_text(encoding="utf-8"))
    if name in PAGES:
        page = read_page((place / "report.html").read_text(encoding="utf-8"))
        found |= {f"page, {name}": numbers for name, numbers in page.items()}
    return found


def read_table(path: Path) -> dict[str, dict[str, Any]]:
    """Return the rows of differences.csv by their names, numbers as numbers."""
    with path.open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    named = ("metric", "family", "point", "baseline")
    return {
        "; ".join(row[name] for name in named): {name: _value(row[name]) for name in row}
        for row in rows
    }


def read_summary(text: str) -> Numbers:
    """Return the numbers of summary.md."""
    sections = Sections()
    table = False
    for line in map(str.strip, text.splitlines()):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("#"):
            sections.begin(line.strip("# "))
        elif not line.startswith("|"):
            sections.add_text(line)
        elif not table:
            sections.begin_table(cells)
        elif not set(line) <= set("|-: "):
            sections.add_row(cells)
        table = line.startswith("|")
    return sections.numbers()


class Sections:
    """Numbers by heading, gathered line by line."""

    def __init__(self) -> None:
        self._found: Numbers = {}
        self._texts: dict[str, str] = {}
        self._table: Numbers = {}
        self.begin("")

    def begin(self, heading: str) -> None:
        """Begin the section of a heading."""
        self._heading = heading

    def begin_table(self, cells: list[str]) -> None:
        """Begin a table by the cells of its head."""
        self._table = {}
        name = f"{self._heading}: {cells[0]}" if self._heading else cells[0]
        if self._heading not in OF_A_RUN:
            self._found[_free(name, self._found)] = self._table

    def add_row(self, cells: list[str]) -> None:
        """Add the cells of a row of the table."""
        name = cells[0].strip("* ")
        self._table[_free(name, self._table)] = [_cell(cell) for cell in cells[1:]]

    def add_text(self, text: str) -> None:
        """Add text to the section."""
        self._texts[self._heading] = f"{self._texts.get(self._heading, '')} {text}"

    def numbers(self) -> Numbers:
        """Return the tables, and the numbers of the text of each section that has some."""
        found = {name: rows for name, rows in self._found.items() if rows}
        for heading, text in self._texts.items():
            told = {"numbers": sorted(_numbers(text)), **_verdicts(text)}
            if heading not in OF_A_RUN and any(told.values()):
                found[f"{heading}: text"] = told
        return found


class Page(HTMLParser):
    """The headings, tables and text of a page as lines of Markdown, without figures and scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self._skipped = 0  # elements around the text that are not read

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin an element."""
        self._skipped += tag in SKIPPED
        self.text += BEGINS.get(tag, "")

    def handle_endtag(self, tag: str) -> None:
        """End an element."""
        self._skipped -= tag in SKIPPED
        self.text += ENDS.get(tag, "")

    def handle_data(self, data: str) -> None:
        """Read text."""
        if not self._skipped:
            self.text += re.sub(r"\s+", " ", data)


def read_page(page: str) -> Numbers:
    """Return rows by the first cells of head and row, and the decimals of the text, once each.

    Where tables and paragraphs stand on the page does not matter.
    """
    reader = Page()
    reader.feed(page)
    rows: dict[str, list[Any]] = {}
    decimals: set[float] = set()
    for name, found in read_summary(reader.text).items():
        if name.endswith(": text"):
            decimals |= {number for number in found["numbers"] if number % 1}
            continue
        head = name.rpartition(": ")[2].partition(" (")[0]
        for label, cells in found.items():
            rows.setdefault(f"{head}: {label.partition(' (')[0]}", []).append(cells)
    for cells in rows.values():
        cells.sort(key=json.dumps)
    return rows | {"text": sorted(decimals)}


def _cell(text: str) -> list[Any]:
    """Return the numbers of a cell, and a mark where it is in bold or said to be significant."""
    bold = "**" in text or ("significant" in text and "not significant" not in text)
    verdicts = [word for word in VERDICTS if re.search(rf"(?<!not ){word}", text)]
    return [*_numbers(text), *(["*"] if bold else []), *verdicts]


def _numbers(text: str) -> list[float]:
    """Return the numbers in a text in order; those that are parts of names do not count."""
    found = []
    for sign, digits in NUMBER.findall(text.replace("*", " ")):
        value = float(digits.replace(",", ""))
        found.append(-value if sign in ("-", "\u2212") else value)
    return found


def _verdicts(text: str) -> dict[str, int]:
    """Return how often each verdict is given in a text."""
    counts = {word: len(re.findall(rf"(?<!not ){word}", text)) for word in VERDICTS}
    return {word: count for word, count in counts.items() if count}


def _free(name: str, taken: Numbers) -> str:
    """Return a name that is not taken."""
    names = (name, *(f"{name} ({number})" for number in range(2, len(taken) + 3)))
    return next(name for name in names if name not in taken)


def _value(text: str) -> Any:
    """Return a field of a table as a number where it is one."""
    try:
        return float(text)
    except ValueError:
        return text
