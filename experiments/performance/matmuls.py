"""The matmuls of a traced program."""

import math
from collections import Counter
from typing import Any, NamedTuple

import jax


class Matmul(NamedTuple):
    """A matmul of [batch, rows, inner] and [batch, inner, columns], with its types."""

    batch: int
    rows: int
    inner: int
    columns: int
    types: tuple[str, str]
    result: str
    precision: Any

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Shapes of both operands, without a batch axis of one."""
        batch = () if self.batch == 1 else (self.batch,)
        return (*batch, self.rows, self.inner), (*batch, self.inner, self.columns)

    @property
    def flops(self) -> float:
        """FLOPs of the matmul."""
        return 2.0 * self.batch * self.rows * self.inner * self.columns


def count_matmuls(program: Any) -> Counter[Matmul]:
    """Count the matmuls of a jaxpr, those of loops as often as they run.

    What is mapped over devices runs on each of them. Kernels written in Pallas are left out: a grid
    runs theirs many times.
    """
    counts: Counter[Matmul] = Counter()
    for equation in program.eqns:
        kind = equation.primitive.name
        if kind == "pallas_call":
            continue
        if kind == "dot_general":
            counts[_of(equation)] += 1
        times = 1
        if kind == "scan":
            times = equation.params["length"]
        if kind == "shard_map":
            mesh = equation.params["mesh"]
            times = math.prod(mesh.shape[axis] for axis in equation.params["newly_manual_axes"])
        for value in jax.tree.leaves(list(equation.params.values())):
            if hasattr(value, "eqns") or hasattr(value, "jaxpr"):
                inside = count_matmuls(getattr(value, "jaxpr", value))
                counts.update({matmul: times * number for matmul, number in inside.items()})
    return counts


def _of(equation: Any) -> Matmul:
    left, right = (operand.aval for operand in equation.invars)
    (contracted, _), (batched, _) = equation.params["dimension_numbers"]
    inner, batch = (math.prod(left.shape[axis] for axis in axes) for axes in (contracted, batched))
    kinds = str(left.dtype), str(right.dtype)
    sizes = batch, left.size // (inner * batch), inner, right.size // (inner * batch)
    result = str(equation.outvars[0].aval.dtype)
    return Matmul(*sizes, kinds, result, equation.params["precision"])
