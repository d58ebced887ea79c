"""A repository, with all of its history, to another storage.

Objects of a repository are never changed once they are there, but for one: the table of branches, tags and
snapshots, which names everything else. So a copy is that object as it was at the beginning, and all others
that were there then, copied by tasks in any order. The table comes last: until then there is nothing to open.

What is in the target already, with the same size, is not copied again: a second call brings a copy up to
date, and a copy that was interrupted goes on.
"""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from pyspark.cloudpickle import dumps

from frazil.errors import ConflictError, ErrorKind, FormatError
from frazil.format.keys import CHUNKS, MANIFESTS, OVERWRITTEN, REPO, SNAPSHOTS, TRANSACTIONS
from frazil.repository.repository import Repository
from frazil.repository.update import read_repo_info
from frazil.spark.blocks import groups
from frazil.spark.engine import Engine
from frazil.spark.job import default_engine
from frazil.spark.progress import Progress
from frazil.spark.versions import takes_versions
from frazil.storage.base import IfAbsent, IfVersion, Refused, Storage

_KEPT: Final = (CHUNKS, MANIFESTS, TRANSACTIONS, SNAPSHOTS, OVERWRITTEN)
_PER_TASK: Final = 256_000_000
#: An object costs as much time as so many bytes.
_PER_OBJECT: Final = 100_000
_AT_ONCE: Final = 32_000_000
_THREADS: Final = 16


@dataclass(frozen=True, slots=True)
class Copied:
    """What a copy took. ``there`` counts objects that did not have to be copied."""

    objects: int
    bytes: int
    there: int


@takes_versions
def copy_repository(
    source: Repository, target: Storage, *, engine: Engine | None = None, progress: Progress | None = None
) -> Copied:
    """Copy a repository to a storage that is empty, or holds an earlier copy of it.

    Branches, tags and history are as they were when it began, whoever commits meanwhile; snapshots have the
    same ids. Virtual chunks still refer to files elsewhere: see `materialize`. Garbage is copied too: collect
    it before. Do not collect it meanwhile.

    Raises ``FormatError`` for a repository of spec version 1 (upgrade it), and ``ConflictError``
    (``repo-info-updated``) if the target has commits that the source does not have, or changes meanwhile.

    >>> import frazil
    >>> from frazil.spark import Inline, copy_repository
    >>> repo = frazil.Repository.create(frazil.in_memory_storage())
    >>> backup = frazil.in_memory_storage()
    >>> copied = copy_repository(repo, backup, engine=Inline())
    >>> frazil.Repository.open(backup).lookup_branch("main") == repo.lookup_branch("main")
    True
    """
    origin = source.storage
    if source.spec_version < 2:
        raise FormatError(
            "expected a repository of spec version 2, found version 1: upgrade it first",
            ErrorKind.UNSUPPORTED_OPERATION_FOR_VERSION,
        )
    info, _, table = read_repo_info(origin)
    condition: IfAbsent | IfVersion = IfAbsent()
    if target.head(REPO) is not None:
        earlier, version, _ = read_repo_info(target)
        condition = IfVersion(version)
        unknown = [name for name, tip in earlier.branches.items() if info.snapshots.find(tip) < 0]
        if unknown:
            raise ConflictError(
                message=f"expected an earlier copy of the repository in {target.place()}, found commits on "
                f"its branch {unknown[0]!r} that the source does not have: copy to another place",
                kind=ErrorKind.REPO_INFO_UPDATED,
            )
    found = [each for prefix in _KEPT for each in origin.list(prefix)]
    there = {each.key: each.size for prefix in _KEPT for each in target.list(prefix)}
    missing = [each for each in found if there.get(each.key) != each.size]
    sizes = np.fromiter((each.size for each in missing), np.int64, len(missing))
    keys = [each.key for each in missing]
    items = [
        dumps((keys[start:stop], sizes[start:stop]))  # type: ignore[no-untyped-call]
        for start, stop in pairwise(groups(sizes + _PER_OBJECT, _PER_TASK).tolist())
    ]
    shared = dumps((origin, target))  # type: ignore[no-untyped-call]
    objects = copied = 0
    for result in (engine or default_engine()).run(copy_objects, items, shared):
        count, size = pickle.loads(result)
        objects, copied = objects + count, copied + size
        if progress is not None:
            progress.advance(chunks=count, bytes=size)
    if isinstance(target.put(REPO, table, condition), Refused) and bytes(target.get(REPO)) != table:
        raise ConflictError(
            message=f"another writer changed the repository in {target.place()} during the copy: copy again",
            kind=ErrorKind.REPO_INFO_UPDATED,
        )
    return Copied(objects, copied, len(found) - len(missing))


def copy_objects(shared: bytes, task: bytes) -> bytes:
    """The task: some objects from one storage to another."""
    source, target = pickle.loads(shared)
    keys, sizes = pickle.loads(task)

    def one(key: str) -> None:
        target.put(key, source.get(key))

    with ThreadPoolExecutor(_THREADS, "frazil-copy") as threads:
        if not target.is_local:
            list(threads.map(one, keys))
        else:
            for start, stop in pairwise(groups(sizes, _AT_ONCE).tolist()):
                some = keys[start:stop]
                target.put_many(list(zip(some, threads.map(source.get, some), strict=True)))
    return pickle.dumps((len(keys), int(sizes.sum())))
