"""The pages of attention and embeddings, clicked and typed into in a real browser: what they show
and save against numpy.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from xml.etree import ElementTree

import matplotlib.image
import numpy as np
import pytest

import bert_jax
from bert_jax.api import Page
from bert_jax.reporting.page import contents, section
from bert_jax.reporting.page import page as document
from bert_jax.views import vectors
from tests import browser as browsers
from tests.browser import Browser
from tests.test_inspect_attention import CAT, FOLDER, data_of, weights_of
from tests.test_inspect_embeddings import asked, rows

pytestmark = pytest.mark.slow
SVG = "{http://www.w3.org/2000/svg}"
WORDS = ["the cat , a dog .", "the dog walked", "a big red cat ?"]
LABELLED = [
    {"text": text, "label": label}
    for text, label in zip(
        ["the cat", "a dog", "a mat", "the dog", "jumping"], "xyxxy", strict=True
    )
]
SIZES = [(1400, False), (420, False), (1400, True), (420, True)]


@pytest.fixture(scope="module")
def tab(tmp_path_factory) -> Iterator[Browser]:
    yield from browsers.started(tmp_path_factory.mktemp("browser"))


@pytest.fixture
def browser(tab) -> Iterator[Browser]:
    yield tab
    assert tab.errors == []


@pytest.fixture(scope="module")
def model() -> bert_jax.Model:
    return bert_jax.load(FOLDER)


@pytest.fixture(scope="module")
def attention(model) -> Page:
    return model.inspect("attention", [CAT])


@pytest.fixture(scope="module")
def words(model) -> Page:
    return model.inspect("embeddings", WORDS, points="words", neighbours=3)


@pytest.fixture(scope="module")
def labelled(model) -> Page:
    return model.inspect("embeddings", LABELLED)


def show(browser: Browser, page: Page, **how) -> None:
    browser.open(page.html, **how)
    browser.wait("document.documentElement.dataset.ready || document.querySelector('#one h3')")


def svg_of(saved: bytes) -> ElementTree.Element:
    return ElementTree.fromstring(saved)


def size_of(svg: ElementTree.Element) -> tuple[float, float]:
    return float(svg.get("width")), float(svg.get("height"))


def rgb(text: str) -> list[int]:
    """The numbers of `#rrggbb` or `rgb(r, g, b)`."""
    if text.startswith("#"):
        return [int(text[i : i + 2], 16) for i in (1, 3, 5)]
    return [int(x) for x in re.findall(r"\d+", text)]


# --- attention ------------------------------------------------------------------------------------


def strongest(weights: np.ndarray, most: int, least: float) -> set[tuple[int, int]]:
    """Of each row the largest weights over a threshold, as (row, column)."""
    order = np.argsort(-weights, 1, kind="stable")[:, : most or None]
    return {(i, int(j)) for i, row in enumerate(order) for j in row if weights[i, j] >= least}


def lines_of(svg: ElementTree.Element, count: int) -> list[tuple[int, int, float, str]]:
    """Row, column, weight and colour of every line between tokens."""
    high = 22
    found = []
    for line in svg.iter(f"{SVG}line"):
        if line.get("stroke-opacity"):
            i, j = (round(float(line.get(end)) / high - 0.5) for end in ("y1", "y2"))
            found.append((i, j, float(line.get("stroke-opacity")) ** 2, line.get("stroke")))
    assert all(0 <= i < count and 0 <= j < count for i, j, *_ in found)
    return found


def test_lines_are_the_strongest_weights_of_each_token_over_the_threshold(browser, attention):
    show(browser, attention)
    weights = weights_of(data_of(attention.html))
    n = weights.shape[-1]
    for most, step, least in (
        (3, None, 0.05),
        (2, None, 0.05),
        (2, 6, 0.2),
        (0, 6, 0.2),
        (0, 0, 0),
    ):
        if (most, step) != (3, None):
            browser.choose("[name=most]", str(most))
        if step is not None:
            browser.choose("[name=least]", str(step))
        wanted = strongest(weights[0, 0], most, max(least, 0.002))
        saved = browser.download(
            "[data-view=lines] .save button", "attention-lines-layer1-head1.svg"
        )
        found = lines_of(svg_of(saved), n)
        assert {(i, j) for i, j, *_ in found} == wanted
        assert len(found) == len(wanted)
        for i, j, weight, _ in found:
            assert weight == pytest.approx(weights[0, 0, i, j], abs=2e-3)
        share = 100 * sum(weights[0, 0, i, j] for i, j in wanted) / weights[0, 0].sum()
        told = f"{len(wanted)} of {n * n} weights are drawn: {share:.1f} % of their sum."
        assert browser.texts(".kept") == [told]
        assert browser.texts("#least") == [str(least) if least else "any"]
    browser.choose("[name=least]", "7")
    browser.click("[name=plain]")
    assert "most=0&least=0.5" in browser.js("location.hash")
    assert "plain=1" in browser.js("location.hash")
    saved = browser.download("[data-view=lines] .save button", "attention-lines-layer1-head1.svg")
    special = {0, 7, 11}  # [CLS] and [SEP]
    assert not any({i, j} & special for i, j, *_ in lines_of(svg_of(saved), n))


def test_several_heads_have_colours_and_a_legend(browser, attention):
    show(browser, attention)
    weights = weights_of(data_of(attention.html))
    assert browser.texts("#heads button") == ["1", "2", "rollout", "all"]
    browser.click("#heads button:nth-of-type(2)")
    assert browser.js("location.hash").endswith("&heads=1,2")
    assert browser.texts("#said")[0].startswith("layer 1, head 2: entropy ")
    hues = browser.js(
        "[...document.querySelectorAll('#heads button')].slice(0, 2)"
        ".map(b => getComputedStyle(b, '::before').backgroundColor)"
    )
    saved = browser.download("[data-view=lines] .save button", "attention-lines-layer1-head2.svg")
    svg = svg_of(saved)
    found = lines_of(svg, weights.shape[-1])
    assert rgb(hues[0]) != rgb(hues[1])
    for head, hue in enumerate(hues):
        mine = {(i, j) for i, j, _, colour in found if rgb(colour) == rgb(hue)}
        assert mine == strongest(weights[0, head], 3, 0.05)
    texts = [text.text.strip("\u2068\u2069") for text in svg.iter(f"{SVG}text")]
    assert texts[-3:] == [
        "head 1",
        "head 2",
        "layer 1: the 3 strongest of each token, weights from 0.05",
    ]
    swatches = [one for one in svg.iter(f"{SVG}line") if not one.get("stroke-opacity")]
    assert [rgb(one.get("stroke")) for one in swatches] == [rgb(hue) for hue in hues]
    browser.click("#heads button:nth-of-type(1)")  # lets the first go
    pressed = "[...document.querySelectorAll('#heads [aria-pressed=true]')].map(b => b.textContent)"
    assert browser.js(pressed) == ["2"]
    browser.click("#heads button.plain")
    assert browser.js(pressed) == ["1", "2"]
    browser.click("#heads button.plain")
    assert browser.js(pressed) == ["2"]
    browser.open(attention.html, address="layer=2&head=1&heads=1,rollout&most=1&least=0")
    browser.wait("document.documentElement.dataset.ready")
    assert browser.js(pressed) == ["1", "rollout"]
    assert browser.js("[form.most.value, form.least.value, form.layer.value]") == ["1", "0", "1"]


@pytest.mark.parametrize("dark", [False, True])
def test_a_saved_matrix_has_the_shades_of_the_weights(browser, attention, dark):
    show(browser, attention, dark=dark)
    weights = weights_of(data_of(attention.html))[0, 0]
    button, name = "[data-view=matrix] .save button:nth-of-type", "attention-matrix-layer1-head1"
    svg = svg_of(browser.download(f"{button}(1)", f"{name}.svg"))
    width, height = size_of(svg)
    png = matplotlib.image.imread(io.BytesIO(browser.download(f"{button}(2)", f"{name}.png")))
    assert png.shape[:2] == (3 * height, 3 * width)
    cells = next(svg.iter(f"{SVG}image"))
    x, y, wide, high = (float(cells.get(key)) for key in ("x", "y", "width", "height"))
    low, top = (rgb(browser.js(f"css('{colour}')")) for colour in ("card", "c1"))
    n = len(weights)
    for i, j in np.ndindex(n, n):
        at = int(3 * (y + (i + 0.5) * high / n)), int(3 * (x + (j + 0.5) * wide / n))
        shade = np.sqrt(weights[i, j]) * np.subtract(top, low) + low
        np.testing.assert_allclose(255 * png[at][:3], shade, atol=3)
    assert [text.text.strip("\u2068\u2069") for text in svg.iter(f"{SVG}text")][-4:] == [
        *("0", "0.1", "0.5", "1"),
    ]
    assert len(list(svg.iter(f"{SVG}rect"))) == 3  # the ground, two borders, and no cursor


def test_a_click_chooses_a_weight_and_a_token(browser, attention):
    show(browser, attention)
    weights = weights_of(data_of(attention.html))
    browser.click("[data-view=matrix] svg.heat")
    hash = dict(pair.split("=") for pair in browser.js("location.hash")[1:].split("&"))
    i, j = int(hash["from"]) - 1, int(hash["to"]) - 1
    assert browser.texts("#said")[0].endswith(f"{weights[0, 0, i, j]:.6f}")
    browser.click(".tokens.from li:nth-child(3)")
    assert browser.texts(".tokens.to i") == [f"{w:.6f}" for w in weights[0, 0, 2]]
    browser.press("Escape")
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=2, y=2)
    browser.click(".heads td[data-layer='1'][data-head='0']")
    assert browser.js("location.hash").startswith("#layer=2&head=1")


# --- embeddings -----------------------------------------------------------------------------------


def shown_rows(browser: Browser) -> list[str]:
    return browser.texts("#near tbody tr:not([hidden]) th")


def test_a_search_finds_points_and_enter_goes_through_them(browser, words):
    show(browser, words)
    browser.click("#find")
    browser.call("Input.insertText", text="DOG")
    assert browser.texts("#found") == ["2 of 14"]
    assert shown_rows(browser) == ["dog₁", "dog₂"]
    dim = "[...document.querySelectorAll('#map circle')].map(c => c.classList.contains('dim'))"
    bright = [i for i, is_dim in enumerate(browser.js(dim)) if not is_dim]
    assert len(bright) <= 2 + 3  # what is found, and the neighbours of the first
    assert {4, 7} <= set(bright)
    seen = browser.texts("#one h3")
    for _ in range(2):
        browser.press("Enter")
        seen += browser.texts("#one h3")
    assert seen == ["dog₁", "dog₂", "dog₁"]
    assert browser.js("document.activeElement.id") == "find"


def test_without_punctuation_there_is_none_on_the_map_and_among_neighbours(browser, model, words):
    show(browser, words)
    browser.click("#map circle:nth-of-type(3)")
    assert browser.texts("#one h3") == [",₁"]
    browser.click("#plain")
    hidden = "[...document.querySelectorAll('#map circle')].map(c => getComputedStyle(c).display)"
    gone = [i for i, display in enumerate(browser.js(hidden)) if display == "none"]
    assert gone == [2, 5, 13]
    assert not {",₁", ".₁", "?₃"} & set(shown_rows(browser))
    assert browser.texts("#one h3") == ["the₁"]
    points = vectors.points(asked(model.opened), rows(WORDS), words=True)
    one = vectors.unit(points.vectors[3, 0])
    cosines = one @ one.T - 9 * np.eye(14)
    cosines[:, gone] = -9
    best = [f"{c:.4f}" for c in -np.sort(-cosines[0])[:3]]
    assert browser.texts("#one ol:first-of-type b") == best
    svg = svg_of(browser.download("#map .save button", "embeddings-pca-3.svg"))
    assert len(list(svg.iter(f"{SVG}circle"))) == 11
    browser.click("#plain")
    assert len(shown_rows(browser)) == 14


def test_neighbours_say_where_they_stand_and_a_click_goes_there(browser, words):
    show(browser, words)
    browser.click("#map circle:nth-of-type(5)")
    assert browser.texts("#one .note")[0] == "text 1, word 5 · 5 of 14 · 1 token"
    name, place = browser.texts("#one li bdi")[0], browser.texts("#one li small")[0]
    assert re.fullmatch(r"text [123], word \d", place)
    row = place.removeprefix("text ").replace(", word ", ":")
    near = browser.texts("#near tbody tr:nth-child(5) td:nth-child(4) span")[0]
    assert near.startswith(f"{name} {row} ")
    browser.click("#one li button")
    assert browser.texts("#one h3") == [name]
    assert browser.texts("#one .note")[0].startswith(f"{place} · ")


def test_points_have_the_colour_of_their_label_or_text(browser, words, labelled):
    show(browser, labelled)
    assert browser.texts("#colour option") == ["nothing", "label"]
    assert [
        name.strip("\u2068").replace("\u2069", "") for name in browser.texts("#legend button")
    ] == [
        *("x: 3", "y: 2"),
    ]
    fills = "[...document.querySelectorAll('#map circle')].map(c => getComputedStyle(c).fill)"
    hues = browser.js(
        "[...document.querySelectorAll('#legend button')]"
        ".map(b => getComputedStyle(b, '::before').backgroundColor)"
    )
    assert browser.js(fills) == [hues["xy".index(one["label"])] for one in LABELLED]
    svg = svg_of(browser.download("#map .save button", "embeddings-pca-3.svg"))
    assert [circle.get("fill") for circle in svg.iter(f"{SVG}circle")] == browser.js(fills)
    texts = [text.text.strip("\u2068\u2069") for text in svg.iter(f"{SVG}text")]
    assert texts[-2:] == ["x", "y"]
    browser.click("#legend button:nth-child(2)")
    assert browser.texts("#found") == ["2 of 5"]
    assert shown_rows(browser) == ["a dog", "jumping"]
    browser.click("#legend button:nth-child(2)")
    assert len(shown_rows(browser)) == 5
    browser.choose("#colour", "")
    assert len(set(browser.js(fills)) - set(hues)) <= 2  # the chosen point and its neighbours
    assert browser.texts("#legend button") == []
    show(browser, words)
    assert browser.texts("#colour option") == ["nothing", "text"]
    assert len(browser.texts("#legend button")) == len(set(browser.js(fills))) == len(WORDS)


def test_more_labels_than_colours_share_the_last_one(browser, model):
    texts = [{"text": f"the {'cat ' * k}", "label": f"label {k}"} for k in range(1, 16)]
    show(browser, model.inspect("embeddings", texts))
    names = browser.texts("#legend button")
    assert len(names) == 12
    assert "others" in names[-1]
    assert names[-1].endswith(" 4")


# --- every page -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "dark"), SIZES)
def test_pages_fit_their_window_in_light_and_dark(browser, attention, words, labelled, width, dark):
    for page in (attention, words, labelled):
        show(browser, page, width=width, dark=dark)
        over = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert browser.js(over) <= 0
        ground = browser.js("getComputedStyle(document.body).backgroundColor")
        assert (sum(rgb(ground)) < 200) == dark
        for selector in (".tools", ".save", "#map svg", "[data-view=matrix]"):
            boxes = browser.js(
                f"[...document.querySelectorAll('{selector}')].filter(e => e.offsetParent)"
                ".map(e => e.getBoundingClientRect().right)"
            )
            assert all(right <= width for right in boxes)


def test_lines_of_attention_are_short_and_beside_the_matrix_where_there_is_room(browser, attention):
    box = "(() => { const b = document.querySelector('{}').getBoundingClientRect();"
    box += "return [b.left, b.top, b.right]; })()"
    for width in (1400, 420):
        show(browser, attention, width=width)
        lines, matrix, tokens = (
            browser.js(box.replace("{}", selector))
            for selector in ("[data-view=lines]", "[data-view=matrix]", ".lines")
        )
        assert tokens[2] - tokens[0] <= 600
        assert (matrix[0] > lines[2] and matrix[1] == lines[1]) == (width == 1400)


def test_texts_are_beside_one_another_and_not_their_figures(browser, model):
    show(browser, model.inspect("attention", [CAT, CAT]))
    boxes = browser.js(
        "[...document.querySelectorAll('[data-view=lines], [data-view=matrix]')]"
        ".map(e => e.getBoundingClientRect().top)"
    )
    assert boxes[0] == boxes[1] < boxes[2] == boxes[3]


def test_links_lead_to_sections_inside_a_notebook(browser):
    sections = "".join(section(f"Part {n}", "<p>text</p>" * 99) for n in range(4))
    framed = Page(document("Sections", contents(sections) + sections), "sections")
    browser.open(f"<!doctype html><title>t</title>{framed._repr_html_()}")
    inside = "document.querySelector('iframe').contentDocument"
    browser.wait(f"{inside}.querySelector('.contents')")
    browser.click(".contents a:nth-of-type(3)", "iframe")
    browser.wait(f"{inside}.defaultView.scrollY > 900")
    assert browser.js(f"{inside}.querySelector('h2').textContent") == "Part 0"


def test_pages_work_inside_a_notebook(browser, model, attention, words):
    """A notebook puts each into a frame of its own, which has no address."""
    drawn = model.inspect("generation", ["the [MASK] sat"])
    frames = "".join(page._repr_html_() for page in (attention, words, drawn))
    browser.open(f"<!doctype html><title>t</title><main id='data'>{frames}</main>")
    inside = "document.querySelectorAll('iframe')[{}].contentDocument"
    ready = f"{inside.format(0)}.documentElement.dataset.ready && {inside.format(1)}"
    browser.wait(f"{ready}.querySelector('#one h3') && {inside.format(2)}.querySelector('.tokens')")
    first, second, third = (f"iframe:nth-of-type({n})" for n in (1, 2, 3))
    browser.click("#heads button:nth-of-type(2)", first)
    browser.click("[data-view=model] svg.heat", first)
    pressed = "[...{}.querySelectorAll('#heads [aria-pressed=true]')].map(b => b.textContent)"
    assert browser.js(pressed.format(inside.format(0))) == ["1", "2"]
    browser.click("#plain", second)
    browser.click("#legend button", second)
    assert browser.js(f"{inside.format(1)}.querySelector('#found').textContent") == "4 of 14"
    browser.click("#play", third)
    browser.wait(f"{inside.format(2)}.querySelector('#said').textContent.startsWith('round 1')")
    assert browser.js("location.hash") == ""
    assert browser.js("document.querySelector('iframe').title") == "attention of 1 text"
