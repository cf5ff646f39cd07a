"""Read a compiled program: its collectives, custom calls and memory traffic, loops counted out.

XLA's own cost analysis counts the body of a loop once. Here every instruction counts as often as it
runs: a loop's body times its trips, which XLA writes beside the loop.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import re
from collections.abc import Iterator, Mapping
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
        *("partition-id", "replica-id", "domain"),
    ]
)
_BYTES = {"pred": 1, "token": 0, "opaque": 0}
_SHAPE = re.compile(r"\b(pred|token|opaque|[a-z]+\d+\w*)\[([\d,]*)\]")
_NAME = re.compile(r"%?([\w.\-]+)")
_HEADER = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\{$")
_TRIPS = re.compile(r'known_trip_count\\*"?:\s*\{\\*"n\\*":\s*\\*"(\d+)')
_CALLED = re.compile(
    r"(?:calls|body|condition|true_computation|false_computation|branch_computations)="
    r"(\{[^}]*\}|%?[\w.\-]+)"
)


class Shape(NamedTuple):
    """Type and dimensions of an array."""

    dtype: str
    dims: tuple[int, ...]

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
        """Return the collectives of the program."""
        found = []
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
            beside = begun or computation in self.asynchronous
            size = max(sent, received)
            line, results = instruction.line, instruction.results
            found.append(Collective(kind, operands, results, size, times, beside, line))
        return found

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
        """Estimate the bytes of memory that the program reads and writes.

        A fusion reads its operands and writes its results; an operand that it only slices counts
        with the slice, and a result that it updates in place with the update.
        """
        total = 0
        for computation, instruction, times in self.running():
            if computation in self.fused or instruction.opcode in FREE:
                continue
            if instruction.opcode.endswith("-done"):
                continue
            total += times * self._moved(computation, instruction)
        return total

    def _moved(self, computation: str, instruction: Instruction) -> int:
        if instruction.opcode in ("dynamic-slice", "slice", "gather"):
            return 2 * sum(shape.bytes for shape in instruction.results)
        if instruction.opcode in ("dynamic-update-slice", "scatter"):
            operands = self.shapes(computation, instruction)
            return 2 * sum(shape.bytes for shape in operands[1:])
        written = sum(shape.bytes for shape in instruction.results)
        if instruction.opcode != "fusion":
            return written + sum(s.bytes for s in self.shapes(computation, instruction))
        called = next(iter(_called(instruction.line)), "")
        inside = self.computations.get(called, {})
        readers: dict[str, list[Instruction]] = collections.defaultdict(list)
        for inner in inside.values():
            for operand in inner.operands:
                readers[operand].append(inner)
        read = 0
        for inner in inside.values():
            if inner.opcode != "parameter":
                continue
            slices = [user for user in readers[inner.name] if user.opcode == "dynamic-slice"]
            if slices and len(slices) == len(readers[inner.name]):
                read += sum(shape.bytes for user in slices for shape in user.results)
            elif any(
                user.opcode == "dynamic-update-slice" and user.operands[0] == inner.name
                for user in readers[inner.name]
            ):
                update = sum(
                    inside[user.operands[1]].results[0].bytes
                    for user in readers[inner.name]
                    if user.opcode == "dynamic-update-slice" and user.operands[1] in inside
                )
                read += update
                written += update - sum(shape.bytes for shape in inner.results)
            else:
                read += sum(shape.bytes for shape in inner.results)
        return read + max(written, 0)


def parse(text: str) -> Program:
    """Parse the text of a compiled module, `compiled.as_text()`."""
    computations: dict[str, dict[str, Instruction]] = {}
    entry, current = "", None
    for line in text.splitlines():
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
                        inside or instruction.opcode == "fusion",
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
        Shape(dtype, tuple(int(part) for part in dims.split(",") if part))
        for dtype, dims in _SHAPE.findall(text)
    )
