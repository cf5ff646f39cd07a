"""Checkpoints: bitwise round trips, and every way a disk or a kill can spoil one."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from bert_jax.checkpoints import manager, manifest
from bert_jax.errors import CheckpointError, ConfigError, DivergedError
from bert_jax.system import disk, fault_points


def make_state(seed: int = 0) -> dict:
    """Every dtype a run has, odd shapes, negative zero, denormals, an optimizer's nested tuples."""
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(16, 8)).astype(np.float32)
    table[0, :4] = [-0.0, 1e-42, 3.4e38, 0.0]
    params = {
        "embeddings": {"token": jnp.asarray(table)},
        "layers": {
            "mlp": {
                "kernel": jnp.asarray(rng.normal(size=(3, 8, 5)), jnp.bfloat16),
                "bias": jnp.zeros((5,)),
            }
        },
    }
    counters = {
        "nonfinite": jnp.int32(seed),
        "ledger": jnp.asarray(rng.integers(0, 2**31, 4), jnp.int32),
    }
    key = jax.random.key_data(jax.random.key(seed + 7))  # uint32
    nan = jnp.asarray([np.nan, np.inf, -np.inf, 1.0], jnp.float32)
    return {
        "params": params,
        "optimizer": optax.adam(1e-3).init(params),
        "counters": counters,
        "key": key,
        "nan": nan,
    }


def bits(tree) -> list[bytes]:
    return [np.asarray(x).tobytes() for x in jax.tree.leaves(tree)]


def shapes(tree, sharding=None):
    sharding = sharding or jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree)


@pytest.fixture
def checkpoints(tmp_path):
    made = manager.Checkpoints(tmp_path / "checkpoints", keep=2, keep_best=True)
    yield made
    made.close()


@pytest.fixture(scope="session")
def saved(tmp_path_factory) -> Path:
    """A folder with verified steps 10 and 20, to be copied and spoiled."""
    folder = tmp_path_factory.mktemp("saved") / "checkpoints"
    made = manager.Checkpoints(folder, keep=2, keep_best=False)
    for step in (10, 20):
        made.save(step, make_state(step), {"seen": step})
    made.close()
    return folder


@pytest.fixture
def spoiled(saved, tmp_path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "checkpoints"))


def restore(folder: Path, step: int | None = None):
    made = manager.Checkpoints(folder, keep=2, keep_best=False)
    try:
        return made.restore(shapes(make_state()), step)
    finally:
        made.close()


# --- sound checkpoints ----------------------------------------------------------------------------


def test_round_trip_is_bitwise(saved):
    state, meta, step = restore(saved)
    assert (meta, step) == ({"step": 20, "seen": 20}, 20)
    assert jax.tree.structure(state) == jax.tree.structure(make_state())
    assert bits(state) == bits(make_state(20))
    assert [x.dtype for x in jax.tree.leaves(state)] == [
        x.dtype for x in jax.tree.leaves(make_state())
    ]


def test_donated_and_changed_buffers_do_not_reach_the_disk(checkpoints):
    """The loop updates in place, and counts on, while the save is still being written."""
    update = jax.jit(lambda x: jax.tree.map(lambda a: a + 1, x), donate_argnums=0)
    state = {"params": {"w": jnp.arange(2_000_000.0)}, "n": jnp.int32(3)}
    expected, meta = bits(state), {"totals": [1]}
    checkpoints.save(1, state, meta)
    for _ in range(5):
        state = update(state)
    meta["totals"].append(2)
    restored, found, _ = checkpoints.restore(shapes(state))
    assert bits(restored) == expected
    assert found["totals"] == [1]


def test_updates_go_on_while_a_save_does_and_do_not_reach_it(checkpoints, monkeypatch):
    """64 MB, updated in place from the moment `save` returns until long after it is written and not
    yet hashed.
    """
    go, hashed = threading.Event(), manifest.write

    def late(*arguments):
        assert go.wait(60)
        hashed(*arguments)

    monkeypatch.setattr(manifest, "write", late)
    update = jax.jit(lambda x: jax.tree.map(lambda a: a + 1, x), donate_argnums=0)
    state = {"params": {f"w{i}": jnp.arange(1_000_000.0) + i for i in range(16)}, "n": jnp.int32(3)}
    # Made apart: what was read from the state itself would not be donated.
    wanted = {
        "params": {f"w{i}": np.arange(1_000_000, dtype=np.float32) + i for i in range(16)},
        "n": np.int32(3),
    }
    checkpoints.save(1, state, {})
    state = first = update(state)
    for _ in range(19):
        state = update(state)
    assert first["params"]["w0"].is_deleted()  # donated
    assert float(state["params"]["w0"][0]) == 20.0
    assert checkpoints.steps() == []
    go.set()
    restored, _, _ = checkpoints.restore(shapes(state))
    assert bits(restored) == bits(wanted)


def test_runs_that_train_together_save_at_once(tmp_path):
    made = [manager.Checkpoints(tmp_path / str(i), keep=1, keep_best=False) for i in range(4)]
    for step in range(1, 9):
        for i, one in enumerate(made):
            one.save(step, make_state(step + i), {})
    for i, one in enumerate(made):
        state, _, step = one.restore(shapes(make_state()))
        assert step == 8
        assert bits(state) == bits(make_state(8 + i))
        one.close()


def test_empty_folder_is_nothing(checkpoints):
    assert checkpoints.restore(shapes(make_state())) is None
    assert checkpoints.peek() is None
    assert checkpoints.steps() == []
    assert checkpoints.best() is None


def test_keeps_the_latest_and_the_best(checkpoints):
    for step, metric in [(1, 5.0), (2, 3.0), (3, None), (4, float("nan")), (5, 4.0), (6, 3.5)]:
        checkpoints.save(step, make_state(step), {}, metric)
    checkpoints.wait()
    assert checkpoints.steps() == [2, 5, 6]
    assert checkpoints.best() == 2
    assert sorted(p.name for p in checkpoints.folder.iterdir()) == ["2", "5", "6"]


def test_without_metrics_the_best_is_the_latest(saved):
    made = manager.Checkpoints(saved, keep=2, keep_best=True)
    assert made.best() == 20
    made.close()


def test_saving_the_same_step_again_leaves_it_alone(checkpoints):
    checkpoints.save(1, make_state(1), {})
    checkpoints.wait()
    before = (checkpoints.folder / "1" / manifest.NAME).stat().st_ino
    checkpoints.save(1, make_state(1), {})
    checkpoints.restore(shapes(make_state()))
    checkpoints.save(1, make_state(1), {})
    checkpoints.wait()
    assert (checkpoints.folder / "1" / manifest.NAME).stat().st_ino == before


@pytest.mark.parametrize("devices", [1, 2, 4, 8])
def test_restores_onto_another_mesh(devices, tmp_path):
    def mesh_sharding(n):
        mesh = jax.make_mesh(
            (n,), ("data",), axis_types=(AxisType.Auto,), devices=jax.devices()[:n]
        )
        return NamedSharding(mesh, PartitionSpec("data"))

    state = {"params": {"w": jnp.arange(64.0).reshape(16, 4)}, "n": jnp.arange(8)}
    made = manager.Checkpoints(tmp_path, keep=1, keep_best=False)
    made.save(1, jax.device_put(state, mesh_sharding(4)), {})
    restored, _, _ = made.restore(shapes(state, mesh_sharding(devices)))
    made.close()
    assert bits(restored) == bits(state)
    assert all(x.sharding == mesh_sharding(devices) for x in jax.tree.leaves(restored))


@pytest.mark.parametrize("place", ["", "checkpoints", "checkpoints/20"])
def test_read_takes_parameters_alone(saved, place):
    params, meta = manager.read(saved.parent / place)
    assert jax.tree.structure(params) == jax.tree.structure(make_state()["params"])
    assert all(type(x) is np.ndarray for x in jax.tree.leaves(params))
    assert bits(params) == bits(make_state(20)["params"])
    assert meta["seen"] == 20
    assert bits(manager.read(saved, 10)[0]) == bits(make_state(10)["params"])


def test_read_prefers_the_best(tmp_path):
    made = manager.Checkpoints(tmp_path, keep=2, keep_best=True)
    for step, metric in [(1, 1.0), (2, 2.0)]:
        made.save(step, make_state(step), {}, metric)
    made.close()
    assert manager.read(tmp_path)[1]["step"] == 1


def test_peek_shows_what_restore_takes(saved):
    made = manager.Checkpoints(saved, keep=2, keep_best=False)
    assert made.peek() == ({"step": 20, "seen": 20}, 20)
    assert made.restore(shapes(make_state()))[2] == 20
    made.close()


# --- spoiled checkpoints --------------------------------------------------------------------------


def kind(path: Path) -> str:
    """The class of a file: names without hashes."""
    parts = ["HASH" if len(p) == 32 else p for p in path.parts]
    return "/".join(parts)


def file_classes(folder: Path) -> dict[str, Path]:
    files = (p.relative_to(folder) for p in sorted(folder.rglob("*")) if p.is_file())
    return {kind(p): p for p in files}


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(bytes(data))


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


@pytest.mark.parametrize("spoil", [flip, truncate, Path.unlink])
@pytest.mark.fault(6, 7, 8)
def test_every_spoiled_file_is_named_and_falls_back(spoil, saved, tmp_path, capsys):
    classes = file_classes(saved / "20")
    assert len(classes) > 10, "arrays, metadata, meta and manifest"
    for number, relative in enumerate(classes.values()):
        if spoil is Path.unlink and relative.name == manifest.NAME:
            continue  # an unfinished save, tested below
        folder = Path(shutil.copytree(saved, tmp_path / str(number)))
        spoil(folder / "20" / relative)
        known: set[int] = set()
        assert manifest.choose(folder, None, known) == 10
        assert known == {20}
        warning = capsys.readouterr().err
        assert warning.startswith(f"warning: checkpoint corrupt: {folder / '20' / relative} (")
        assert "falling back to step 10" in warning
        with pytest.raises(CheckpointError, match="checkpoint corrupt"):
            manifest.choose(folder, 20, set())


def test_fallback_restores_the_older_step(spoiled, capsys):
    flip(spoiled / "20/params" / "manifest.ocdbt")
    state, meta, step = restore(spoiled)
    assert (meta["seen"], step) == (10, 10)
    assert bits(state) == bits(make_state(10))
    assert "falling back to step 10" in capsys.readouterr().err


@pytest.mark.fault(35)
def test_the_clock_decides_nothing_about_which_step_is_the_latest(spoiled, monkeypatch):
    """Files of the newest step are the oldest, and the clock is set back between two saves."""
    for number, path in enumerate(sorted(spoiled.rglob("*"), reverse=True)):
        os.utime(path, (10**9 + number, 10**9 + number))
    os.utime(spoiled / "20", (1, 1))
    made = manager.Checkpoints(spoiled, keep=2, keep_best=False)
    assert made.restore(shapes(make_state()))[2] == 20
    monkeypatch.setattr(manager.time, "time", lambda: 0.0)
    made.save(30, make_state(30), {})
    made.wait()
    assert made.steps() == [20, 30]
    assert manifest.choose(spoiled, None, set(), best_first=True) == 30
    made.close()


@pytest.mark.fault(7)
def test_all_corrupt_is_an_error_that_names_the_file(spoiled):
    for step in (10, 20):
        flip(spoiled / f"{step}/meta/metadata")
    with pytest.raises(CheckpointError, match=r"^checkpoint corrupt: .*20/meta/metadata") as error:
        restore(spoiled)
    assert error.value.code == 4
    assert error.value.hint


@pytest.mark.fault(8)
def test_unfinished_steps_are_skipped_with_a_warning(spoiled, capsys):
    (spoiled / "30").mkdir()
    (spoiled / "40.orbax-checkpoint-tmp-1").mkdir()
    (spoiled / "20" / manifest.NAME).unlink()
    (spoiled / "notes").mkdir()
    assert restore(spoiled)[2] == 10
    warnings = capsys.readouterr().err
    assert all(
        word in warnings
        for word in (f"{spoiled}/30:", f"{spoiled}/20:", "40.orbax-checkpoint-tmp-1")
    )


def test_only_unfinished_steps_are_nothing(tmp_path, capsys):
    """Killed during its very first save: the run starts anew, and says why."""
    (tmp_path / "10/params").mkdir(parents=True)
    assert restore(tmp_path) is None
    assert "was not finished" in capsys.readouterr().err
    with pytest.raises(CheckpointError, match="no checkpoint in"):
        manager.read(tmp_path)


def test_a_missing_step_asked_for_is_an_error(spoiled):
    with pytest.raises(CheckpointError, match="no finished checkpoint of step 15"):
        restore(spoiled, 15)


@pytest.mark.fault(30)
@pytest.mark.parametrize("name", ["../secret", "/etc/hostname", "link"])
def test_manifest_names_stay_inside(name, spoiled, tmp_path):
    (tmp_path / "checkpoints/secret").write_text("x")
    (spoiled / "20/link").symlink_to("../secret")
    entry = manifest.load(spoiled / "20")
    entry["files"][name] = {"bytes": 1, "sha256": "0"}
    (spoiled / "20" / manifest.NAME).write_text(
        json.dumps({**entry, "digest": manifest._digest(entry)})
    )
    with pytest.raises(CheckpointError, match="outside the folder"):
        restore(spoiled, 20)


def test_corrupt_newer_steps_give_way(spoiled, capsys):
    """After a fallback, new saves replace the corrupt step and never count it among those kept."""
    flip(spoiled / "20/params/manifest.ocdbt")
    made = manager.Checkpoints(spoiled, keep=1, keep_best=False)
    assert made.restore(shapes(make_state()))[2] == 10
    assert made.best() == 10
    made.save(15, make_state(15), {})
    made.wait()
    assert made.steps() == [15, 20]
    made.save(20, make_state(21), {})
    assert bits(made.restore(shapes(make_state()))[0]) == bits(make_state(21))
    assert made.steps() == [20]
    made.close()


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        (
            lambda s: s["params"]["embeddings"].update(token=jnp.zeros((17, 8))),
            "embeddings/token is float32",
        ),
        (
            lambda s: s["params"]["layers"]["mlp"].update(bias=jnp.zeros(5, jnp.int32)),
            "layers/mlp/bias is float32",
        ),
        (lambda s: s["params"].update(extra=jnp.zeros(2)), "extra is absent in the checkpoint"),
        (
            lambda s: s["params"].pop("embeddings"),
            "embeddings/token is float32.* and absent in this run",
        ),
        (lambda s: s.update(key=jnp.zeros(3, jnp.uint32)), "key is uint32"),
    ],
)
def test_a_changed_model_names_the_first_difference(edit, named, saved):
    like = make_state()
    edit(like)
    made = manager.Checkpoints(saved, keep=2, keep_best=False)
    with pytest.raises(CheckpointError, match=named):
        made.restore(shapes(like))
    made.close()


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.fault(9)
def test_weights_that_are_not_finite_are_never_saved(checkpoints, value):
    checkpoints.save(1, make_state(), {})
    state = make_state()
    state["params"]["layers"]["mlp"]["bias"] = (
        state["params"]["layers"]["mlp"]["bias"].at[3].set(value)
    )
    with pytest.raises(DivergedError, match="layers/mlp/bias"):
        checkpoints.save(2, state, {})
    assert checkpoints.restore(shapes(state))[2] == 1


# --- failing writes and kills ---------------------------------------------------------------------


@pytest.mark.fault(5)
def test_a_disk_too_small_is_refused_before_writing(checkpoints, monkeypatch):
    checkpoints.save(1, make_state(), {})
    checkpoints.wait()
    needed = manager.bytes_needed(make_state())
    assert needed >= sum(len(b) for b in bits(make_state()))
    room = types.SimpleNamespace(f_bavail=4_321, f_frsize=1, f_files=0, f_favail=0)
    monkeypatch.setattr(disk.os, "statvfs", lambda _: room)
    with pytest.raises(
        CheckpointError, match=rf"needs {needed:,} bytes and 4,321 are free"
    ) as error:
        checkpoints.save(2, make_state(), {})
    assert error.value.code == 4
    assert checkpoints.restore(shapes(make_state()))[2] == 1


@pytest.mark.parametrize("point", ["save-committed", "manifest-ready"])
@pytest.mark.fault(5)
def test_a_disk_that_fills_up_while_saving(point, checkpoints, monkeypatch):
    checkpoints.save(1, make_state(1), {})
    checkpoints.wait()
    monkeypatch.setattr(fault_points, "_armed", lambda: (point, 2, "full"))
    checkpoints.save(2, make_state(2), {})
    with pytest.raises(CheckpointError, match="disk full: a checkpoint needs") as error:
        checkpoints.wait()
    assert isinstance(error.value.__cause__, OSError)
    monkeypatch.setattr(fault_points, "_armed", lambda: None)
    state, _, step = checkpoints.restore(shapes(make_state()))
    assert (step, bits(state)) == (1, bits(make_state(1)))
    checkpoints.save(2, make_state(2), {})
    assert checkpoints.restore(shapes(make_state()))[2] == 2


SMALL_DISK = """
    import resource, signal, sys
    import jax, numpy as np
    from bert_jax import errors
    from bert_jax.checkpoints import manager
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    made = manager.Checkpoints(sys.argv[1], keep=2, keep_best=False)
    small = {"params": {"w": jax.numpy.ones(10)}}
    made.save(1, small, {})
    made.wait()
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
    values = np.random.default_rng(0).normal(size=500_000)
    noise = {"params": {"w": jax.numpy.asarray(values, "float32")}}
    try:
        made.save(2, noise, {})
        made.wait()
    except errors.CheckpointError as error:
        print(error)
    print(made.restore(small)[2], [p.name for p in made.folder.iterdir()])
"""


def run(script: str, *arguments: object, fault: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, fault_points.VARIABLE: fault}
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, env=environment, check=False, timeout=120
    )


@pytest.mark.fault(5)
def test_a_write_refused_by_the_system(tmp_path):
    """A file-size limit makes the array file itself fail half-way, inside TensorStore."""
    done = run(SMALL_DISK, tmp_path)
    message, after = done.stdout.splitlines()
    assert "checkpoint of step 2" in message
    assert str(tmp_path) in message
    assert after == "1 ['1']"
    assert "Traceback" not in done.stderr


LOOP = """
    import sys
    import jax.numpy as jnp
    from bert_jax.checkpoints import manager
    made = manager.Checkpoints(sys.argv[1], keep=1, keep_best=False)
    for step in range(1, 4):
        params = {"w": jnp.full(200_000, step, "float32")}
        made.save(step, {"params": params, "n": jnp.int32(step)}, {})
    made.close()
"""


@pytest.mark.parametrize(
    ("point", "survivor"),
    [
        ("save-start", 1),
        ("save-running", 1),
        ("save-committed", 1),
        ("manifest-ready", 1),
        ("manifest-written", 2),
    ],
)
@pytest.mark.fault(1)
def test_kill_during_a_save_leaves_a_sound_step(point, survivor, tmp_path, capsys):
    done = run(LOOP, tmp_path, fault=f"{point}:2:kill")
    assert done.returncode == -signal.SIGKILL, done.stderr
    unfinished = [path.name for path in tmp_path.glob(manifest.UNFINISHED)]
    assert bool(unfinished) == (point == "save-running"), unfinished
    made = manager.Checkpoints(tmp_path, keep=1, keep_best=False)
    like = {"params": {"w": jnp.zeros(200_000)}, "n": jnp.int32(0)}
    state, meta, step = made.restore(shapes(like))
    assert step == survivor == meta["step"] == int(state["n"])
    assert set(np.asarray(state["params"]["w"])) == {survivor}
    for again in (step + 1, step + 2):
        made.save(again, like, {})
    made.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == [str(step + 2)]


def test_faults_are_read_from_the_environment(monkeypatch):
    fault_points._armed.cache_clear()
    monkeypatch.setenv(fault_points.VARIABLE, "here:3:full")
    fault_points.point("here", 2)
    fault_points.point("there", 3)
    with pytest.raises(OSError, match="injected") as error:
        fault_points.point("here", 3)
    assert error.value.errno == errno.ENOSPC
    for text in ("here", "here:x:kill", "here:1:sleep=long", "here:1:dance"):
        fault_points._armed.cache_clear()
        monkeypatch.setenv(fault_points.VARIABLE, text)
        with pytest.raises(ConfigError, match=fault_points.VARIABLE):
            fault_points.point("here", 1)
    fault_points._armed.cache_clear()


TWO = """
    import sys
    import jax
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_num_cpu_devices", 2)
    jax.distributed.initialize(sys.argv[2], num_processes=2, process_id=int(sys.argv[1]))
    import numpy as np
    from jax.experimental import multihost_utils
    from jax.sharding import AxisType, NamedSharding, PartitionSpec
    from pathlib import Path
    from bert_jax.checkpoints import manager
    mesh = jax.make_mesh((4,), ("data",), axis_types=(AxisType.Auto,))
    def place(value, *spec):
        sharding = NamedSharding(mesh, PartitionSpec(*spec))
        return jax.make_array_from_callback(value.shape, sharding, lambda i: value[i])
    def state(step):
        table = np.arange(24, dtype="float32").reshape(8, 3) + step
        return {"params": {"w": place(table, "data")}, "step": place(np.asarray(step))}
    made = manager.Checkpoints(Path(sys.argv[3]), keep=2, keep_best=True)
    for step in (1, 2, 3, 4):
        made.save(step, state(step), {}, metric=float(step))
    made.wait()
    multihost_utils.sync_global_devices("saved")
    steps = made.steps()
    multihost_utils.sync_global_devices("listed")
    if jax.process_index() == 0:
        (Path(sys.argv[3]) / "4/meta/metadata").write_text("{}")
    multihost_utils.sync_global_devices("spoiled")
    restored, meta, step = made.restore(state(0))
    same = [np.array_equal(s.data, np.asarray(t.data)) for s, t in zip(
        restored["params"]["w"].addressable_shards,
        state(3)["params"]["w"].addressable_shards,
        strict=True)]
    print(steps, step, meta, same)
    made.close()
"""


def test_two_processes_save_and_agree_on_what_to_restore(tmp_path):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda number: run(TWO, number, address, tmp_path), (0, 1)))
    for process in done:
        assert process.returncode == 0, process.stderr
        assert (
            process.stdout.splitlines()[-1] == "[1, 3, 4] 3 {'step': 3} [True, True]"
        )  # gloo greets before
    assert ["corrupt" in process.stderr for process in done] == [True, False], (
        "process 0 alone verifies"
    )
