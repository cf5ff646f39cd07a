"""The pages of runs, pointed at and clicked in a real browser, wide and slim, in light and dark."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from bert_jax.reporting import comparison, run_record, run_report
from bert_jax.reporting.page import contents, page, section
from tests import browser as browsers
from tests.browser import Browser
from tests.pages import a_run

SIZES = [(1400, False), (420, False), (1400, True), (420, True)]
pytestmark = pytest.mark.parametrize(("width", "dark"), SIZES)


@pytest.fixture(scope="module")
def tab(tmp_path_factory) -> Iterator[Browser]:
    yield from browsers.started(tmp_path_factory.mktemp("browser"))


@pytest.fixture
def browser(tab) -> Iterator[Browser]:
    yield tab
    assert tab.errors == []


def show(browser: Browser, html: str, width: int, dark: bool) -> None:
    """Open a page; nothing of it is wider than the window, and its ground has the theme."""
    browser.open(html, width=width, dark=dark)
    assert browser.js("document.documentElement.scrollWidth") == width
    ground = browser.js("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", ground)[:3])) < 200) == dark


def point(browser: Browser, figure: int, reading: int) -> str:
    """Move the mouse to the place of a reading; return what the page shows there."""
    script = (
        f"(() => {{ const chart = document.querySelectorAll('.chart')[{figure}];"
        "const svg = chart.querySelector('svg'); svg.scrollIntoView({ block: 'center' });"
        "const box = svg.getBoundingClientRect(), wide = svg.viewBox.baseVal.width;"
        f"const [x, y] = JSON.parse(chart.dataset.readings)[{reading}];"
        "return [box.left + x * box.width / wide, box.top + y * box.width / wide]; })()"
    )
    x, y = browser.js(script)
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    tips = "[...document.querySelectorAll('.tip')].filter(t => t.offsetParent)"
    shown = browser.js(f"{tips}.map(t => [t.textContent, t.getBoundingClientRect().right])")
    ((text, right),) = shown
    assert right <= browser.js("innerWidth")
    return text


def test_a_run(browser, tmp_path, width, dark):
    folder = a_run(tmp_path, {200: 5.0, 400: 4.5, 600: 4.75})
    show(browser, run_report.build(run_record.read(folder)), width, dark)
    assert point(browser, 0, 1) == "training, step 400: 4.5"
    assert point(browser, 1, 5) == ("training, step 600: 4.75\nvalidation, step 600: 4.75")
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=2, y=2)
    assert not browser.js("[...document.querySelectorAll('.tip')].some(t => t.offsetParent)")
    tiles = "document.querySelector('.tile .term')"
    browser.js(f"{tiles}.focus()")
    means = browser.js(f"getComputedStyle({tiles}, '::after').content")
    assert "hidden tokens" in means
    assert not browser.js("document.querySelector('.box details').open")
    browser.click(".box details > summary")
    assert browser.js("document.querySelector('.box details').open")


def test_runs_on_one_page(browser, tmp_path, width, dark):
    runs = [
        a_run(tmp_path / name, {200: loss, 400: loss - 1}) for name, loss in (("a", 5), ("b", 6))
    ]
    show(browser, comparison.build([run_record.read(run) for run in runs]), width, dark)
    assert point(browser, 0, 3) == "b, step 400: 5"
    colours = "document.querySelectorAll('.runs i')"
    drawn = browser.js(
        f"[...{colours}].map(i => getComputedStyle(i).backgroundColor)"
        ".map(c => [...document.querySelectorAll('.chart path')]"
        ".some(p => getComputedStyle(p).stroke === c))"
    )
    assert drawn == [True, True]


def test_links_lead_to_sections_and_unfold_them(browser, width, dark):
    body = "".join(section(f"Part {n}", f"<p>{'text ' * 999}</p>") for n in range(4))
    folded = '<section id="to-end"><details><summary><h2>End</h2></summary>all</details></section>'
    links = contents(body) + f'<a id="last" href="#to-end">{json.dumps("End")}</a>'
    show(browser, page("t", links + body + folded), width, dark)
    browser.click(".contents a:nth-of-type(3)")
    browser.wait("scrollY > 300")
    browser.click("#last")
    browser.wait("document.querySelector('#to-end details').open")
