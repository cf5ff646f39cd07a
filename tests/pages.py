"""Pages for tests: what a page must hold to be one offline document, and runs to make pages of."""

import html.parser
import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from bert_jax import config
from bert_jax.checkpoints import manifest

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&amp;"
VOID = {"meta", "br", "input", "img"}
INLINE = {"a", "b", "bdi", "code", "i", "mark", "span", "sub"}
UNREAD = {"style", "script", "svg", "title", "nav"}
BEST = {200: 5.0, 400: 4.5, 600: 4.75}  # validation loss by step


class Reader(html.parser.HTMLParser):
    """Reads a page as lines: headings, paragraphs, rows of tables, and readings of figures.

    Every element is closed in order; what is loaded from elsewhere is listed. A cell begins with
    its classes, such as "best", and with its text on hover. Marked words and right answers are in
    double brackets.
    """

    def __init__(self, text: str):
        super().__init__()
        self.lines = [""]
        self.outside: list[str] = []
        self.open: list[str] = []
        self.marked: list[bool] = []  # of each open element
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        loading = ("src", "href", "srcset", "data", "action")
        found = [f"{tag} {k}={v}" for k, v in attrs if k in loading and not v.startswith("#")]
        self.outside += found
        assert not any(k.startswith("on") for k, _ in attrs)
        known = dict(attrs)
        if tag in ("td", "th"):
            kinds = [kind for kind in known.get("class", "").split() if kind not in ("n", "code")]
            self.lines[-1] += f" | {' '.join([*kinds, known.get('title', '')])} "
        elif tag not in INLINE:
            self.lines.append("")
        if tag not in VOID:
            self.open.append(tag)
            self.marked.append(tag == "mark" or known.get("class") == "right")
            self.lines[-1] += "[[" * self.marked[-1]
        self.lines += [text for *_, text in json.loads(known.get("data-readings", "[]"))]

    def handle_startendtag(self, tag, attrs):
        """Elements that hold nothing are not opened."""

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        self.lines[-1] += "]]" * self.marked.pop()

    def handle_data(self, data):
        if UNREAD.isdisjoint(self.open):
            self.lines[-1] += data


def read_lines(source: str) -> list[str]:
    """The lines of a page that loads nothing, with plain spaces."""
    read = Reader(source)
    assert read.outside == []
    return [" ".join(line.split()) for line in read.lines if line.strip()]


def read_page(source: str) -> str:
    """The words of a page that loads nothing."""
    return " ".join(read_lines(source))


def check_frozen(request: pytest.FixtureRequest, found: str | Sequence[str], name: str) -> None:
    """Lines, or those of a page, are those of a file in `frozen` beside the test, but for spaces.

    Of a page, knobs that a run does not set are left out. `--update-golden` writes the file.
    """
    if isinstance(found, str):
        shown = re.sub("<details><summary>All knobs.*?</details>", "", found, flags=re.S)
        found = [line for line in read_lines(shown) if "| null |" not in line]
    frozen = request.path.parent / "frozen" / f"{name}.txt"
    plain = [" ".join(line.split()) for line in found if line.strip()]
    if request.config.getoption("--update-golden"):
        frozen.parent.mkdir(exist_ok=True)
        frozen.write_text("".join(f"{line}\n" for line in plain))
    assert plain == frozen.read_text().split("\n")[:-1]


def keep_steps(folder: Path, kept: Sequence[tuple[int, float | None]]) -> None:
    """Give a run checkpoints that have a manifest with a metric, and no content."""
    for step, metric in kept:
        place = folder / "checkpoints" / str(step)
        place.mkdir(parents=True, exist_ok=True)
        manifest.write_manifest(place, step, metric)


def a_run(folder: Path, losses: dict[int, float] = BEST, steps: int = 600, **changes) -> Path:
    """A folder with a config, a line of training and an evaluation for each step."""
    tree = config.to_dict(config.resolve({"steps": steps, **changes}))
    lines = []
    for step, loss in losses.items():
        lines.append({"step": step, "time": step / 10, "train/loss": loss, "train/mlm_loss": loss})
        scores = {"mlm_loss": loss, "unigram_loss": 6.5, "mlm_accuracy": loss / 10}
        lines.append({"step": step, "time": step / 10})
        lines[-1] |= {f"eval/validation/{name}": value for name, value in scores.items()}
    return write_run(folder, tree, lines)


def write_run(folder: Path, recorded: dict, lines: list[dict], samples: list[dict] = ()) -> Path:
    """A folder with a config, lines of metrics and maybe samples."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(recorded))
    for name, rows in (("metrics.jsonl", lines), ("samples.jsonl", samples)):
        (folder / name).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder
