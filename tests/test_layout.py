"""The shape of the package: who may import whom, and how long a file may be. Sources are read, never imported."""

from __future__ import annotations

import ast
import functools
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "bert_jax"
BASE = {"types", "errors", "knobs"}
READING = {"jsons", "opening"}
LEAF = BASE | READING | {"disk", "trees", "faults", "manifest"}
MAY_IMPORT = {  # part of the package -> the parts it may import, besides itself
    "errors": set(),
    "types": set(),
    "knobs": set(),
    "allocator": set(),
    "presets": set(),
    "trees": set(),
    "crc32c": set(),
    "disk": {"errors"},
    "events": set(),
    "history": set(),
    "opening": {"errors"},
    "jsons": {"errors", "opening"},
    "tensors": READING | {"disk", "errors"},
    "tf1": READING | {"errors", "tensors", "crc32c"},
    "faults": {"errors"},
    "abilities": {"knobs"},
    "defaults": {"knobs"},
    "models": BASE | {"abilities", "defaults"},
    "objectives": BASE | {"models"},
    "data": BASE | READING | {"disk", "faults"},
    "masking": BASE,
    "quotas": BASE,
    "rules": BASE | READING | {"abilities"},
    "effects": BASE,
    "script": {"errors", "opening"},
    "typed": BASE,
    "config": BASE | READING | {"typed", "rules", "effects", "presets", "script"},
    "optim": LEAF,
    "checkpoint": LEAF,
    "manifest": LEAF,
    "sharding": LEAF,
    "metrics": LEAF,
    "writer": LEAF | {"events", "history"},
    "ledger": LEAF,
    "holding": READING | {"disk", "errors"},
    "signals": set(),
    "lock": LEAF | {"holding", "signals"},
    "arms": {*LEAF, "checkpoint", "config", "ledger", "material", "metrics", "quotas", "step", "writer"},
}
# One reads the command line, the other says which flags there are: nothing else sees flags, but for what a process of
# our own making is told.
CLI = {"cli", "commands", "flags", "studies.worker", "benchmarks.worker"}
ONLY_IMPORTED_BY = {
    "train": {"commands", "studies", "benchmark"},
    "study": {"commands"},
    "commands": {"cli"},
    "flags": {"cli", "commands"},
    "cli": set(),
}
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
    """`if __name__ == "__main__"` and `if TYPE_CHECKING`: lines that importing a module does not run."""
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("__name__ == '__main__'", "TYPE_CHECKING")


def _walk(node: ast.AST, functions: bool = True):
    for child in ast.iter_child_nodes(node):
        if _is_guard(child) or (not functions and isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))):
            continue
        yield child
        yield from _walk(child, functions)


@functools.cache
def imports(source: str, functions: bool = True) -> frozenset[str]:
    """Absolute dotted names a module imports, guards left out; `from a import b` counts as a.b."""
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
    names = {n.removeprefix("bert_jax.") for n in imports(source, functions) if n.startswith("bert_jax.")}
    return frozenset(n if n in SOURCES else n.rpartition(".")[0] for n in names) - {""}


def part(module: str) -> str:
    return module.partition(".")[0]


def test_the_reader_sees_every_kind_of_import():
    source = (
        "from typing import TYPE_CHECKING\nimport jax.numpy as jnp\nfrom bert_jax import knobs\n"
        "from bert_jax.models.bert import Bert\ndef f():\n    from bert_jax import cli\n"
        "if TYPE_CHECKING:\n    import flax\nif __name__ == '__main__':\n    from bert_jax import train\n"
    )
    assert imports(source) == {
        *("typing.TYPE_CHECKING", "jax.numpy", "bert_jax.config.knobs", "bert_jax.models.bert.Bert", "bert_jax.cli")
    }
    assert inside(source) == {"knobs", "models.bert", "cli"}
    assert inside(source, functions=False) == {"knobs", "models.bert"}


def test_imports_have_no_cycle():
    tops = {name: inside(source, functions=False) for name, source in SOURCES.items()}
    graphlib.TopologicalSorter(tops).prepare()  # raises CycleError, which names the cycle


@pytest.mark.parametrize("name", sorted(MAY_IMPORT))
def test_a_part_imports_only_what_lies_below_it(name):
    modules = {module: source for module, source in SOURCES.items() if part(module) == name}
    assert modules, f"no {name}: rename it here too"
    for module, source in modules.items():
        above = {part(other) for other in inside(source)} - MAY_IMPORT[name] - {name}
        assert not above, f"{module} imports {above}"


def test_the_top_is_imported_by_nobody_below():
    for module, source in SOURCES.items():
        for name in {part(other) for other in inside(source)} & ONLY_IMPORTED_BY.keys():
            assert part(module) in ONLY_IMPORTED_BY[name], f"{module} imports {name}"


def test_nothing_imports_configs_experiments_or_tests():
    for module, source in SOURCES.items():
        roots = {part(other) for other in imports(source)}
        assert not roots & {"configs", "experiments", "tests"}, module


def test_only_cli_sees_flags_and_only_config_reads_config_dicts():
    for module, source in SOURCES.items():
        roots = {part(other) for other in imports(source)}
        assert module in CLI or not roots & {"argparse", "optparse", "getopt", "click", "fire"}, module
        assert module == "config" or "ml_collections" not in roots, module
        used = {ast.unparse(n) for n in _walk(parse(source)) if isinstance(n, ast.Attribute)}
        assert module in ("cli", "studies.worker", "benchmarks.worker") or "sys.argv" not in used, module


def test_no_default_is_hidden_in_a_get():
    for module, source in SOURCES.items():
        calls = [n.func for n in ast.walk(parse(source)) if isinstance(n, ast.Call)]
        owners = [ast.unparse(f.value) for f in calls if isinstance(f, ast.Attribute) and f.attr == "get"]
        hidden = [owner for owner in owners if owner.rpartition(".")[2] in ("config", "cfg", "settings")]
        assert not hidden, f"{module}: {hidden}"


def test_files_are_read_in_one_sitting():
    lengths = {module: source.count("\n") for module, source in SOURCES.items()}
    assert {module: n for module, n in lengths.items() if n > 400} == {}


@pytest.mark.parametrize("name", sorted(m for m in SOURCES if part(m) in ("data", "prepare")))
def test_the_data_side_never_loads_jax(name):
    """In a fresh process, because another import may bring it in."""
    heavy = f"import sys, bert_jax.{name}; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_planning_and_reporting_studies_never_load_jax():
    """A launcher and a status must answer at once, on machines without devices too."""
    modules = [m for m in SOURCES if m == "study" or (part(m) == "studies" and m != "studies.worker")]
    optional = ("studies.engines.slurm", "studies.engines.ray")  # import what they need when they are made
    names = ", ".join(f"bert_jax.{m}" for m in modules if m not in optional)
    heavy = f"import sys, {names}; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
