"""Frozen numbers of the net as JSON: read, written, and compared within a tolerance."""

import json
import math
from typing import Any

from tests.net.rows import GOLDEN, LOOSE, TOLERANCE

# A number below this is compared as if it were this large: small components of a vector are rounded
# with the large ones. Learning rates are compared as they are.
ZERO = 0.05
# Of bfloat16, between compiler flags, processors and versions of jax: gradient norms differ by
# 2.5e-3 of their size, and one token of an accuracy is predicted otherwise. An update has 50 tokens
# or more, and the evaluation 210.
NORMS = 5e-3
HITS = {"train/mlm_accuracy": 0.02, "eval/validation/mlm_accuracy": 0.005}


def read(name: str) -> Any:
    """Return a frozen file's content."""
    return json.loads((GOLDEN / f"{name}.json").read_text())


def write(name: str, content: Any) -> None:
    """Freeze a file's content, a line for each entry of its first two levels."""
    (GOLDEN / f"{name}.json").write_text(_text(content, levels=2) + "\n")


def _text(content: Any, levels: int, indent: str = "") -> str:
    """Write JSON whose first levels have a line for each entry."""
    if not levels or not isinstance(content, dict) or not content:
        return json.dumps(content, sort_keys=True, ensure_ascii=False)
    inner = indent + " "
    lines = [
        f"{inner}{json.dumps(key, ensure_ascii=False)}: {_text(value, levels - 1, inner)}"
        for key, value in content.items()
    ]
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"


def find_differences(frozen: Any, found: Any, tolerance: float, path: str = "") -> list[str]:
    """Return a line for each value that differs; numbers may differ by a relative tolerance."""
    if isinstance(frozen, dict) and isinstance(found, dict):
        lines = [f"{path}/{key}: missing" for key in frozen.keys() - found.keys()]
        lines += [f"{path}/{key}: not frozen" for key in found.keys() - frozen.keys()]
        for key in frozen.keys() & found.keys():
            lines += find_differences(frozen[key], found[key], tolerance, f"{path}/{key}")
        return sorted(lines)
    if isinstance(frozen, list) and isinstance(found, list) and len(frozen) == len(found):
        lines = []
        for number, (old, new) in enumerate(zip(frozen, found, strict=True)):
            lines += find_differences(old, new, tolerance, f"{path}[{number}]")
        return lines
    if _is_number(frozen) and _is_number(found):
        limits = {"rel_tol": tolerance, "abs_tol": ZERO * tolerance}
        if "train/learning_rate" in path:  # small, and computed in float32 in every row
            limits = {"rel_tol": TOLERANCE}
        elif "train/grad_norm" in path and tolerance == LOOSE:
            limits = {"rel_tol": NORMS}
        elif path.rpartition("/")[2].startswith("pearson"):  # a sum that cancels, next to 1
            limits["abs_tol"] = tolerance
        elif tolerance == LOOSE:
            hits = [limit for name, limit in HITS.items() if name in path]
            limits["abs_tol"] = max(hits, default=ZERO * tolerance)
        same = math.isclose(frozen, found, **limits)
    else:  # true is no 1
        same = frozen == found and isinstance(frozen, bool) == isinstance(found, bool)
    return [] if same else [f"{path}: {frozen!r} became {found!r}"]


def _is_number(value: Any) -> bool:
    """Tell whether a value is a number; true and false are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)
