"""The project's own configs and studies, found from any folder by their path or by a short name.

The files lie next to the package in a checkout, and inside the package in a wheel (see
pyproject.toml): `configs/pretrain.py` is also `pretrain`, `experiments/masking_rate` also
`masking_rate`.
"""

import difflib
import os
from collections.abc import Mapping
from pathlib import Path

from bert_jax.errors import ConfigError
from bert_jax.system import opening

PACKAGE = Path(__file__).resolve().parents[1]
INSIDE = PACKAGE / "_shipped"  # in a wheel
ROOT = INSIDE if INSIDE.is_dir() else PACKAGE.parent


def find_config(path: str) -> Path:
    """Return the path of a config: the file at this path, else the project's config of this name.

    A folder of the same name is passed over.
    """
    given = opening.expand_home(path)
    if given.is_file():
        return given
    own = {file.stem: file for file in sorted((ROOT / "configs").glob("*.py"))}
    if found := own.get(path) or _find_by_path(path, own):
        return found
    if given.exists():
        return given  # its reader says that it is no file
    hint = _suggest_name(path, own, "the path of a FILE.py, such as configs/tiny.py")
    raise ConfigError(f"no config file {path!r}", hint)


def find_study(path: str) -> Path:
    """Return the path of a study.py: of a study at this path, else of the project's own study.

    The path is a folder or a file, or the name of one of the project's studies. A folder without a
    study.py, such as a workdir, is passed over.
    """
    given = opening.expand_home(path)
    file = given / "study.py" if given.suffix != ".py" else given
    if file.is_file():
        return file
    own = {file.parent.name: file.parent for file in sorted(ROOT.glob("experiments/*/study.py"))}
    if found := own.get(path) or _find_by_path(path.removesuffix("/study.py").rstrip("/"), own):
        return found / "study.py"
    raise ConfigError(f"no study at {path!r}", _suggest_name(path, own, "a folder with study.py"))


def _find_by_path(path: str, own: Mapping[str, Path]) -> Path | None:
    """Find one of the project's own files or folders by its path below the root of the project."""
    return next((file for file in own.values() if path == os.path.relpath(file, ROOT)), None)


def _suggest_name(path: str, own: Mapping[str, Path], what: str) -> str:
    """Write a hint: the nearest name or path of the project's own files, and all their names."""
    written = [str(file.relative_to(ROOT)) for file in own.values()]
    close = difflib.get_close_matches(path, [*own, *written], n=1, cutoff=0.6)
    meant = f"did you mean {close[0]!r}? else " if close else ""
    return f"{meant}{what}, or one of: {', '.join(own)}"
