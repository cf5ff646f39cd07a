"""Find the collectives of a compiled program in its text, and how often each runs.

XLA's own cost analysis counts the body of a loop once. Here a collective in a loop counts as often
as the loop runs, which XLA writes next to the loop.
"""

import collections
import math
import re
from collections.abc import Mapping
from typing import NamedTuple

KINDS = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
    "collective-broadcast",
    "ragged-all-to-all",
)
_HEADER = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\{$")
_COLLECTIVE = re.compile(
    rf" = (?P<types>.*?) (?P<kind>{'|'.join(KINDS)})(?P<start>-start)?"
    r"\((?P<operands>.*?)\)(?:, \w+=|$)"
)
_ARRAY = re.compile(r"\b(pred|[a-z]+\d+\w*)\[([\d,]*)\]")
_CALLED = re.compile(
    r"\b(?:calls|body|condition|true_computation|false_computation|branch_computations)="
    r"(\{[^}]*\}|%?[\w.\-]+)"
)
_TRIPS = re.compile(r'known_trip_count\\*"?:\s*\{\\*"n\\*":\s*\\*"(\d+)')
_FUSION = re.compile(r" fusion(?:-start)?\(")


class Array(NamedTuple):
    """The type and the dimensions of an array in a compiled program."""

    dtype: str
    dims: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """The size of the array in bytes."""
        bits = re.search(r"\d+", self.dtype)  # none in pred
        return math.prod(self.dims) * max(1, int(bits.group()) // 8 if bits else 1)

    @property
    def is_floating(self) -> bool:
        """True for a floating-point type."""
        return self.dtype.startswith(("f", "bf"))


class Collective(NamedTuple):
    """A collective of a compiled program, and how often it runs in one call."""

    kind: str
    arrays: tuple[Array, ...]  # its results
    bytes: int  # of the whole array: the larger side of a gather or a scatter
    times: int
    line: str
    parts: int = 1  # of a scattered array; the results are one of them


def find_collectives(text: str, devices: int) -> list[Collective]:
    """Find the collectives of a compiled module.

    A collective among groups of one device moves nothing and is left out. A TPU runs an
    asynchronous collective as several fusions of the same channel, which count once.

    Args:
      text: the module as text, from `compiled.as_text()`.
      devices: the number of devices, for collectives that do not state their groups.
    """
    computations, entry = _split(text)
    found: dict[tuple[str, str], Collective] = {}
    fused = {
        name
        for lines in computations.values()
        for line in lines
        if _FUSION.search(line)
        for name in _list_called(line)
    }
    for name, times in _count_runs(computations, entry).items():
        for line in computations[name]:
            match = _COLLECTIVE.search(line)
            group = _count_group(line) or devices
            if not match or group == 1:
                continue
            arrays = _list_results(match)
            parts = group if match["kind"] == "reduce-scatter" else 1
            size = parts * sum(array.bytes for array in arrays)
            channel = re.search(r"channel_id=\d+", line)
            place = channel.group() if channel and name in fused else f"{name} {line}"
            found[match["kind"], place] = Collective(
                match["kind"], arrays, size, times, line, parts
            )
    return list(found.values())


def _split(text: str) -> tuple[dict[str, list[str]], str]:
    """Split a module into {computation: its lines}; return the entry computation's name too."""
    computations: dict[str, list[str]] = {}
    entry = ""
    lines: list[str] = []
    whole = re.sub(r"\n(?=\"|}})", " ", text)  # kernels of Pallas describe themselves over lines
    for line in whole.splitlines():
        header = _HEADER.match(line)
        if header and " = " not in line.split("(")[0]:
            lines = computations.setdefault(header[1], [])
            if line.startswith("ENTRY"):
                entry = header[1]
        elif " = " in line:
            lines.append(line.strip())
    return computations, entry


def _count_runs(computations: Mapping[str, list[str]], entry: str) -> dict[str, int]:
    """Count the runs of each computation in one call of the program, as {computation: count}."""
    runs: collections.Counter[str] = collections.Counter()

    def visit(name: str, times: int) -> None:
        runs[name] += times
        for line in computations[name]:
            trips = _count_trips(line, computations) if " while(" in line else 1
            for called in _list_called(line):
                if called in computations:
                    visit(called, times * trips)

    if entry:
        visit(entry, 1)
    return dict(runs)


def _count_trips(loop: str, computations: Mapping[str, list[str]]) -> int:
    """Return how often a loop runs: the number that XLA states, or the bound of its counter.

    The loops of `lax.scan` and `lax.map` count from 0 by 1, forwards and backwards.
    """
    known = _TRIPS.search(loop)
    if known:
        return int(known[1])
    condition = re.search(r"condition=%?([\w.\-]+)", loop)
    lines = computations.get(condition[1], []) if condition else []
    bounds = [re.search(r" = s32\[\][^ ]* constant\((\d+)\)", line) for line in lines]
    return max((int(bound[1]) for bound in bounds if bound), default=1)


def _list_called(line: str) -> list[str]:
    """List the computations that an instruction calls, without the function of a reduction."""
    if re.search(r"\bcall\(", line):
        line = line.replace("to_apply=", "calls=")
    groups = _CALLED.findall(line)
    return [name for group in groups for name in re.findall(r"[\w.\-]+", group)]


def _list_results(match: re.Match[str]) -> tuple[Array, ...]:
    """List the results of a collective.

    The start of an asynchronous collective lists its operands before its results.
    """
    arrays = tuple(
        Array(dtype, tuple(int(size) for size in dims.split(",") if size))
        for dtype, dims in _ARRAY.findall(match["types"])
    )
    operands = match["operands"].count("%") or match["operands"].count(",") + 1
    if match["start"] and len(arrays) > operands:
        return arrays[operands : 2 * operands]
    return arrays


def _count_group(line: str) -> int:
    """Count the devices in each group of a collective; 0 if the text does not tell."""
    listed = re.search(r"replica_groups=\{\{([\d,]+)\}", line)
    if listed:
        return listed[1].count(",") + 1
    sizes = re.search(r"replica_groups=\[\d+,(\d+)\]", line)
    if sizes:
        return int(sizes[1])
    named = re.search(r"replica_groups=mesh\[([^\]]*)\] \{([^}]*)\}", line)
    if not named:
        return 0
    axes = dict(re.findall(r"'(\w+)'=(\d+)", named[1]))
    return math.prod(int(axes.get(axis, 1)) for axis in re.findall(r"'(\w+)'", named[2]))
