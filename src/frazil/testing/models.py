"""A hierarchy as plain data, and a store in memory that models a session."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import zarr
from zarr.abc.store import Store
from zarr.core.sync import sync
from zarr.storage import MemoryStore


class ModelStore(MemoryStore):
    """zarr's memory store, with operations of a session: move nodes, shift chunks, copy."""

    async def copy(self) -> ModelStore:
        """Return another store with the same keys."""
        return ModelStore(dict(self._store_dict))

    async def move(self, source: str, dest: str) -> None:
        """Rename all nodes at and below the absolute path ``source``."""
        old, new = source.strip("/"), dest.strip("/")
        inside = f"{old}/" if old else ""
        for key in [key for key in self._store_dict if key.startswith(inside)]:
            tail = key[len(inside) :]
            self._store_dict[f"{new}/{tail}" if new else tail] = self._store_dict.pop(key)

    async def shift_array(
        self, array_path: str, offset: tuple[int, ...], num_chunks: tuple[int, ...]
    ) -> None:
        """Move every chunk of an array by ``offset`` chunks.

        Chunks that leave the grid of ``num_chunks`` are deleted. Places that get no chunk become
        missing chunks.
        """
        prefix = f"{array_path.strip('/')}/c".lstrip("/")
        old = {
            coords: self._store_dict.pop(key, None)
            for coords in product(*map(range, num_chunks))
            for key in ["/".join([prefix, *map(str, coords)])]
        }
        for coords, value in old.items():
            to = tuple(c + o for c, o in zip(coords, offset, strict=True))
            if value is not None and all(0 <= t < n for t, n in zip(to, num_chunks, strict=True)):
                self._store_dict["/".join([prefix, *map(str, to)])] = value


@dataclass
class ArrayNode:
    """An array: its shape and type."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass
class GroupNode:
    """A group, with its children by name."""

    children: dict[str, Node] = field(default_factory=dict)

    def walk(self, prefix: str | PurePosixPath = "") -> Iterator[tuple[PurePosixPath, Node]]:
        """Yield path and node of all nodes below, depth first."""
        for name, child in self.children.items():
            path = PurePosixPath(prefix) / name
            yield path, child
            if isinstance(child, GroupNode):
                yield from child.walk(path)

    def _paths(self, prefix: str, kinds: tuple[type, ...], include_root: bool) -> list[str]:
        paths = [str(path) for path, child in self.walk(prefix) if isinstance(child, kinds)]
        return [prefix, *paths] if include_root else paths

    def nodes(self, prefix: str = "", *, include_root: bool = False) -> list[str]:
        """Return the paths of all nodes below."""
        return self._paths(prefix, (ArrayNode, GroupNode), include_root)

    def groups(self, prefix: str = "", *, include_root: bool = False) -> list[str]:
        """Return the paths of all groups below."""
        return self._paths(prefix, (GroupNode,), include_root)

    def arrays(self, prefix: str = "") -> list[str]:
        """Return the paths of all arrays below."""
        return self._paths(prefix, (ArrayNode,), False)

    def materialize(self, store: Store) -> zarr.Group:
        """Write the hierarchy with empty arrays to a store, and return its root group."""
        root = zarr.group(store)
        for path, child in self.walk():
            if isinstance(child, GroupNode):
                root.create_group(str(path))
            else:
                root.create_array(str(path), shape=child.shape, dtype=child.dtype)
        return root

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> GroupNode:
        """Return a hierarchy from nested dictionaries that contain array nodes."""
        return cls(
            {name: cls.from_dict(child) if isinstance(child, dict) else child for name, child in d.items()}
        )

    @classmethod
    def from_paths(cls, arrays: set[str], groups: set[str]) -> GroupNode:
        """Return a hierarchy from relative paths. Its arrays have one element."""
        array = ArrayNode((1,), np.dtype("i4"))
        return cls._of_nodes((path, array if path in arrays else cls()) for path in sorted(groups | arrays))

    @classmethod
    def _of_nodes(cls, nodes: Iterable[tuple[str, Node]]) -> GroupNode:
        root = cls()
        for path, node in nodes:
            level = root
            *above, name = path.strip("/").split("/")
            for part in above:
                child = level.children.setdefault(part, cls())
                if not isinstance(child, GroupNode):
                    raise ValueError(f"`{path}` is below an array")
                level = child
            if name:
                level.children.setdefault(name, node)
        return root

    @classmethod
    async def from_store_async(cls, store: Store) -> GroupNode:
        """Return the hierarchy in a store."""
        root = await zarr.api.asynchronous.open_group(store, mode="r")
        members = [member async for member in root.members(max_depth=None)]
        return cls._of_nodes(
            (path, ArrayNode(node.shape, node.dtype) if isinstance(node, zarr.AsyncArray) else cls())
            for path, node in members
        )

    @classmethod
    def from_store(cls, store: Store) -> GroupNode:
        """Do the same as ``from_store_async``, without an event loop."""
        return sync(cls.from_store_async(store))


Node = ArrayNode | GroupNode
