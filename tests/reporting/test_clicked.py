"""The pages of runs, pointed at and clicked in a real browser, wide and slim, in light and dark."""

from __future__ import annotations

import pytest

from bert_jax.reporting import comparison, run_record, run_report
from bert_jax.studies.report.blocks import Paragraph, Section, Title, render_html
from tests.browser import SIZES, Browser
from tests.pages import a_run

pytestmark = pytest.mark.parametrize(("width", "dark"), SIZES)
TIPS = "[...document.querySelectorAll('.tip')].filter(t => t.offsetParent)"


def point_at(browser: Browser, figure: int, reading: int) -> str:
    """Move the mouse to the place of a reading; return what the page shows there."""
    script = (
        f"(() => {{ const chart = document.querySelectorAll('.chart')[{figure}];"
        "const svg = chart.querySelector('svg'); svg.scrollIntoView({ block: 'center' });"
        "const box = svg.getBoundingClientRect(), wide = svg.viewBox.baseVal.width;"
        f"const [x, y] = JSON.parse(chart.dataset.readings)[{reading}];"
        "return [box.left + x * box.width / wide, box.top + y * box.width / wide]; })()"
    )
    browser.point(*browser.js(script))
    ((text, right),) = browser.js(
        f"{TIPS}.map(t => [t.textContent, t.getBoundingClientRect().right])"
    )
    assert right <= browser.js("innerWidth")
    return text


def test_run_page_shows_values_and_meanings(browser, tmp_path, width, dark):
    folder = a_run(tmp_path, {200: 5.0, 400: 4.5, 600: 4.75})
    browser.show(run_report.build_report(run_record.read_run(folder)), width, dark)
    assert point_at(browser, 0, 1) == "training, step 400: 4.5"
    assert point_at(browser, 1, 5) == "training, step 600: 4.75\nvalidation, step 600: 4.75"
    browser.point(2, 2)
    assert not browser.js(f"{TIPS}.length")
    term = "document.querySelector('.tile .term')"
    browser.js(f"{term}.focus()")
    assert "hidden tokens" in browser.js(f"getComputedStyle({term}, '::after').content")
    browser.click(".box details > summary")
    assert browser.js("document.querySelector('.box details').open")


def test_runs_on_one_page_have_their_colours(browser, tmp_path, width, dark):
    runs = [a_run(tmp_path / name, {200: at, 400: at - 1}) for name, at in (("a", 5), ("b", 6))]
    browser.show(
        comparison.build_comparison([run_record.read_run(run) for run in runs]), width, dark
    )
    assert point_at(browser, 0, 3) == "b, step 400: 5"
    drawn = browser.js(
        "[...document.querySelectorAll('.runs i')]"
        ".map(i => getComputedStyle(i).backgroundColor)"
        ".map(c => [...document.querySelectorAll('.chart path')]"
        ".some(p => getComputedStyle(p).stroke === c))"
    )
    assert drawn == [True, True]


def test_links_lead_to_sections_and_unfold_them(browser, width, dark):
    text = [Paragraph("text " * 999)]
    parts = [Section(f"Part {n}", text) for n in range(4)]
    browser.show(render_html([Title("t"), *parts, Section("End", text, detail=True)]), width, dark)
    browser.click(".contents a:nth-of-type(3)")
    browser.wait("scrollY > 300")
    browser.click(".contents a:last-of-type")
    browser.wait("document.querySelector('#to-end details').open")
