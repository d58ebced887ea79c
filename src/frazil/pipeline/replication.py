"""A repository, with all of its history, to another storage.

Objects of a repository are never changed once they are there, but for one: the table of branches, tags and
snapshots, which names everything else. So a copy is that object as it was at the beginning, and all others
that were there then, copied by tasks in any order. The table comes last: until then there is nothing to open.

A lease keeps collections of garbage from deleting what is still to be copied. Other implementations do not
know leases. So before the table is written, all that it needs is looked for in the target: metadata files are
read there, chunk files have to be long enough. What is damaged in the target is copied again, each file once.

What is in the target already, with the same size, is not copied again: a second call brings a copy up to
date, and a copy that was interrupted goes on.
"""

from __future__ import annotations

import pickle
from collections.abc import Buffer, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar, Final

import numpy as np

from frazil.display import Shown, counted
from frazil.errors import ConflictError, ErrorKind, FormatError, StorageError
from frazil.format.keys import CHUNKS, MANIFESTS, OVERWRITTEN, REPO, SNAPSHOTS, TRANSACTIONS
from frazil.format.repo_info import RepoInfo
from frazil.jobs.blocks import groups
from frazil.jobs.engine import Engine, EngineName
from frazil.jobs.engines import engine_of
from frazil.jobs.maintenance_tasks import pieces_run
from frazil.jobs.pickles import dumps
from frazil.jobs.progress import Progress
from frazil.jobs.summary import Summary, with_size
from frazil.jobs.versions import takes_versions
from frazil.maintenance.verification import plan
from frazil.repository.catalog.leases import Lease
from frazil.repository.catalog.repo_info_file import read_repo_info
from frazil.repository.clock import now_us
from frazil.repository.handle.interior import context_of
from frazil.repository.handle.repository import Repository
from frazil.storage.base import IfAbsent, IfVersion, ObjectInfo, Refused, Storage
from frazil.threads import Purpose, thread_pool

#: Folders that a copy has.
_COPIED: Final = (CHUNKS, MANIFESTS, TRANSACTIONS, SNAPSHOTS, OVERWRITTEN)
_PER_TASK: Final = 256_000_000
#: An object costs as much time as so many bytes.
_PER_OBJECT: Final = 100_000
_AT_ONCE: Final = 32_000_000
#: How long a lease holds, and after which time it is renewed, in microseconds.
_LEASE: Final = 24 * 3600 * 1_000_000
_RENEWED: Final = 3600 * 1_000_000


@dataclass(frozen=True, slots=True, repr=False)
class Copied(Summary):
    """What a copy took. ``there`` counts objects that did not have to be copied."""

    objects: int
    bytes: int
    there: int

    shown_as: ClassVar[str] = "pipeline.Copied"

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        yield "copied", with_size(self.objects, "object", self.bytes)
        yield "there before", counted(self.there, "object")


@takes_versions
def copy_repository(
    source: Repository,
    target: Storage,
    *,
    compare: bool = False,
    engine: Engine | EngineName | None = None,
    progress: Progress | None = None,
) -> Copied:
    """Copy a repository to a storage that is empty, or holds an earlier copy of it.

    Branches, tags and history are as they were when it began, whoever commits or collects garbage meanwhile;
    snapshots have the same ids. Virtual chunks still refer to files elsewhere: see `materialize`. Garbage is
    copied too: collect it before. A lease in the source keeps collections from deleting anything meanwhile. A
    copy that was killed leaves the lease, which ends after a day. A source that is read only gets none.

    Objects of the same size in the target are not copied again. Metadata files are read in the target, and
    copied again where they are damaged. ``compare=True`` also reads all other objects that are in both
    places, and copies again what differs.

    Raises ``FormatError`` for a repository of spec version 1 (upgrade it), and for a source that misses files
    or has damaged ones: ``Repository.verify`` names them all. Raises ``ConflictError``
    (``repo-info-updated``) if the target has commits or tags that the source does not have, or changes
    meanwhile. Then the target has no new ``repo``.

    >>> import frazil
    >>> from frazil.spark import Inline, copy_repository
    >>> repo = frazil.Repository.create(frazil.in_memory_storage())
    >>> backup = frazil.in_memory_storage()
    >>> copied = copy_repository(repo, backup, engine=Inline())
    >>> frazil.Repository.open(backup).lookup_branch("main") == repo.lookup_branch("main")
    True
    """
    if source.spec_version < 2:
        raise FormatError(
            "expected a repository of spec version 2, found version 1: upgrade it first",
            ErrorKind.UNSUPPORTED_OPERATION_FOR_VERSION,
        )
    with _leased(source.storage) as renew:
        return _copied(source, target, engine_of(engine), progress, renew, compare=compare)


def _copied(
    source: Repository,
    target: Storage,
    engine: Engine,
    progress: Progress | None,
    renew: Callable[[], None],
    *,
    compare: bool,
) -> Copied:
    origin = source.storage
    info, _, table = read_repo_info(origin)
    condition = _condition(info, target)
    objects = [each for prefix in _COPIED for each in origin.list(prefix)]
    sizes = {each.key: each.size for prefix in _COPIED for each in target.list(prefix)}
    missing = [each for each in objects if compare or sizes.get(each.key) != each.size]
    count = copied = 0
    for number, size in _by_tasks(origin, target, missing, engine, compare=compare):
        count, copied = count + number, copied + size
        renew()
        if progress is not None:
            progress.advance(chunks=number, bytes=size)
    on_target = replace(context_of(source), storage=target)
    run = pieces_run(on_target, engine)
    tried: set[str] = set()
    while findings := plan.stored_findings(on_target, info, run):
        renew()
        keys = {each.key for each in findings} - tried
        again = [each for each in objects if each.key in keys]
        if not again:
            raise FormatError(
                f"the copy in {target.place()} is not complete, and is not published: {findings[0]} "
                f"({len(findings)} findings). Look for damage with `verify` on the source, or copy again if "
                "garbage was collected meanwhile"
            )
        tried |= keys  # a damaged backup hides the ones behind it: there may be another round
        for number, size in _by_tasks(origin, target, again, engine, compare=True):
            count, copied = count + number, copied + size
    if isinstance(target.put(REPO, table, condition), Refused) and bytes(target.get(REPO)) != table:
        raise ConflictError(
            message=f"another writer changed the repository in {target.place()} during the copy: copy again",
            kind=ErrorKind.REPO_INFO_UPDATED,
        )
    return Copied(count, copied, len(objects) - count)


def _condition(info: RepoInfo, target: Storage) -> IfAbsent | IfVersion:
    """For writing ``repo`` to the target; ``ConflictError`` if that has commits or tags of its own."""
    if target.head(REPO) is None:
        return IfAbsent()
    earlier, version, _ = read_repo_info(target)
    tags = info.tags.keys() | info.deleted_tags
    own = [
        f"commits on its branch {name!r}"
        for name, tip in earlier.branches.items()
        if info.snapshots.find_snapshot(tip) < 0
    ]
    own += [f"its tag {name!r}" for name in earlier.tags if name not in tags]
    if own:
        raise ConflictError(
            message=f"expected an earlier copy of the repository in {target.place()}, found {own[0]} that "
            "the source does not have: copy to another place",
            kind=ErrorKind.REPO_INFO_UPDATED,
        )
    return IfVersion(version)


@contextmanager
def _leased(storage: Storage) -> Iterator[Callable[[], None]]:
    """No collection deletes anything meanwhile. Gives what renews the lease, to be called now and then."""
    taken_at = now_us()
    lease: Lease | None = None
    if not storage.is_read_only:
        with suppress(StorageError):  # where nothing can be written, what is missing is noticed in the end
            lease = Lease.take(storage, 0, taken_at + _LEASE, purpose="copy")

    def renew() -> None:
        nonlocal taken_at
        if lease is not None and now_us() > taken_at + _RENEWED:
            taken_at = now_us()
            Lease.take(storage, 0, taken_at + _LEASE, lease.key, "copy")

    try:
        yield renew
    finally:
        if lease is not None:
            lease.give_back(storage)


def _by_tasks(
    source: Storage, target: Storage, objects: Sequence[ObjectInfo], engine: Engine, *, compare: bool
) -> Iterator[tuple[int, int]]:
    """Copy by tasks; how many objects each of them has written, and how many bytes."""
    sizes = np.fromiter((each.size for each in objects), np.int64, len(objects))
    keys = [each.key for each in objects]
    items = [
        dumps((keys[start:stop], sizes[start:stop]))
        for start, stop in pairwise(groups(sizes + _PER_OBJECT, _PER_TASK).tolist())
    ]
    shared = dumps((source, target, compare))
    for result in engine.run(copy_objects, items, shared):
        yield pickle.loads(result)


def copy_objects(shared: bytes, task: bytes) -> bytes:
    """The task: some objects from one storage to another, with ``compare`` only those that differ."""
    source, target, compare = pickle.loads(shared)
    keys, sizes = pickle.loads(task)

    def changed(key: str) -> tuple[str, Buffer] | None:
        data = source.get(key)
        return None if compare and _is_same(target, key, data) else (key, data)

    def one(key: str) -> int | None:
        pair = changed(key)
        if pair is None:
            return None
        target.put(*pair)
        return memoryview(pair[1]).nbytes

    written: list[int] = []
    with thread_pool(Purpose.FILE_COPIES) as threads:
        if not target.is_local:
            written += (size for size in threads.map(one, keys) if size is not None)
        else:
            for start, stop in pairwise(groups(sizes, _AT_ONCE).tolist()):
                pairs = [pair for pair in threads.map(changed, keys[start:stop]) if pair is not None]
                target.put_many(pairs)
                written += (memoryview(data).nbytes for _, data in pairs)
    return pickle.dumps((len(written), sum(written)))


def _is_same(storage: Storage, key: str, data: Buffer) -> bool:
    try:
        return memoryview(storage.get(key)) == memoryview(data)
    except StorageError as error:
        if error.kind != ErrorKind.OBJECT_NOT_FOUND:
            raise
        return False
