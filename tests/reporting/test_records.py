"""Lines that a run writes: torn and broken ones are left out."""

import json

import pytest

from bert_jax.reporting import records


@pytest.mark.fault(1)
def test_broken_lines_are_left_out_with_a_warning(tmp_path, capsys):
    good = [{"step": 2, "time": 2.5, "train/loss": 3.0}, {"step": 1}]
    broken = ['{"step": "x"}', '{"time": 3}', "[]", "3", '{"step": 2', "[" * 100_000]
    file = tmp_path / records.METRICS
    file.write_text("\n".join([*map(json.dumps, good), *broken, '{"step": 9, "tr']))
    assert list(records.read_rows(file)) == good
    error = capsys.readouterr().err
    assert error.startswith(f"warning: {file}:3: ")
    assert error.endswith("6 left out\n")
    assert records.read_sorted(file) == good[::-1]
    assert records.read_sorted(tmp_path / "none") == []
    assert records.read_sorted(file, "time") == good[:1]
    assert "with a step and time; 7 left out\n" in capsys.readouterr().err
