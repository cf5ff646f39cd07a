"""Names of the leaves of parameter trees, such as `encoder/layer_0/attention/query/kernel`."""

from typing import Any

import jax


def name_of(path: tuple) -> str:
    """Write the path of a leaf: dictionary keys and list indices, joined by '/'."""
    parts = [getattr(key, "key", getattr(key, "idx", None)) for key in path]
    return "/".join(str(part) for part in parts if part is not None)


def list_names(tree: Any) -> Any:
    """Return a copy of a tree that has the name of each leaf in place of the leaf."""
    return jax.tree_util.tree_map_with_path(lambda path, _: name_of(path), tree)


def flatten_tree(tree: Any) -> dict[str, Any]:
    """Return the leaves of a tree, as {name: leaf}."""
    return {name_of(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}
