"""A benchmark before it runs: its settings, and the row that makes its contestants."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from bert_jax import config as configs
from bert_jax.benchmarks.harness import Contestant
from bert_jax.config import knobs

OURS, AROUND, PARTS, THEIRS = (
    f"bert_jax.benchmarks.{name}" for name in ("ours", "around", "parts", "theirs")
)


@dataclass(frozen=True)
class Setup:
    """The settings of a benchmark."""

    config: knobs.Config
    against: str  # one of RIVALS, or nothing
    python: str  # the interpreter of the rivals
    size: str = ""  # name of the size, if one was given

    @property
    def tree(self) -> dict[str, Any]:
        """The config as plain JSON."""
        return configs.to_dict(self.config)

    def ours(self, name: str, function: str, module: str = OURS, **arguments: Any) -> Contestant:
        """Make a contestant of this project."""
        return Contestant(name, f"{module}:{function}", {"config": self.tree, **arguments})

    def theirs(
        self, name: str, function: str, retain: bool = False, **arguments: Any
    ) -> list[Contestant]:
        """Make a contestant of the rivals, or none if no rival was chosen.

        By default their C allocator is left as it is; the tuned contestants retain memory.
        """
        if not self.against:
            return []
        make, arguments = f"{THEIRS}:{function}", {"config": self.tree, **arguments}
        return [Contestant(name, make, arguments, self.python, retain)]

    def changed(self, **changes: Any) -> Setup:
        """Change knobs of the config; __ stands for the dots of a path."""
        settings = [(name.replace("__", "."), str(value)) for name, value in changes.items()]
        return dataclasses.replace(self, config=configs.changed(self.config, settings))

    def exact(self) -> Setup:
        """Change all arithmetic to float32."""
        return self.changed(model__dtype="float32")

    def halved(self) -> Setup:
        """Change matmuls to bfloat16, unless the config has a half-precision type already."""
        return self if self != self.exact() else self.changed(model__dtype="bfloat16_products")


class Row(NamedTuple):
    """A benchmark: contestants, a description, and pairs (part, whole) whose share is printed."""

    make: Callable[[Setup], list[Contestant]]
    what: str
    shares: Sequence[tuple[str, str]] = ()
