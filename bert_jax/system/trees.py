"""Names for the leaves of parameter trees."""

from __future__ import annotations

from typing import Any

import jax


def name_of(path: tuple) -> str:
    """Join dictionary keys and list indices by '/'; skip attributes of containers."""
    parts = [getattr(key, "key", getattr(key, "idx", None)) for key in path]
    return "/".join(str(part) for part in parts if part is not None)


def names(tree: Any) -> Any:
    """Return a tree of the same structure whose leaves are their names."""
    return jax.tree_util.tree_map_with_path(lambda path, _: name_of(path), tree)


def nested(flat: dict[str, Any]) -> dict[str, Any]:
    """Return the tree of dictionaries that `flat` was made from."""
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        *parents, leaf = name.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = value
    return tree


def flat(tree: Any) -> dict[str, Any]:
    """Return the leaves of a tree by name."""
    return {name_of(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}
