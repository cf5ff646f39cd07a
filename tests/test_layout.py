"""The shape of the package: who may import whom, and how long a file may be. Sources are read,
never imported.
"""

from __future__ import annotations

import ast
import functools
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "bert_jax"
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
    {"checkpoints"},
    {"reporting"},
    {"objectives"},
    {"models"},
    {"data"},
    {"sharding"},
    {"config"},
    {"masking"},
    {"data.ngrams"},
    {"data.hashing"},
    {"config.knobs"},
    {"config.model_knobs", "config.run_knobs"},
    {"config.data_knobs"},
    {"config.declare"},
    {"system"},
    {"batch", "errors"},
)
HEIGHT = {room: -row for row, rooms in enumerate(ROOMS) for room in rooms}
# What reads a command line: commands, and processes of our own making.
FLAGS = {*ROOMS[0], *ROOMS[2], "cli", "system.arguments"}
HEAVY = ("jax", "jaxlib", "flax", "optax", "orbax")


def _modules() -> dict[str, str]:
    """Dotted name inside the package -> source."""
    found = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(file.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
        found["" if name == "__init__" else name] = file.read_text()
    return found


SOURCES = _modules()


@functools.cache
def parse(source: str) -> ast.Module:
    """The syntax tree of a source; many tests ask for it."""
    return ast.parse(source)


def _is_guard(node: ast.AST) -> bool:
    """`if __name__ == "__main__"` and `if TYPE_CHECKING`: lines that importing a module does not
    run.
    """
    return isinstance(node, ast.If) and ast.unparse(node.test) in (
        "__name__ == '__main__'",
        "TYPE_CHECKING",
    )


def _walk(node: ast.AST, functions: bool = True):
    for child in ast.iter_child_nodes(node):
        deferred = _is_guard(child) or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
        if deferred and not functions:
            continue
        yield child
        yield from _walk(child, functions)


@functools.cache
def imports(source: str, functions: bool = True) -> frozenset[str]:
    """Return the absolute dotted names a module imports; `from a import b` counts as a.b.

    Without `functions`, only what importing the module imports: no function's body, no guard.
    """
    found = set()
    for node in _walk(parse(source), functions):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide where a name comes from"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


@functools.cache
def inside(source: str, functions: bool = True) -> frozenset[str]:
    """Modules of the package that a source imports."""
    names = {
        n.removeprefix("bert_jax.") for n in imports(source, functions) if n.startswith("bert_jax.")
    }
    return frozenset(n if n in SOURCES else n.rpartition(".")[0] for n in names) - {""}


def part(module: str) -> str:
    return module if module in HEIGHT else module.partition(".")[0]


def test_the_reader_sees_every_kind_of_import():
    source = (
        "from typing import TYPE_CHECKING\nimport jax.numpy as jnp\n"
        "from bert_jax.config import knobs\n"
        "from bert_jax.models.encoder import Encoder\ndef f():\n    from bert_jax import cli\n"
        "if TYPE_CHECKING:\n    import flax\nif __name__ == '__main__':\n"
        "    from bert_jax import train\n"
    )
    assert imports(source) == {
        *(
            "typing.TYPE_CHECKING",
            "jax.numpy",
            "bert_jax.config.knobs",
            "bert_jax.models.encoder.Encoder",
        ),
        *("bert_jax.cli", "flax", "bert_jax.train"),
    }
    assert inside(source) == {"config.knobs", "models.encoder", "cli", "train"}
    assert inside(source, functions=False) == {"config.knobs", "models.encoder"}


def test_imports_have_no_cycle():
    """Imports within functions count."""
    files = {name: inside(source) - {name} for name, source in SOURCES.items()}
    graphlib.TopologicalSorter(files).prepare()  # raises CycleError, which names the cycle


def test_every_room_has_a_place_and_there_are_few():
    assert {part(module) for module in SOURCES if module} == HEIGHT.keys()
    assert len({room.partition(".")[0] for room in HEIGHT}) + 1 <= 38  # and __init__


@pytest.mark.parametrize("name", sorted(HEIGHT))
def test_a_room_imports_only_what_lies_below_it(name):
    """Imports within functions and behind guards count."""
    for module, source in SOURCES.items():
        if part(module) == name:
            others = {part(other) for other in inside(source)} - {name}
            above = {other for other in others if HEIGHT[other] >= HEIGHT[name]}
            assert not above, f"{module} imports {above}"


def test_no_module_has_the_name_of_one_of_the_standard_library():
    names = {module.rpartition(".")[2] for module in SOURCES}
    assert names & sys.stdlib_module_names == {"inspect"}  # a command's name


def test_nothing_imports_configs_experiments_or_tests():
    for module, source in SOURCES.items():
        roots = {part(other) for other in imports(source)}
        assert not roots & {"configs", "experiments", "tests"}, module


def test_only_cli_sees_flags_and_only_config_reads_config_dicts():
    for module, source in SOURCES.items():
        roots = {part(other) for other in imports(source)}
        assert module in FLAGS or not roots & {"argparse", "optparse", "getopt", "click", "fire"}, (
            module
        )
        written = ("config", "recipes", "studies.spec")
        assert module in written or "ml_collections" not in roots, module
        used = {ast.unparse(n) for n in _walk(parse(source)) if isinstance(n, ast.Attribute)}
        assert module in FLAGS or "sys.argv" not in used, module


def test_no_default_is_hidden_in_a_get():
    for module, source in SOURCES.items():
        calls = [n.func for n in ast.walk(parse(source)) if isinstance(n, ast.Call)]
        owners = [
            ast.unparse(f.value) for f in calls if isinstance(f, ast.Attribute) and f.attr == "get"
        ]
        hidden = [
            owner for owner in owners if owner.rpartition(".")[2] in ("config", "cfg", "settings")
        ]
        assert not hidden, f"{module}: {hidden}"


def test_files_are_read_in_one_sitting():
    lengths = {module: source.count("\n") for module, source in SOURCES.items()}
    assert {module: n for module, n in lengths.items() if n > 400} == {}


def test_the_data_side_never_loads_jax():
    """In a fresh process, because another import may bring it in; the first that does is named."""
    names = [f"bert_jax.{m}" for m in sorted(SOURCES) if part(m) == "data"]
    program = (
        "import importlib, sys\n"
        f"for name in {names}:\n"
        "    importlib.import_module(name)\n"
        f"    if found := [m for m in {HEAVY} if m in sys.modules]:\n"
        "        sys.exit(f'{name} loads {found}')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_planning_and_reporting_studies_never_load_jax():
    """A launcher and a status must answer at once, on machines without devices too."""
    modules = [m for m in SOURCES if part(m) == "studies" and m != "studies.worker"]
    optional = (
        "studies.engines.slurm",
        "studies.engines.ray",
    )  # import what they need when they are made
    names = ", ".join(f"bert_jax.{m}" for m in modules if m not in optional)
    heavy = f"import sys, {names}; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
