"""What tests have compiled is kept whole, or not at all."""

import os
from pathlib import Path

import pytest
import zstandard

from tests import compiled


def test_programs_are_kept_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next session begins with them; one that a kill has cut, and one of another kind, go."""
    monkeypatch.setattr(compiled, "KEPT", tmp_path / "kept")
    program = zstandard.compress(bytes(range(256)))
    with compiled.open_folder("tests") as name:
        Path(name, "jit_whole-cache").write_bytes(program)
        for cut in (0, 1, len(program) - 1):
            Path(name, f"jit_cut{cut}-cache").write_bytes(program[:cut])
        compiled.keep_programs(Path(name), "tests")
    with compiled.open_folder("tests") as name:
        assert {file.name for file in Path(name).iterdir()} == {
            "jit_whole-cache",
            "jit_whole-atime",
        }
        assert Path(name, "jit_whole-cache").read_bytes() == program
    with compiled.open_folder("processes") as name:
        assert not list(Path(name).iterdir())


def test_oldest_programs_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the others fit; where nothing can be written, nothing is kept and nothing is said."""
    monkeypatch.setattr(compiled, "KEPT", tmp_path / "kept")
    folder = tmp_path / "session"
    folder.mkdir()
    program = zstandard.compress(bytes(range(256)))
    monkeypatch.setattr(compiled, "MOST_BYTES", len(program))
    for age, name in enumerate(("first", "second")):
        (folder / f"jit_{name}-cache").write_bytes(program)
        compiled.keep_programs(folder, "tests")
        os.utime(next((tmp_path / "kept" / "tests").iterdir()), (age, age))
    assert [file.name for file in (tmp_path / "kept" / "tests").iterdir()] == ["jit_second-cache"]
    monkeypatch.setattr(compiled, "KEPT", folder / "jit_first-cache" / "kept")
    compiled.keep_programs(folder, "tests")
    with compiled.open_folder("tests") as name:
        assert not list(Path(name).iterdir())
