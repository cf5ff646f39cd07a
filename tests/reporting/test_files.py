"""Files of figures: three kinds, the same bytes every time, and where their numbers come from."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from matplotlib import image

from bert_jax.reporting import files
from bert_jax.reporting.figures import Chart, Series
from bert_jax.reporting.palette import LIGHT
from tests.reporting.shown import EMPTY, FIGURES, HEAT, LINE


@pytest.mark.parametrize("empty", EMPTY)
def test_no_values_no_file(empty, tmp_path):
    assert files.write(tmp_path / "f", [empty]) == []
    assert list(tmp_path.iterdir()) == []


def test_files_name_their_source_and_do_not_change(tmp_path):
    figures = [*FIGURES, EMPTY[0]]
    written = files.write(tmp_path / "f", figures, columns=2, source="study x, 3 & 4")
    assert [path.name for path in written] == ["f.png", "f.svg", "f.pdf"]
    before = [path.read_bytes() for path in written]
    assert b"study x, 3 & 4" in before[0]
    assert b"study x, 3 &amp; 4" in before[1]
    assert b"study x, 3 & 4" in before[2]
    files.write(tmp_path / "f", figures, columns=2, source="study x, 3 & 4")
    assert [path.read_bytes() for path in written] == before
    root = ElementTree.fromstring(before[1])
    texts = [text.text for text in root.findall(".//{*}text")]
    assert "loss (nats)" in texts
    assert not any("study x" in text for text in texts)


def test_fonts_in_a_pdf_are_those_that_publishers_take(tmp_path):
    (written,) = files.write(tmp_path / "f", [LINE], kinds=("pdf",))
    assert b"/CIDFontType2" in written.read_bytes()
    assert b"/Type3" not in written.read_bytes()


def test_a_png_shows_the_colours_of_its_cells(tmp_path):
    (written,) = files.write(tmp_path / "f", [HEAT], kinds=("png",))
    pixels = (image.imread(written)[:, :, :3] * 255).round().astype(int)
    seen = {tuple(pixel) for pixel in pixels.reshape(-1, 3)}
    shade = [int(part, 16) for part in re.findall("..", LIGHT["shade"][1:])]
    for strength in (0.55, 0.275, 0.0):
        colour = [255 + strength * (part - 255) for part in shade]
        assert any(max(abs(a - b) for a, b in zip(colour, one, strict=True)) < 2 for one in seen)


def test_a_name_of_any_characters_is_drawn(tmp_path):
    chart = Chart("a\x00b\x1b[0m <&> $x^2$", [Series("\x07 長い $", [(0, 1)])], rows=["長" * 40])
    written = files.write(tmp_path / "f", [chart])
    root = ElementTree.fromstring(written[1].read_text())
    assert "$x^2$" in "".join(root.itertext())
    assert len(written) == 3
