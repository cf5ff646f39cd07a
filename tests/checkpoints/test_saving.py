"""What is saved comes back to the bit, whatever kills the save, fills the disk or joins runs."""

import asyncio
import errno
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from orbax.checkpoint._src.serialization import jax_array_handlers

from bert_jax.checkpoints import manifest
from bert_jax.checkpoints.manifest import list_steps
from bert_jax.errors import CheckpointError, DivergedError
from tests import clusters
from tests.checkpoints.interrupts import PLACES
from tests.checkpoints.states import list_bits, make_state, open_folder, restore_state, save_steps
from tests.texts import run_python


def test_restore_returns_the_bits_that_were_saved(tmp_path):
    state, meta, step = restore_state(save_steps(tmp_path, 10, 20))
    assert (meta, step) == ({"step": 20, "seen": 20}, 20)
    assert jax.tree.structure(state) == jax.tree.structure(make_state())
    assert list_bits(state) == list_bits(make_state(20))


@pytest.mark.parametrize("devices", [1, 8])
def test_save_keeps_the_state_it_was_given(devices, tmp_path, monkeypatch):
    """The loop updates in place at once, before the save has begun to write."""
    release, held = threading.Event(), threading.Event()
    write = jax_array_handlers._async_serialize_replica_slices

    async def write_late(*args, **kwargs):
        held.set()
        while not release.is_set():
            await asyncio.sleep(0.01)
        return await write(*args, **kwargs)

    monkeypatch.setattr(jax_array_handlers, "_async_serialize_replica_slices", write_late)
    update = jax.jit(lambda state: jax.tree.map(lambda x: x + 1, state), donate_argnums=0)

    mesh = jax.make_mesh((devices,), ("x",), (AxisType.Auto,), devices=jax.devices()[:devices])

    def start() -> dict[str, Any]:
        """Make arrays on the device: an array of numpy's may lend its memory, and keep it."""
        made = {"params": {"w": jnp.arange(1_600_000.0)}, "moment": jnp.arange(8_000.0)}
        split = jax.device_put(made, NamedSharding(mesh, PartitionSpec("x")))
        return jax.block_until_ready({**split, "n": jnp.int32(3)})

    def locate(state: dict[str, Any]) -> int:
        return state["params"]["w"].addressable_shards[0].data.unsafe_buffer_pointer()

    state = start()
    before = locate(state)
    state = update(state)
    assert locate(state) == before, "updates are in place, or this test shows nothing"

    state = start()
    expected, meta = list_bits(jax.tree.map(jnp.copy, start())), {"totals": [1]}
    made = open_folder(tmp_path)
    made.save(1, state, meta)
    for _ in range(5):
        state = update(state)
    meta["totals"].append(2)
    assert held.wait(60)
    assert list_steps(tmp_path) == [], "nothing is written yet"
    release.set()
    restored, found, _ = made.restore(state)
    assert list_bits(restored) == expected
    assert found["totals"] == [1]
    made.close()


# --- what is kept ---------------------------------------------------------------------------------

RANKED = [(1, 3.0), (2, 3.0), (3, None), (4, float("nan")), (5, 4.0), (6, 3.5)]


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"keep": 2, "keep_best": True}, [2, 5, 6]),
        ({"keep": 2}, [5, 6]),
        ({"keep": 1, "at": (1, 3, 9)}, [1, 3, 6]),
        ({"keep": 1, "keep_best": True, "at": (2,)}, [2, 6]),
    ],
)
def test_save_keeps_latest_best_and_given_steps(settings, kept, tmp_path):
    made = open_folder(tmp_path, **settings)
    for step, metric in RANKED:
        made.save(step, make_state(step), {}, metric)
    made.close()
    assert list_steps(tmp_path) == kept
    assert sorted(path.name for path in tmp_path.iterdir()) == [*map(str, kept)]


def test_save_replaces_steps_of_an_abandoned_attempt(tmp_path):
    """Neither a damaged step nor a step that other runs lack counts among the latest."""
    save_steps(tmp_path, 10, 20, 30)
    (tmp_path / "30" / "meta" / "metadata").write_text("{}")
    made = open_folder(tmp_path, keep=1)
    assert made.restore(make_state(), 10)[2] == 10
    made.delete_after(10)
    assert list_steps(tmp_path) == [10]
    made.save(15, make_state(15), {})
    made.wait()
    assert list_steps(tmp_path) == [15]
    made.save(20, make_state(21), {})
    assert list_bits(made.restore(make_state())[0]) == list_bits(make_state(21))
    made.close()


@pytest.mark.fault(5)
def test_save_names_a_damaged_step_that_it_deletes(tmp_path, capsys):
    """The best step may be damaged while the run trains, and be gone before it is opened."""
    save_steps(tmp_path, 10, 20)
    (tmp_path / "10" / manifest.MANIFEST).write_text("{}")
    made = open_folder(tmp_path, keep=1, keep_best=True)
    made.restore(make_state())
    made.save(30, make_state(30), {})
    made.close()
    assert list_steps(tmp_path) == [30]
    path = tmp_path / "10" / manifest.MANIFEST
    assert f"warning: checkpoint corrupt: {path}; step 10 is deleted" in capsys.readouterr().err


@pytest.mark.fault(5)
def test_save_keeps_a_step_that_the_disk_hides(tmp_path, monkeypatch, capsys):
    """Its metric is unknown as long as its manifest cannot be read, and it may be the best."""
    made = open_folder(tmp_path, keep=1, keep_best=True)
    made.save(10, make_state(), {}, 1.0)
    made.wait()
    read, hidden = Path.read_bytes, tmp_path / "10" / manifest.MANIFEST

    def read_bytes(path: Path) -> bytes:
        if path == hidden:
            raise OSError(errno.EIO, "Input/output error")
        return read(path)

    with monkeypatch.context() as failing:
        failing.setattr(Path, "read_bytes", read_bytes)
        made.save(20, make_state(), {}, 2.0)
        made.wait()
    assert list_steps(tmp_path) == [10, 20]
    assert f"warning: {hidden} cannot be read; step 10 is kept" in capsys.readouterr().err
    made.save(30, make_state(), {}, 3.0)
    made.close()
    assert list_steps(tmp_path) == [10, 30]


@pytest.mark.fault(6)
def test_save_refuses_parameters_that_are_not_finite(tmp_path):
    made = open_folder(tmp_path)
    made.save(1, make_state(), {})
    state = make_state()
    mlp = state["params"]["layer_0"]["mlp"]
    mlp["bias"] = mlp["bias"].at[3].set(np.inf)
    with pytest.raises(DivergedError, match=r"1 of 3 .* the first is layer_0/mlp/bias"):
        made.save(2, state, {})
    assert made.restore(state)[2] == 1
    made.close()


# --- disks and kills ------------------------------------------------------------------------------


@pytest.mark.fault(4)
def test_save_that_fails_leaves_the_steps_before(tmp_path, monkeypatch):
    """Orbax raises it in its thread. Full disks are those of tests/system/test_full_disk.py."""
    save_steps(tmp_path, 1)
    made = open_folder(tmp_path)
    made.restore(make_state())
    failing = mock.Mock(side_effect=ValueError("file too large"))
    monkeypatch.setattr(manifest, "write_manifest", failing)
    made.save(2, make_state(2), {})
    with pytest.raises(CheckpointError, match=r"write the checkpoint of step 2 in .*: ValueError"):
        made.wait()
    made.close()
    assert [path.name for path in tmp_path.iterdir()] == ["1"]
    assert list_bits(restore_state(tmp_path)[0]) == list_bits(make_state(1))


# A process for each place, which is killed there. They are forked before jax begins any thread.
KILLED = """
    import os, pathlib, sys, warnings
    import jax.numpy as jnp
    from tests.checkpoints import interrupts, states
    warnings.simplefilter("ignore")
    for place in interrupts.PLACES:
        child = os.fork()
        if child == 0:
            interrupts.interrupt_save(place, 2, interrupts.kill)
            made = states.open_folder(pathlib.Path(sys.argv[1], place), keep=1)
            for step in range(1, 4):
                params = {"w": jnp.full(200_000, step, "float32")}
                made.save(step, {"params": params, "n": jnp.int32(step)}, {})
                made.wait()
            os._exit(0)
        print(place, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory) -> tuple[Path, dict[str, int]]:
    """A folder of checkpoints for each place in a save, and how the process there ended."""
    folder = tmp_path_factory.mktemp("killed")
    done = run_python(KILLED, folder)
    lines = dict(line.split() for line in done.stdout.splitlines())
    assert lines.keys() == PLACES.keys(), done.stderr
    return folder, {place: int(code) for place, code in lines.items()}


@pytest.mark.fault(1)
@pytest.mark.parametrize("place", PLACES)
def test_kill_inside_a_save_leaves_a_sound_step(place, killed, capsys):
    survivor = 2 if place in ("renamed", "deleting", "deleted") else 1
    assert killed[1][place] == -signal.SIGKILL
    folder = killed[0] / place
    like = {"params": {"w": jnp.zeros(200_000)}, "n": jnp.int32(0)}
    made = open_folder(folder, keep=1)
    state, meta, step = made.restore(like)
    assert step == survivor == meta["step"] == int(state["n"])
    assert set(np.asarray(state["params"]["w"])) == {survivor}
    assert capsys.readouterr().err == ""
    for later in (step + 1, step + 2):
        made.save(later, like, {})
    made.close()
    assert sorted(path.name for path in folder.iterdir()) == [str(step + 2)]


# --- several processes ----------------------------------------------------------------------------

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
    from bert_jax.checkpoints import manifest, saving
    folders = [Path(sys.argv[3]) / name / "checkpoints" for name in "ab"]
    mesh = jax.make_mesh((4,), ("data",), axis_types=(AxisType.Auto,))
    def place(value, *spec):
        return jax.device_put(value, NamedSharding(mesh, PartitionSpec(*spec)))
    def state(step):
        table = np.arange(24, dtype="float32").reshape(8, 3) + step
        return {"params": {"w": place(table, "data")}, "step": place(np.asarray(step))}
    def read_parts(state):
        return [part.data for part in state["params"]["w"].addressable_shards]
    made, other = (saving.Checkpoints(folder, keep=2, keep_best=True) for folder in folders)
    for step in (1, 2, 3, 4):
        made.save(step, state(step), {}, metric=float(step))
        other.save(step, state(step + 10), {})
    made.wait()
    other.close()
    multihost_utils.sync_global_devices("saved")
    if jax.process_index() == 0:
        (folders[0] / "4/meta/metadata").write_text("{}")
    multihost_utils.sync_global_devices("spoiled")
    restored, meta, step = made.restore(state(0))
    same = np.array_equal(read_parts(restored), read_parts(state(3)))
    print(manifest.list_steps(folders[0]), step, meta, same)
    made.close()
"""


def test_two_processes_agree_on_what_to_restore(tmp_path):
    address = f"localhost:{clusters.free_ports(1)[0]}"
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda number: run_python(TWO, number, address, tmp_path), (0, 1)))
    for process in done:
        assert process.returncode == 0, process.stderr
        said = process.stdout.splitlines()[-1]  # gloo greets before
        assert said == "[1, 3, 4] 3 {'step': 3} True"
    assert ["corrupt" in process.stderr for process in done] == [True, False]


NOISE = """
    import asyncio, gc
    from bert_jax.checkpoints import saving

    class Late(RuntimeError):
        def __del__(self):
            raise self  # no code can catch this, as in a thread of tensorstore

    async def save():
        asyncio.create_task(asyncio.sleep("no number"))
        await asyncio.sleep(0)

    asyncio.run(save())
    gc.collect()
    Late("Event loop is closed")
    Late("something else")
"""


def test_only_the_first_error_of_a_save_is_told():
    """What the other arrays of a failed save raise later, nobody waits for."""
    said = run_python(NOISE).stderr
    assert "something else" in said
    assert not any(text in said for text in ("never retrieved", "Event loop"))
