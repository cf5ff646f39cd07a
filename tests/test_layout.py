"""The shape of the package and of its tests: who may import whom, how long a file may be, and where
a module is tested. Sources are read, never imported.
"""

from __future__ import annotations

import ast
import functools
import graphlib
import re
import subprocess
import sys

import pytest

from tests.conftest import LONGEST
from tests.texts import ROOT

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
# A module is tested in a file of its name: ROOM/test_MODULE.py, and a command in its transcript.
# These are tested in other files.
TESTED_IN = {
    "checkpoints/test_reading.py": "checkpoints.manifest",
    "cli/test_changed_data.py": "studies.sameness",
    "cli/test_cli.py": "errors system.arguments",
    "cli/test_parts.py": "predictors training.dry_run views",
    "config/test_conditions.py": "config.declare config.knobs config.model_knobs",
    "config/test_config.py": "config.derived",
    "config/test_validation.py": "config.mask_rules",
    "data/test_pipeline.py": "batch",
    "data/test_pmi.py": "data.ngrams",
    "data/test_tokenizer.py": "data.engines",
    "interop/test_card.py": "interop.differences",
    "interop/test_families.py": "interop.config_json interop.parameter_names interop.vocabulary",
    "models/test_backends.py": "config.abilities config.devices models.attention_mask",
    "models/test_encoder.py": "models.loop objectives.network",
    "net/test_matrix.py": "training.pmap",
    "objectives/test_words.py": "objectives",
    "planning/test_plan.py": "planning.targets",
    "planning/test_update.py": "planning.activations planning.batches",
    "predictors/test_predict.py": "predictors.base reporting.text_table",
    "reporting/test_drawing.py": "reporting.figures",
    "reporting/test_escaping.py": "views.document",
    "reporting/test_run_report.py": "reporting.formats reporting.page reporting.run_charts "
    "reporting.run_record",
    "studies/test_answers.py": "studies.report.baselines studies.report.wording",
    "studies/test_definition.py": "studies.spec",
    "studies/test_document.py": "studies.report.blocks studies.report.build studies.report.view "
    "studies.report.families studies.report.result_tables studies.report.best_value",
    "studies/test_folder.py": "studies.files",
    "studies/test_launch.py": "studies.actions studies.plan studies.progress",
    "studies/test_simultaneous.py": "studies.report.intervals",
    "studies/test_tables.py": "studies.cell_result studies.results studies.reuse",
    "suites/test_options.py": "suites",
    "suites/test_pretrain.py": "evaluation.corpus",
    "suites/test_probe.py": "suites.forward suites.labelled",
    "test_wheel.py": "config.shipped",
    "training/test_optim.py": "system.trees",
    "training/test_processes.py": "sharding",
    "training/test_step.py": "objectives.base",
    "views/test_embeddings.py": "views.tables views.texts",
}


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


def test_imports_are_read():
    source = (
        "import jax.numpy as jnp\nfrom bert_jax.models.encoder import Encoder\n"
        "def f():\n    from bert_jax import cli\nif TYPE_CHECKING:\n    import flax\n"
    )
    assert find_roots(source) == {"jax", "bert_jax", "flax"}
    assert list_modules(source) == {"models.encoder", "cli"}


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

    In a fresh process, because another test may have loaded it.
    """
    optional = ("studies.worker", "studies.engines.slurm", "studies.engines.ray")
    rooms = ("data", "studies")
    modules = [m for m in SOURCES if m.partition(".")[0] in rooms and m not in optional]
    program = (
        "import importlib, sys\n"
        f"for name in {modules}:\n"
        "    importlib.import_module('bert_jax.' + name)\n"
        f"    if found := [m for m in {HEAVY} if m in sys.modules]:\n"
        "        sys.exit(f'{name} loads {found}')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


# --- the tests ------------------------------------------------------------------------------------

TESTS = {str(file.relative_to(FOLDER)): file.read_text() for file in FOLDER.rglob("*.py")}


def is_mirrored(module: str) -> bool:
    """Tell whether a module, or the folder that holds it, has a test file of its name."""
    room, *parts = module.split(".")
    if parts:
        return any(f"{room}/test_{part}.py" in TESTS for part in parts)
    transcript = FOLDER / "net" / "transcripts" / f"{module}.txt"
    return transcript.is_file() or any(f"/{file}".endswith(f"/test_{module}.py") for file in TESTS)


def test_module_has_a_test_file_of_its_name_or_another():
    listed = " ".join(TESTED_IN.values()).split()
    assert set(TESTED_IN) <= set(TESTS)
    behaves = {
        module
        for module, source in SOURCES.items()
        if module and any(isinstance(node, ast.FunctionDef) for node in list_nodes(source))
    }
    missing = {module for module in behaves if not is_mirrored(module)}
    assert sorted(listed) == sorted(missing), "TESTED_IN lists these modules, each once"


def test_files_of_tests_keep_to_their_rules():
    """No file imports a test, and a test that draws few examples draws all in `make test-all`."""
    assert set(LONGEST) <= set(TESTS)
    for file, source in TESTS.items():
        assert source.count("\n") <= 500, file
        assert [name for name in list_imports(source) if ".test_" in f".{name}"] == [], file
        assert not re.search(r"settings\(max_examples=(?!EXAMPLES or )", source), file
        functions = [node.name for node in list_nodes(source) if isinstance(node, ast.FunctionDef)]
        assert [n for n in functions if n.startswith("test_") and len(n) > 50] == [], file
