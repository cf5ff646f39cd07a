"""Building blocks of report pages: a document whole in one file for offline reading, and its parts.

They lie beside this module as page.html, page.css and page.js.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import shlex
import string
from collections import defaultdict
from html import escape
from pathlib import Path
from typing import Any

from bert_jax import config as configs
from bert_jax.config import knobs
from bert_jax.errors import UserError
from bert_jax.reporting import records, svg

SAMPLES = 12  # sentences with predictions on a page


def asset(module: str, ending: str) -> str:
    """Read the style sheet (".css") or script (".js") beside a module, given its `__file__`."""
    return Path(module).with_suffix(ending).read_text(encoding="utf-8")


def fill(module: str, **parts: str) -> str:
    """Put HTML into the $names of the page (".html") beside a module."""
    return string.Template(asset(module, ".html")).substitute(parts)


STYLE, SCRIPT = svg.STYLE + asset(__file__, ".css"), asset(__file__, ".js")


def page(title: str, body: str, style: str = "") -> str:
    """Build a document that loads nothing; `style` adds to the style that all pages share."""
    return fill(__file__, title=escape(title), style=STYLE + style, body=body, script=SCRIPT)


def section(title: str, body: str, kind: str = "") -> str:
    """Put a heading over content; return an empty string if there is no content."""
    if not body:
        return ""
    content = f'<div class="{kind}">{body}</div>' if kind else body
    return f"\n<section><h2>{escape(title)}</h2>{content}</section>"


def table(rows: list[list[str]], head: list[str] | None = None, numbers: bool = False) -> str:
    """Format rows of plain text; the first column holds names, the others code or numbers.

    Each cell also names its column, for style sheets that stack cells where there is little room.
    """
    kind = "n" if numbers else "code"
    columns = [f' data-head="{escape(name)}"' for name in (head or [])[1:]]

    def line(row: list[str]) -> str:
        cells = "".join(
            f'<td class="{kind}"{name}>{escape(cell)}</td>'
            for cell, name in itertools.zip_longest(row[1:], columns[: len(row) - 1], fillvalue="")
        )
        return f"<tr><td>{escape(row[0])}</td>{cells}</tr>"

    names = [
        f"<th{' class=n' if numbers and i else ''}>{escape(name)}</th>"
        for i, name in enumerate(head or [])
    ]
    top = f"<tr>{''.join(names)}</tr>" if names else ""
    return f'<div class="scroll"><table>{top}{"".join(map(line, rows))}</table></div>'


def tile(name: str, value: str, below: str = "", verdict: str = "") -> str:
    """Format one number of a page's head: name, value, explanation, and good news if any."""
    text = f"<p>{escape(below)}{f'<b>{escape(verdict)}</b>' if verdict else ''}</p>"
    value = f"<strong>{escape(value)}</strong>"
    return f'<div class="tile"><div>{escape(name)}</div>{value}{text}</div>'


# --- predictions -------------------------------------------------------------------------------


def samples(path: Path) -> str:
    """Show the latest predictions for each sentence, the right tokens, and earlier best guesses."""
    if not path.exists():
        return ""
    by_text: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in records.rows(path, records.SAMPLE):
        by_text[row["text"]].append(row)
    latest = {text: max(row["step"] for row in rows) for text, rows in by_text.items()}
    last = max(latest.values(), default=0)  # sentences of an earlier config of the run are left out
    shown = [(text, rows) for text, rows in by_text.items() if latest[text] == last]
    return "".join(_sample(text, rows) for text, rows in shown[:SAMPLES])


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
    lines = [[path, _value(new), _value(old)] for path, (old, new) in sorted(changed.items())]
    if lines:
        shown = table(lines, ["knob", "this run", "default"])
    else:
        shown = "<p>All knobs are at their defaults.</p>"
    every = f"<details><summary>All knobs</summary>{table(_rows(recorded))}</details>"
    return f'<div class="box">{shown}{every}</div>'


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
    return [[path, _value(value)] for path, value in configs.flat(tree).items()]


def _value(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)


def subtree(recorded: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a section of a recorded config; empty if it is missing."""
    value = recorded.get(name)
    return value if isinstance(value, dict) else {}
