"""Pages for tests: what a page must hold to be one offline document, and runs to make pages of."""

from __future__ import annotations

import html.parser
import json
import re
from collections.abc import Sequence
from pathlib import Path

from bert_jax import config
from bert_jax.checkpoints import manifest

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&amp;"
VOID = {"meta", "br", "input", "img"}
BEST = {200: 5.0, 400: 4.5, 600: 4.75}  # validation loss by step


class Checker(html.parser.HTMLParser):
    """Every element is closed in order; what is loaded from elsewhere is listed."""

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.outside: list[str] = []
        self.text: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        loading = ("src", "href", "srcset", "data", "action")
        self.outside += [
            f"{tag} {k}={v}" for k, v in attrs if k in loading and not v.startswith("#")
        ]
        assert not any(k.startswith("on") for k, _ in attrs)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("style", "script"):
            self.text.append(data)


def read_page(source: str) -> str:
    """The words of a page that loads nothing, with plain spaces."""
    checked = Checker(source)
    assert checked.outside == []
    return " ".join(" ".join(checked.text).split())


def titles(source: str) -> list[str]:
    """The titles of figures, and of charts of one value, which are lines of text."""
    return re.findall(r"<(?:figcaption|p class=\"flat\"><b)>(?:<span [^>]*>)?([^<]+)<", source)


def figure(source: str, title: str) -> str:
    """The figure of a title."""
    found = re.findall("<figure.*?</figure>", source, re.DOTALL)
    return next(one for one in found if titles(one) == [title])


def read_figure(source: str, title: str) -> list[str]:
    """What the marks of a figure say."""
    readings = re.search("data-readings='([^']*)'", figure(source, title))[1]
    return [text for *_, text in json.loads(readings)]


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
