"""The declaration of a knob: its type with a range or choices, its default, and its Traits.

    rate: Share = knob(0.15, "masking.draw=fixed", traced=True)  #: share of tokens selected

This knob is a share with the default 0.15. It acts only if `masking.draw` is fixed: see
`conditions.py`. `traced` is one of the Traits, and says that a new value needs no new compilation.

The comment `#:` behind or above a knob says what the knob does. Error messages, reports and
`bert-jax knobs` show it.
"""

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable
from typing import Annotated, Any

from msgspec import Meta

Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Positive = Annotated[float, Meta(gt=0, le=1)]  # a share that is not 0
Amount = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]
Natural = Annotated[int, Meta(ge=0)]
Seed = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Dropout = Annotated[float, Meta(ge=0, le=0.99)]
Epochs = Annotated[float, Meta(ge=0.01)]


@dataclasses.dataclass(frozen=True)
class Traits:
    """Further properties of a knob, besides its type and default.

    Attributes:
      when: the conditions under which the knob acts; `conditions.py` lists their forms.
      traced: a change needs no new compilation, because the knob is a traced number or only the
        host reads it.
      free: a resumed run may change the knob.
      place: the knob says only where data is; a fingerprint identifies the data itself.
      idle: a value that is accepted even if the conditions fail, because it changes nothing then.
      same_as: path of a knob whose value is accepted for this knob even if the conditions fail.
      resets: knobs of the same section that return to their defaults when this knob is set.
    """

    when: tuple[str, ...] = ()
    traced: bool = False
    free: bool = False
    place: bool = False
    idle: Any = None
    same_as: str = ""
    resets: tuple[str, ...] = ()


def knob(default: Any, *when: str, **traits: Any) -> Any:
    """Declare a knob with its default, its conditions and other Traits."""
    metadata = {"traits": Traits(when, **traits)}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=default.copy, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def section(make: Callable[[], Any], *when: str, free: bool = False) -> Any:
    """Declare a section of knobs; its conditions and `free` hold for all of its knobs."""
    traits = Traits(when, free=free)
    return dataclasses.field(default_factory=make, metadata={"traits": traits})


@functools.cache
def read_sentences(section: type) -> dict[str, str]:
    """Read {name: sentence} of the knobs of a dataclass from their `#:` comments."""
    sentences = {}
    above: list[str] = []
    for line in inspect.getsource(section).splitlines():
        code, marker, text = line.partition("#: ")
        declared = re.match(r" {4}(\w+): ", code)
        if declared:
            sentences[declared[1]] = text or " ".join(above)
            above = []
        elif marker:
            above.append(text)
    return sentences
