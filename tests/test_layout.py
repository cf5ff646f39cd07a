"""The shape of the package and of its tests: who may import whom, and how long a file may be.

Sources are read, never imported.
"""

import ast
import functools
import graphlib
import re
import sys

import pytest

from tests.conftest import LONGEST
from tests.texts import ROOT, run_python

PACKAGE, FOLDER = ROOT / "bert_jax", ROOT / "tests"
# From the top to the bottom: a room imports what stands in rows below its own, and itself. A file
# that has a row of its own is no part of its room: config and data read masking, which reads these.
ROOMS = (
    {"study"},  # whose workers train
    {"api"},  # the commands' functions, in Python
    {"train", "evaluate", "predict", "report", "inspect", "prepare", "export", "import"}
    | {"plan", "benchmark", "doctor", "knobs"},  # a file for each command
    {"cli"},
    {"studies"},
    {"recipes", "planning"},
    {"training"},
    {"suites", "views"},
    {"predictors"},
    {"evaluation"},
    {"interop"},
    {"reporting"},
    {"checkpoints"},
    {"objectives"},
    {"models"},
    {"data"},
    {"sharding"},
    {"config"},
    {"masking"},
    {"data.ngrams"},
    {"data.hashing"},
    {"config.knobs"},
    {"config.model_knobs"},
    {"config.data_knobs"},
    {"config.declare"},
    {"system"},
    {"batch", "errors"},
)
HEIGHT = {room: -row for row, rooms in enumerate(ROOMS) for room in rooms}
# What reads a command line: commands, and processes of our own making.
FLAGS = {*ROOMS[0], *ROOMS[2], "cli", "system.arguments"}
HEAVY = ("jax", "jaxlib", "flax", "optax", "orbax")


def read_sources() -> dict[str, str]:
    """Return the source of each module by its dotted name inside the package."""
    found = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(file.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
        found["" if name == "__init__" else name] = file.read_text()
    return found


SOURCES = read_sources()


@functools.cache
def list_nodes(source: str) -> list[ast.AST]:
    """List the nodes of a source's syntax tree."""
    return list(ast.walk(ast.parse(source)))


@functools.cache
def list_imports(source: str) -> frozenset[str]:
    """Return the dotted names that a source imports, in functions and behind guards too.

    `from a import b` counts as a.b.
    """
    found = set()
    for node in list_nodes(source):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide where a name comes from"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


@functools.cache
def list_modules(source: str) -> frozenset[str]:
    """Return the modules of the package that a source imports."""
    own = [name for name in list_imports(source) if name.startswith("bert_jax.")]
    names = [name.removeprefix("bert_jax.") for name in own]
    return frozenset(n if n in SOURCES else n.rpartition(".")[0] for n in names) - {""}


def find_room(module: str) -> str:
    """Return the room of a module, or the module itself where it has a row of its own."""
    return module if module in HEIGHT else module.partition(".")[0]


def find_roots(source: str) -> set[str]:
    """Return the first parts of the names that a source imports."""
    return {name.partition(".")[0] for name in list_imports(source)}


def test_imports_have_no_cycle():
    files = {name: list_modules(source) - {name} for name, source in SOURCES.items()}
    graphlib.TopologicalSorter(files).prepare()  # raises CycleError, which names the cycle


def test_rooms_have_a_place_and_are_few():
    assert {find_room(module) for module in SOURCES if module} == HEIGHT.keys()
    assert len({room.partition(".")[0] for room in HEIGHT}) + 1 <= 38  # and __init__


def test_rooms_import_only_what_lies_below():
    above = []
    for module, source in SOURCES.items():
        own = find_room(module)
        rooms = {find_room(other) for other in list_modules(source)} - {own}
        above += [(module, room) for room in rooms if module and HEIGHT[room] >= HEIGHT[own]]
    assert above == []


def test_modules_have_names_of_their_own():
    """The standard library has none of them, but for a command's."""
    names = {module.rpartition(".")[2] for module in SOURCES}
    assert names & sys.stdlib_module_names == {"inspect"}


@pytest.mark.parametrize(
    ("names", "allowed"),
    [
        ({"configs", "experiments", "tests"}, set()),
        ({"argparse", "optparse", "getopt", "click", "fire"}, FLAGS),
        ({"ml_collections"}, {"config", "recipes", "studies.spec"}),
    ],
)
def test_modules_import_what_is_theirs(names, allowed):
    """Only commands see flags, and only the config reads config dicts."""
    users = {module for module, source in SOURCES.items() if find_roots(source) & names}
    assert users <= allowed


def test_modules_read_no_arguments_and_no_defaults():
    """sys.argv belongs to commands, and a default to its knob: no `config.get(name, default)`."""
    for module, source in SOURCES.items():
        used = {ast.unparse(node) for node in list_nodes(source) if isinstance(node, ast.Attribute)}
        assert module in FLAGS or "sys.argv" not in used, module
        ends = ("config.get", "cfg.get", "settings.get")
        assert not [name for name in used if name.endswith(ends)], module


def test_files_are_read_in_one_sitting():
    lengths = {module: source.count("\n") for module, source in SOURCES.items()}
    assert {module: n for module, n in lengths.items() if n > 400} == {}


def test_data_and_launchers_never_load_jax():
    """Status must answer at once, without devices too; the first module that loads it is named.

    Nor do they load Arrow, which takes 200 MB. In a fresh process, because another test may have
    loaded them.
    """
    optional = ("studies.worker", "studies.engines.slurm", "studies.engines.ray")
    rooms = ("data", "studies")
    modules = [m for m in SOURCES if m.partition(".")[0] in rooms and m not in optional]
    program = (
        "import importlib, sys\n"
        f"for name in {modules}:\n"
        "    importlib.import_module('bert_jax.' + name)\n"
        f"    if found := [m for m in {(*HEAVY, 'pyarrow')} if m in sys.modules]:\n"
        "        sys.exit(f'{name} loads {found}')\n"
    )
    done = run_python(program)
    assert (done.returncode, done.stderr) == (0, "")


# --- the tests ------------------------------------------------------------------------------------

TESTS = {str(file.relative_to(FOLDER)): file.read_text() for file in FOLDER.rglob("*.py")}


def test_files_of_tests_have_the_names_of_modules():
    """Those of their room, or files in no room; others are about several modules at once."""
    files = {module for module in SOURCES if (PACKAGE / f"{module}.py").is_file()}
    rooms = {module.partition(".")[0]: {*files} for module in SOURCES}
    for room, *inside in (module.split(".") for module in SOURCES):
        rooms[room] |= {room, *inside}
    found = {re.fullmatch(r"(\w+)/test_(\w+)\.py", file) for file in TESTS} - {None}
    pairs = {match.groups() for match in found}
    assert {name for room, name in pairs if room in rooms and name not in rooms[room]} == {
        *("changed_data", "clicked", "distributed", "escaping", "fidelity", "full_disk"),
        *("knob_effects", "parity", "planted_effect"),
    }


def test_files_of_tests_keep_to_their_rules():
    """No file imports a test, and a test that draws few examples draws all in `make test-all`."""
    assert set(LONGEST) <= set(TESTS)
    for file, source in TESTS.items():
        assert source.count("\n") <= 500, file
        assert [name for name in list_imports(source) if ".test_" in f".{name}"] == [], file
        assert not re.search(r"settings\(max_examples=(?!EXAMPLES or )", source), file
        functions = [node.name for node in list_nodes(source) if isinstance(node, ast.FunctionDef)]
        assert [n for n in functions if n.startswith("test_") and len(n) > 50] == [], file
