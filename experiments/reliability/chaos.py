"""Draw faults at random over a whole pipeline, and check each promise of tests/faults.md.

    python experiments/reliability/chaos.py --seed=0 --faults=200

An episode is the pipeline of `world.py`, prepare to export and back, with up to three faults
drawn at each stage: processes killed, stopped or doubled, a full disk, bits flipped, files cut or
removed, text changed. After each fault the exit code must be one that its row allows, an error must
be one line with a hint, and there must be no internal error and no traceback. An answer that
differs must come with a warning, and once the damage is undone it must be that of a pipeline
without faults, to the bit.

Episode k of `--seed=S` is the first of `--seed=S+k`, so that a violation can be repeated. Needs
Linux; a full disk is drawn where a tmpfs can be mounted (root).
"""

import argparse
import collections
import concurrent.futures
import contextlib
import dataclasses
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from world import READS, STAGES, Stage, make

ROOT = Path(__file__).resolve().parents[2]
MEGABYTES = 128  # of a world on a tmpfs, which holds about 20
LATER = "what follows"  # a violation that shows in the command after the faults, undisturbed
WAIT = 240.0  # seconds after which a command hangs
KILLED, TERMINATED = -signal.SIGKILL, -signal.SIGTERM
DONE, USAGE, DATA, CHECKPOINT, STOPPED, INTERRUPTED = 0, 2, 3, 4, 75, 130


@dataclasses.dataclass
class Outcome:
    """The end of a command: its exit code, its output and its time."""

    code: int
    out: str
    err: str
    seconds: float
    hung: bool = False

    def told(self) -> bool:
        """Return whether the command reported a fault, by its exit code or a warning."""
        return self.code != DONE or "warning:" in self.err

    def wrong(self, allowed: set[int]) -> str:
        """Describe what is wrong with this end, whatever the fault; empty where nothing is."""
        if self.hung:
            return f"hung for {WAIT:.0f} s"
        for sign in ("Traceback", "Fatal Python error"):
            if sign in self.err or sign in self.out:
                return f"{sign} in its output"
        if self.code not in allowed:
            return f"exit code {self.code}, not one of {sorted(allowed)}"
        if self.code > 1:
            for sign in ("error: ", "hint: "):
                lines = [line for line in self.err.splitlines() if line.startswith(sign)]
                wanted = not (
                    sign == "hint: " and self.code == INTERRUPTED
                )  # nothing to go on with
                if len(lines) != wanted:
                    return f"exit code {self.code} with {len(lines)} lines of {sign.strip()}"
        return ""


@dataclasses.dataclass
class Verdict:
    """The result of a fault; `wrong` is empty where the promise held."""

    kind: str
    row: int
    stage: str
    what: str
    wrong: str = ""
    log: str = ""


class World:
    """A folder in which the pipeline runs, on a tmpfs where one can be mounted."""

    def __init__(self, scratch: Path, name: str, compiled: Path):
        self.path, self.scratch = scratch / name, scratch
        self.path.mkdir(parents=True)
        size = f"size={MEGABYTES}m"
        mount = ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(self.path)]
        self.small = subprocess.run(mount, capture_output=True).returncode == 0
        make(self.path)
        self.environment = os.environ | {
            "BERT_JAX_DATA": str(self.path / "data"),
            "TMPDIR": str(self.path / "tmp"),
            "PYTHONPATH": str(ROOT),
            "JAX_PLATFORMS": "cpu",
            # Programs compiled in one episode are taken in the next: outside the world, and warm.
            "JAX_COMPILATION_CACHE_DIR": str(compiled),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }

    def __enter__(self) -> "World":
        return self

    def __exit__(self, *_: object) -> None:
        """Unmount and remove the world."""
        if self.small:
            subprocess.run(["umount", "-l", str(self.path)], check=False)
        shutil.rmtree(self.path, ignore_errors=True)

    def begin(self, stage: Stage) -> "Running":
        """Start the command of a stage, in a process group of its own."""
        return Running(self, stage)

    def run(self, stage: Stage) -> Outcome:
        """Run the command of a stage to its end."""
        return self.begin(stage).end()

    def files(self, under: tuple[str, ...]) -> list[Path]:
        """Return the files below some folders, in an order that repeats."""
        paths = [path for name in under for path in sorted((self.path / name).rglob("*"))]
        return [path for path in paths if path.is_file() and not path.name.endswith(".lock")]

    @contextlib.contextmanager
    def restored(self) -> Iterator[Callable[[], None]]:
        """Undo what happened inside, unless the function it gives is called."""
        copy = Path(tempfile.mkdtemp(dir=self.scratch))
        kept: list[bool] = []
        shutil.copytree(self.path, copy, dirs_exist_ok=True, symlinks=True)
        try:
            yield lambda: kept.append(True)
            if not kept:
                for path in self.path.iterdir():
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
                shutil.copytree(copy, self.path, dirs_exist_ok=True, symlinks=True)
        finally:
            shutil.rmtree(copy)


class Running:
    """The process of a command that was started."""

    def __init__(self, world: World, stage: Stage):
        # Files, not pipes: workers that outlive their parent would keep a pipe open.
        # They are closed in end().
        self.streams = [tempfile.TemporaryFile("w+", dir=world.scratch) for _ in "oe"]  # noqa: SIM115
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bert_jax.cli", *stage.words.split()],
            cwd=world.path,
            env=world.environment,
            stdin=subprocess.DEVNULL,
            stdout=self.streams[0],
            stderr=self.streams[1],
            start_new_session=True,
        )

    def wait(self, seconds: float) -> bool:
        """Wait for some seconds, and return whether the command still runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        return self.process.poll() is None

    def send(self, number: int, group: bool = True) -> None:
        """Send a signal to the process, or to all of its group."""
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if group else os.kill)(self.process.pid, number)

    def end(self) -> Outcome:
        """Wait until the command ends, and return its outcome; kill it if it hangs."""
        hung = self.wait(WAIT)
        if hung:
            self.send(signal.SIGKILL)
            self.process.wait()
        texts = []
        for stream in self.streams:
            stream.seek(0)
            texts.append(stream.read())
            stream.close()
        output, error = texts
        return Outcome(self.process.returncode, output, error, time.monotonic() - self.began, hung)


# --- faults while a command runs ------------------------------------------------------------------


@dataclasses.dataclass
class Draw:
    """The place of a fault: random numbers, the world, the stage, and its usual time and answer."""

    chance: random.Random
    world: World
    stage: Stage
    seconds: float
    answer: object
    finished: bool  # whether the stage has ended well before

    def moment(self) -> float:
        """Draw a moment while the command runs, in seconds from its start."""
        return self.chance.uniform(0.1, 1.0) * self.seconds


def _killed(draw: Draw) -> tuple[str, str, Outcome]:
    running, moment = draw.world.begin(draw.stage), draw.moment()
    running.wait(moment)
    running.send(signal.SIGKILL)
    outcome = running.end()
    return f"after {moment:.1f} s", outcome.wrong({KILLED, DONE, *draw.stage.codes}), outcome


def _terminated(draw: Draw) -> tuple[str, str, Outcome]:
    running, moment = draw.world.begin(draw.stage), draw.moment()
    number = draw.chance.choice((signal.SIGTERM, signal.SIGINT))
    running.wait(moment)
    running.send(number, group=draw.chance.random() < 0.5)
    outcome = running.end()
    ends = {DONE, -number, *draw.stage.codes, STOPPED if draw.stage.resumable else INTERRUPTED}
    return f"{number.name} after {moment:.1f} s", outcome.wrong(ends), outcome


def _paused(draw: Draw) -> tuple[str, str, Outcome]:
    running, moment = draw.world.begin(draw.stage), draw.moment()
    pause = draw.chance.uniform(0.5, 3)
    if running.wait(moment):
        running.send(signal.SIGSTOP)
        time.sleep(pause)
        running.send(signal.SIGCONT)
    outcome = running.end()
    return (
        f"after {moment:.1f} s, for {pause:.1f} s",
        outcome.wrong({DONE, *draw.stage.codes}),
        outcome,
    )


def _doubled(draw: Draw) -> tuple[str, str, Outcome]:
    first, moment = draw.world.begin(draw.stage), draw.moment()
    first.wait(moment)
    second = draw.world.begin(draw.stage)
    ends = [second.end(), first.end()]
    wrong = next(
        filter(None, (outcome.wrong({DONE, USAGE, *draw.stage.codes}) for outcome in ends)), ""
    )
    if not wrong and not draw.stage.codes and all(outcome.code for outcome in ends):
        wrong = "both were refused"
    return f"after {moment:.1f} s", wrong, max(ends, key=lambda outcome: outcome.code)


def _filled(draw: Draw) -> tuple[str, str, Outcome]:
    left, moment = draw.chance.choice((0, 4_096, 65_536, 1_000_000)), draw.moment()
    filler = draw.world.path / "filler"
    running = draw.world.begin(draw.stage)
    running.wait(moment)
    with filler.open("wb") as file, contextlib.suppress(OSError):
        while True:
            os.write(file.fileno(), b"\0" * 65_536)
    with contextlib.suppress(OSError):
        os.truncate(filler, max(0, filler.stat().st_size - left))
    outcome = running.end()
    filler.unlink()
    wrong = outcome.wrong({DONE, CHECKPOINT, *draw.stage.codes})
    if not wrong and outcome.code == CHECKPOINT and "free" not in outcome.err:
        wrong = "a full disk that does not say what is free"
    return f"{left} bytes left after {moment:.1f} s", wrong, outcome


# --- damage before a command ----------------------------------------------------------------------


def _flip(chance: random.Random, file: Path) -> str:
    data = bytearray(file.read_bytes())
    place = chance.randrange(len(data))
    data[place] ^= 1 << chance.randrange(8)
    file.write_bytes(data)
    return f"bit at byte {place} of"


def _cut(chance: random.Random, file: Path) -> str:
    length = chance.randrange(file.stat().st_size)
    os.truncate(file, length)
    return f"after {length} bytes:"


def _remove(_: random.Random, file: Path) -> str:
    file.unlink()
    return "whole file:"


def _damaged(
    hurt: Callable[[random.Random, Path], str],
) -> Callable[[Draw], tuple[str, str, Outcome]]:
    def run(draw: Draw) -> tuple[str, str, Outcome]:
        files = draw.world.files(READS[draw.stage.name])
        # Drawn by kind of file first: shards of a checkpoint outnumber all others.
        groups = collections.defaultdict(list)
        for path in files:
            if path.stat().st_size:
                numbered = path.parent.name.isdigit()
                groups[path.parent.name if numbered else path.suffix or "array"].append(path)
        file = draw.chance.choice(groups[draw.chance.choice(sorted(groups))])
        with draw.world.restored() as keep:
            what = f"{hurt(draw.chance, file)} {file.relative_to(draw.world.path)}"
            outcome = draw.world.run(draw.stage)
            wrong = outcome.wrong({DONE, USAGE, DATA, CHECKPOINT, *draw.stage.codes})
            well = not wrong and outcome.code == DONE
            if well and draw.stage.answer and not outcome.told():
                other = draw.stage.answer(draw.world.path, outcome.out) != draw.answer
                wrong = "another answer, without a word" if other else ""
            output = any(file.is_relative_to(draw.world.path / name) for name in draw.stage.makes)
            if well and output and draw.stage.resumable and not draw.finished:
                keep()  # the stage resumed: the end of the pipeline shows whether that was sound
        return what, wrong, outcome

    return run


def _changed(draw: Draw) -> tuple[str, str, Outcome]:
    world = draw.world.path
    name = "rows.tsv" if draw.stage.name in ("fine-tune", "score") else "texts/corpus.txt"
    begun = (world / "runs" / ("task" if name == "rows.tsv" else "base") / "checkpoints").is_dir()
    with draw.world.restored():
        if name == "rows.tsv":
            text = (world / name).read_text()
            (world / name).write_text(text.replace("\tother", "\tanimal", 1))
        else:
            with (world / name).open("a") as file:
                file.write("\n\na new document follows the cat near the sea.\n")
        outcome = draw.world.run(draw.stage)
        wrong = outcome.wrong({DONE, USAGE, *draw.stage.codes})
        if not wrong and begun and outcome.code == DONE:
            wrong = "taken without a word" if not outcome.told() else ""
    return name, wrong, outcome


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of fault: its row in tests/faults.md, how often it is drawn, and where."""

    name: str
    row: int
    weight: int
    run: Callable[[Draw], tuple[str, str, Outcome]]
    stages: tuple[str, ...] = tuple(stage.name for stage in STAGES)


WITH_TEXT = ("train", "evaluate", "fine-tune", "score")
KINDS = (
    Kind("kill -9", 1, 5, _killed),
    Kind("SIGTERM or SIGINT", 2, 4, _terminated),
    Kind("SIGSTOP for a while", 1, 2, _paused),
    Kind("second process", 9, 2, _doubled),
    Kind("full disk", 4, 4, _filled),
    Kind("bit flipped", 5, 5, _damaged(_flip)),
    Kind("file cut", 5, 3, _damaged(_cut)),
    Kind("file removed", 5, 3, _damaged(_remove)),
    Kind("text changed", 7, 2, _changed, WITH_TEXT),
)


# --- episodes -------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Reference:
    """A pipeline without faults: the seconds of each stage, and its answer."""

    seconds: dict[str, float]
    answers: dict[str, object]


def reference(scratch: Path, compiled: Path) -> Reference:
    """Run the pipeline twice without faults: to compile and for the answers, then for the time."""
    seconds: dict[str, float] = {}
    answers: list[dict[str, object]] = []
    for turn in range(2):
        answers.append({})
        with World(scratch, f"reference{turn}", compiled) as world:
            for stage in STAGES:
                outcome = world.run(stage)
                wrong = outcome.wrong({DONE})
                if wrong:
                    raise SystemExit(f"{stage.name} without any fault: {wrong}\n{outcome.err}")
                seconds[stage.name] = outcome.seconds
                if stage.answer:
                    answers[-1][stage.name] = stage.answer(world.path, outcome.out)
    differ = [name for name in answers[0] if answers[0][name] != answers[1][name]]
    if differ:
        raise SystemExit(f"two pipelines without faults differ in {', '.join(differ)}")
    return Reference(seconds, answers[0])


def _kinds(world: World, stage: Stage) -> list[Kind]:
    files = world.files(READS[stage.name])
    return [
        kind
        for kind in KINDS
        if stage.name in kind.stages
        and (kind.name != "full disk" or world.small)
        and (kind.row != 5 or files)
    ]


def episode(
    seed: int, scratch: Path, compiled: Path, normal: Reference, tell: Callable[[Verdict], bool]
) -> None:
    """Run one pipeline with faults, until `tell`, called with a verdict, returns True."""
    chance, drawn = random.Random(seed), 0
    with World(scratch, f"world{seed}", compiled) as world:
        for stage in STAGES:
            answer, finished, lately = normal.answers.get(stage.name), False, []
            for _ in range(chance.choice((0, 1, 1, 2, 3))):
                kinds = _kinds(world, stage)
                kind = chance.choices(kinds, [kind.weight for kind in kinds])[0]
                draw = Draw(chance, world, stage, normal.seconds[stage.name], answer, finished)
                what, wrong, outcome = kind.run(draw)
                finished, drawn = finished or outcome.code == DONE, drawn + 1
                lately.append(f"{kind.name}, {what}")
                log = f"--seed={seed} --faults={drawn}\n{outcome.err[-3000:]}" if wrong else ""
                if tell(Verdict(kind.name, kind.row, stage.name, what, wrong, log)):
                    return
            wrong, outcome = _finish(world, stage, answer)
            if wrong:
                last = f"--seed={seed} --faults={drawn}, then {stage.name}, after:"
                log = "\n  ".join((last, *lately, outcome.err[-3000:]))
                tell(Verdict(LATER, 28, stage.name, "the same command, undisturbed", wrong, log))
                return


def _finish(world: World, stage: Stage, answer: object) -> tuple[str, Outcome]:
    """Run a stage undisturbed after its faults: it must end well, with its usual answer."""
    outcome = world.run(stage)
    finished = stage.codes and "exists and is not empty" in outcome.err
    wrong = "" if finished else outcome.wrong({DONE})
    if not wrong and stage.answer and stage.answer(world.path, outcome.out) != answer:
        wrong = "another answer than without faults"
    return wrong, outcome


def table(verdicts: list[Verdict]) -> str:
    """Write the verdicts as a table: faults by kind, survived, violated."""
    rows = ["| fault | row | drawn | survived | violated |", "|---|---|---|---|---|"]
    kinds = {(verdict.kind, verdict.row) for verdict in verdicts}
    for name, row in [(kind.name, kind.row) for kind in KINDS] + [(LATER, 28)]:
        if (name, row) in kinds:
            drawn = [verdict for verdict in verdicts if verdict.kind == name]
            bad = sum(bool(verdict.wrong) for verdict in drawn)
            rows.append(f"| {name} | {row} | {len(drawn)} | {len(drawn) - bad} | {bad} |")
    faults = [verdict for verdict in verdicts if verdict.kind != LATER]
    bad = sum(bool(verdict.wrong) for verdict in verdicts)
    rows.append(f"| all | | {len(faults)} | {len(faults) - bad} | {bad} |")
    return "\n".join(rows)


def run(seed: int, faults: int, minutes: float, jobs: int) -> list[Verdict]:
    """Draw faults until there are enough or the time is over, and return their verdicts."""
    verdicts: list[Verdict] = []
    lock, began = threading.Lock(), time.monotonic()

    def enough() -> bool:
        drawn = sum(verdict.kind != LATER for verdict in verdicts)
        return drawn >= faults or time.monotonic() - began > minutes * 60

    def tell(verdict: Verdict) -> bool:
        with lock:
            if enough():
                return True
            verdicts.append(verdict)
            left = (time.monotonic() - began) / len(verdicts) * max(0, faults - len(verdicts)) / 60
            state = "VIOLATED: " + verdict.wrong if verdict.wrong else "held"
            place = f"{len(verdicts)}/{faults}, {left:.0f} min left"
            print(
                f"{place}  {verdict.kind} ({verdict.stage}, {verdict.what}): {state}",
                file=sys.stderr,
            )
            if verdict.wrong:
                print(verdict.log, file=sys.stderr)
            return enough()

    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        scratch, compiled = Path(folder), Path(folder) / "compiled"
        normal = reference(scratch, compiled)
        began = time.monotonic()

        def worker(first: int) -> None:
            number = first
            while not enough():
                episode(seed + number, scratch, compiled, normal, tell)
                number += jobs

        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            for future in [pool.submit(worker, first) for first in range(jobs)]:
                future.result()
    return verdicts


def main() -> int:
    """Parse the flags, draw the faults, print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0, help="of the first episode (0)")
    parser.add_argument("--faults", type=int, default=200, help="how many are drawn (200)")
    parser.add_argument("--minutes", type=float, default=600, help="a further limit (600)")
    parser.add_argument("--jobs", type=int, default=1, help="episodes at a time (1)")
    args = parser.parse_args()
    verdicts = run(args.seed, args.faults, args.minutes, args.jobs)
    print(table(verdicts))
    violated = [verdict for verdict in verdicts if verdict.wrong]
    for verdict in violated:
        print(f"\n{verdict.kind} ({verdict.stage}, {verdict.what}): {verdict.wrong}\n{verdict.log}")
    return 1 if violated else 0


if __name__ == "__main__":
    sys.exit(main())
