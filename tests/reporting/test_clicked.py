"""Pages of runs and studies, pointed at and clicked in a browser, wide and slim, light and dark."""

import numpy as np
import pytest

from bert_jax.reporting import comparison, run_record, run_report
from bert_jax.studies import tables
from bert_jax.studies.folder import StudyFolder
from bert_jax.studies.report.blocks import render_html
from tests.browser import SIZES, Browser
from tests.pages import a_run
from tests.studies.views import compose, read_view
from tests.texts import ROOT

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
    shown = browser.js(f"{TIPS}.map(t => [t.textContent, t.getBoundingClientRect().right])")
    ((text, right),) = shown
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
    page = comparison.build_comparison([run_record.read_run(run) for run in runs])
    browser.show(page, width, dark)
    assert point_at(browser, 0, 3) == "b, step 400: 5"
    drawn = browser.js(
        "[...document.querySelectorAll('.runs i')]"
        ".map(i => getComputedStyle(i).backgroundColor)"
        ".map(c => [...document.querySelectorAll('.chart path')]"
        ".some(p => getComputedStyle(p).stroke === c))"
    )
    assert drawn == [True, True]


def test_study_page_shows_means_and_unfolds_details(browser, width, dark):
    place = StudyFolder(ROOT / "experiments" / "precision")
    browser.show(render_html(compose(read_view(place))), width, dark)
    cells = [row for row in tables.read_csv(place.csv) if row["precision"] == "float32"]
    mean = np.mean([float(row["validation/mlm_loss"]) for row in cells])
    assert point_at(browser, 0, 0).startswith(f"float32: {mean:.6g} (")
    browser.click(".contents a:nth-of-type(4)")
    browser.wait("scrollY > 300")
    browser.click(".contents a:last-of-type")
    browser.wait("document.querySelector('#to-config details').open")
    browser.js("document.querySelectorAll('details').forEach(box => box.open = true)")
    boxes = "[...document.querySelectorAll('.box .scroll')].filter(e => e.getClientRects().length)"
    assert browser.js(f"{boxes}.length") > 3
    assert browser.js(f"{boxes}.every(e => e.scrollWidth <= e.clientWidth + 1)"), "a table is cut"
