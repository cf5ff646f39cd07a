"""Files of figures: three kinds, the same bytes every time, and where their numbers come from."""

from xml.etree import ElementTree

import pytest

from bert_jax.reporting import files
from bert_jax.reporting.figures import Chart, Series
from tests.reporting.kinds import EMPTY, LINE


def test_figures_without_values_make_no_file(tmp_path):
    assert files.write_figures(tmp_path / "f", EMPTY) == []
    assert list(tmp_path.iterdir()) == []


def test_files_name_their_source_and_do_not_change(tmp_path):
    figures = [LINE, EMPTY[0]]
    written = files.write_figures(tmp_path / "f", figures, columns=2, source="study x, 3 & 4")
    assert [path.name for path in written] == ["f.png", "f.svg", "f.pdf"]
    before = [path.read_bytes() for path in written]
    for content, source in zip(before, (b"x, 3 & 4", b"x, 3 &amp; 4", b"x, 3 & 4"), strict=True):
        assert source in content
    files.write_figures(tmp_path / "f", figures, columns=2, source="study x, 3 & 4")
    assert [path.read_bytes() for path in written] == before
    root = ElementTree.fromstring(before[1])
    assert "loss (nats)" in [text.text for text in root.findall(".//{*}text")]


@pytest.mark.fault(18)
def test_names_of_any_characters_are_drawn(tmp_path):
    chart = Chart("a\x00b\x1b[0m <&> $x^2$", [Series("\x07 長い $", [(0, 1)])], rows=["長" * 40])
    written = files.write_figures(tmp_path / "f", [chart])
    assert len(written) == 3
    assert "$x^2$" in "".join(ElementTree.fromstring(written[1].read_text()).itertext())
