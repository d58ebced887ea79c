"""Copies of many objects from one storage to another, by tasks.

The objects are columns, so ten million of them take a few hundred megabytes. A task copies about 256 MB, and
holds about 32 MB at a time.
"""

from __future__ import annotations

import pickle
from collections.abc import Buffer, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress, pairwise
from typing import Final

import numpy as np

from frazil.errors import ErrorKind, FormatError, StorageError
from frazil.format.chunk_trailer import check_file
from frazil.format.columns import I64, U8
from frazil.format.ids import (
    CHUNKS,
    MANIFESTS,
    OVERWRITTEN,
    SNAPSHOTS,
    TRANSACTIONS,
    id_keys,
    id_list,
    ids_from_text,
    ids_to_text,
)
from frazil.jobs.blocks import groups
from frazil.jobs.engine import Engine
from frazil.jobs.task_failures import dumps
from frazil.storage.base import Storage
from frazil.storage.local_commit import put_many
from frazil.survey.columns import ObjectListing, among, list_objects
from frazil.threads import Purpose, thread_pool

#: The folders whose files are named by ids. Later folders have files that refer to files of earlier ones.
FOLDERS: Final = (CHUNKS, MANIFESTS, TRANSACTIONS, SNAPSHOTS)
_BYTES_PER_TASK: Final = 256_000_000
#: Copying an object takes as much time as copying this number of bytes.
_BYTES_PER_OBJECT: Final = 100_000
_AT_ONCE: Final = 32_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Objects:
    """The objects of a copy: files named by ids as columns, and the backups of the repo info by their keys.

    ``files`` has one table for each of ``FOLDERS``. ``sizes`` has the sizes of the backups in bytes.
    """

    files: tuple[ObjectListing, ...]
    keys: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()

    def __len__(self) -> int:
        return sum(map(len, self.files)) + len(self.keys)

    def total_bytes(self) -> int:
        """Return the size of all objects in bytes."""
        return sum(int(each.sizes.sum()) for each in self.files) + sum(self.sizes)

    def items(self) -> Iterator[tuple[str, U8 | tuple[str, ...], I64]]:
        """Yield the work of each task: a folder, the ids or keys, and the sizes in bytes."""
        for each in self.files:
            for start, stop in _cuts(each.sizes):
                yield each.folder, each.ids[start:stop], each.sizes[start:stop]
        sizes = np.array(self.sizes, np.int64)
        for start, stop in _cuts(sizes):
            yield "", self.keys[start:stop], sizes[start:stop]


def _cuts(sizes: I64) -> Iterator[tuple[int, int]]:
    yield from pairwise(groups(sizes + _BYTES_PER_OBJECT, _BYTES_PER_TASK).tolist())


def all_objects(storage: Storage) -> Objects:
    """Return the objects of a repository, except the repo info, leases and staged files."""
    files = tuple(list_objects(storage, folder) for folder in FOLDERS)
    backups = list(storage.list(OVERWRITTEN))
    return Objects(files, tuple(each.key for each in backups), tuple(each.size for each in backups))


@dataclass(frozen=True, slots=True, eq=False)
class Difference:
    """The objects that a target lacks or has with another size, and those of the same size to compare."""

    absent: Objects
    doubtful: Objects


def difference(objects: Objects, target: Storage, checked_before: int) -> Difference:
    """Return what a target lacks."""
    absent, doubtful = [], []
    for each in objects.files:
        present = list_objects(target, each.folder)
        rows = np.minimum(id_keys(present.ids).searchsorted(id_keys(each.ids)), max(len(present) - 1, 0))
        same = np.zeros(len(each), bool)
        late = np.zeros(len(each), bool)
        if len(present):
            same = (id_keys(present.ids)[rows] == id_keys(each.ids)) & (present.sizes[rows] == each.sizes)
            late = present.modified[rows] >= checked_before
        absent.append(each.select_files(~same))
        doubtful.append(each.select_files(same & late))
    sizes = {each.key: each.size for each in target.list(OVERWRITTEN)} if objects.keys else {}
    is_same = [sizes.get(key) == size for key, size in zip(objects.keys, objects.sizes, strict=True)]
    return Difference(
        _some(objects, absent, [not each for each in is_same]), _some(objects, doubtful, is_same)
    )


def _some(objects: Objects, files: Sequence[ObjectListing], chosen: Sequence[bool]) -> Objects:
    return Objects(
        tuple(files), tuple(compress(objects.keys, chosen)), tuple(compress(objects.sizes, chosen))
    )


def objects_with_keys(objects: Objects, keys: set[str]) -> Objects:
    """Return the objects with these keys."""
    files = []
    for each in objects.files:
        texts = [key.partition("/")[2] for key in keys if key.startswith(f"{each.folder}/")]
        wanted = ids_from_text(texts)[0] if texts else each.ids[:0]
        files.append(each.select_files(among(each.ids, wanted)))
    return _some(objects, files, [key in keys for key in objects.keys])


@dataclass(frozen=True, slots=True)
class CopyOutcome:
    """The result of a task: how many objects and bytes it copied, and the damaged files of the source."""

    objects: int = 0
    bytes: int = 0
    damaged: tuple[str, ...] = ()


def copy_by_tasks(
    source: Storage, target: Storage, objects: Objects, engine: Engine, *, compare: bool
) -> Iterator[CopyOutcome]:
    """Copy objects by tasks."""
    shared = dumps((source, target, compare))
    for result in engine.run(copy_objects, [dumps(item) for item in objects.items()], shared):
        yield pickle.loads(result)


def copy_objects(shared: bytes, item: bytes) -> bytes:
    """Copy objects from one storage to another, with ``compare`` only those that differ: the task.

    An object that is gone from the source is left out. The check of the target finds it if it is needed. A
    chunk file that differs from its own checksums is left out too.
    """
    source, target, compare = pickle.loads(shared)
    folder, names, sizes = pickle.loads(item)
    keys = [f"{folder}/{name}" for name in ids_to_text(names)] if folder else list(names)
    ids = id_list(names) if folder == CHUNKS else [b""] * len(keys)
    damaged: list[str] = []

    def read_object(key: str, id_: bytes) -> tuple[str, Buffer] | None:
        stored = _read(target, key) if compare else None
        if stored is not None and id_ and _is_right(id_, stored):
            return None
        data = _read(source, key)
        if data is None or (stored is not None and memoryview(stored) == memoryview(data)):
            return None
        if id_ and _is_right(id_, data) is False:
            damaged.append(key)
            return None
        return key, data

    def copy_object(key: str, id_: bytes) -> int | None:
        pair = read_object(key, id_)
        if pair is None:
            return None
        target.put(*pair)
        return memoryview(pair[1]).nbytes

    copied: list[int] = []
    with thread_pool(Purpose.FILE_COPIES) as threads:
        if not target.is_local:
            copied += (size for size in threads.map(copy_object, keys, ids) if size is not None)
        else:
            for start, stop in pairwise(groups(sizes, _AT_ONCE).tolist()):
                part = threads.map(read_object, keys[start:stop], ids[start:stop])
                pairs = [pair for pair in part if pair is not None]
                put_many(target, pairs)
                copied += (memoryview(data).nbytes for _, data in pairs)
    return pickle.dumps(CopyOutcome(len(copied), sum(copied), tuple(damaged)))


def _read(storage: Storage, key: str) -> Buffer | None:
    """Return the bytes of an object, or None if there is none."""
    try:
        return storage.get(key)
    except StorageError as error:
        if error.kind != ErrorKind.OBJECT_NOT_FOUND:
            raise
        return None


def _is_right(id_: bytes, data: Buffer) -> bool | None:
    """Return whether a chunk file agrees with its own checksums. None if it has none."""
    try:
        check = check_file(id_, data)
    except FormatError:
        return False
    return None if check.trailer is None else check.ok
