"""Blocks of a report and their two renderings, in which a user's text stands as it is."""

from __future__ import annotations

import html
import re

import pytest

from bert_jax.reporting.figures import Chart, Series
from bert_jax.studies.report.blocks import (
    Bold,
    Bullets,
    Code,
    Figures,
    Html,
    Paragraph,
    Section,
    Table,
    Title,
    add_detail,
    drop_repeated,
    escape_markdown,
    find_figures,
    format_code,
    render_html,
    render_markdown,
    render_text,
)

HOSTILE = "<script>alert(1)</script> *a* [b](c) | `d` _e_ masking.prediction_rate"
SHOWN = (
    r"&lt;script&gt;alert(1)&lt;/script&gt; \*a\* \[b\](c) \| \`d\` \_e\_ masking.prediction_rate"
)
TABLE = Table(["rate", "loss"], [["15 %", "5.1"], ["40 %", (Bold("4.9"), " (4.8 to 5.0)")]])
CHART = Chart("Loss", [Series("", [(0.1, 5.0), (0.4, 4.9)])])
REPORT = [
    Title("rates", "Which rate is best?"),
    Section("Answer", [Paragraph("40 %.", lead=True), Figures({"loss": CHART}), TABLE]),
    Section("Empty", [Paragraph(""), Figures({})]),
    Section("Origin", [Bullets([("run by ", Code("a `b`"))]), add_detail("Cost", [TABLE])]),
    add_detail("Config", [Html("<p>seed</p>")]),
]


def test_markdown_leaves_out_details_and_empty_sections():
    assert render_markdown(REPORT, lambda name: f"figures/{name}.png") == (
        "# rates\n\nWhich rate is best?\n\n## Answer\n\n40 %.\n\n![Loss](figures/loss.png)\n\n"
        "| rate | loss |\n|---|---:|\n| 15 % | 5.1 |\n| 40 % | **4.9** (4.8 to 5.0) |\n\n"
        "## Origin\n\n- run by `` a `b` ``"
    )
    assert "![" not in render_markdown(REPORT)  # no file, no link


def test_page_has_every_section_and_folds_details():
    page = render_html(REPORT)
    assert page.startswith("<h1>Which rate is best?</h1>")
    assert re.findall("<h2>(.*?)</h2>", page) == ["Answer", "Origin", "Config"]
    assert re.findall("<summary>(.*?) <span", page) == ["Cost"]
    assert '<span class="held">2 rows</span>' in page
    assert "<b>4.9</b> (4.8 to 5.0)" in page
    assert "<code>a `b`</code>" in page
    assert page.count("<svg") == 1
    assert page.endswith("<p>seed</p></section>")


def test_page_links_to_its_sections_if_there_are_several():
    more = [*REPORT, Section("More", [Paragraph("x")])]
    assert "<nav" not in render_html(REPORT)
    page = render_html(more)
    links = re.findall('<a href="#(.+?)">(.+?)</a>', page)
    assert [title for _, title in links] == ["Answer", "Origin", "Config", "More"]
    assert [name for name, _ in links] == re.findall('<section id="(.+?)"', page)


def test_text_and_page_have_the_same_cells():
    plain = Table(["rate", "loss"], [["15 %", "5.1"]])
    assert render_text(plain).split() == ["rate", "loss", "15", "%", "5.1"]
    cells = re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", render_html([plain]))
    assert cells == ["rate", "loss", "15 %", "5.1"]


def test_find_figures_looks_into_sections():
    inner = add_detail("Further", [Figures({"second": CHART})])
    assert list(find_figures([*REPORT, Section("By rate", [inner])])) == ["loss", "second"]


def test_drop_repeated_shows_each_figure_once():
    inner = add_detail("Further", [Figures({"loss": CHART, "second": CHART}), TABLE])
    kept = drop_repeated([*REPORT, inner], set())
    assert list(kept[-1].blocks[0].figures) == ["second"]
    assert kept[-1].blocks[1] == TABLE
    assert find_figures(kept).keys() == {"loss", "second"}
    assert kept[1] == REPORT[1]


def test_both_renderings_show_a_users_text_as_it_is():
    blocks = [
        Title(HOSTILE, HOSTILE),
        Section(HOSTILE, [Paragraph(HOSTILE), Bullets([HOSTILE]), Table([HOSTILE], [[HOSTILE]])]),
    ]
    markdown = render_markdown(blocks)
    assert "<script" not in markdown
    assert markdown.splitlines()[0] == f"# {SHOWN}"
    assert markdown.count(SHOWN) == 7
    page = render_html(blocks)
    assert "<script" not in page
    assert page.count(html.escape(HOSTILE)) == 7


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("# a\n\n## b", "&#35; a ## b"),
        ("2. x", "&#50;. x"),
        ("- x", "&#45; x"),
        ("22.5 %", "22.5 %"),
        ("-1", "-1"),
    ],
)
def test_literal_begins_no_heading_and_no_list(text, shown):
    assert escape_markdown(text) == shown


def test_code_is_one_span_whatever_its_backticks():
    assert [format_code(one) for one in ("a b", "a `b`")] == ["`a b`", "`` a `b` ``"]
