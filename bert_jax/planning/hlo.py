"""Read a compiled program: its collectives, custom calls and memory traffic, loops counted out.

XLA's own cost analysis counts the body of a loop once. Here every instruction counts as often as it
runs: a loop's body times its trips, which XLA writes beside the loop.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

COLLECTIVES = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
    "collective-broadcast",
    "ragged-all-to-all",
)
FREE = frozenset(  # opcodes that move no bytes by themselves
    [
        *("parameter", "constant", "iota", "tuple", "get-tuple-element", "bitcast"),
        *("while", "conditional", "call", "after-all", "opt-barrier", "add-dependency"),
        *("partition-id", "replica-id", "domain", "async-start", "async-update"),
    ]
)
FREE_CALLS = ("AllocateBuffer", "ConcatBitcast", "AssumeGatherIndicesInBound")  # of the TPU's
_BYTES = {"pred": 1, "token": 0, "opaque": 0}
_SHAPE = re.compile(r"\b(pred|token|opaque|[a-z]+\d+\w*)\[([\d,]*)\](?:\{([^}]*)\})?")
_ON_CHIP = re.compile(r"T\(.*S\((?!5\))\d+\)")  # a TPU's tiled layout; space 5 is the host's
_NAME = re.compile(r"%?([\w.\-]+)")
_HEADER = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\{$")
_TRIPS = re.compile(r'known_trip_count\\*"?:\s*\{\\*"n\\*":\s*\\*"(\d+)')
_CALLED = re.compile(
    r"(?:calls|body|condition|true_computation|false_computation|branch_computations)="
    r"(\{[^}]*\}|%?[\w.\-]+)"
)


class Shape(NamedTuple):
    """Type and dimensions of an array, and whether it is in the memory of a TPU's core."""

    dtype: str
    dims: tuple[int, ...]
    on_chip: bool = False

    @property
    def bytes(self) -> int:
        """Return the size of the array, 4-bit types rounded up."""
        if self.dtype in _BYTES:
            return _BYTES[self.dtype] * math.prod(self.dims)
        bits = re.search(r"\d+", self.dtype)
        return math.prod(self.dims) * max(1, int(bits.group()) // 8) if bits else 0

    @property
    def floating(self) -> bool:
        """Return whether the type is a floating-point type."""
        return self.dtype.startswith(("f", "bf"))


class Instruction(NamedTuple):
    """One instruction of a computation."""

    name: str
    opcode: str
    results: tuple[Shape, ...]
    operands: tuple[str, ...]
    line: str


class Collective(NamedTuple):
    """A collective, as often as it runs in one call of the program."""

    kind: str
    operands: tuple[Shape, ...]
    results: tuple[Shape, ...]
    bytes: int  # of the whole array: the larger side of a gather or a scatter
    times: int
    asynchronous: bool
    line: str


@dataclasses.dataclass(frozen=True)
class Program:
    """The computations of a compiled program, and how often each runs."""

    computations: Mapping[str, Mapping[str, Instruction]]
    times: Mapping[str, int]
    asynchronous: frozenset[str]  # computations that run beside others
    fused: frozenset[str]  # computations whose values never reach memory

    def running(self) -> Iterator[tuple[str, Instruction, int]]:
        """Yield the instructions that run, with their computation and how often."""
        for name, times in self.times.items():
            for instruction in self.computations[name].values():
                yield name, instruction, times

    def shapes(self, computation: str, instruction: Instruction) -> tuple[Shape, ...]:
        """Return the shapes of the operands of an instruction."""
        table = self.computations[computation]
        return tuple(
            shape for name in instruction.operands if name in table for shape in table[name].results
        )

    def collectives(self) -> list[Collective]:
        """Return the collectives of the program.

        A TPU runs an asynchronous one as several fusions, which bear the same channel.
        """
        found: dict[tuple[str, str], Collective] = {}
        for computation, instruction, times in self.running():
            opcode = instruction.opcode
            begun = opcode.endswith("-start")
            kind = opcode.removesuffix("-start")
            if kind not in COLLECTIVES or _of_one(instruction.line):
                continue
            operands = self.shapes(computation, instruction)
            sent = sum(shape.bytes for shape in operands)
            received = sum(shape.bytes for shape in instruction.results)
            if begun and len(instruction.results) > len(operands):
                received -= sent  # the result of a start holds its operands too
            line, results = instruction.line, instruction.results
            channel = re.search(r"channel_id=\d+", line)
            step = channel is not None and computation in self.fused
            key = (kind, channel.group() if step and channel else f"{computation} {line}")
            beside = begun or computation in self.asynchronous or key in found
            size = max(sent, received)
            found[key] = Collective(kind, operands, results, size, times, beside, line)
        return list(found.values())

    def custom_calls(self) -> collections.Counter[str]:
        """Count the calls of foreign code, by target and name of the operation."""
        counts: collections.Counter[str] = collections.Counter()
        for _, instruction, times in self.running():
            if instruction.opcode == "custom-call":
                target = re.search(r'custom_call_target="([^"]*)"', instruction.line)
                operation = re.search(r'op_name="([^"]*)"', instruction.line)
                name = target.group(1) if target else ""
                counts[f"{name} {operation.group(1) if operation else ''}".strip()] += times
        return counts

    def traffic(self) -> int:
        """Estimate the bytes of a device's memory that the program reads and writes.

        A fusion reads its operands and writes its results; an operand that it only slices counts
        with the slice, and a result that it updates in place with the update. What a TPU keeps in
        the memory of its core moves when it is copied there or back.
        """
        total = 0
        for computation, instruction, times in self.running():
            if computation in self.fused or instruction.opcode in FREE:
                continue
            if instruction.opcode.endswith("-done") or _calls_nothing(instruction.line):
                continue
            total += times * self._moved(computation, instruction)
        return total

    def _moved(self, computation: str, instruction: Instruction) -> int:
        opcode, results = instruction.opcode, instruction.results
        operands = self.shapes(computation, instruction)
        if opcode == "slice-start":  # its results: what is sliced, the slice, a semaphore
            opcode, results = "slice", results[len(operands) : -1]
        if opcode == "copy-start":  # its results: the copy, what is copied, a semaphore
            results = results[:1]
        if opcode == "fusion-start":  # its results: what is read, those of the fusion, a semaphore
            opcode, results = "fusion", results[len(operands) : -1]
        if opcode in ("dynamic-slice", "slice", "gather"):
            return _off_chip(results) + sum(r.bytes for r in results if not operands[0].on_chip)
        if opcode in ("dynamic-update-slice", "scatter"):
            written = 0 if operands[0].on_chip else sum(shape.bytes for shape in operands[1:])
            return written + _off_chip(operands[1:])
        if opcode != "fusion":
            return _off_chip(results) + _off_chip(operands)
        called = next(iter(_called(instruction.line)), "")
        return self._moved_by_fusion(self.computations.get(called, {}), results)

    def _moved_by_fusion(
        self, inside: Mapping[str, Instruction], results: tuple[Shape, ...]
    ) -> int:
        read, written = 0, _off_chip(results)
        for inner in inside.values():
            if inner.opcode == "parameter" and not inner.results[0].on_chip:
                whole = inner.results[0].bytes
                taken, updated = self._uses(inside, inner.name)
                read += whole if taken is None else min(taken, whole)
                written += updated - whole if updated else 0
        return read + max(written, 0)

    def _uses(self, inside: Mapping[str, Instruction], name: str) -> tuple[int | None, int]:
        """Return the bytes that a fusion reads of a value, and those that it updates in place.

        None is read whole; a value that is only updated is not read.
        """
        read, updated = 0, 0
        for user in inside.values():
            for position, operand in enumerate(user.operands):
                if operand != name:
                    continue
                part: tuple[int | None, int] = (None, 0)
                if user.opcode == "bitcast":
                    part = self._uses(inside, user.name)
                elif user.opcode == "dynamic-slice" and position == 0:
                    part = (user.results[0].bytes, 0)
                elif user.opcode == "dynamic-update-slice" and position == 0:
                    part = (0, inside[user.operands[1]].results[0].bytes)
                elif user.opcode == "fusion":
                    called = self.computations[_called(user.line)[0]]
                    (own,) = (n for n, i in called.items() if f"parameter({position})" in i.line)
                    part = self._uses(called, own)
                if part[0] is None:
                    return None, 0
                read, updated = read + part[0], updated + part[1]
        return read, updated


def _off_chip(shapes: Iterable[Shape]) -> int:
    return sum(shape.bytes for shape in shapes if not shape.on_chip)


def _calls_nothing(line: str) -> bool:
    """Tell whether a custom call only names memory or asserts something."""
    return any(f'custom_call_target="{name}"' in line for name in FREE_CALLS)


def parse(text: str) -> Program:
    """Parse the text of a compiled module, `compiled.as_text()`."""
    computations: dict[str, dict[str, Instruction]] = {}
    entry, current = "", None
    whole = re.sub(r"\n(?=\"|}})", " ", text)  # kernels of Pallas describe themselves over lines
    for line in whole.splitlines():
        header = _HEADER.match(line)
        if header and " = " not in line.split("(")[0]:
            current = computations.setdefault(header.group(1), {})
            entry = header.group(1) if line.startswith("ENTRY") else entry
        elif line.startswith("}"):
            current = None
        elif current is not None and " = " in line:
            instruction = _instruction(line)
            current[instruction.name] = instruction
    times, asynchronous, fused = _counts(computations, entry)
    return Program(computations, times, asynchronous, fused)


def _counts(
    computations: Mapping[str, Mapping[str, Instruction]], entry: str
) -> tuple[dict[str, int], frozenset[str], frozenset[str]]:
    """Return how often each computation runs, and which run beside others or inside a fusion."""
    times: collections.Counter[str] = collections.Counter()
    asynchronous: set[str] = set()
    fused: set[str] = set()

    def visit(name: str, count: int, beside: bool, inside: bool) -> None:
        times[name] += count
        if beside:
            asynchronous.add(name)
        if inside:
            fused.add(name)
        for instruction in computations[name].values():
            trips = _trips(instruction, computations) if instruction.opcode == "while" else 1
            for called in _called(instruction.line):
                if called in computations:
                    visit(
                        called,
                        count * trips,
                        beside or instruction.opcode == "async-start",
                        inside or instruction.opcode in ("fusion", "fusion-start"),
                    )

    if entry:
        visit(entry, 1, False, False)
    return dict(times), frozenset(asynchronous), frozenset(fused)


def _of_one(line: str) -> bool:
    """Tell whether a collective is among groups of one device, so that nothing moves."""
    listed = re.search(r"replica_groups=\{\{([\d,]*)\}", line)
    if listed:
        return "," not in listed.group(1)
    sizes = re.search(r"replica_groups=\[\d+,(\d+)\]", line)
    if sizes:
        return sizes.group(1) == "1"
    named = re.search(r"replica_groups=mesh\[([^\]]*)\] \{([^}]*)\}", line)
    if not named:
        return False
    axes = dict(re.findall(r"'(\w+)'=(\d+)", named.group(1)))
    return all(axes.get(axis) == "1" for axis in re.findall(r"'(\w+)'", named.group(2)))


def _trips(loop: Instruction, computations: Mapping[str, Mapping[str, Instruction]]) -> int:
    """Return how often a loop runs: as XLA has noted, or as the bound its counter is held against.

    The loops of `lax.scan` and `lax.map` count from 0 by 1, forwards and backwards.
    """
    known = _TRIPS.search(loop.line)
    if known:
        return int(known.group(1))
    condition = re.search(r"condition=%?([\w.\-]+)", loop.line)
    bounds = [
        int(value.group(1))
        for instruction in computations[condition.group(1) if condition else ""].values()
        if (value := re.search(r" = s32\[\][^ ]* constant\((\d+)\)", instruction.line))
    ]
    return max(bounds, default=1)


def _called(line: str) -> list[str]:
    """Return the computations that an instruction runs; functions of a reduction are left out."""
    names = []
    if re.search(r"\bcall\(", line):  # of no other instruction does to_apply run as it stands
        line = line.replace("to_apply=", "calls=")
    for found in _CALLED.findall(line):
        names += [_NAME.fullmatch(part.strip()) for part in found.strip("{}").split(",")]
    return [name.group(1) for name in names if name]


def _instruction(line: str) -> Instruction:
    """Parse one line, such as `ROOT %add.3 = f32[2]{0} add(%a, %b), metadata=...`."""
    left, right = line.split(" = ", 1)
    name = left.strip().removeprefix("ROOT ").lstrip("%")
    if right.startswith("("):
        end = _closing(right, 0) + 1
    else:
        end = right.index(" ")
    results = _shapes(right[:end])
    rest = right[end:].lstrip()
    opening = rest.index("(")
    opcode = rest[:opening]
    closing = _closing(rest, opening)
    return Instruction(name, opcode, results, _operands(rest[opening + 1 : closing]), line.strip())


def _operands(text: str) -> tuple[str, ...]:
    """Return the names in a list of operands, which may have their types before them."""
    if "%" in text:
        return tuple(re.findall(r"%([\w.\-]+)", text))
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _closing(text: str, opening: int) -> int:
    """Return the index of the parenthesis that closes the one at `opening`."""
    depth = 0
    for index in range(opening, len(text)):
        depth += {"(": 1, ")": -1}.get(text[index], 0)
        if not depth:
            return index
    return len(text) - 1


def _shapes(text: str) -> tuple[Shape, ...]:
    return tuple(
        Shape(dtype, tuple(int(n) for n in dims.split(",") if n), bool(_ON_CHIP.search(layout)))
        for dtype, dims, layout in _SHAPE.findall(text)
    )
