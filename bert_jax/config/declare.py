"""How a knob is declared: its type with a range or choices, its default, and what else is true.

    #: share of the eligible tokens that is selected
    rate: Share = knob(0.15, when="masking.draw=fixed", traced=True)

The comment above a knob says what the knob does. `read_sentences` finds it for error messages,
reports and `bert-jax knobs`.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable
from typing import Annotated, Any

from msgspec import Meta

Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Amount = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]
Natural = Annotated[int, Meta(ge=0)]
Seed = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Dropout = Annotated[float, Meta(ge=0, le=0.99)]
Epochs = Annotated[float, Meta(ge=0.01)]


@dataclasses.dataclass(frozen=True)
class Traits:
    """What is true of a knob beside its type and default.

    Attributes:
      when: the conditions under which the knob acts; `conditions.py` lists their forms.
      traced: the knob is a number that enters the compiled program, or only the host reads it.
      free: a resumed run may change the knob.
      idle: a value that is accepted without the condition, because it means the same.
      same_as: path of a knob whose value is accepted without the condition.
      resets: knobs of the same section that return to their defaults when this knob is set.
    """

    when: tuple[str, ...] = ()
    traced: bool = False
    free: bool = False
    idle: Any = None
    same_as: str = ""
    resets: tuple[str, ...] = ()


def knob(default: Any, when: str | tuple[str, ...] = (), **traits: Any) -> Any:
    """Declare a knob with a default and with Traits; a knob without Traits is a plain field."""
    conditions = (when,) if isinstance(when, str) else when
    metadata = {"traits": Traits(conditions, **traits)}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=default.copy, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def section(make: Callable[[], Any], when: str = "", free: bool = False) -> Any:
    """Declare a section; its condition, and whether it is free, hold for all of its knobs."""
    traits = Traits((when,) if when else (), free=free)
    return dataclasses.field(default_factory=make, metadata={"traits": traits})


@functools.cache
def read_sentences(section: type) -> dict[str, str]:
    """Return the comment `#:` above each knob of a dataclass, by the knob's name."""
    sentences = {}
    lines: list[str] = []
    for line in inspect.getsource(section).splitlines():
        comment = re.match(r" +#: (.*)", line)
        declared = re.match(r" {4}(\w+): ", line)
        if comment:
            lines.append(comment[1])
        elif declared:
            sentences[declared[1]] = " ".join(lines)
            lines = []
    return sentences
