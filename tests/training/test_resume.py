"""A run that is killed, stopped or damaged and started again ends as if nothing had happened, in
every bit.

The command runs in processes of its own, with all that could make a difference: dropout, NSP, masks
drawn anew or repeated, a rate schedule, two microbatches, batches made ahead by threads,
asynchronous saves, an epoch boundary.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from bert_jax import cli
from bert_jax.checkpoints.steps import list_steps
from bert_jax.config import load_file, override, resolve
from bert_jax.data import pipeline, prepare
from bert_jax.system import signals
from tests import outcomes, texts
from tests.checkpoints import interrupts

STEPS, SAVE = 24, 5
KNOBS = {
    "steps": STEPS,
    "batch_size": 16,
    "masking.rate": 0.3,
    "masking.phases": "((1.0,0.15,'linear'),)",
    "optim.accumulation": 2,
    "loader.prefetch": 4,
    "checkpoints.every": SAVE,
    "evals.validation.every": 6,
    "evals.validation.batch_size": 8,
    "logging.every": 4,
    "logging.samples": 12,
}
MODES = {"dynamic": 0, "static": 2}
OF_A_USER = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "false", "JAX_ENABLE_COMPILATION_CACHE": "false"}


class Case:
    """One config, its command line, and the run that nothing interrupts, which starts at once.

    That one compiles for itself; the others take what was compiled by those before them.
    """

    def __init__(
        self, folder: Path, pool: ThreadPoolExecutor, knobs: dict[str, object], **variables: str
    ):
        corpus = texts.write(folder / "corpus", documents=50)
        (folder / "config.py").write_text(texts.CONFIG.format(path=str(corpus)))
        self.variables = variables
        self.words = [
            "train",
            f"--config={folder / 'config.py'}",
            *(f"--config.{k}={v}" for k, v in knobs.items()),
        ]
        tree = load_file(str(folder / "config.py"))
        for key, value in knobs.items():
            override(tree, key, str(value))
        config = resolve(tree)
        assert (config.model.dropout, config.model.attention_dropout, config.pairs) == (
            0.1,
            0.1,
            "nsp",
        )
        stream = prepare.prepare_corpus(config, log=lambda _: None)
        source = pipeline.Source(stream, "train", config)
        read = config.steps * config.batch_size
        assert source.examples_per_epoch < read, "an epoch ends inside the run"
        self.reference = folder / "reference"
        self._undisturbed: Future = pool.submit(
            self.go, self.reference, JAX_ENABLE_COMPILATION_CACHE="false"
        )

    def go(
        self, workdir: Path, fault: str = "", killed_at: str = "", **variables: str
    ) -> tuple[int, str]:
        """Exit code and standard error of the command, with a fault or a kill inside a save."""
        code, _, err = texts.run(
            *self.words,
            f"--workdir={workdir}",
            killed_at=killed_at,
            BERT_JAX_FAULT=fault,
            **{**self.variables, **variables},
        )
        return code, err

    @contextlib.contextmanager
    def started(self, workdir: Path, fault: str = "") -> Iterator[subprocess.Popen]:
        """The command as a process that is not waited for; it does not outlive the block."""
        process = texts.start(
            *self.words, f"--workdir={workdir}", BERT_JAX_FAULT=fault, **self.variables
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def finish(self, workdir: Path) -> str:
        """Lets the run end, and compares it with the one that nothing interrupted; returns its
        standard error.
        """
        code, err = self.go(workdir)
        assert code == 0, err
        code, reference_err = self._undisturbed.result()
        assert code == 0, reference_err
        outcomes.assert_same(workdir, self.reference, STEPS)
        return err


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as made:
        yield made


def saved(workdir: Path) -> list[int]:
    return list_steps(workdir / "checkpoints")


def wait_for_step(workdir: Path, step: int, process: subprocess.Popen) -> None:
    while step not in saved(workdir):
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


def flip_a_bit(folder: Path, seed: int) -> Path:
    """In a file of the arrays, chosen by size, as cosmic rays do."""
    random = np.random.default_rng(seed)
    files = sorted(p for p in folder.glob("*/**/*") if p.is_file())
    sizes = np.array([p.stat().st_size for p in files])
    file = files[random.choice(len(files), p=sizes / sizes.sum())]
    data = bytearray(file.read_bytes())
    data[random.integers(len(data))] ^= 1 << int(random.integers(8))
    file.write_bytes(data)
    return file


# --- quick: one kill anywhere, one during a save --------------------------------------------------


@pytest.mark.fault(1, 5, 9)
@pytest.mark.slow
def test_killed_anywhere_then_damaged(tmp_path, pool, capsys):
    """Dynamic masks. A second run is refused meanwhile; the lock dies with its holder; one flipped
    bit is survived.
    """
    case = Case(tmp_path, pool, KNOBS)
    workdir = tmp_path / "run"
    with case.started(workdir, "step:14:sleep=600") as first:
        wait_for_step(workdir, 10, first)
        assert cli.execute([*case.words, f"--workdir={workdir}"]) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"error: another run uses {workdir}: host ")
        assert f"pid {first.pid}, started " in said
    assert first.returncode == -signal.SIGKILL, "killed somewhere between steps 10 and 14"

    *_, older, last = saved(workdir)
    damaged = flip_a_bit(workdir / "checkpoints" / str(last), seed=0)
    err = case.finish(workdir)
    assert f"warning: checkpoint corrupt: {damaged}" in err
    assert f"falling back to step {older}" in err
    assert f"resuming {workdir} at step {older}" in err


@pytest.mark.slow
@pytest.mark.fault(1)
def test_killed_during_a_save_then_stopped_by_a_signal(tmp_path, pool):
    """Static masks."""
    case = Case(tmp_path, pool, {**KNOBS, "masking.dupe_factor": MODES["static"]})
    workdir = tmp_path / "run"
    code, err = case.go(workdir, killed_at="arrays:10")
    assert code == -signal.SIGKILL, err
    assert max(saved(workdir)) in (5, 10)

    code, err = case.go(workdir, "step:17:term")
    assert code == 75, err
    assert "SIGTERM: saving after this step, then stopping" in err
    assert "error: stopped at step 17 of 24, saved" in err
    assert "hint: the same command continues" in err
    assert max(saved(workdir)) == 17

    err = case.finish(workdir)
    assert f"resuming {workdir} at step 17" in err


# --- slow: a run that is hardly ever left alone ---------------------------------------------------

KINDS = ("first step", "step", "saving", "evaluation", "any moment")


def disturb(case: Case, workdir: Path, kind: str, random: np.random.Generator) -> None:
    """Starts the run again, and kills it at a place of that kind."""
    at = max(saved(workdir), default=0)
    next_save = min(at - at % SAVE + SAVE, STEPS)
    if kind == "any moment":  # importing, compiling, restoring, training
        with case.started(workdir) as process:
            time.sleep(random.uniform(0.5, 15))
        assert process.returncode in (-signal.SIGKILL, 0)
        return
    if kind == "saving":
        place = str(random.choice([*interrupts.PLACES]))
        code, err = case.go(workdir, killed_at=f"{place}:{next_save}")
        # Nothing was deleted, so nothing was killed, if all that is saved is kept.
        assert code == -signal.SIGKILL or place.startswith("delet"), (place, err)
        return
    fault = {
        "first step": f"step:{at + 1}",
        "step": f"step:{random.integers(at + 1, min(at + 8, STEPS) + 1)}",
        "evaluation": f"evaluation:{random.integers(3)}",
    }[kind]
    code, err = case.go(workdir, f"{fault}:kill")
    assert code == -signal.SIGKILL, (fault, err)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.fault(1)
def test_ten_kills_leave_no_trace(mode, tmp_path, pool):
    """As compiled for use; places at random, but each kind twice, and one kill twice in a row at
    the same place.
    """
    case = Case(tmp_path, pool, {**KNOBS, "masking.dupe_factor": MODES[mode]}, **OF_A_USER)
    random = np.random.default_rng(MODES[mode])
    kinds = [str(kind) for kind in random.permutation([*KINDS, *KINDS[1:]])]
    kinds.insert(int(random.integers(len(kinds))), "first step")
    assert len(kinds) == 10
    for kind in kinds:
        if max(saved(tmp_path / "run"), default=0) == STEPS:  # "any moment" was after the end
            break
        disturb(case, tmp_path / "run", kind, random)
    case.finish(tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [("SIGUSR1",), ("SIGUSR2",), ("SIGINT",), ("SIGUSR1", "SIGTERM"), ("SIGTERM", "SIGTERM")],
    ids="-".join,
)
@pytest.mark.fault(2)
def test_signals_save_and_a_second_one_does_not_wait(names, tmp_path, pool):
    """A second of another kind adds nothing: schedulers send both; the same again stops at once."""
    case = Case(tmp_path, pool, KNOBS)
    workdir = tmp_path / "run"
    with case.started(workdir, "step:14:sleep=20") as process:
        wait_for_step(workdir, 10, process)
        time.sleep(1)  # the steps up to the nap take milliseconds
        for name in names:
            process.send_signal(signal.Signals[name])
            time.sleep(signals.SAME + 0.1)
        begun = time.monotonic()
        _, err = process.communicate()
    assert process.returncode == 75, err
    assert f"{names[0]}: saving after this step, then stopping" in err
    if names[1:] == names[:1]:
        assert "second SIGTERM: stopping without saving" in err
        assert time.monotonic() - begun < 10
        assert max(saved(workdir)) == 10
    else:
        assert max(saved(workdir)) == 14
        assert "error: stopped at step 14 of 24, saved" in err
    case.finish(workdir)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.fault(5)
def test_any_flipped_bit_is_found(seed, tmp_path, pool):
    case = Case(tmp_path, pool, KNOBS)
    code, err = case.go(tmp_path / "run", "step:22:kill")
    assert code == -signal.SIGKILL, err
    *_, older, newest = saved(tmp_path / "run")  # 15 and 20, or what was saved before them
    damaged = flip_a_bit(tmp_path / "run" / "checkpoints" / str(newest), seed)
    err = case.finish(tmp_path / "run")
    assert f"warning: checkpoint corrupt: {damaged}" in err
    assert f"resuming {tmp_path / 'run'} at step {older}" in err
