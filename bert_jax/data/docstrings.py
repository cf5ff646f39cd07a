"""Corpus source `docstrings`: the prose in docstrings of Python and of some packages.

The source needs no download. Files are parsed by `ast`, never imported. The text depends on the
installed versions of Python and of the packages, so these versions identify it.
"""

import ast
import importlib.metadata
import inspect
import os
import platform
import re
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bert_jax.config import knobs
from bert_jax.data.sentences import Item, Text

RULES = 4  # raise it with each change of what is kept
# Packages that this project requires and that have much prose.
PACKAGES = (
    *("flax", "huggingface_hub", "jax", "matplotlib", "numpy", "optax", "orbax-checkpoint"),
    *("pyarrow", "scikit-learn", "scipy", "tensorflow-datasets"),
)
LEFT_OUT = {"test", "tests", "site-packages", "__pycache__", "idlelib", "lib2to3", "_vendor"}
KINDS = (ast.stmt, ast.excepthandler, ast.Call)  # nodes that docstrings stand below
GROUP = 2 << 20  # bytes of source code read as one item


def identify(settings: knobs.Corpus, cache: Path) -> Any:
    """Return the versions of Python, of the packages, and of this module's rules for prose."""
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {"rules": RULES, "python": platform.python_version()} | versions


def list_items(settings: knobs.Corpus, cache: Path) -> tuple[list[Item], list[str]]:
    """Return groups of source files, each an Item, in the same order on any machine."""
    files = [("python", path) for path in _walk(Path(sysconfig.get_path("stdlib")))]
    for name in PACKAGES:
        package = importlib.metadata.distribution(name)
        own = sorted(str(f) for f in package.files or [] if not LEFT_OUT & {*f.parts})
        files += [(name, Path(str(package.locate_file(f)))) for f in own if f.endswith(".py")]
    groups: list[Item] = []
    for name, path in files:
        size = path.stat().st_size
        last = groups[-1] if groups else None
        if last and last.name == name and last.weight + size <= GROUP:
            groups[-1] = Item(name, last.weight + size, (*last.spec, str(path)))
        else:
            groups.append(Item(name, size, (str(path),)))
    return groups, []


def _walk(root: Path) -> Iterator[Path]:
    for top, folders, names in os.walk(root):
        folders[:] = sorted({*folders} - LEFT_OUT)
        yield from (Path(top, name) for name in sorted(names) if name.endswith(".py"))


def read_texts(item: Item, settings: knobs.Corpus) -> Iterator[Text]:
    """Yield the paragraphs of a group of files, each as a text; each file is a document.

    So preparation, which drops copies of a text, drops copies of a paragraph.
    """
    for path in item.spec:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # invalid escapes in other people's code
                module = ast.parse(Path(path).read_bytes())
        except (SyntaxError, ValueError):  # a template, or the syntax of another Python
            continue
        found = [text for docstring in _find_docstrings(module) for text in clean(docstring)]
        yield from (Text(text, path, starts=not place) for place, text in enumerate(found))


def _find_docstrings(module: ast.Module) -> Iterator[str]:
    """Yield the docstrings of a file in source order, with those that numpy's `add_newdoc` adds."""
    waiting: list[ast.AST] = [module]
    while waiting:
        match node := waiting.pop():
            case ast.Module() | ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                if text := ast.get_docstring(node, clean=False):
                    yield text
            case ast.Call(func=ast.Name("add_newdoc"), args=[*_, last]):
                last = last.elts[-1] if isinstance(last, ast.Tuple) else last
                if isinstance(last, ast.Constant):
                    yield str(last.value)
        inner = (child for child in ast.iter_child_nodes(node) if isinstance(child, KINDS))
        waiting += reversed([*inner])


# --- prose ----------------------------------------------------------------------------------------

MARKUP = [
    (re.compile(r":[\w:+-]+:`~?([^`<]*?)(?: <[^`]*>)?`"), r"\1"),  # :class:`~jax.Array`
    (re.compile(r"`+~?([^`<]*?)(?: <[^`]*>)?`+_*"), r"\1"),  # ``x`` and `text <url>`_
    (re.compile(r"(?<!\w)(\*{1,2})(\S[^*]*?)\1(?!\w)"), r"\2"),  # *x* and **x**
    (re.compile(r"\s?\[[\w#*+.-]+\]_|\(\)"), ""),  # [1]_ and f()
]
ENTRY = re.compile(
    r"\s*(?:[-*+•]|\(?\d{1,2}[.)])\s+"  # a bullet
    r"|\s*:[\w ,*.`-]+:\s*"  # :param x:
    r"|\s*[`*\w][\w.*`/, -]{0,40}(?:\s*\([^()]*\))?(?::| --)\s+(?=\S)"  # x (int):
)
NO_PROSE = re.compile(r"\s*(?:$|([=~^.#*_-])\1{2}|>>>|\.\. |[\w*., ]+ : |[\w ]+:$)")
COMMON = frozenset(  # an English sentence has some of these words
    re.findall(
        r"\w+",
        "the a an of to is in and for if be this that with or are as by it from on not was which "
        "will can when at has have you we they its all any no but into than then each used must",
    )
)
WORD = re.compile(r"[(\"']*[A-Za-z][a-z]*(?:[-'][a-z]+)*[,.;:!?)\"']*$")


def clean(docstring: str) -> list[str]:
    """Return the paragraphs of a docstring that are English prose, in order, without markup."""
    found: list[str] = []
    held: list[str] = []
    depth = 0
    for line in [*inspect.cleandoc(docstring).split("\n"), ""]:
        indent = len(line) - len(line.lstrip())
        entry, other = ENTRY.match(line), NO_PROSE.match(line)
        if held and (entry or other or indent < depth):
            found.append(" ".join(held))
            held = []
        if other:
            continue
        depth = depth if held else indent
        held.append(line[entry.end() :] if entry else line)
    return [text for text in map(_strip_markup, found) if _is_prose(text)]


def _strip_markup(text: str) -> str:
    for pattern, kept in MARKUP:
        text = pattern.sub(kept, text)
    return " ".join(text.split())


def _is_prose(text: str) -> bool:
    """Tell whether a paragraph is whole sentences of ordinary words."""
    words = text.split()
    if len(words) < 4 or not text[0].isupper() or not text.endswith("."):
        return False
    ordinary = sum(WORD.match(word) is not None for word in words)
    common = sum(word.lower().strip(",.;:") in COMMON for word in words)
    return ordinary >= 0.8 * len(words) and common >= 0.15 * len(words) - 0.5
