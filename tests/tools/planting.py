"""Small faults of the package: planted by syntax, or written down by hand in `bugs.csv`.

A fault is some bytes of a file that become others. Nothing is changed within f-strings, annotations
and assertions, nor what is given to a call that signals processes or deletes files: a fault may not
harm the machine that it is tried on.
"""

import ast
import csv
import hashlib
import itertools
import random
import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

PACKAGE = "bert_jax"
BUGS = Path(__file__).with_name("bugs.csv")
PAIRS = (("<", "<="), (">", ">="), ("==", "!="), ("in", "not in"), ("is", "is not"))
SWAPPED = dict(PAIRS) | {two: one for one, two in PAIRS}
HARMFUL = {"kill", "killpg", "rmtree", "unlink", "remove", "setrlimit"}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
SCOPES = (*FUNCTIONS, ast.ClassDef)


class Edit(NamedTuple):
    """Bytes of a file that become others."""

    start: int
    stop: int
    new: str


class Mutant(NamedTuple):
    """A fault, and how a table shows it."""

    id: str
    file: str
    line: int
    kind: str
    before: str
    after: str
    room: str
    edits: tuple[Edit, ...]
    test: str = ""  # of a bug written by hand: the one that plants it, too

    def plant(self, source: bytes) -> bytes:
        """Return the text of the file with the fault in it."""
        for start, stop, new in sorted(self.edits, reverse=True):
            source = source[:start] + new.encode() + source[stop:]
        return source


class Finder(ast.NodeVisitor):
    """Every place of a file where a fault can be planted, as (kind, edit)."""

    def __init__(self, source: bytes):
        self.source, self.found = source, list[tuple[str, Edit]]()
        self.starts = [0, *itertools.accumulate(map(len, source.splitlines(keepends=True)))]
        self.visit(ast.parse(source))

    def span(self, node: Any) -> tuple[int, int]:
        """Return the bytes at which a node starts and ends."""
        start = self.starts[node.lineno - 1] + node.col_offset
        return start, self.starts[node.end_lineno - 1] + node.end_col_offset

    def pass_over(self, node: ast.AST) -> None:
        """Plant nothing here. Before Python 3.12 the parts of f-strings have no places."""

    visit_JoinedStr = visit_Assert = visit_arg = pass_over

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value:
            self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        called = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if called == "range":
            self.shift(*node.args)
        if called not in HARMFUL:
            self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for (left, right), operator in zip(itertools.pairwise(operands), node.ops, strict=True):
            start, stop = self.span(left)[1], self.span(right)[0]
            words = ast.unparse(ast.Compare(ast.Name("a"), [operator], [ast.Name("b")]))[2:-2]
            pattern = re.escape(words).replace(r"\ ", r"\s+").encode()
            found = list(re.finditer(pattern, self.source[start:stop]))
            if len(found) == 1:  # a comment may stand between them
                first, last = found[0].span()
                self.found.append(("comparison", Edit(start + first, start + last, SWAPPED[words])))
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            start = self.span(node)[0]
            stop = start + len("not") + self.source.startswith(b"not ", start)
            self.found.append(("not", Edit(start, stop, "")))
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, (ast.Add, ast.Sub)):
            self.shift(node.left, node.right)
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        for place in getattr(node.slice, "elts", [node.slice]):
            self.shift(*([place.lower, place.upper] if isinstance(place, ast.Slice) else [place]))
        self.generic_visit(node)

    def shift(self, *nodes: ast.AST | None) -> None:
        """Let whole numbers be one less, or one more where they are 0."""
        for node in nodes:
            number = node.operand if isinstance(node, ast.UnaryOp) else node
            if isinstance(number, ast.Constant) and type(number.value) is int:
                new = str(number.value - 1 if number.value else 1)
                self.found.append(("off by one", Edit(*self.span(number), new)))

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        others = {bool: lambda: not value, int: lambda: value + 1, float: lambda: value * 2 or 1.0}
        if type(value) in others:
            self.found.append(("constant", Edit(*self.span(node), repr(others[type(value)]()))))

    def visit_Raise(self, node: ast.Raise) -> None:
        self.found.append(("raise", Edit(*self.span(node), "pass")))

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.body[-1], ast.Return):
            self.found.append(("return early", Edit(*self.span(node.test), "True")))
        if ast.unparse(node.test) != "TYPE_CHECKING":
            self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        returned = [inner.value for inner in own_nodes(node) if isinstance(inner, ast.Return)]
        for statement in node.body[1:] if not any(returned) else ():
            if not isinstance(statement, (*SCOPES, ast.Import, ast.ImportFrom, ast.Nonlocal)):
                start, new = self.span(statement)[0], "return\n" + " " * statement.col_offset
                self.found.append(("return early", Edit(start, start, new)))
        for part in (*node.args.defaults, *filter(None, node.args.kw_defaults), *node.body):
            self.visit(part)


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield what stands in a function, and not in one within it."""
    for node in ast.iter_child_nodes(function):
        yield node
        if not isinstance(node, (*SCOPES, ast.Lambda)):
            yield from own_nodes(node)


def room_of(file: str) -> str:
    """Return the folder of the package that a file is in."""
    return file.split("/")[1] if file.count("/") > 1 else "commands"


def describe(file: str, source: bytes, kind: str, *edits: Edit) -> Mutant:
    """Return a mutant with the lines that its first edit changes, and what names it."""
    start, stop, new = edits[0]
    line, begin = source.count(b"\n", 0, start) + 1, source.rfind(b"\n", 0, start) + 1
    tail = source[stop:].split(b"\n", 1)[0]
    before = source[begin:stop] + tail
    after = source[begin:start] + new.replace("\n", "; ").encode() + tail
    digest = hashlib.sha256(f"{file} {start} {before!r} {after!r}".encode()).hexdigest()[:8]
    shown = (" ".join(text.decode().split()) for text in (before, after))
    return Mutant(digest, file, line, kind, *shown, room_of(file), edits)


def find_mutants(file: str, source: bytes) -> list[Mutant]:
    """Return every fault that can be planted in a file."""
    return [describe(file, source, kind, edit) for kind, edit in Finder(source).found]


def is_valid(source: bytes) -> bool:
    """Return whether Python takes the text."""
    try:
        with warnings.catch_warnings(action="ignore"):
            compile(source, "mutant", "exec")
    except SyntaxError:
        return False
    return True


def share_out(count: int, weights: dict[str, int]) -> dict[str, int]:
    """Divide a number in proportion to weights: the ends of all shares are rounded."""
    ends = itertools.accumulate(weights.values())
    bounds = [0, *(round(count * end / sum(weights.values())) for end in ends)]
    return {name: bounds[i + 1] - bounds[i] for i, name in enumerate(weights)}


def choose(root: Path, count: int, seed: int) -> list[Mutant]:
    """Draw mutants for each room by its number of lines, of all kinds alike, one a line.

    Files of other rooms change how many are drawn, and not which ones.
    """
    sizes, found = Counter[str](), defaultdict[str, dict[str, list[Mutant]]](dict)
    texts = {}
    for path in sorted((root / PACKAGE).rglob("*.py")):
        file = path.relative_to(root).as_posix()
        texts[file] = source = path.read_bytes()
        for mutant in find_mutants(file, source):
            found[mutant.room].setdefault(mutant.kind, []).append(mutant)
        sizes[room_of(file)] += source.count(b"\n")
    chosen: list[Mutant] = []
    for room, number in share_out(count, sizes).items():
        draw, taken = random.Random(f"{seed} {room}"), dict[tuple[str, int], Mutant]()
        kinds = [draw.sample(own, len(own)) for _, own in sorted(found[room].items())]
        draw.shuffle(kinds)
        for mutant in filter(None, itertools.chain(*itertools.zip_longest(*kinds))):
            place = mutant.file, mutant.line
            free = len(taken) < number and place not in taken
            if free and is_valid(mutant.plant(texts[mutant.file])):
                taken[place] = mutant
        chosen += taken.values()
    return chosen


def read_bugs(root: Path, only: str = "") -> list[Mutant]:
    """Return the bugs that tests plant by hand, or `only` one, as changes of the package's text.

    Rows of one name are one bug. `before` stands in the file once.
    """
    with BUGS.open(newline="") as file:
        table = [row for row in csv.DictReader(file) if only in ("", row["name"])]
    groups = itertools.groupby(table, key=lambda row: row["name"])
    bugs = []
    for name, rows in groups:
        edits = []
        for row in rows:
            source, before = (root / row["file"]).read_bytes(), row["before"].encode()
            if source.count(before) != 1:
                raise ValueError(f"{name}: {row['before']!r} is not once in {row['file']}")
            start = source.index(before)
            edits.append(Edit(start, start + len(before), row["after"]))
        bug = describe(row["file"], source, "by hand", *edits)
        bugs.append(bug._replace(id=name, test=row["test"]))
    return bugs


def executed_lines(source: bytes, line: int) -> tuple[range, set[str]]:
    """Return the lines that run what stands on a line, and names that tell where it is used.

    There are names only for what runs when the module is imported: what a line assigns or defines.
    """
    nodes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt))
    around = [node for node in nodes if node.lineno <= line <= (node.end_lineno or 0)]
    if not around:
        return range(line, line + 1), set()
    inner = around[-1]  # `walk` goes by depth
    body = getattr(inner, "body", None)
    last = max(body[0].lineno - 1, inner.lineno) if body else inner.end_lineno or line
    lines = range(inner.lineno, last + 1)
    if any(isinstance(node, FUNCTIONS) and line >= node.body[0].lineno for node in around):
        return lines, set()
    names = {node.name for node in around if isinstance(node, SCOPES)}
    targets = [*getattr(inner, "targets", []), getattr(inner, "target", None) or ast.Pass()]
    inside = itertools.chain(*map(ast.walk, targets))
    return lines, {node.id for node in inside if isinstance(node, ast.Name)} or names
