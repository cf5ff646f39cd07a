"""What report pages are made of: style and script, all inline for offline reading; tables; the parts all have."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
import shlex
from collections import defaultdict
from html import escape
from pathlib import Path
from typing import Any

from bert_jax import config as configs
from bert_jax.config import knobs
from bert_jax.errors import UserError
from bert_jax.reporting import records

SAMPLES = 12

STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5b6675; --line: #dfe4ea; --page: #f5f6f8; --card: #fff;
  --c1: #2467b3; --c2: #c8591b; --c3: #2c8155; --c4: #8450a8; --c5: #a8821a; --good: #2c8155; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ee; --soft: #98a3b2; --line: #313a46; --page: #12161c;
  --card: #1a2028; --c1: #6aaef5; --c2: #f0935a; --c3: #63c591; --c4: #c295e4; --c5: #dcbb5c; --good: #63c591; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, -apple-system, "Segoe UI",
  Roboto, "Noto Sans", "Liberation Sans", sans-serif; -webkit-text-size-adjust: 100%; }
main { max-width: 1440px; margin: 0 auto; padding: 28px clamp(12px, 3vw, 36px) 60px; }
h1 { font-size: clamp(22px, 3.2vw, 30px); line-height: 1.2; margin: 0 0 4px; letter-spacing: -0.01em; }
h2 { font-size: 18px; margin: 38px 0 12px; }
.sub { color: var(--soft); margin: 0 0 22px; overflow-wrap: anywhere; }
.sub b { color: var(--ink); font-weight: 600; }
.tiles, .charts { display: grid; gap: 14px; }
.tiles { grid-template-columns: repeat(auto-fit, minmax(min(100%, 165px), 1fr)); }
.charts { grid-template-columns: repeat(auto-fill, minmax(min(100%, 390px), 1fr)); }
.tile, .chart, .box { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 14px 16px;
  margin: 0; min-width: 0; }
.tile div { color: var(--soft); font-size: 13px; }
.tile strong { display: block; font-size: 25px; line-height: 1.3; font-weight: 650;
  white-space: nowrap; font-variant-numeric: tabular-nums; letter-spacing: -0.01em; }
.tile p { margin: 2px 0 0; font-size: 13px; color: var(--soft); }
.tile p b { display: block; color: var(--good); font-weight: 600; }
.chart { position: relative; }
.chart figcaption { font-weight: 600; }
.chart svg { display: block; width: 100%; height: auto; margin-top: 6px; overflow: visible; touch-action: pan-y; }
.legend { display: flex; flex-wrap: wrap; gap: 0 14px; font-size: 13px; color: var(--soft); min-height: 20px; }
.legend b { color: var(--ink); font-weight: 600; font-variant-numeric: tabular-nums; }
.legend i { display: inline-block; width: 14px; height: 3px; border-radius: 2px; margin: 0 5px 3px 0;
  background: currentColor; }
.legend i.faint { opacity: .5; }
svg text { fill: var(--soft); font-size: 12.5px; font-variant-numeric: tabular-nums; }
svg text.halo { paint-order: stroke; stroke: var(--card); stroke-width: 4px; stroke-linejoin: round; }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg .axis { stroke: var(--soft); stroke-opacity: .6; }
svg .baseline { stroke: var(--soft); stroke-width: 1.3; stroke-dasharray: 5 4; }
svg polyline { fill: none; stroke: currentColor; stroke-width: 1.8; stroke-linejoin: round; stroke-linecap: round; }
svg polyline.faint { stroke-width: 1.3; opacity: .5; }
svg polygon { fill: currentColor; opacity: .16; }
svg circle { fill: currentColor; }
svg .whisker { stroke: currentColor; stroke-width: 1.4; opacity: .75; }
svg circle.one { fill: none; stroke: currentColor; opacity: .5; }
svg .cursor { stroke: var(--soft); stroke-width: 1; }
.c1 { color: var(--c1); } .c2 { color: var(--c2); } .c3 { color: var(--c3); } .c4 { color: var(--c4); }
.c5 { color: var(--c5); }
.q0 { color: #440154; } .q1 { color: #482374; } .q2 { color: #424086; } .q3 { color: #375b8d; } .q4 { color: #2c728e; }
.q5 { color: #23898e; } .q6 { color: #1fa188; } .q7 { color: #34b679; } .q8 { color: #60ca60; } .q9 { color: #9bd93c; }
@media (prefers-color-scheme: dark) {
  .q0 { color: #8f7ce8; } .q1 { color: #7a90f0; } .q2 { color: #5fa3ee; } .q3 { color: #48b4e0; }
  .q4 { color: #3ec3c9; } .q5 { color: #44cfa8; } .q6 { color: #63d884; } .q7 { color: #93de62; }
  .q8 { color: #c5e04a; } .q9 { color: #f2e04a; } }
.note { color: var(--soft); font-size: 13px; margin: 8px 0 0; }
.tip { position: absolute; pointer-events: none; background: var(--ink); color: var(--page); border-radius: 6px;
  padding: 5px 9px; font-size: 12.5px; line-height: 1.4; white-space: pre; display: none; z-index: 1;
  font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th, td { text-align: left; padding: 5px 16px 5px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
tr:last-child > * { border-bottom: 0; }
th { color: var(--soft); font-weight: 500; font-size: 13px; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.code { font: 13px/1.6 ui-monospace, "SFMono-Regular", Menlo, Consolas, "Liberation Mono", monospace;
  overflow-wrap: anywhere; }
details { margin-top: 14px; } summary { cursor: pointer; font-weight: 600; } details table { margin-top: 8px; }
.samples { display: grid; gap: 14px; grid-template-columns: repeat(auto-fill, minmax(min(100%, 390px), 1fr)); }
.samples p { margin: 0 0 8px; overflow-wrap: anywhere; }
mark { background: none; color: var(--c2); font-weight: 650; }
.bar { display: grid; grid-template-columns: minmax(80px, 34%) 1fr 58px; gap: 10px; align-items: center;
  font-size: 13.5px; }
.bar > span:first-child { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.bar > span:last-child { text-align: right; color: var(--soft); font-variant-numeric: tabular-nums; }
.bar .right { color: var(--good); font-weight: 650; } .bar .right + span { color: var(--soft); }
.gap + .gap { margin-top: 8px; }
.bar i { display: block; height: 8px; border-radius: 4px; background: var(--c1); min-width: 2px; }
.then span { white-space: nowrap; }
.then { color: var(--soft); font-size: 13px; margin-top: 8px; overflow-wrap: anywhere; }
footer { margin-top: 44px; color: var(--soft); font-size: 13px; }
@media print { body { background: none; } .chart, .tile, .box { break-inside: avoid; } }
"""

# Reading values off a chart; without script the page only loses this.
SCRIPT = """
for (const chart of document.querySelectorAll('.chart[data-x]')) {
  const svg = chart.querySelector('svg'), lines = [...svg.querySelectorAll('polyline')];
  const axis = text => { const [low, high, start, stop, log] = text.split(' ').map(Number);
    return at => { const v = low + (at - start) / (stop - start) * (high - low); return log ? 10 ** v : v; }; };
  const x = axis(chart.dataset.x), y = axis(chart.dataset.y), percent = chart.dataset.percent === '1';
  const data = lines.map(l => ({ name: l.dataset.name, points: l.getAttribute('points').split(' ')
    .map(p => p.split(',').map(Number)) }));
  const ticks = (chart.dataset.ticks || '').split('|').filter(Boolean);
  const compact = { notation: 'compact', maximumFractionDigits: 2 };
  const short = v => Math.round(v).toLocaleString('en', v < 1e7 ? {} : compact);
  const tip = chart.appendChild(Object.assign(document.createElement('div'), { className: 'tip' }));
  const cursor = document.createElementNS('http://www.w3.org/2000/svg', 'line');
  cursor.setAttribute('class', 'cursor'); cursor.style.display = 'none'; svg.appendChild(cursor);
  const hide = () => { tip.style.display = cursor.style.display = 'none'; };
  svg.addEventListener('pointerleave', hide);
  svg.addEventListener('pointermove', event => {
    const box = svg.getBoundingClientRect(), wide = svg.viewBox.baseVal, scale = wide.width / box.width;
    const at = (event.clientX - box.left) * scale;
    const near = data.map(s => s.points.reduce((a, b) => Math.abs(b[0] - at) < Math.abs(a[0] - at) ? b : a));
    const column = near.reduce((a, b) => Math.abs(b[0] - at) < Math.abs(a[0] - at) ? b : a)[0];
    const place = ticks.filter(t => Math.abs(parseFloat(t) - column) < 12).map(t => t.slice(t.indexOf(' ') + 1))[0];
    tip.textContent = (chart.dataset.of || 'step') + ' ' + (place || short(x(column))) + data.map((s, i) => {
      const v = y(near[i][1]);
      return '\\n' + s.name + '  ' + (percent ? (100 * v).toFixed(1) + ' %' : +v.toPrecision(4)); }).join('');
    cursor.style.display = 'inline'; tip.style.display = 'block';
    for (const [name, value] of [['x1', column], ['x2', column], ['y1', 10], ['y2', wide.height - 28]])
      cursor.setAttribute(name, value);
    const outer = chart.getBoundingClientRect(), left = box.left - outer.left + column / scale;
    tip.style.top = box.top - outer.top + 6 + 'px';
    tip.style.left = Math.max(4, left + (left > chart.clientWidth / 2 ? -tip.offsetWidth - 10 : 10)) + 'px';
  });
}
"""


def page(title: str, body: str, style: str = "") -> str:
    """A whole document that needs nothing beside itself; `style` is what one kind of page has more."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}{style}</style></head>\n"
        f"<body><main>{body}</main><script>{SCRIPT}</script></body></html>\n"
    )


def section(title: str, body: str, kind: str = "") -> str:
    """A heading over its content; nothing over nothing."""
    if not body:
        return ""
    content = f'<div class="{kind}">{body}</div>' if kind else body
    return f"\n<section><h2>{escape(title)}</h2>{content}</section>"


def table(rows: list[list[str]], head: list[str] | None = None, numbers: bool = False) -> str:
    """Rows of plain text; the first column names, the others are code, or numbers."""
    kind = "n" if numbers else "code"

    def line(row: list[str]) -> str:
        cells = "".join(f'<td class="{kind}">{escape(cell)}</td>' for cell in row[1:])
        return f"<tr><td>{escape(row[0])}</td>{cells}</tr>"

    names = [
        f"<th{' class=n' if numbers and i else ''}>{escape(name)}</th>"
        for i, name in enumerate(head or [])
    ]
    top = f"<tr>{''.join(names)}</tr>" if names else ""
    return f'<div class="scroll"><table>{top}{"".join(map(line, rows))}</table></div>'


def tile(name: str, value: str, below: str = "", verdict: str = "") -> str:
    """One figure of a page's head: its name, the value, what is said below it, and whether that is good."""
    text = f"<p>{escape(below)}{f'<b>{escape(verdict)}</b>' if verdict else ''}</p>"
    return (
        f'<div class="tile"><div>{escape(name)}</div><strong>{escape(value)}</strong>{text}</div>'
    )


def duration(seconds: float) -> str:
    """A time as a person writes it."""
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours:,} h {rest // 60:02d} min" if hours else f"{rest // 60} min {rest % 60:02d} s"


# --- the parts every report has --------------------------------------------------------------------------------------


def samples(path: Path) -> str:
    """The latest predictions for each sentence, which of them is what stood there, and what the best one was before."""
    if not path.exists():
        return ""
    by_text: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in records.rows(path, records.SAMPLE):
        by_text[row["text"]].append(row)
    until = {text: max(row["step"] for row in rows) for text, rows in by_text.items()}
    last = max(
        until.values(), default=0
    )  # a run that goes on with other sentences asks the earlier ones no longer
    latest = [(text, rows) for text, rows in by_text.items() if until[text] == last]
    return "".join(_sample(text, rows) for text, rows in latest[:SAMPLES])


def _sample(text: str, rows: list[dict[str, Any]]) -> str:
    rows = sorted(rows, key=lambda row: row["step"])
    shown = re.sub(r"\[MASK\]|…$", lambda gap: f"<mark>{gap[0]}</mark>", escape(text))
    predictions = rows[-1]["predictions"]
    gaps = itertools.zip_longest(predictions, (rows[-1].get("answers") or [])[: len(predictions)])
    bars = "".join(_bars(mask[:5], answer) for mask, answer in gaps)
    before = [
        (r["step"], " / ".join(m[0]["token"] for m in r["predictions"] if m)) for r in rows[:-1]
    ]
    picked = before[:: max(1, math.ceil(len(before) / 5))]
    then = " · ".join(f"<span>step {step:,}: {escape(tokens)}</span>" for step, tokens in picked)
    return f'<div class="box"><p>{shown}</p>{bars}{f"<div class=then>{then}</div>" if then else ""}</div>'


def _bars(mask: list[dict[str, Any]], answer: str | None) -> str:
    """The likeliest tokens of a gap, and what stood there, if that is known and none of them."""
    lines = []
    for one in mask:
        token, share = one["token"], 100 * one["probability"]
        right = ' class="right"' if token == answer else ""
        lines.append(
            f'<div class="bar"><span{right}>{escape(token)}</span><span><i style="width:{share:.1f}%"></i></span>'
            f"<span>{share:.1f} %</span></div>"
        )
    if answer is not None and not any(one["token"] == answer for one in mask):
        lines.append(
            f'<div class="bar"><span class="right">{escape(answer)}</span><span>stood there</span><span></span></div>'
        )
    return f'<div class="gap">{"".join(lines)}</div>'


def config_box(recorded: dict[str, Any]) -> str:
    """What differs from the defaults first, then everything."""
    if not recorded:
        return ""
    default = json.loads(json.dumps(dataclasses.asdict(knobs.Config())))
    changed = configs.differences(_derived_like(recorded), recorded)
    size = subtree(recorded, "model").get("size")
    changed |= configs.differences(
        {"pairs": default["pairs"], "model.size": default["model"]["size"]},
        {"pairs": recorded.get("pairs"), "model.size": size},
    )
    lines = [[path, _value(new), _value(old)] for path, (old, new) in sorted(changed.items())]
    shown = (
        table(lines, ["knob", "this run", "default"])
        if lines
        else "<p>All knobs are at their defaults.</p>"
    )
    return f'<div class="box">{shown}<details><summary>All knobs</summary>{table(_rows(recorded))}</details></div>'


def _derived_like(recorded: dict[str, Any]) -> dict[str, Any]:
    """The defaults with what follows from the model's size and the pairs, so that only choices show as changed."""
    chosen = {
        "model": {"size": subtree(recorded, "model").get("size")},
        "pairs": recorded.get("pairs"),
    }
    try:
        return configs.to_dict(configs.recorded(chosen))
    except UserError:  # a config of another version is compared with the plain defaults
        return json.loads(json.dumps(dataclasses.asdict(knobs.Config())))


def environment_box(environment: dict[str, Any]) -> str:
    """Versions, devices and the command; long lists folded."""
    if not environment:
        return ""
    if isinstance(command := environment.get("command"), list):
        environment = {**environment, "command": shlex.join(map(str, command))}
    rows = _rows(environment)
    if len(rows) <= 16:
        return f'<div class="box">{table(rows)}</div>'
    plain = [[k, v] for k, v in rows if "." not in k]
    nested = [[k, v] for k, v in rows if "." in k]
    more = (
        f"<details><summary>{len(nested)} more</summary>{table(nested)}</details>" if nested else ""
    )
    return f'<div class="box">{table(plain)}{more}</div>'


def _rows(tree: dict[str, Any]) -> list[list[str]]:
    return [[path, _value(value)] for path, value in configs.flat(tree).items()]


def _value(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)


def subtree(recorded: dict[str, Any], name: str) -> dict[str, Any]:
    """A section of a recorded config, empty where there is none."""
    value = recorded.get(name)
    return value if isinstance(value, dict) else {}
