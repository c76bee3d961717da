"""Nested containers of tensors: flattened to a list with a name for each leaf, and put together again.

    flatten({"w1": a, "rest": [b, c]}, "params")  ->  [("params.rest[0]", b), ("params.rest[1]", c),
                                                       ("params.w1", a)], and the structure
    unflatten(structure, [1, 2, 3])               ->  {"rest": [1, 2], "w1": 3}

In: dicts, lists, tuples, named tuples and None, nested; everything else is a leaf. Out: leaves and a
structure, which can be hashed and compared. Invariant: dicts are taken in the order of their keys, so that
two dicts with equal keys have equal structures. JAX calls these pytrees and lets users register more types.
Read next: jit.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from minicc.errors import DtypeError
from minicc.frontend.scope import fail

DEEPEST = 100  # levels of containers in one another


@dataclass(frozen=True)
class Structure:
    """The shape of a tree. kind: the container's type, None for a leaf; keys: its children's names."""

    kind: type | None = None
    keys: tuple = ()
    children: tuple[Structure, ...] = ()


def flatten(tree: Any, name: str = "", depth: int = 0) -> tuple[list[tuple[str, Any]], Structure]:
    """The leaves, each with its path from `name`, and the structure."""
    if depth > DEEPEST:
        fail("tree", "a list or dict holds itself, or is very deep", f"{name[:40]}...",
             f"{DEEPEST} levels at most", kind=DtypeError)
    kind = dict if isinstance(tree, dict) else type(tree)
    if isinstance(tree, dict):
        keys = tuple(sorted(tree, key=str))
        items = [tree[key] for key in keys]
    elif isinstance(tree, list | tuple | None):
        items = list(tree or ())
        keys = getattr(tree, "_fields", tuple(range(len(items))))
    else:
        return [(name, tree)], Structure()
    leaves, children = [], []
    for key, child in zip(keys, items, strict=True):
        path = f"{name}.{key}" if isinstance(key, str) else f"{name}[{key!r}]"
        found, structure = flatten(child, path.removeprefix("."), depth + 1)
        leaves += found
        children.append(structure)
    return leaves, Structure(kind, keys, tuple(children))


def unflatten(structure: Structure, leaves: Iterable[Any]) -> Any:
    """The tree of this structure with these leaves."""
    leaves = iter(leaves)
    if structure.kind is None:
        return next(leaves)
    children = [unflatten(child, leaves) for child in structure.children]
    if structure.kind is dict:
        return dict(zip(structure.keys, children, strict=True))
    if structure.kind is type(None) or hasattr(structure.kind, "_fields"):
        return structure.kind(*children)
    return structure.kind(children)


def tree_map(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """The tree of function(leaf, leaf of the others, ...).

    >>> tree_map(lambda p, g: p - g, {"w": 3, "b": [1, 2]}, {"w": 1, "b": [1, 1]})
    {'b': [0, 1], 'w': 2}
    """
    (leaves, structure), *rest = (flatten(one) for one in (tree, *others))
    for found, its in rest:
        if its != structure:
            odd = sorted({path for path, _ in leaves} ^ {path for path, _ in found})
            got = f"{odd[0] or 'a leaf'} in only one of them" if odd else "containers of different types"
            fail("tree_map", "the trees differ in structure", got, "the same keys and lengths")
    rows = zip(leaves, *(found for found, _ in rest), strict=True)
    return unflatten(structure, [function(*(leaf for _, leaf in row)) for row in rows])
