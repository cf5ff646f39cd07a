"""The ConfigDict in which a config is written; loaded when the first one is made."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import ml_collections


class Entries(ml_collections.ConfigDict):
    """A section whose entries have their own names, and may be added and deleted at any time."""

    def lock(self) -> Entries:
        """Lock the entries, but not the section: `resolve` checks the names of entries."""
        for entry in self.values():
            if isinstance(entry, ml_collections.ConfigDict):
                entry.lock()
        return self


def make(values: dict[str, Any], named: Iterable[str] = ()) -> ml_collections.ConfigDict:
    """Return an unlocked copy of plain values; sections that are `named` become Entries."""
    tree = ml_collections.ConfigDict(copy.deepcopy(values), type_safe=False)
    for section in named:
        tree[section] = Entries(tree[section], type_safe=False)
    return tree
