"""Say where the time of an update goes on a CPU: matmuls, all other programs by part, and waiting.

    python experiments/performance/update_profile.py [--size=4x256] [--updates=10] [--top=12]

The update is that of `bench.py train-step`. Times are from jax's profiler: ms a core, the
sum over cores. `waiting` is what is left of the clock's time times the cores: in it a core has
nothing to do.
"""

import argparse
import re
import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path

import bench
import jax
import ours

from bert_jax import config as configs
from bert_jax.batch import SPECIAL
from bert_jax.system import allocator, machine

WARM = 5  # updates before anything is measured
PARTS = (  # names of scopes in the program, and what they are part of; the first that fits counts
    (r"random|threefry|shift_right|bits", "random bits"),
    (r"/attention/", "attention: softmax, dropout, layout"),
    (r"/mlp/", "feed-forward: GELU, layout"),
    (r"norm/", "norms"),
    (r"embeddings", "embeddings"),
    (r"/mlm/|jvp\(\)|jvp\(jit\(_where\)\)", "head and cross-entropy"),
    (r"Network", "layers: residuals, dropout"),
)


def parts_of(program: str) -> dict[str, str]:
    """Return the part of each instruction of a compiled program, by its name."""
    bodies = dict(re.findall(r"^%?([\w.-]+) \([^\n]*\{\n(.*?)^\}", program, re.M | re.S))
    parts = {}
    for name, text in re.findall(r"^\s*(?:ROOT )?%?([\w.-]+) = ([^\n]*)", program, re.M):
        called = re.search(r"calls=%?([\w.-]+)", text)
        source = re.search(r'op_name="([^"]*)"', text)
        if re.search(r" dot\(", text + (bodies.get(called[1], "") if called else "")):
            parts[name] = "matmuls, with what is fused into them"
        else:
            scope = source[1] if source else ""
            found = (part for pattern, part in PARTS if re.search(pattern, scope))
            parts[name] = next(found, "optimizer and the rest")
    return parts


def measure(size: str, updates: int) -> tuple[float, Counter[str], dict[str, str], str]:
    """Return the clock's ms of an update, each instruction's ms, and the parts; and the type."""
    config = configs.resolve(bench.make_tree(None, size))
    trainer = ours.Trainer(config, SPECIAL, config.tokenizer.vocab_size)
    batch = ours.make_text(config)
    program = trainer.program.trace(batch).lower().compile().as_text()

    def update() -> float:
        began = time.perf_counter()
        trainer.begin(batch)
        trainer.wait()
        return 1000 * (time.perf_counter() - began)

    times = [update() for _ in range(WARM + 2 * updates)][WARM:]
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            for _ in range(updates):
                update()
        (file,) = Path(folder).rglob("*.xplane.pb")
        data = jax.profiler.ProfileData.from_file(str(file))
    spent: Counter[str] = Counter()
    for plane in data.planes:
        for line in plane.lines:
            for event in line.events:
                name = dict(event.stats).get("hlo_op")
                if name is not None:
                    spent[str(name)] += event.duration_ns / 1e6 / updates
    return statistics.median(times), spent, parts_of(program), config.model.dtype


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", default=bench.SIZE)
    parser.add_argument("--updates", type=int, default=10)
    parser.add_argument("--top", type=int, default=12)
    args = parser.parse_args()
    allocator.retain_memory()
    clock, spent, parts, dtype = measure(args.size, args.updates)
    cores = machine.count_cores()
    sums: Counter[str] = Counter()
    for name, ms in spent.items():
        sums[parts.get(name, "optimizer and the rest")] += ms
    sums["waiting"] = round(cores * clock - spent.total())
    print(f"{args.size}, {dtype}: {clock:.0f} ms an update, {cores} cores\n\n| part | ms a core |")
    print("|---|---:|")
    print("".join(f"| {part} | {ms:.0f} |\n" for part, ms in sums.most_common()))
    for name, ms in spent.most_common(args.top):
        print(f"{ms:8.1f}  {name:32} {parts.get(name, '')}")
