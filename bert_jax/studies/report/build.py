"""report.html of a study: one page to read offline; results.csv, summary.md and PNGs beside it, whatever there is now.

    write(Place(workdir))

All figures are drawn twice from the same description: on the page, in its colours, and as a PNG.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from bert_jax.config import to_dict
from bert_jax.reporting.charts import SPACE
from bert_jax.reporting.page import config_box, duration, page, section, table, tile
from bert_jax.reporting.plots import draw
from bert_jax.studies import files
from bert_jax.studies.folder import Place
from bert_jax.studies.report import (
    aggregate,
    budgets,
    collect,
    compare,
    figures,
    matrices,
    published,
    sections,
    summary,
    tables,
)
from bert_jax.studies.report.aggregate import Figures, View

STATES = ("done", "running", "waiting", "failed", "diverged")
STYLE = """
.say { margin: 0 0 12px; max-width: 88ch; } .say + .box, .charts + .box, .box + .box, .box + .charts, .tabs + .box
  { margin-top: 14px; } .box + .say, .charts + .say, .tabs + .say { margin-top: 14px; }
h3 { font-size: 15px; margin: 18px 0 8px; } .question { font-size: 16px; max-width: 88ch; }
.pre { font: 13px/1.6 ui-monospace, "SFMono-Regular", Menlo, Consolas, "Liberation Mono", monospace;
  overflow-wrap: anywhere; }
.tabs > input { position: absolute; opacity: 0; pointer-events: none; }
.tabs > label { display: inline-block; padding: 5px 13px; margin: 0 6px 12px 0; border: 1px solid var(--line);
  border-radius: 16px; cursor: pointer; background: var(--card); font-size: 14px; }
.tabs > div { display: none; }
.tabs > input:checked + label { background: var(--c1); border-color: var(--c1); color: var(--card); }
.tabs > input:focus-visible + label { outline: 2px solid var(--ink); outline-offset: 2px; }
.tabs > input:nth-of-type(1):checked ~ div:nth-of-type(1), .tabs > input:nth-of-type(2):checked ~ div:nth-of-type(2),
.tabs > input:nth-of-type(3):checked ~ div:nth-of-type(3), .tabs > input:nth-of-type(4):checked ~ div:nth-of-type(4)
  { display: block; }
.heat { overflow: hidden; } .heat table { font-size: 13px; margin-top: 8px; border-collapse: separate;
  border-spacing: 2px; } .heat th, .heat td { border: 0; padding: 4px 6px; white-space: nowrap; }
.heat td { background: rgb(36 103 179 / calc(var(--v, 0) * .55)); border-radius: 3px; }
.heat tr:first-child th { white-space: normal; }
.heat td.best { font-weight: 700; outline: 2px solid var(--ink); outline-offset: -2px; }
td.hole, .hole { color: var(--c2); } .published .chart + .chart { border-style: dashed; }
th { vertical-align: bottom; } .wide table { min-width: 760px; }
.scroll th:first-child, .scroll td:first-child { position: sticky; left: 0; background: var(--card); min-width: 76px;
  max-width: 40vw; } .charts.broad { grid-template-columns: repeat(auto-fit, minmax(min(100%, 600px), 1fr)); }
@media (max-width: 480px) { .tile strong { font-size: 20px; } }
@media print { .tabs > div { display: block !important; } }
"""


def write(place: Place) -> Path:
    """Writes results.csv, figures/*.png, summary.md and, last, report.html; returns the page's path."""
    study, found = place.read_study(), collect.results(place)
    collect.write_csv(place, found)
    view = View(place, study, found)
    gaps = differences(view)
    body, shown = compose(view, gaps)
    name, (_, ended) = str(study.get("name") or place.workdir.resolve().name), aggregate.span(view)
    done = sum(one.state.name == "done" for one in found)
    figures.write(
        place.figures,
        shown,
        f"{name}: {done} of {len(found)} cells done, {ended[:10] or 'not begun'}.",
    )
    files.write_text(place.summary, summary.text(view, gaps))
    files.write_text(place.report, page(f"Study {name}", body, STYLE))
    return place.report


def write_summary(place: Place) -> Path:
    """Write summary.md from study.json and results.csv, which is all that is left of the cells; return its path."""
    view = View(place, place.read_study(), collect.read_csv(place))
    files.write_text(place.summary, summary.text(view, differences(view)))
    return place.summary


def differences(view: View) -> dict[int, list[compare.Difference]]:
    """Of every comparison, by its number."""
    return {
        number_: compare.differences(
            view.place, view.families(one["axis"]), one["baseline"], one["metrics"]
        )
        for number_, one in enumerate(view.comparisons)
    }


def compose(view: View, gaps: summary.Gaps) -> tuple[str, Figures]:
    """The page, section by section, and its figures by name."""
    shown: Figures = {}

    def charts(found: Figures, kind: str = "charts") -> str:
        shown.update(found)
        drawn = "".join(map(draw, found.values()))
        return f'<div class="{kind}">{drawn}</div>' if drawn else ""

    answer, paired, equal = "", "", ""
    for number_, one in enumerate(view.comparisons):
        axis, families = view.axis(one["axis"]), view.families(one["axis"])
        title = f"<h3>By {escape(one['axis'])}</h3>" if len(view.comparisons) > 1 else ""
        if drawn := charts(sections.headline(view, one)):
            best = sections.best(view, one, gaps[number_]) if len(axis.labels) > 1 else ""
            answer += f"{title}{drawn}{box(best)}"
            answer += box(sections.mean_table(view, axis, families, one["metrics"]))
        drawn = charts(sections.gaps(view, one, gaps[number_]))
        listed = "".join(
            _gaps(view, one["axis"], metric, gaps[number_]) for metric in one["metrics"]
        )
        paired += f"{title}{drawn}{listed}" if listed else ""
        if tabs := _tabs(view, one["axis"], number_, shown):
            equal += f"{title}{tabs}"
    heat = charts(matrices.crossed(view), "charts broad")
    cross = charts(matrices.cross_rate(view), "charts broad")
    tasks = "".join(
        f"<h3>{escape(title)}</h3>{box(text)}" for title, text in tables.downstream(view)
    )
    body = (
        _head(view)
        + section("State", _state(view))
        + section("Answer", answer and say(ANSWER) + answer)
        + section("Differences in pairs", paired and say(PAIRS) + paired)
        + section("Two axes at once", heat)
        + section("Equal budgets", equal and say(EQUAL) + equal)
        + section("Trained at one rate, evaluated at others", cross)
        + section("What was masked", (text := tables.ledger(view)) and say(LEDGER) + box(text))
        + section("Downstream", tasks)
        + section("Cost", box(tables.cost(view)))
        + "".join(_published(view, name) for name in view.study.get("published", []))
        + section("Notes", _notes(view))
        + section("Config", _config(view))
    )
    return body, shown


ANSWER = (
    f"Means over seeds and their 95{SPACE}% t intervals; small circles are single seeds. The best point is chosen "
    "after the fact: of several arms that are alike one is best by chance, so read its difference from the baseline. "
    "Where a seed is missing, the mean is of the others, and differs by what that seed is worth: compare in pairs. An "
    "interval that reaches the edge of its figure goes on beyond it."
)
PAIRS = (
    "A pair shares everything but the axis: the other axes, the seed, and the examples it is evaluated on. The first "
    "interval (t) says what other seeds would give on these examples. The second says what other examples would give "
    "besides: it is wider by the error over examples, of a bootstrap of the same ones for both arms. A single pair has "
    "neither. Each interval is a difference's own: of twenty that are nothing, one leaves zero out by chance. p, the "
    "level at which the wider of the two reaches zero, is therefore corrected by Holm's method in each table, which is "
    "a family of its own: all differences in one metric, at every point and for all other axes. What has at most 0.05 "
    "differs; what has more is open, which does not say that it is the same. A pair without one of its sides is "
    "missing, and left out of the other columns. Differences of shares are in percentage points. SE is the standard "
    "error of the mean difference over seeds, in pairs or (Welch) without."
)
EQUAL = "Held-out loss while training, over four kinds of budget, and read where every arm has spent the same."
LEDGER = "Means over updates and seeds. In whole tokens: the rate after each example's quota is rounded, at least one."


# --- head -----------------------------------------------------------------------------------------------------------


def _head(view: View) -> str:
    study = view.study
    parts = [f"<b>{escape(str(study.get('name', '')))}</b>"]
    counts = [f"{escape(one.name)}: {len(one.labels)}" for one in view.axes]
    parts.append(", ".join([*counts, f"seeds: {len(study.get('seeds', []))}"]))
    if budget := study.get("budget"):
        kind = budgets.KINDS.get(budget["kind"], budget["kind"])
        parts.append(f"{aggregate.short_amount(budget['amount'])} {kind} a cell")
    states = Counter(one.state.name for one in view.results)
    below = ", ".join(f"{states[name]} {name}" for name in STATES[1:] if states[name])
    seconds = [
        sum(one.seconds for one in view.results),
        sum(one.evaluation_seconds for one in view.results),
    ]
    begun, ended = aggregate.span(view)
    machines = list(dict.fromkeys(one.hardware for one in view.results if one.hardware))
    hardware = (
        machines[0] if len(machines) == 1 else f"{len(machines)} kinds" if machines else "none yet"
    )
    platform = str((study.get("machine") or {}).get("platform", ""))
    tiles = [
        tile("Cells done", f"{states['done']} of {len(view.results)}", below),
        tile(
            "Work",
            duration(sum(seconds)),
            f"{duration(seconds[0])} training, {duration(seconds[1])} evaluation",
        ),
        tile(
            "FLOPs",
            aggregate.short_amount(sum(one.spent("flops") for one in view.results)),
            "of matrix products",
        ),
        tile("Hardware", hardware, platform),
        tile(
            "Date",
            ended[:10] or "not begun",
            f"begun {begun[:16].replace('T', ' ')}" if begun else "",
        ),
    ]
    return (
        f"<h1>{escape(study.get('question') or str(study.get('name', 'Study')))}</h1>"
        f'<p class="sub">{" · ".join(parts)}</p><div class="tiles">{"".join(tiles)}</div>'
    )


def _state(view: View) -> str:
    study = view.study
    command = study.get("command") or ""
    begun, ended = aggregate.span(view)
    machine = study.get("machine") or {}
    rows = {
        "command": command if isinstance(command, str) else shlex.join(map(str, command)),
        "commit": study.get("git_commit"),
        "from, to": f"{begun.replace('T', ' ')}, {ended.replace('T', ' ')}" if begun else "",
        "hardware": "; ".join(dict.fromkeys(one.hardware for one in view.results if one.hardware)),
        "launched on": ", ".join(
            f"{key.removesuffix('_bytes')} {_bytes(key, value)}"
            for key, value in machine.items()
            if value
        ),
        "versions": ", ".join(
            f"{key} {value}" for key, value in (study.get("versions") or {}).items()
        ),
        "study": " ".join(filter(None, [study.get("spec"), study.get("hash")])),
    }
    holes = tables.holes(view)
    return box(table([[key, str(value)] for key, value in rows.items() if value])) + (
        f"<h3>Cells without all their results</h3>{box(holes, 'wide')}" if holes else ""
    )


def _bytes(key: str, value: Any) -> str:
    return (
        f"{value / 2**30:.1f} GiB"
        if key.endswith("bytes") and isinstance(value, int)
        else str(value)
    )


# --- further sections -----------------------------------------------------------------------------------------------


def _gaps(view: View, axis: str, metric: str, found: Sequence[compare.Difference]) -> str:
    """The table of differences in a metric, with what pairing was worth."""
    mine = [one for one in found if one.metric == metric]
    if not mine or not any(one.pairs for one in found):
        return ""
    worth = say(sections.pairing(mine, aggregate.percent(metric, view.results)))
    return f"<h3>{escape(aggregate.title(metric))}</h3>{worth}{box(sections.gap_table(view, axis, mine))}"


def _tabs(view: View, axis: str, number_: int, shown: Figures) -> str:
    """A panel for every kind of budget, one of them to be seen; a page without style shows all."""
    found = budgets.panels(view, axis)
    heads, bodies = "", ""
    for index, panel in enumerate(found):
        shown[aggregate.slug(axis, "equal", panel.kind)] = panel.reading
        if index == 0:  # over other budgets the curves are the same, drawn wider or narrower
            for family, chart in zip(view.families(axis), panel.curves, strict=True):
                shown[aggregate.slug(axis, "curves", family.name)] = chart
        drawn = "".join(map(draw, [panel.reading, *panel.curves]))
        name = f"budget-{number_}-{index}"
        checked = " checked" if index == 0 else ""
        heads += f'<input type="radio" name="budget-{number_}" id="{name}"{checked}>'
        heads += f'<label for="{name}">equal {budgets.KINDS[panel.kind]}</label>'
        bodies += f'<div>{say(panel.said)}<div class="charts">{drawn}</div></div>'
    return (
        f'<div class="tabs">{heads}{bodies}</div>'
        if any(panel.reading.series for panel in found)
        else ""
    )


def _published(view: View, name: str) -> str:
    if name not in published.TABLE:
        return section("Published", say(f"There is no published table called {name}."))
    one = published.TABLE[name]
    ours = sections.headline(view, view.comparisons[0])
    chosen = next((key for key in reversed(ours) if draw(ours[key])), None)
    first = (
        [dataclasses.replace(ours[chosen], title=f"Ours: {ours[chosen].title}")] if chosen else []
    )
    both = "".join(map(draw, [*first, *tables.figures_of(name)]))
    text = f"Another scale: {one.what}."
    text += (
        " Ours are in the first figure, theirs in the others; only shapes compare." if first else ""
    )
    figures_ = f'<div class="charts published">{both}</div>'
    source = say(f"{one.source}.")
    return section(
        f"Published, beside ours: {one.title}",
        say(text) + figures_ + box(tables.table_of(name)) + source,
    )


def _notes(view: View) -> str:
    shared = (
        len({one.entry.config.data_seed for one in view.results}) == 1
        and len(view.study.get("seeds", [])) > 1
    )
    data = (
        "Seeds share the order of the data, so the intervals leave out what another order would change."
        if shared
        else ""
    )
    return say(str(view.study.get("notes") or "")) + say(data)


def _config(view: View) -> str:
    if not view.results:
        return ""
    return say("Of the first cell; the axes and the seed change the others.") + config_box(
        to_dict(view.results[0].entry.config)
    )


def box(body: str, kind: str = "") -> str:
    """A table or text on a card."""
    return f'<div class="{f"box {kind}".strip()}">{body}</div>' if body else ""


def say(text: str) -> str:
    """A paragraph of explanation."""
    return f'<p class="say">{escape(text)}</p>' if text else ""
