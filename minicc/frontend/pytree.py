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

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from minicc.errors import ShapeError
from minicc.frontend.scope import user_line


@dataclass(frozen=True)
class Structure:
    """The shape of a tree. kind: the container's type, None for a leaf; keys: its children's names."""

    kind: type | None
    keys: tuple = ()
    children: tuple[Structure, ...] = ()

    @property
    def leaves(self) -> int:
        """How many leaves the tree has."""
        return 1 if self.kind is None else sum(child.leaves for child in self.children)


LEAF = Structure(None)


def flatten(tree: Any, name: str = "") -> tuple[list[tuple[str, Any]], Structure]:
    """The leaves, each with its path from `name`, and the structure."""
    if tree is None:
        return [], Structure(type(None))
    kind: type = dict
    if isinstance(tree, dict):
        keys = tuple(sorted(tree, key=str))
        items = [(f"{name}.{key}" if isinstance(key, str) else f"{name}[{key!r}]", tree[key]) for key in keys]
    elif isinstance(tree, list | tuple):
        kind, fields = type(tree), getattr(tree, "_fields", None)
        keys = fields or tuple(range(len(tree)))
        items = [(f"{name}.{key}" if fields else f"{name}[{key}]", child)
                 for key, child in zip(keys, tree, strict=True)]
    else:
        return [(name, tree)], LEAF
    leaves, children = [], []
    for path, child in items:
        found, structure = flatten(child, path.removeprefix("."))
        leaves += found
        children.append(structure)
    return leaves, Structure(kind, keys, tuple(children))


def unflatten(structure: Structure, leaves: Iterable[Any]) -> Any:
    """The tree of this structure with these leaves."""
    return _take(structure, iter(leaves))


def _take(structure: Structure, leaves: Iterator[Any]) -> Any:
    kind = structure.kind
    if kind is None:
        return next(leaves)
    if kind is type(None):
        return None
    children = [_take(child, leaves) for child in structure.children]
    if kind is dict:
        return dict(zip(structure.keys, children, strict=True))
    return kind(*children) if hasattr(kind, "_fields") else kind(children)


def tree_map(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """The tree of function(leaf, leaf of the others, ...).

    >>> tree_map(lambda p, g: p - g, {"w": 3, "b": [1, 2]}, {"w": 1, "b": [1, 1]})
    {'b': [0, 1], 'w': 2}
    """
    leaves, structure = flatten(tree)
    columns: list[Sequence[Any]] = [[leaf for _, leaf in leaves]]
    for other in others:
        found, its = flatten(other)
        if its != structure:
            raise ShapeError("tree_map", "the trees differ in structure", got=_difference(leaves, found),
                             need="the same keys and lengths", at=user_line())
        columns.append([leaf for _, leaf in found])
    return unflatten(structure, (function(*row) for row in zip(*columns, strict=True)))


def _difference(some: list[tuple[str, Any]], others: list[tuple[str, Any]]) -> str:
    mine, theirs = ({path for path, _ in leaves} for leaves in (some, others))
    odd = sorted(mine ^ theirs)
    return f"{odd[0] or 'a leaf'} in only one of them" if odd else "containers of different types"
