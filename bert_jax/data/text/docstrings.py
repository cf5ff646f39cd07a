"""Corpus source `docstrings`: the docstrings of the standard library and of required packages.

It needs no download. Files are read by `ast`, never imported. The corpus varies with Python and the
installed versions, which are its identity.
"""

from __future__ import annotations

import ast
import functools
import gc
import importlib.metadata
import os
import platform
import re
import sysconfig
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from packaging.requirements import Requirement

from bert_jax.config import knobs
from bert_jax.data.sentences import Item, Text
from bert_jax.data.text import prose

PROJECT = "bert-jax"
# Dependencies added after the corpus was fixed; not read, so that it stays the same.
LATER = {"scikit-learn", "joblib", "narwhals", "threadpoolctl", "seqeval"}
RULES = 3  # version of the rules here and in prose.py: raise it whenever they keep other text
LEFT_OUT = {
    "test",
    "tests",
    "testdata",
    "site-packages",
    "__pycache__",
    "idlelib",
    "lib2to3",
    "_vendor",
    "_vendored",
}
GROUP = 2 << 20  # bytes of source code read as one item


def packages() -> dict[str, importlib.metadata.Distribution]:
    """Return every installed distribution that this project requires, by normalised name.

    Requirements for development count too.
    """
    distributions: dict[str, importlib.metadata.Distribution] = {}
    visited: set[tuple[str, str]] = set()
    waiting = _own_requirements()
    while waiting:
        requirement = waiting.pop()
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        extras = {"", *requirement.extras}
        if all((name, extra) in visited for extra in extras):
            continue
        visited |= {(name, extra) for extra in extras}
        try:
            distributions[name] = importlib.metadata.distribution(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            continue
        for line in distributions[name].requires or []:
            further = Requirement(line)
            if further.marker is None or any(
                further.marker.evaluate({"extra": extra}) for extra in extras
            ):
                waiting.append(further)
    # Neither an edit of this project nor a new dependency may change its corpus.
    return {name: d for name, d in distributions.items() if name != PROJECT and name not in LATER}


def _own_requirements() -> list[Requirement]:
    """Return the requirements of this project, installed or run from a checkout."""
    try:
        importlib.metadata.distribution(PROJECT)
    except importlib.metadata.PackageNotFoundError:
        file = Path(__file__).parents[3] / "pyproject.toml"
        project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
        return [
            Requirement(line)
            for line in [*project["dependencies"], *project["optional-dependencies"]["dev"]]
        ]
    return [Requirement(f"{PROJECT}[dev]")]


def identify(settings: knobs.Corpus, cache: Path) -> Any:
    """Return the versions of Python, of the packages and of the rules here."""
    return {"rules": RULES, "python": platform.python_version()} | {
        name: d.version for name, d in packages().items()
    }


def list_items(settings: knobs.Corpus, cache: Path) -> tuple[list[Item], list[str]]:
    """Group source files, in an order that does not depend on the machine."""
    standard = Path(sysconfig.get_path("stdlib"))
    files = [("python", path) for path in _walk(standard)]
    for name, package in sorted(packages().items()):
        listed = sorted(
            str(f) for f in package.files or [] if f.suffix == ".py" and not LEFT_OUT & set(f.parts)
        )
        files += [(name, Path(str(package.locate_file(f)))) for f in listed]
    groups: list[Item] = []
    paths: list[str] = []
    held, weight = "", 0
    for name, path in files:
        size = path.stat().st_size if path.is_file() else 0
        if not size:
            continue
        if paths and (name != held or weight + size > GROUP):
            groups.append(Item(held, weight, tuple(paths)))
            paths, weight = [], 0
        held, weight = name, weight + size
        paths.append(str(path))
    groups.append(Item(held, weight, tuple(paths)))
    return groups, []


def _walk(root: Path) -> Iterator[Path]:
    for top, folders, names in os.walk(root):
        folders[:] = sorted(set(folders) - LEFT_OUT)
        yield from (Path(top) / name for name in sorted(names) if name.endswith(".py"))


def read_texts(item: Item, settings: knobs.Corpus) -> Iterator[Text]:
    """Yield the docstrings of a group of files."""
    for path in item.spec:
        source = Path(path).read_bytes()
        if b'"""' not in source and b"'''" not in source:
            continue
        tree = _parse(source)
        if tree is not None:
            yield from _read_module(tree, path)


def _parse(source: bytes) -> ast.Module | None:
    """Return the syntax tree, or None for a template or the syntax of another Python."""
    collecting = gc.isenabled()
    gc.disable()  # a tree is many objects and no garbage: collecting doubles the time
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's code
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return None
    finally:
        if collecting:
            gc.enable()


def _read_module(tree: ast.Module, path: str) -> Iterator[Text]:
    """Yield the docstrings of a module in source order: one document, about one subject."""
    starts = True
    for node in _objects(tree):
        raw = _docstring(node)
        lines = prose.paragraphs(raw) if raw else []
        if lines:
            yield Text("\n".join(lines), path, starts)
            starts = False


def _docstring(node: ast.AST) -> str | None:
    """Return the docstring of an object, or the one that a call of `add_newdoc` holds.

    numpy and scipy document the objects of their C code by `add_newdoc`.
    """
    if isinstance(node, ast.Call):
        last = node.args[-1]
        text = last.elts[-1] if isinstance(last, ast.Tuple) and last.elts else last
        if isinstance(text, ast.Constant) and isinstance(text.value, str):
            return text.value
        return None
    return ast.get_docstring(node, clean=False)  # type: ignore[arg-type]  # a def or class


def _objects(module: ast.Module) -> Iterator[ast.AST]:
    """Yield the module, every function and class, nested ones too, and calls of `add_newdoc`."""
    yield module
    waiting = list(reversed(module.body))
    while waiting:
        node: ast.AST = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node
        elif (
            isinstance(node, ast.Expr)
            and isinstance(call := node.value, ast.Call)
            and getattr(call.func, "id", "") == "add_newdoc"
            and call.args
        ):
            yield call
        for field in ("finalbody", "orelse", "handlers", "body"):
            inner = getattr(node, field, None)
            waiting += reversed(inner) if isinstance(inner, list) else []


# --- near-identical docstrings --------------------------------------------------------------------

BANDS, ROWS, SHINGLE = 5, 6, 3
_SEEDS = np.random.default_rng(0).integers(1, 2**63, (BANDS * ROWS, 2), np.uint64) | np.uint64(1)
_MIX = np.uint64(0x9E3779B97F4A7C15)


def bands(text: str) -> np.ndarray:
    """Return five 64-bit digests of a text; two texts that share one are near-identical.

    Each digest combines six MinHashes of the runs of three words. Two texts with a Jaccard
    similarity s of these runs share a digest with probability 1 - (1 - s^6)^5: 97 % at 0.9, 8 % at
    0.5.
    """
    words = re.findall(r"[a-z]+", text.lower())
    codes = np.array([_code(word) for word in words or [""]], np.uint64)
    if len(codes) < SHINGLE + 1:
        whole = _fold(codes)
        return np.full(BANDS, whole, np.uint64)
    runs = codes[:-2] * _MIX + codes[1:-1] * (_MIX << np.uint64(7)) + codes[2:]
    runs ^= runs >> np.uint64(29)
    hashed = runs[None, :] * _SEEDS[:, :1] + _SEEDS[:, 1:]  # [hashes, runs]
    lowest = (hashed ^ (hashed >> np.uint64(31))).min(axis=1).reshape(BANDS, ROWS)
    return np.array([_fold(row) for row in lowest], np.uint64)


@functools.lru_cache(100_000)
def _code(word: str) -> int:
    code = 1469598103934665603
    for byte in word.encode():
        code = (code ^ byte) * 1099511628211 & 0xFFFFFFFFFFFFFFFF
    return code


def _fold(values: np.ndarray) -> np.uint64:
    powers = np.cumprod(np.full(len(values), _MIX))
    total = (values * powers).sum(dtype=np.uint64)
    return np.uint64(total ^ (total >> np.uint64(32)))
