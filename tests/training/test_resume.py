"""A run that goes on is the run it was: what may change, and the same bits whatever kills it."""

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

from bert_jax.checkpoints.steps import list_steps
from bert_jax.config import knobs, to_dict
from bert_jax.errors import ConfigError
from bert_jax.system import signals
from bert_jax.training import resume
from tests import outcomes, texts, toy
from tests.checkpoints import interrupts

PRINTS = {"corpus": "a" * 64, "tokenizer": "b" * 64, "batches": "c" * 64}


def check(
    now: knobs.Config, *allowed: str, best: float | None = None, prints: dict | None = None
) -> dict:
    """Resume a run of the toy config, at whose best step the loss was `best`, as another one."""
    before = {"config": to_dict(toy.config()), **PRINTS, "best": best, "ledger": {"masked": 1}}
    after = {"config": to_dict(now), **PRINTS, **(prints or {})}
    return resume.check_same(before, after, allowed, Path("run"))


@pytest.mark.fault(7)
def test_resume_refuses_another_config_by_name():
    with pytest.raises(ConfigError, match=r"masking.rate: 0.15 -> 0.4") as caught:
        check(toy.config(masking__rate=0.4))
    assert "--allow-change=masking.rate" in caught.value.hint
    other = {"batches": "d" * 64}
    assert check(toy.config(masking__rate=0.4), "masking.rate", prints=other)["ledger"] is None
    assert check(toy.config(logging__every=3))["ledger"] == {"masked": 1}  # free to change
    longer = toy.config(steps=200, optim__warmup_fraction=0.1)
    assert check(longer, "steps", "optim.warmup_fraction")


@pytest.mark.fault(7)
@pytest.mark.parametrize(
    ("kind", "allowed", "refused"),
    [
        ("corpus", (), True),
        ("tokenizer", ("steps",), True),
        ("batches", ("masking.rate",), False),
        ("corpus", ("masking.rate",), True),
    ],
)
def test_resume_refuses_other_data(kind, allowed, refused):
    prints = {kind: "d" * 64}
    now = toy.config(masking__rate=0.4) if "masking.rate" in allowed else toy.config()
    if not refused:
        check(now, *allowed, prints=prints)
        return
    with pytest.raises(ConfigError, match=f"another {kind}: .* -> dddddddddddd"):
        check(now, *allowed, prints=prints)


@pytest.mark.fault(7)
@pytest.mark.parametrize(("knob", "value"), [("rate", 0.3), ("unit", "word"), ("seed", 1)])
def test_resume_refuses_another_measure_of_the_best(knob, value):
    """The best step would be chosen among numbers of two measures."""
    now = toy.config(**{f"evals__validation__{knob}": value})
    with pytest.raises(ConfigError, match=rf"evals\.validation\.{knob}: .* are ranked by") as error:
        check(now, f"evals.validation.{knob}", best=1.0)
    assert error.value.hint.startswith(f"--config.evals.validation.{knob}=")
    assert check(toy.config(evals__validation__batch_size=16), best=1.0)["best"] == 1.0


# --- processes that are killed --------------------------------------------------------------------

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
KINDS = ("first step", "step", "saving", "evaluation", "any moment")


class Case:
    """One config with all that could make a difference, and the run that nothing interrupts."""

    def __init__(self, folder: Path, pool: ThreadPoolExecutor, **changes: object):
        corpus = texts.write(folder / "corpus", documents=50)
        (folder / "config.py").write_text(texts.CONFIG.format(path=str(corpus)))
        flags = [f"--config.{knob}={value}" for knob, value in (KNOBS | changes).items()]
        self.words = ["train", f"--config={folder / 'config.py'}", *flags]
        self.reference, self.workdir = folder / "reference", folder / "run"
        self._undisturbed: Future = pool.submit(self.go, workdir=self.reference)

    def go(
        self, fault: str = "", killed_at: str = "", workdir: Path | None = None
    ) -> tuple[int, str]:
        """Return exit code and standard error of the command, with a fault or a kill in a save."""
        flag = f"--workdir={workdir or self.workdir}"
        code, _, err = texts.run(*self.words, flag, killed_at=killed_at, BERT_JAX_FAULT=fault)
        return code, err

    @contextlib.contextmanager
    def started(self, fault: str = "") -> Iterator[subprocess.Popen]:
        """Start the command as a process that does not outlive the block."""
        process = texts.start(*self.words, f"--workdir={self.workdir}", BERT_JAX_FAULT=fault)
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def wait_for(self, step: int, process: subprocess.Popen) -> None:
        """Wait until a step is saved."""
        while step not in self.list_saved():
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)

    def list_saved(self) -> list[int]:
        """List the saved steps."""
        return list_steps(self.workdir / "checkpoints")

    def finish(self) -> str:
        """Let the run end, and compare it with the one that nothing interrupted."""
        code, err = self.go()
        assert code == 0, err
        code, reference_err = self._undisturbed.result()
        assert code == 0, reference_err
        outcomes.assert_same(self.workdir, self.reference, STEPS)
        return err


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as made:
        yield made


def disturb(case: Case, kind: str, random: np.random.Generator) -> None:
    """Start the run again, and kill it at a place of that kind."""
    at = max(case.list_saved(), default=0)
    if kind == "any moment":  # importing, compiling, restoring, training
        with case.started() as process:
            time.sleep(random.uniform(0.5, 15))
        assert process.returncode in (-signal.SIGKILL, 0)
        return
    if kind == "saving":
        place = str(random.choice([*interrupts.PLACES]))
        code, err = case.go(killed_at=f"{place}:{min(at - at % SAVE + SAVE, STEPS)}")
        # Nothing was deleted, so nothing was killed, if all that is saved is kept.
        assert code == -signal.SIGKILL or place.startswith("delet"), (place, err)
        return
    fault = {
        "first step": f"step:{at + 1}",
        "step": f"step:{random.integers(at + 1, min(at + 8, STEPS) + 1)}",
        "evaluation": f"evaluation:{random.integers(3)}",
    }[kind]
    code, err = case.go(f"{fault}:kill")
    assert code == -signal.SIGKILL, (fault, err)


@pytest.mark.slow
@pytest.mark.parametrize("copies", [0, 2])
@pytest.mark.fault(1)
def test_ten_kills_leave_no_trace(copies, tmp_path, pool):
    """Places at random, but each kind twice."""
    case = Case(tmp_path, pool, **{"masking.dupe_factor": copies})
    random = np.random.default_rng(copies)
    for kind in random.permutation([*KINDS, *KINDS]):
        if max(case.list_saved(), default=0) < STEPS:  # else "any moment" was after the end
            disturb(case, str(kind), random)
    case.finish()


@pytest.mark.slow
@pytest.mark.parametrize(
    "names", [("SIGUSR1",), ("SIGINT",), ("SIGUSR1", "SIGTERM"), ("SIGTERM", "SIGTERM")]
)
@pytest.mark.fault(2)
def test_signals_save_and_a_second_does_not_wait(names, tmp_path, pool):
    """A second of another kind adds nothing: schedulers send both; the same again stops at once."""
    case = Case(tmp_path, pool)
    with case.started("step:14:sleep=20") as process:
        case.wait_for(10, process)
        time.sleep(1)  # the steps up to the nap take milliseconds
        for name in names:
            process.send_signal(signal.Signals[name])
            time.sleep(signals.SAME + 0.1)
        _, err = process.communicate()
    assert process.returncode == 75, err
    assert f"{names[0]}: saving after this step, then stopping" in err
    if names[1:] == names[:1]:
        assert "second SIGTERM: stopping without saving" in err
        assert max(case.list_saved()) == 10
    else:
        assert "error: stopped at step 14 of 24, saved" in err
        assert max(case.list_saved()) == 14
    case.finish()
