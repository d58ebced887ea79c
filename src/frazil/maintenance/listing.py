"""The objects in a folder of the repository, as columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import batched
from operator import attrgetter
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from frazil.format.columns import I64, U8
from frazil.format.ids import OBJECT_ID_BYTES, id_keys, ids_among, ids_from_text, ids_to_text
from frazil.storage.base import ObjectInfo, Storage

#: The number of objects of a listing that are in memory as objects of Python, with 500 bytes each.
_BATCH: Final = 1024


class Objects(Protocol):
    """Objects that can be deleted: their keys, and their sizes in bytes, int64."""

    @property
    def sizes(self) -> I64:
        """Sizes in bytes, int64 (n,)."""

    @property
    def modified(self) -> I64:
        """Times of the last modification, int64 (n,), microseconds since 1970."""

    def keys(self) -> list[str]:
        """Return the keys of the objects."""

    def part(self, start: int, stop: int) -> Objects:
        """Return the rows from ``start`` to ``stop``."""


@dataclass(frozen=True, slots=True, eq=False)
class Listed:
    """Objects of one folder whose names are ids. n rows, sorted by id.

    ids       uint8 (n, 12)
    sizes     int64 (n,)  bytes
    modified  int64 (n,)  microseconds since 1970, by the storage's clock
    """

    folder: str
    ids: U8
    sizes: I64
    modified: I64

    def __len__(self) -> int:
        return len(self.sizes)

    def select_files(self, rows: NDArray[np.bool_]) -> Listed:
        """Return a part of the objects."""
        return Listed(self.folder, self.ids[rows], self.sizes[rows], self.modified[rows])

    def part(self, start: int, stop: int) -> Listed:
        """Return some of the objects, which share the columns."""
        rows = slice(start, stop)
        return Listed(self.folder, self.ids[rows], self.sizes[rows], self.modified[rows])

    def keys(self) -> list[str]:
        """Return the keys of the objects."""
        return [f"{self.folder}/{name}" for name in ids_to_text(self.ids)]


def listed(storage: Storage, folder: str, before: int | None = None) -> Listed:
    """Return the objects in ``folder``. With ``before``, only objects that were modified before this time.

    Objects whose names are not ids do not belong to the format. They are ignored.
    """
    parts = [_columns(folder, part, before) for part in batched(storage.list(folder), _BATCH)]
    whole = Listed(
        folder,
        np.concatenate([np.zeros((0, OBJECT_ID_BYTES), np.uint8), *(part.ids for part in parts)]),
        np.concatenate([np.zeros(0, np.int64), *(part.sizes for part in parts)]),
        np.concatenate([np.zeros(0, np.int64), *(part.modified for part in parts)]),
    )
    order = np.argsort(id_keys(whole.ids), kind="stable")
    return Listed(folder, whole.ids[order], whole.sizes[order], whole.modified[order])


def _columns(folder: str, objects: tuple[ObjectInfo, ...], before: int | None) -> Listed:
    count, start = len(objects), len(folder) + 1
    ids, named = ids_from_text([key[start:] for key in map(attrgetter("key"), objects)])
    sizes = np.fromiter(map(attrgetter("size"), objects), np.int64, count)
    modified = microseconds(map(attrgetter("modified"), objects), count)
    part = Listed(folder, ids, sizes[named], modified[named])
    return part if before is None else part.select_files(part.modified < before)


def microseconds(times: Iterable[datetime], count: int = -1) -> I64:
    """Return times as microseconds since 1970."""
    seconds = np.fromiter(map(datetime.timestamp, times), np.float64, count)
    return np.rint(seconds * 1e6).astype(np.int64)


def among(ids: U8, others: U8) -> NDArray[np.bool_]:
    """Return which of the ids, (n, 12), are among the others. bool (n,)."""
    return ids_among(ids, others)


def distinct(parts: list[U8]) -> U8:
    """Return each id once, sorted."""
    every = np.concatenate([np.zeros((0, OBJECT_ID_BYTES), np.uint8), *parts])
    # Not `np.unique`, which imports masked arrays.
    keys = np.sort(id_keys(every))
    keys = keys[np.append(True, keys[1:] != keys[:-1])[: len(keys)]]
    ids: U8 = keys.view(np.uint8).reshape(-1, OBJECT_ID_BYTES)
    return ids
