"""The pages of a model, clicked and typed into in a real browser, against numpy.

Every page is opened wide and light, and slim and dark, and none of its scripts may complain.
"""

import numpy as np
import pytest

import bert_jax
from tests.browser import SIZES
from tests.views.making import CAT, DOG, FOLDER, read_data, read_weights

LABELLED = [
    {"text": "the cat , a dog .", "label": "x"},
    {"text": "the dog walked", "label": "y"},
    {"text": "a big red cat ?", "label": "x"},
]
pytestmark = pytest.mark.parametrize(("width", "dark"), SIZES)


@pytest.fixture(scope="module")
def model() -> bert_jax.Model:
    return bert_jax.load(FOLDER)


def test_attention_figures_follow_clicks(browser, model, width, dark):
    page = model.inspect("attention", [CAT, DOG])
    weights = read_weights(read_data(page.html))
    browser.show(page.html, width, dark)
    lines = "document.querySelectorAll('[data-figure=lines][data-text=\"0\"] line').length"
    assert browser.js(lines) == (weights[0, 0] >= 0.05).sum()
    browser.click("#heads button:nth-of-type(2)")  # a second head
    both = (weights[0, :2] >= 0.05).sum()
    assert browser.js(lines) == both
    browser.choose("[name=least]", "0.2")
    assert browser.js(lines) == (weights[0, :2] >= 0.2).sum() < both
    browser.choose("[name=least]", "0.05")
    browser.click(".tokens.from li:nth-child(3) button")  # only the lines of this token
    browser.point(2, 2)
    browser.js("document.activeElement.blur()")
    assert browser.js(lines) == (weights[0, :2, 2] >= 0.05).sum()
    browser.click(".tokens.from li:nth-child(3) button")
    browser.click(".thumbnails button:nth-of-type(6)")  # the rollout to layer 2
    assert browser.texts("#said") == ["rollout to layer 2"]
    x, y = browser.place(".cells")
    size = "(c => [c.clientWidth, c.clientHeight])(document.querySelector('.cells'))"
    wide, high = browser.js(size)
    browser.point(x - 4.5 / 12 * wide, y - 1.5 / 12 * high)  # the second column, the fifth row
    weight = float(f"{weights[1, 2, 4, 1]:.2g}")
    said = f"rollout to layer 2: \u2068on\u2069 5 → \u2068the\u2069 2: {weight:g}"
    assert browser.texts("#said") == [said]
    shades = "(c => { const pen = new OffscreenCanvas(12, 12).getContext('2d');"
    shades += "pen.drawImage(c, 0, 0); return [...pen.getImageData(0, 0, 12, 12).data]; })"
    shown = np.reshape(browser.js(f"{shades}(document.querySelector('.cells'))"), (12, 12, 4))
    np.testing.assert_array_equal(shown[..., 3], np.rint(255 * np.sqrt(weights[1, 2])))
    browser.click("[name=plain]")
    shown = np.reshape(browser.js(f"{shades}(document.querySelector('.cells'))"), (12, 12, 4))
    assert not shown[[0, 7, 11], :, 3].any()


def test_words_are_found_chosen_and_filtered(browser, model, width, dark):
    page = model.inspect("embeddings", LABELLED, points="words", neighbours=3)
    data = read_data(page.html)
    browser.show(page.html, width, dark)
    rows = "#near tbody tr:not([hidden]) th"
    assert browser.texts("#legend button") == ["x: 11", "y: 3"]
    circles = "[...document.querySelectorAll('#map circle')]"
    fills = browser.js(f"{circles}.map(c => getComputedStyle(c).fill)")
    buttons = "[...document.querySelectorAll('#legend button')]"
    hues = browser.js(f"{buttons}.map(b => getComputedStyle(b, '::before').backgroundColor)")
    assert fills == [hues["xy".index(LABELLED[row]["label"])] for row in data["rows"]]
    browser.click("#legend button:nth-child(2)")
    assert browser.texts("#found") == ["3 of 14"]
    assert browser.texts(rows) == ["the₂", "dog₂", "walked₂"]
    browser.click("#legend button:nth-child(2)")
    browser.click("#find")
    browser.call("Input.insertText", text="DOG")
    assert browser.texts("#found") == ["2 of 14"]
    assert browser.texts(rows) == ["dog₁", "dog₂"]
    seen = []
    for _ in range(3):
        browser.press_enter()
        seen += browser.texts("#one h3")
    assert seen == ["dog₁", "dog₂", "dog₁"]
    browser.choose("#find", "")
    browser.choose("#layer", "1")
    near = data["views"]["1 0"]["near"]
    at = data["names"].index("dog₁")
    names = [data["names"][other] for other in near[0][at]]
    assert browser.texts("#one ol:first-of-type bdi") == names
    assert browser.texts("#one ol:first-of-type b") == [f"{c:.3f}" for c in near[1][at]]
    browser.click("#one li button")
    assert browser.texts("#one h3") == names[:1]
    browser.click("#map circle:nth-of-type(5)")
    assert browser.texts("#one h3") == [data["names"][4]]


def test_rounds_follow_clicks_and_slider(browser, model, width, dark):
    page = model.inspect("generation", ["the [MASK] sat on [MASK] mat", "a [MASK]"], steps=2)
    steps = read_data(page.html)["texts"][0]["steps"]
    first, second = steps[0][0]["place"] + 1, steps[1][0]["place"] + 1
    browser.show(page.html, width, dark)
    box = ".tokens li:nth-child({})"
    look = "document.querySelector('{}').className"
    assert browser.js(look.format(box.format(second))) == "chosen new"
    browser.click(box.format(first))  # to the round of this token
    assert browser.texts("#said")[0].startswith("round 1 of 2: 2 tokens, probability ")
    assert browser.js(look.format(box.format(first))) == "chosen new"
    assert browser.js(look.format(box.format(second))) == "masked"
    browser.choose("#round", "2")
    assert browser.texts("#said")[0].startswith("round 2 of 2: 1 token, probability ")


def test_pages_work_inside_a_notebook(browser, model, width, dark):
    """A notebook puts each into a frame of its own, which has no address."""
    pages = [model.inspect("attention", [CAT]), model.inspect("embeddings", LABELLED)]
    frames = "".join(page._repr_html_() for page in pages)
    whole = f"<!doctype html><title>t</title><main id='data'>{frames}</main>"
    browser.open(whole, width=width, dark=dark)
    inside = "document.querySelectorAll('iframe')[{}].contentDocument"
    for number in (0, 1):
        browser.wait(f"{inside.format(number)}.documentElement.dataset.ready")
    browser.click("#heads button:nth-of-type(2)", "iframe:nth-of-type(1)")
    pressed = f"[...{inside.format(0)}.querySelectorAll('#heads [aria-pressed=true]')]"
    assert browser.js(f"{pressed}.map(b => b.textContent)") == ["1", "2"]
    browser.click("#legend button", "iframe:nth-of-type(2)")
    assert browser.js(f"{inside.format(1)}.querySelector('#found').textContent") == "2 of 3"
