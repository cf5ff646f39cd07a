"""The types that matmuls compute in, by compute type of a model."""

from __future__ import annotations

from typing import NamedTuple


class Kind(NamedTuple):
    """Types of a matmul's factors and of its result."""

    factors: str
    result: str


KINDS = {  # by compute type
    # For a module by itself; a network replaces auto by what suits the machine
    # (`config/devices.py`).
    "auto": Kind("float32", "float32"),
    "float32": Kind("float32", "float32"),
    "bfloat16_products": Kind("bfloat16", "float32"),
    "bfloat16": Kind("bfloat16", "bfloat16"),
}
