"""Every test runs on eight fake CPU devices, writes only below a temporary folder, and repeats
exactly. A session keeps what it has compiled in .pytest_cache.
"""

import functools
import gc
import lzma
import os
from pathlib import Path

import hypothesis
import pytest

from tests import EXAMPLES, FEWER_PARTS, GARBAGE
from tests.compiled import keep_programs, open_folder

# Inherited by the subprocesses that tests start, and set before jax looks at them.
os.environ["MPLBACKEND"] = "Agg"
# Processes that share a GPU take its memory only as they need it.
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
# `make test-gpu` asks for the devices and the compiler flags of a user; see tests/gpu.
if "BERT_JAX_GPU" not in os.environ:
    os.environ["JAX_PLATFORMS"] = "cpu"
    # Compiling hundreds of programs and running each for a moment is what quick tests wait for. The
    # flags of a user are those of `make test-all`, of tests/net and of tools/compare_checkouts.py.
    if not EXAMPLES:
        os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "true"
# What one process of a test has compiled the next takes again. With a limit of size jax locks the
# folder, which belongs to all processes that tests start.
if "PYTEST_XDIST_WORKER" not in os.environ:
    SHARED = open_folder("processes")
    os.environ |= {
        "JAX_ENABLE_COMPILATION_CACHE": "true",
        "JAX_COMPILATION_CACHE_DIR": SHARED.name,
        "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES": "none",  # else the folder is part of each key
        "JAX_COMPILATION_CACHE_MAX_SIZE": str(2**33),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
os.environ["OMP_WAIT_POLICY"] = (
    "passive"  # threads of scikit-learn that wait take nothing from other tests
)
os.environ["JAX_TRACEBACK_IN_LOCATIONS_LIMIT"] = (
    "0"  # where in Python an operation comes from: a tenth of all the time
)

import jax
import jaxlib.version

# Read when jax first looks for devices; inherited, too.
if "BERT_JAX_GPU" not in os.environ:
    flags = f"{os.environ.get('XLA_FLAGS', '')} {FEWER_PARTS}"
    if not EXAMPLES and jaxlib.version.__version_info__ < (0, 12):
        # Halves the time to compile fusions, and rounds sums a little more. Later versions have no
        # such flag, and a process that is given an unknown one aborts.
        flags += " --xla_cpu_use_fusion_emitters=false"
    os.environ["XLA_FLAGS"] = flags.strip()
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_numpy_rank_promotion", "raise")
gc.set_threshold(*GARBAGE)
# This process has a folder of its own, which no kill of another leaves damaged.
COMPILED = open_folder("tests")
jax.config.update("jax_compilation_cache_dir", COMPILED.name)
jax.config.update("jax_compilation_cache_max_size", -1)

# `make test` draws the same 50 examples every time; `make test-all` explores, from a seed that make
# prints.
hypothesis.settings.register_profile(
    "bert_jax",
    deadline=None,
    derandomize=not EXAMPLES,
    database=None,
    max_examples=EXAMPLES or 50,
    print_blob=True,
)
hypothesis.settings.load_profile("bert_jax")

# Why a test may be skipped where everything should run.
KNOWN_SKIPS = (
    "no reference data at",  # ../shared is not part of the project
    "no GPU",
    "is not installed",  # an extra, Jupyter, a browser
    "TensorFlow reads",
    "no command",  # of SLURM
    "SLURM does not start here",
    "started by root",
    "need root",
    "no file system may be mounted here",
    "no /dev/shm here",
    "not a git checkout",
    "one core is nothing to share",
    "the C library is not glibc",
)


# Tests of a file share what they train and compile, so a process takes whole files (see the
# Makefile): these first, as one of them begun last would leave the other processes idle.
LONGEST = (
    "net/test_devices.py",
    "net/test_transcripts.py",
    "net/test_matrix.py",
    "training/test_step.py",
    "training/test_train.py",
    "net/test_answers.py",
    "training/test_runs.py",
    "models/test_encoder.py",
    "net/test_batches.py",
    "net/test_configs.py",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option that freezes what commands print now."""
    text = "write the transcripts of tests/net and what pages say, in folders named frozen, again"
    parser.addoption("--update-golden", action="store_true", help=text)
    text = "fail a test that is skipped for a reason that conftest.py does not list"
    parser.addoption("--known-skips", action="store_true", help=text)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    """Turns a skip without a known reason into a failure, under `--known-skips`."""
    report = yield
    if (
        report.skipped
        and item.config.getoption("--known-skips")
        and not hasattr(report, "wasxfail")
    ):
        reason = str(call.excinfo.value) if call.excinfo else ""
        if not any(known in reason for known in KNOWN_SKIPS):
            report.outcome = "failed"
            report.longrepr = f"skipped without a known reason: {reason}"
    return report


def pytest_sessionfinish() -> None:
    """Keeps what was compiled for the next session."""
    keep_programs(Path(COMPILED.name), "tests")
    if "PYTEST_XDIST_WORKER" not in os.environ:
        keep_programs(Path(SHARED.name), "processes")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the longest files first; their order is otherwise kept."""
    rank = {Path(__file__).parent / name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path, len(rank)))


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory):
    """Prepared corpora go to a folder of this session, never to the user's cache."""
    folder = tmp_path_factory.mktemp("bert_jax_data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BERT_JAX_DATA", str(folder))
        yield folder


@pytest.fixture(scope="session", autouse=True)
def ordinary_memory():
    """The allocator's settings belong to the process of a user's command, not to all tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bert_jax.system.allocator.retain_memory", lambda: "")
        yield


@pytest.fixture(scope="session", autouse=True)
def short_reports():
    """Training writes a page without figures, which take a third of the time of a short run."""
    from tests import texts

    with texts.short_reports():
        yield


@pytest.fixture(autouse=True)
def same_folder():
    """A test that leaves its process in another folder fails itself, not one that comes later."""
    before = Path.cwd()
    yield
    after = Path.cwd()
    if after != before:
        os.chdir(before)
        pytest.fail(f"this test left its process in {after}")


@pytest.fixture
def check_frozen(request: pytest.FixtureRequest):
    """See `pages.check_frozen`, which is given lines, or a page, and the name of the file."""
    from tests import pages

    return functools.partial(pages.check_frozen, request)


@pytest.fixture
def one_device():
    """See `texts.one_device`."""
    from tests import texts  # with what it imports, only after jax is set up above

    with texts.one_device():
        yield


@pytest.fixture(scope="session")
def tab(tmp_path_factory: pytest.TempPathFactory):
    """A tab of a headless Chromium; tests are skipped where it is not installed."""
    from tests import browser

    opened = browser.Browser(browser.find_program(), tmp_path_factory.mktemp("browser"))
    yield opened
    opened.close()


@pytest.fixture
def browser(tab):
    """The tab; no script of a page may complain in it."""
    yield tab
    assert tab.errors == []


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference data beside the checkout; tests are skipped where it is absent."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no reference data at {folder}")
    return folder


@pytest.fixture(scope="session")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reference data of golden/copies, unpacked, in the layout of ../shared/data.

    A piece that was cut off a vocabulary has a name in its place that no text can hold.
    """
    packed, folder = Path(__file__).parent / "golden" / "copies", tmp_path_factory.mktemp("copies")
    for file in (file for file in packed.rglob("*") if file.is_file()):
        data = lzma.decompress(file.read_bytes()) if file.suffix == ".xz" else file.read_bytes()
        place = folder / file.relative_to(packed).with_name(file.name.removesuffix(".xz"))
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.suffix == ".tsv":
            kept = [line.split("\t") for line in data.decode().split("\n") if line]
            pieces = {int(number): piece for number, piece in kept}
            lines = (pieces.get(number, f"[cut {number}]") for number in range(max(pieces) + 1))
            data, place = "".join(f"{line}\n" for line in lines).encode(), place.with_suffix(".txt")
        place.write_bytes(data)
    return folder


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    """A config file of a small text of its own; see `texts.configure`."""
    from tests import texts  # not before the flags above are set

    return texts.config_file(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def saved_run(base, tmp_path_factory) -> Path:
    """A run on that text, saved as step 10 without an update; to be copied, not changed."""
    from tests import saved, texts

    config = texts.configure(base, batch_size=8, model__hidden=16)
    return saved.run(tmp_path_factory.mktemp("saved") / "run", config, {10: 1.0})
