"""Building blocks of report pages: a document whole in one file for offline reading, and its parts.

They lie beside this module as page.html, page.css and page.js.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import re
import shlex
import string
from collections import defaultdict
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bert_jax import config as configs
from bert_jax.config import knobs
from bert_jax.config.table import find_knob
from bert_jax.errors import ConfigError, UserError
from bert_jax.reporting import palette, records
from bert_jax.reporting.run_record import subtree
from bert_jax.reporting.terms import explain, term
from bert_jax.system import disk

SAMPLES = 12  # sentences with predictions on a page
SEVERAL = 4  # sections of a page that has contents
UNFOLDED = 3  # sentences that are not folded
ACROSS = 6  # tiles in a row, at most


def asset(module: str, ending: str) -> str:
    """Read the style sheet (".css") or script (".js") beside a module, given its `__file__`."""
    return Path(module).with_suffix(ending).read_text(encoding="utf-8")


def fill(module: str, **parts: str) -> str:
    """Put HTML into the $names of the page (".html") beside a module."""
    return string.Template(asset(module, ".html")).substitute(parts)


STYLE = palette.write_css() + asset(__file__, ".css")
SCRIPT = asset(__file__, ".js")


def page(title: str, body: str, style: str = "", script: str = "") -> str:
    """Build a document that loads nothing; style and script add to those that all pages share."""
    parts = {"style": STYLE + style, "script": SCRIPT + script}
    return fill(__file__, title=escape(title), body=body, **parts)


def write(path: Path, html: str, named: bool = False) -> None:
    """Write a document in one move; a lone surrogate, which is no character, becomes a "?".

    A path that the user `named` may be a link or a device; a run's own folder holds neither.
    """
    save = disk.write_output if named else disk.write
    save(path, html.encode(errors="replace"))


def section(title: str, body: str, kind: str = "", about: str = "") -> str:
    """Put a heading over content; return an empty string if there is no content."""
    if not body:
        return ""
    content = f'<div class="{kind}">{body}</div>' if kind else body
    return f'\n<section id="{anchor(title)}"><h2>{term(title, about)}</h2>{content}</section>'


def anchor(title: str) -> str:
    """Name the place that links to a section lead to; controls of pages have other names."""
    return f"to-{re.sub(r'[^a-z0-9]+', '-', title.lower()).strip('-')}"


def contents(body: str) -> str:
    """Link to the sections of a page, if there are several."""
    found = re.findall(r'<section id="(.+?)">.*?<h2>(.*?)</h2>', body)
    links = [f'<a href="#{name}">{re.sub("<.*?>", "", title)}</a>' for name, title in found]
    return f'<nav class="contents">{" ".join(links)}</nav>' if len(links) >= SEVERAL else ""


def fold(heading: str, body: str) -> str:
    """Fold a body under a heading, both HTML; return an empty string if there is no body."""
    return f"<details><summary>{heading}</summary>{body}</details>" if body else ""


def table(
    rows: list[list[str]],
    head: list[str] | None = None,
    numbers: bool = False,
    about: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Format rows of plain text; the first column holds names, the others code or numbers.

    `about` says what names of rows and columns mean. Each cell also names its column, for style
    sheets that stack cells where there is little room.
    """
    kind = "n" if numbers else "code"
    columns = [f' data-head="{escape(name)}"' for name in (head or [])[1:]]

    def line(row: list[str]) -> str:
        cells = "".join(
            f'<td class="{kind}"{name}>{escape(cell)}</td>'
            for cell, name in itertools.zip_longest(row[1:], columns[: len(row) - 1], fillvalue="")
        )
        return f"<tr><td>{term(row[0], about.get(row[0], ''))}</td>{cells}</tr>"

    names = [
        f"<th{' class=n' if numbers and i else ''}>{term(name, about.get(name, ''))}</th>"
        for i, name in enumerate(head or [])
    ]
    top = f"<tr>{''.join(names)}</tr>" if names else ""
    return f'<div class="scroll"><table>{top}{"".join(map(line, rows))}</table></div>'


def tile(name: str, value: str, below: str = "", verdict: str = "", about: str = "") -> str:
    """Format one number of a page's head: name, value, explanation, and good news if any.

    `about` says what the name means.
    """
    text = f"<p>{explain(below)}{f'<b>{explain(verdict)}</b>' if verdict else ''}</p>"
    value = f"<strong>{escape(value)}</strong>"
    return f'<div class="tile"><div>{term(name, about)}</div>{value}{text}</div>'


def tiles(shown: list[str]) -> str:
    """Arrange tiles in rows of about equal length."""
    rows = math.ceil(len(shown) / ACROSS)
    columns = math.ceil(len(shown) / max(rows, 1))
    return f'<div class="tiles" style="--columns:{columns}">{"".join(shown)}</div>'


# --- predictions -------------------------------------------------------------------------------


def samples(path: Path, step: int | None = None) -> str:
    """Show the predictions for each sentence, the right tokens, and earlier best guesses.

    They are those at a step, if it has any, else the latest. All but the first are folded.
    """
    rows = list(records.rows(path, records.SAMPLE)) if path.exists() else []
    if any(row["step"] == step for row in rows):
        rows = [row for row in rows if row["step"] <= (step or 0)]
    by_text: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_text[row["text"]].append(row)
    latest = {text: max(row["step"] for row in rows) for text, rows in by_text.items()}
    last = max(latest.values(), default=0)  # sentences of an earlier config of the run are left out
    shown = [(text, rows) for text, rows in by_text.items() if latest[text] == last][:SAMPLES]
    boxes = [_sample(text, rows) for text, rows in shown]
    served = ", which is served" if last == step else ""
    said = f"Held-out sentences, and what the model expects there at step {last:,}{served}."
    if not boxes:
        return ""
    first, others = (
        f'<div class="samples">{"".join(part)}</div>' if part else ""
        for part in (boxes[:UNFOLDED], boxes[UNFOLDED:])
    )
    more = fold(f"{len(boxes) - UNFOLDED} more sentences", others)
    return f'<p class="sub">{said}</p>{first}{more}'


def _sample(text: str, rows: list[dict[str, Any]]) -> str:
    rows = sorted(rows, key=lambda row: row["step"])
    sentence = re.sub(r"\[MASK\]|…$", lambda gap: f"<mark>{gap[0]}</mark>", escape(text))
    predictions = rows[-1]["predictions"]
    answers = (rows[-1].get("answers") or [])[: len(predictions)]
    gaps = itertools.zip_longest(predictions, answers)
    bars = "".join(_bars(mask[:5], answer) for mask, answer in gaps)
    before = [
        (row["step"], " / ".join(mask[0]["token"] for mask in row["predictions"] if mask))
        for row in rows[:-1]
    ]
    picked = before[:: max(1, math.ceil(len(before) / 5))]
    then = " · ".join(f"<span>step {step:,}: {escape(tokens)}</span>" for step, tokens in picked)
    earlier = f"<div class=then>{then}</div>" if then else ""
    return f'<div class="box"><p>{sentence}</p>{bars}{earlier}</div>'


def _bars(mask: list[dict[str, Any]], answer: str | None) -> str:
    """Draw the likeliest tokens of a mask, and the right token if none of them is it."""
    lines = []
    for guess in mask:
        token, share = guess["token"], 100 * guess["probability"]
        right = ' class="right"' if token == answer else ""
        lines.append(
            f'<div class="bar"><span{right}>{escape(token)}</span>'
            f'<span><i style="width:{share:.1f}%"></i></span><span>{share:.1f} %</span></div>'
        )
    if answer is not None and not any(guess["token"] == answer for guess in mask):
        lines.append(
            f'<div class="bar"><span class="right">{escape(answer)}</span>'
            "<span>original token</span><span></span></div>"
        )
    return f'<div class="gap">{"".join(lines)}</div>'


# --- config and environment --------------------------------------------------------------------


def config_box(recorded: dict[str, Any]) -> str:
    """List the knobs that differ from their defaults, then all knobs."""
    if not recorded:
        return ""
    default = configs.to_dict(knobs.Config())
    changed = configs.differences(_derived_like(recorded), recorded)
    size = subtree(recorded, "model").get("size")
    changed |= configs.differences(
        {"pairs": default["pairs"], "model.size": default["model"]["size"]},
        {"pairs": recorded.get("pairs"), "model.size": size},
    )
    lines = [[path, written(new), written(old)] for path, (old, new) in sorted(changed.items())]
    if lines:
        shown = table(lines, ["knob", "this run", "default"], about=knob_docs(changed))
    else:
        shown = "<p>All knobs are at their defaults.</p>"
    every = table(_rows(recorded), about=knob_docs(configs.flat(recorded)))
    every = f"<details><summary>All knobs</summary>{every}</details>"
    return f'<div class="box">{shown}{every}</div>'


def knob_docs(paths: Iterable[str]) -> dict[str, str]:
    """Read the sentences of the knobs at some paths; a knob of another version has none."""
    docs = dict.fromkeys(paths, "")
    for path in docs:
        with contextlib.suppress(ConfigError):
            docs[path] = find_knob(path).sentence
    return docs


def _derived_like(recorded: dict[str, Any]) -> dict[str, Any]:
    """Return the defaults at the recorded model size and pairs, so that only choices differ."""
    chosen = {
        "model": {"size": subtree(recorded, "model").get("size")},
        "pairs": recorded.get("pairs"),
    }
    try:
        return configs.to_dict(configs.recorded(chosen))
    except UserError:  # a config of another version is compared with the plain defaults
        return configs.to_dict(knobs.Config())


def environment_box(environment: dict[str, Any]) -> str:
    """List versions, devices and the command; fold long lists."""
    if not environment:
        return ""
    if isinstance(command := environment.get("command"), list):
        environment = {**environment, "command": shlex.join(map(str, command))}
    rows = _rows(environment)
    if len(rows) <= 16:
        return f'<div class="box">{table(rows)}</div>'
    plain = [row for row in rows if "." not in row[0]]
    nested = [row for row in rows if "." in row[0]]
    summary = f"<summary>{len(nested)} more</summary>"
    more = f"<details>{summary}{table(nested)}</details>" if nested else ""
    return f'<div class="box">{table(plain)}{more}</div>'


def _rows(tree: dict[str, Any]) -> list[list[str]]:
    return [[path, written(value)] for path, value in configs.flat(tree).items()]


def written(value: Any) -> str:
    """Write a value of a config."""
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
