"""Runs of one program go on from the last step that is sound in all of them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from bert_jax.errors import CheckpointError
from bert_jax.training.runs import last_common_step
from tests.checkpoints.states import flip_bit, save_steps


def test_last_common_step_is_sound_in_all_runs(tmp_path, capsys):
    folders = [tmp_path / name / "checkpoints" for name in "ab"]
    save_steps(folders[0], 4, 8, 12)
    save_steps(folders[1], 4, 8)
    runs = [SimpleNamespace(checkpoints=SimpleNamespace(folder=folder)) for folder in folders]
    assert last_common_step(runs) == 8
    flip_bit(folders[1] / "8" / "rest" / "_METADATA")
    assert last_common_step(runs) == 4
    said = capsys.readouterr().err
    assert f"warning: checkpoint corrupt: {folders[1]}/8/rest/_METADATA" in said
    assert "all runs fall back to step 4" in said
    flip_bit(folders[0] / "4" / "manifest.json")
    with pytest.raises(CheckpointError, match=r"checkpoint corrupt: .*a/checkpoints/4/manifest"):
        last_common_step(runs)
    assert last_common_step([SimpleNamespace(checkpoints=SimpleNamespace(folder=tmp_path))]) == 0
