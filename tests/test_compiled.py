"""What tests have compiled is kept whole, or not at all."""

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
    monkeypatch.setattr(compiled, "MOST_BYTES", len(program) - 1)
    compiled.keep_programs(tmp_path, "tests")
    assert not list((tmp_path / "kept").rglob("*-cache"))
