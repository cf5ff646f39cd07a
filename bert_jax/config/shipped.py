"""The project's own configs and studies, found from any folder by their path or by a short name.

They lie beside the package in a checkout, and inside it in a wheel (see pyproject.toml):
`configs/pretrain.py` is also `pretrain`, `experiments/masking_rate` also `masking_rate`.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from bert_jax.errors import ConfigError

PACKAGE = Path(__file__).resolve().parents[1]
INSIDE = PACKAGE / "_shipped"  # in a wheel
ROOT = INSIDE if INSIDE.is_dir() else PACKAGE.parent


def list_configs() -> dict[str, Path]:
    """Return the file of each of the project's configs by its name."""
    return {file.stem: file for file in sorted((ROOT / "configs").glob("*.py"))}


def list_studies() -> dict[str, Path]:
    """Return the study.py of each of the project's studies by its name."""
    return {file.parent.name: file for file in sorted(ROOT.glob("experiments/*/study.py"))}


def find_config(path: str) -> Path:
    """Return the file of a config: what is at this path, else the project's own.

    A folder of this name does not hide a config.
    """
    if os.path.lexists(path) and not os.path.isdir(path):
        return Path(path)
    own = list_configs()
    if found := _own(path, own, own.values()):
        return found
    if os.path.isdir(path):
        return Path(path)  # its reader says that it is no file
    written = [_written(file) for file in own.values()]
    hint = _hint(path, own, written, "the path of a FILE.py, such as configs/tiny.py")
    raise ConfigError(f"no config file {path!r}", hint)


def find_study(path: str) -> Path:
    """Return the study.py of a study, whose folder or file is at this path; else the project's own.

    A folder without a study.py, such as a workdir, does not hide a study.
    """
    given = Path(path)
    file = given / "study.py" if given.suffix != ".py" else given
    if file.is_file():
        return file
    own = list_studies()
    if found := _own(path, own, [*own.values(), *(file.parent for file in own.values())]):
        return found if found.suffix == ".py" else found / "study.py"
    written = [_written(file.parent) for file in own.values()]
    written += [str(file.parent) for file in Path("experiments").glob("*/study.py")]
    hint = _hint(path, own, written, "a folder with study.py")
    raise ConfigError(f"no study at {path!r}", hint)


def _own(path: str, names: Mapping[str, Path], places: Iterable[Path]) -> Path | None:
    """Find a file of the project by its name, or by its path from the root."""
    by_path = {_written(place): place for place in places}
    return names.get(path) or by_path.get(path.rstrip("/"))


def _written(place: Path) -> str:
    return place.relative_to(ROOT).as_posix()


def _hint(path: str, names: Iterable[str], written: Iterable[str], what: str) -> str:
    """Name the nearest spelling of what the project has, and all its names."""
    close = difflib.get_close_matches(path, [*names, *written], n=1, cutoff=0.6)
    meant = f"did you mean {close[0]!r}? else " if close else ""
    return f"{meant}{what}, or one of: {', '.join(names)}"
